//! `leasehold run`: takes the lease, has the command run under the watcher, gives the lease back.

use std::io::IsTerminal as _;
use std::time::Duration;

use leasehold::{
    AcquireError, Clock as _, Contention, Lease, LeaseOptions, LeaseState, Leases, LostReason, Reading,
    SystemClock, TryAcquire,
};
use rustix::process::{Signal, WaitOptions, getpgrp, getpid, kill_current_process_group, kill_process, wait};

use crate::args::{Patience, Run};
use crate::exit::{self, Failure};
use crate::group::{Group, adopt_orphans};
use crate::message::{Ending, Exited, NotStarted, Start, ToMain, ToWatcher};
use crate::print::{self, held_by, show_command};
use crate::signals::{self, Signals};
use crate::stores::Place;
use crate::terminal;
use crate::watcher::Watcher;

/// Two signals within this time are one: `timeout` sends to its child and to the child's group, one right after the other.
const SAME_SIGNAL: Duration = Duration::from_millis(50);
/// A job that the terminal wants stopped, and that nobody would continue, goes on after this time.
const UNSTOPPABLE: Duration = Duration::from_secs(1);
/// How long after the loss the watcher has to tell that the command has ended, beyond the grace.
const WATCHER_PATIENCE: Duration = Duration::from_secs(2);
/// How long it then has for what is left of the group.
const DYING: Duration = Duration::from_secs(10);
/// How long what we have killed ourselves has to be gone.
const KILLED: Duration = Duration::from_secs(1);
/// How long a release goes on whatever comes: the signal that has just ended the command is not meant for it.
const RELEASE: Duration = Duration::from_secs(1);
/// How long a grant that may be on its way is waited for when the waiting is broken off.
const GIVE_BACK: Duration = Duration::from_secs(1);

/// How `run` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Code(u8),
    /// As one whom Ctrl-C has ended, so that a script or a loop in a shell ends too.
    Interrupted {
        /// The command had the terminal, so the rest of the job has not seen the Ctrl-C.
        job_unaware: bool,
    },
}

impl Finish {
    /// The exit code; does not return from a Ctrl-C.
    pub(crate) fn finish(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Interrupted { job_unaware } => {
                if job_unaware {
                    let _ = kill_current_process_group(Signal::INT);
                }
                let _ = signal_hook::low_level::emulate_default_handler(Signal::INT.as_raw());
                exit::of_signal(Signal::INT.as_raw())
            }
        }
    }

    /// A signal has ended it. A shell asks how a program ended to know whether Ctrl-C was meant for it too; 130 as an exit
    /// code says no. So on a terminal a Ctrl-C is passed on as what it was. `$?` is 130 either way.
    fn of_signal(signal: i32, in_foreground: bool) -> Self {
        if signal == Signal::INT.as_raw() && terminal::we_have_it() {
            return Self::Interrupted { job_unaware: in_foreground };
        }
        Self::Code(exit::of_signal(signal))
    }
}

/// Runs the command under the lease.
pub(crate) async fn run(place: &Place, task: Run) -> Result<Finish, Failure> {
    let mut ending = listen(&signals::ENDING)?;
    let options = options(&task)?;
    let leases = tokio::select! {
        biased;
        signal = ending.next() => return Ok(Finish::of_signal(signal.as_raw(), false)),
        store = place.open() => Leases::new(store?, options)?,
    };
    let lease = tokio::select! {
        biased;
        signal = ending.next() => {
            // What may have been granted meanwhile is given back.
            let _ = leases.shutdown(GIVE_BACK).await;
            return Ok(Finish::of_signal(signal.as_raw(), false));
        }
        lease = acquire(place, &leases, &task) => lease?,
    };
    let job_control = listen(if terminal::Terminal::open().is_some() { &signals::JOB_CONTROL } else { &[] });
    let begun = job_control.and_then(|heard| Ok((heard, start_watcher(&task, &lease)?)));
    match begun {
        Ok((job_control, watcher)) => Hold::new(&task, lease, watcher, ending, job_control).run().await,
        Err(failure) => {
            if let Err(error) = lease.release().await {
                print::note(error);
            }
            Err(failure)
        }
    }
}

fn listen(to: &[Signal]) -> Result<Signals, Failure> {
    Signals::listen(to).map_err(|error| {
        Failure::new(exit::INTERNAL, "the system did not let us listen to signals; look at its limits")
            .because(&error)
    })
}

fn options(task: &Run) -> Result<LeaseOptions, Failure> {
    let mut options = LeaseOptions::builder().ttl(task.ttl);
    if let Some(holder) = &task.holder {
        options = options.holder(holder.clone());
    }
    if let Some(max_hold) = task.max_hold {
        options = options.max_hold(max_hold);
    }
    Ok(options.build()?)
}

