//! The command line and the `LEASEHOLD_…` variables.

use std::ffi::OsString;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use leasehold::{Holder, LeaseKey};

use crate::stores::Place;

const EXIT_CODES: &str = "\
Exit codes of `run`:
  0-255  the command's own
  2      the command line makes no sense, or the store does not take the ttl
  69     the store was not reached
  70     something of leasehold's own broke
  75     somebody else holds the lease (--no-wait), or the wait is over (--wait)
  76     the lease was lost, or --max-hold was over, and the command was stopped
  78     something must be set up first: the store's URL, its rights, its data
  126    the command was found and cannot be executed
  127    the command was not found
  128+n  signal n ended the command, or leasehold while it waited";

/// What was asked for.
pub(crate) struct Arguments {
    pub(crate) store: Place,
    pub(crate) task: Task,
}

pub(crate) enum Task {
    Run(Run),
    Show(Show),
    Init,
}

/// Runs a command under a lease that the command cannot outlive
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = EXIT_CODES, max_term_width = 100)]
struct CommandLine {
    /// Where the leases are: sqlite:PATH, dynamodb://TABLE. Default: leases.db in the user's state directory
    #[arg(long, global = true, value_name = "URL", env = "LEASEHOLD_STORE", hide_env_values = true)]
    store: Option<String>,
    #[command(subcommand)]
    task: Choice,
}

#[derive(Debug, Subcommand)]
enum Choice {
    Run(RunLine),
    Show(Show),
    /// Makes the store, or looks whether it is there and can be used
    ///
    /// Not needed with the default store: `run` makes it. May be repeated.
    Init,
}

/// Takes the lease of KEY, runs CMD, and gives the lease back when CMD and all its group have ended
///
/// CMD finds LEASEHOLD_KEY and LEASEHOLD_TOKEN in its environment, and with --max-hold LEASEHOLD_UNTIL (Unix time in ms).
/// Give the token to what the lease protects, with every write, and let it turn lower ones away.
///
/// If the lease is lost, CMD and its process group get TERM before the lease ends and KILL when it ends, whatever has
/// become of leasehold itself.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
struct RunLine {
    /// How long the lease lasts unless it is renewed; renewed every third of it. A crashed machine's key is free after it
    #[arg(long, value_name = "DURATION", default_value = "30s", env = "LEASEHOLD_TTL", hide_env_values = true, value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Wait at most this long for the lease. Default: without limit
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_WAIT", hide_env_values = true, value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// Do not wait: say who holds the lease and exit with 75
    #[arg(long, env = "LEASEHOLD_NO_WAIT", hide_env_values = true, action = ArgAction::SetTrue, value_parser = clap::builder::BoolishValueParser::new())]
    no_wait: bool,
    /// The label that others see as the holder. Default: host:pid
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_HOLDER", hide_env_values = true)]
    holder: Option<Holder>,
    /// Stop CMD after this time even if all is well: a bound on work that hangs
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_MAX_HOLD", hide_env_values = true, value_parser = humantime::parse_duration)]
    max_hold: Option<Duration>,
    /// What the lease is on: 1 to 512 bytes of UTF-8
    key: LeaseKey,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What `run` is to do.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) key: LeaseKey,
    pub(crate) ttl: Duration,
    pub(crate) patience: Patience,
    pub(crate) holder: Option<Holder>,
    pub(crate) max_hold: Option<Duration>,
    /// Not empty.
    pub(crate) command: Vec<OsString>,
}

/// How long to wait for somebody else's lease to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Within(Duration),
    Unlimited,
}

/// Shows who holds KEY, since when, with which token and until when
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// What the lease is on
    pub(crate) key: LeaseKey,
}

impl Arguments {
    /// Reads them, or says what is wrong with them and exits.
    pub(crate) fn take() -> Self {
        let matches = CommandLine::command().get_matches();
        Self::from_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    fn from_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let line = CommandLine::from_arg_matches(matches)?;
        let task = match line.task {
            Choice::Run(run) => {
                let patience = matches
                    .subcommand_matches("run")
                    .map_or(Ok(Patience::Unlimited), |matches| patience(run.wait, run.no_wait, matches))?;
                let RunLine { ttl, holder, max_hold, key, command, .. } = run;
                Task::Run(Run { key, ttl, patience, holder, max_hold, command })
            }
            Choice::Show(show) => Task::Show(show),
            Choice::Init => Task::Init,
        };
        Ok(Self { store: Place::new(line.store), task })
    }
}

/// `--wait` and `--no-wait` exclude each other; what stands on the command line beats what stands in the environment.
fn patience(wait: Option<Duration>, no_wait: bool, matches: &ArgMatches) -> Result<Patience, clap::Error> {
    let patience = |limit: Duration| if limit.is_zero() { Patience::None } else { Patience::Within(limit) };
    match (wait, no_wait) {
        (None, false) => Ok(Patience::Unlimited),
        (None, true) => Ok(Patience::None),
        (Some(limit), false) => Ok(patience(limit)),
        (Some(limit), true) => {
            let typed = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
            match (typed("wait"), typed("no_wait")) {
                (true, false) => Ok(patience(limit)),
                (false, true) => Ok(Patience::None),
                _ => Err(CommandLine::command().error(
                    clap::error::ErrorKind::ArgumentConflict,
                    "--wait (LEASEHOLD_WAIT) and --no-wait (LEASEHOLD_NO_WAIT) exclude each other: give one of them",
                )),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<Run, clap::Error> {
        let matches = CommandLine::command().try_get_matches_from([&["leasehold", "run"], words].concat())?;
        match Arguments::from_matches(&matches)?.task {
            Task::Run(run) => Ok(run),
            _ => panic!("not a run"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn durations_are_written_as_people_write_them() {
        let run = run(&["--ttl", "1m 30s", "--wait", "500ms", "k", "--", "true"]).unwrap();
        assert_eq!(
            (run.ttl, run.patience),
            (Duration::from_secs(90), Patience::Within(Duration::from_millis(500)))
        );
    }

    #[test]
    fn no_time_to_wait_is_not_waiting() {
        assert_eq!(run(&["--wait", "0s", "k", "--", "true"]).unwrap().patience, Patience::None);
        assert_eq!(run(&["--no-wait", "k", "--", "true"]).unwrap().patience, Patience::None);
        assert_eq!(run(&["k", "--", "true"]).unwrap().patience, Patience::Unlimited);
        assert!(run(&["--no-wait", "--wait", "1s", "k", "--", "true"]).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let long = "k".repeat(513);
        for words in [
            &["", "--", "true"][..],
            &[&long, "--", "true"],
            &["k"],
            &["k", "--"],
            &["k", "true"],
            &["--ttl", "soon", "k", "--", "true"],
            &["--ttl", "99999999999999999999s", "k", "--", "true"],
            &["--holder", "", "k", "--", "true"],
            &["--holder", "two\nlines", "k", "--", "true"],
        ] {
            assert_eq!(run(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        let run = run(&["k", "--", "sh", "-c", "exit 3", "--", "--ttl"]).unwrap();
        assert_eq!(run.command, ["sh", "-c", "exit 3", "--", "--ttl"]);
    }
}
