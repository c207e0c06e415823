#![doc = include_str!("../README.md")]
#![cfg_attr(not(unix), expect(dead_code, reason = "what only `run` needs, which needs process groups"))]

mod args;
mod exit;
#[cfg(unix)]
mod group;
mod init;
#[cfg(unix)]
mod message;
mod print;
#[cfg(unix)]
mod run;
mod show;
#[cfg(unix)]
mod signals;
mod stores;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod watch;
#[cfg(unix)]
mod watcher;

use std::process::ExitCode;

use crate::args::{Arguments, Task};
use crate::exit::Failure;

fn main() -> ExitCode {
    #[cfg(unix)]
    if watch::is_asked_for() {
        return watch::watch();
    }
    let arguments = Arguments::take();
    listen_to_events();
    let code = match arguments.task {
        Task::Run(task) => run(&arguments.store, task),
        Task::Show(task) => in_runtime(show::show(&arguments.store, &task)),
        Task::Init => in_runtime(init::init(&arguments.store)),
    };
    ExitCode::from(code.unwrap_or_else(|failure| {
        print::complain(&failure);
        failure.code()
    }))
}

#[cfg(unix)]
fn run(store: &stores::Place, task: args::Run) -> Result<u8, Failure> {
    let ended = in_runtime(run::run(store, task))?;
    Ok(ended.finish())
}

#[cfg(not(unix))]
fn run(_: &stores::Place, _: args::Run) -> Result<u8, Failure> {
    Err(Failure::new(
        exit::MISCONFIGURED,
        "`leasehold run` needs process groups, which this platform does not have: it runs on Linux and macOS; elsewhere use the library",
    ))
}

/// One thread for everything: the keeper's renewals, the waiting, the signals. Stores that block bring their own.
fn in_runtime<T>(task: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::new(exit::INTERNAL, "the system gave no means to wait for events; look at its limits")
            .because(&error)
    })?;
    runtime.block_on(task)
}

/// Events of the library go to stderr when `LEASEHOLD_LOG` says which, for example `debug` or `leasehold=trace`.
fn listen_to_events() {
    if let Ok(filter) = std::env::var("LEASEHOLD_LOG") {
        let filter = tracing_subscriber::EnvFilter::new(filter);
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}