/// How long before the deadline the command is asked to stop. It must not take up a short `--max-hold` as a whole.
fn grace(task: &Run) -> Duration {
    let of_ttl = leasehold::grace(task.ttl);
    task.max_hold.map_or(of_ttl, |max_hold| of_ttl.min(leasehold::grace(max_hold)).min(max_hold / 2))
}

async fn acquire(place: &Place, leases: &Leases, task: &Run) -> Result<Lease, Failure> {
    let began = SystemClock.read();
    let contention = match leases.try_acquire(&task.key).await? {
        TryAcquire::Acquired(lease) => return Ok(lease),
        TryAcquire::Held(contention) => contention,
    };
    if task.patience == Patience::None {
        return Err(held(place, task, &contention, ""));
    }
    if std::io::stderr().is_terminal() {
        print::note(format_args!("waiting for `{}`, {}", task.key, held_by(&contention.held)));
    }
    match task.patience {
        Patience::Within(limit) => {
            let left = limit.saturating_sub(SystemClock.read().elapsed_since(&began));
            match leases.acquire_within(&task.key, left).await {
                Ok(lease) => Ok(lease),
                Err(AcquireError::TimedOut { contention: seen, last_error: None }) => {
                    let waited = format!("waited {}, and ", humantime::format_duration(limit));
                    Err(held(place, task, &seen.unwrap_or(contention), &waited))
                }
                Err(error) => Err(error.into()),
            }
        }
        Patience::None | Patience::Unlimited => Ok(leases.acquire(&task.key).await?),
    }
}

fn held(place: &Place, task: &Run, contention: &Contention, waited: &str) -> Failure {
    let (key, held, show) = (&task.key, held_by(&contention.held), show_command(place.url(), &task.key));
    Failure::new(exit::HELD, format!("{waited}`{key}` is {held}; look again with `{show}`"))
}

/// Starts the watcher and has it start the command.
fn start_watcher(task: &Run, lease: &Lease) -> Result<Watcher, Failure> {
    let until = task
        .max_hold
        .map(|max_hold| Reading { wall: lease.granted().wall.saturating_add(max_hold), ..lease.granted() });
    let start = Start {
        command: task.command.clone(),
        environment: vec![
            (String::from("LEASEHOLD_KEY"), Some(task.key.as_str().to_owned())),
            (String::from("LEASEHOLD_TOKEN"), Some(lease.token().to_string())),
            // An outer run's is not ours.
            (String::from("LEASEHOLD_UNTIL"), until.map(|until| until.unix_ms().to_string())),
        ],
        deadline: lease.status().deadline,
        grace: grace(task),
        job: getpgrp().as_raw_pid(),
        interactive: terminal::is_interactive(),
    };
    adopt_orphans();
    Watcher::start(start).map_err(|error| {
        Failure::new(exit::INTERNAL, "the watcher could not be started; look at the system's limits")
            .because(&error)
    })
}

/// A lease that is held, and the command that runs under it.
struct Hold<'a> {
    task: &'a Run,
    lease: Lease,
    watcher: Watcher,
    ending: Signals,
    /// Heard where there is a terminal. Otherwise a TSTP does to us what it does to any program.
    job_control: Signals,
    phase: Phase,
    loss: Option<LostReason>,
    warned: bool,
    insistence: Insistence,
    /// The next TSTP is the one that we have sent to our job.
    own_stop: bool,
}

/// Who sends INT or TERM a second time does not want to wait any longer.
#[derive(Debug, Default)]
struct Insistence {
    /// When INT or TERM came first.
    first: Option<Reading>,
}

impl Insistence {
    /// What the command gets for a signal that has come at `now`.
    fn passes_on(&mut self, signal: Signal, now: &Reading) -> Signal {
        if signal != Signal::INT && signal != Signal::TERM {
            return signal;
        }
        match &self.first {
            Some(first) if now.elapsed_since(first) > SAME_SIGNAL => Signal::KILL,
            Some(_) => signal,
            None => {
                self.first = Some(*now);
                signal
            }
        }
    }
}

/// How far the command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Running(Group),
    /// What is left of its group is the watcher's: its number may soon be somebody else's.
    Ended,
}

/// How the command came to its end.
enum Outcome {
    Exited(Exited),
    NotStarted(NotStarted),
    /// The watcher has gone without a word.
    Unwatched,
    /// The watcher does not do what it is for.
    Unanswered,
}

impl<'a> Hold<'a> {
    fn new(task: &'a Run, lease: Lease, watcher: Watcher, ending: Signals, job_control: Signals) -> Self {
        Self {
            task,
            lease,
            watcher,
            ending,
            job_control,
            phase: Phase::Starting,
            loss: None,
            warned: false,
            insistence: Insistence::default(),
            own_stop: false,
        }
    }

    async fn run(mut self) -> Result<Finish, Failure> {
        let outcome = self.attend().await;
        self.finish(outcome).await
    }

    /// Hands on what has to be handed on, until the command has ended.
    async fn attend(&mut self) -> Outcome {
        let mut statuses = self.lease.subscribe();
        let mut overdue = None;
        let mut patient = false;
        let mut unstopped = None;
        loop {
            tokio::select! {
                biased;
                message = self.watcher.next() => match message {
                    Some(ToMain::Started { group }) => {
                        self.phase = Group::from_raw(group).map_or(self.phase, Phase::Running);
                    }
                    Some(ToMain::NotStarted(why)) => return Outcome::NotStarted(why),
                    Some(ToMain::Stopped) => {
                        if !self.suspend() {
                            unstopped = Some(SystemClock.sleep(UNSTOPPABLE));
                        }
                    }
                    Some(ToMain::Ended) => self.phase = Phase::Ended,
                    Some(ToMain::Exited(exited)) => return Outcome::Exited(exited),
                    None => return Outcome::Unwatched,
                },
                signal = self.ending.next() => self.forward(signal),
                signal = self.job_control.next() => self.control(signal),
                reason = self.lease.lost(), if self.loss.is_none() => {
                    self.loss = Some(reason);
                    self.watcher.tell(&ToWatcher::Lost);
                    overdue = Some(SystemClock.sleep(grace(self.task) + WATCHER_PATIENCE));
                }
                Some(status) = statuses.next() => self.heed(&status),
                () = async { if let Some(sleep) = &mut unstopped { sleep.await } }, if unstopped.is_some() => {
                    unstopped = None;
                    self.watcher.tell(&ToWatcher::Resume);
                }
                () = async { if let Some(sleep) = &mut overdue { sleep.await } }, if overdue.is_some() => {
                    match self.phase {
                        // When it goes on, it finds that the deadline has passed, and us gone.
                        Phase::Starting => return Outcome::NotStarted(NotStarted::TooLate),
                        // What is left of the group may take its time to die.
                        Phase::Ended if !patient => {
                            patient = true;
                            overdue = Some(SystemClock.sleep(DYING));
                        }
                        Phase::Running(_) | Phase::Ended => return Outcome::Unanswered,
                    }
                }
            }
        }
    }

    /// A renewal, or a lack of renewals.
    fn heed(&mut self, status: &leasehold::LeaseStatus) {
        match &status.state {
            LeaseState::Held => {
                self.warned = false;
                self.watcher.tell(&ToWatcher::Deadline(status.deadline));
            }
            LeaseState::AtRisk if !self.warned => {
                self.warned = true;
                let left = self.lease.remaining().saturating_sub(grace(self.task));
                let error = status.last_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
                print::note(format_args!(
                    "the lease of `{}` is at risk: it has not been renewed for long, and the command is stopped in {:.1} s unless it is renewed{error}",
                    self.task.key,
                    left.as_secs_f64()
                ));
            }
            _ => {}
        }
    }

    /// INT, TERM, HUP and QUIT are the command's to heed.
    fn forward(&mut self, signal: Signal) {
        let signal = self.insistence.passes_on(signal, &SystemClock.read());
        self.watcher.tell(&ToWatcher::Signal(signal.as_raw()));
    }

    fn control(&mut self, signal: Signal) {
        if signal == Signal::CONT {
            self.watcher.tell(&ToWatcher::Resume);
        } else if self.own_stop {
            self.own_stop = false;
        } else {
            // If it stops the command, we hear of it and stop too.
            self.watcher.tell(&ToWatcher::Signal(signal.as_raw()));
        }
    }

    /// Stops with the command, and with us the job that we belong to, as a Ctrl-Z would have without us. False if we must
    /// not, since nobody would continue us.
    fn suspend(&mut self) -> bool {
        if !terminal::somebody_would_continue_us() {
            return false;
        }
        self.own_stop = true;
        let _ = kill_current_process_group(Signal::TSTP);
        kill_process(getpid(), Signal::STOP).is_ok()
    }

    /// Says how it went and ends the lease. The command has ended.
    async fn finish(mut self, outcome: Outcome) -> Result<Finish, Failure> {
        let key = &self.task.key;
        let mut survivors = false;
        let finish = match outcome {
            Outcome::Exited(exited) => {
                survivors = exited.survivors;
                if exited.enforced {
                    Err(self.lost("the command was stopped"))
                } else {
                    Ok(match exited.how {
                        Ending::Code(code) => {
                            Finish::Code(u8::try_from(code & 0xff).unwrap_or(exit::INTERNAL))
                        }
                        Ending::Signal(signal) => Finish::of_signal(signal, exited.in_foreground),
                    })
                }
            }
            Outcome::NotStarted(why) => Err(self.not_started(&why)),
            Outcome::Unanswered => {
                self.watcher.kill();
                survivors = !self.kill().await;
                Err(self
                    .lost("the command was killed (its watcher does not answer: has somebody stopped it?)"))
            }
            Outcome::Unwatched => {
                survivors = !self.kill().await;
                let line =
                    format!("the watcher of `{key}` has ended before the command, so the command was killed");
                Err(Failure::new(exit::INTERNAL, line))
            }
        };
        if survivors {
            // Others keep away from it for another ttl, which is better than not at all.
            print::note(format_args!(
                "something that the command has started cannot be killed, so `{key}` is not released and expires by itself: look for processes of another user, or ones that hang in the kernel"
            ));
            self.lease.abandon();
            self.watcher.leave();
            return finish;
        }
        let released = tokio::select! {
            biased;
            released = self.lease.release() => released.map(drop).map_err(|error| error.to_string()),
            () = async {
                SystemClock.sleep(RELEASE).await;
                self.ending.next().await;
            } => Err(String::from("the release was interrupted")),
        };
        if let Err(error) = released {
            print::note(format_args!("`{key}` may not have been released; it expires by itself: {error}"));
        }
        self.watcher.leave();
        finish
    }

    fn not_started(&self, why: &NotStarted) -> Failure {
        let program = self.task.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
        match why {
            NotStarted::NotFound => Failure::new(
                exit::NOT_FOUND,
                format!("`{program}` was not found: give its path, or put its folder into PATH"),
            ),
            NotStarted::NotExecutable(error) => Failure::new(
                exit::NOT_EXECUTABLE,
                format!(
                    "`{program}` cannot be executed; look at its permissions and its first line: {error}"
                ),
            ),
            NotStarted::TooLate => self.lost("the command was not started"),
        }
    }

    fn lost(&self, consequence: &str) -> Failure {
        let (key, token) = (&self.task.key, self.lease.token());
        let reason = match (self.lease.status().state, self.task.max_hold) {
            (LeaseState::Lost(reason), _) => reason.to_string(),
            (_, Some(max_hold)) if self.held_for() + grace(self.task) >= max_hold => {
                LostReason::MaxHold.to_string()
            }
            _ => String::from("it was not renewed in time"),
        };
        Failure::new(exit::LOST, format!("lost `{key}` (token {token}), {consequence}: {reason}"))
    }

    fn held_for(&self) -> Duration {
        SystemClock.read().elapsed_since(&self.lease.granted())
    }

    /// Kills the group ourselves. Says whether it is gone.
    async fn kill(&mut self) -> bool {
        let Phase::Running(group) = self.phase else { return true };
        let began = SystemClock.read();
        loop {
            group.kill();
            // Without their watcher they are ours to wait for.
            while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
            if group.is_empty() {
                return true;
            }
            if SystemClock.read().elapsed_since(&began) >= KILLED {
                return false;
            }
            SystemClock.sleep(Duration::from_millis(5)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_int_or_term_kills_unless_it_is_the_first_once_more() {
        let at = |ms| Reading { monotonic: Duration::from_millis(ms), ..Reading::default() };
        let mut insistence = Insistence::default();
        let mut heard = |signal, ms| insistence.passes_on(signal, &at(ms));
        assert!(heard(Signal::HUP, 0) == Signal::HUP && heard(Signal::QUIT, 500) == Signal::QUIT);
        assert!(heard(Signal::TERM, 1_000) == Signal::TERM && heard(Signal::TERM, 1_001) == Signal::TERM);
        assert!(heard(Signal::HUP, 2_000) == Signal::HUP);
        assert!(heard(Signal::INT, 2_000) == Signal::KILL && heard(Signal::TERM, 2_001) == Signal::KILL);
    }

    #[test]
    fn a_short_max_hold_is_not_all_grace() {
        let of = |max_hold: Option<u64>| {
            let key = leasehold::LeaseKey::new("k").unwrap();
            let max_hold = max_hold.map(Duration::from_millis);
            let (ttl, patience) = (Duration::from_secs(30), Patience::None);
            grace(&Run { key, ttl, patience, holder: None, max_hold, command: Vec::new() }).as_millis()
        };
        assert_eq!((of(None), of(Some(3_600_000))), (5_000, 5_000));
        assert_eq!((of(Some(12_000)), of(Some(1_500)), of(Some(600))), (2_000, 500, 300));
    }
}
