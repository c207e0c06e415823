//! A store of one's own, processes that do not outlive their test, and waiting with a bound.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// How long anything may take that should happen at once. Long, for a machine with much else to do.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A folder with a store.
#[derive(Debug)]
pub(crate) struct Scene {
    folder: TempDir,
    /// Another store than the file in the folder.
    elsewhere: Option<String>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap(), elsewhere: None }
    }

    #[cfg(feature = "aws")]
    pub(crate) fn with_store(url: String) -> Self {
        Self { elsewhere: Some(url), ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("leases.db")
    }

    /// `leasehold` with these arguments on this store, and with nothing of the environment that would change what it does.
    pub(crate) fn leasehold(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        self.dress(&mut command);
        // In the background of whatever terminal the tests are run on.
        command.args(arguments).process_group(0);
        command
    }

    pub(crate) fn dress(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        let file = || format!("sqlite:{}", self.store().display());
        command.env("LEASEHOLD_STORE", self.elsewhere.clone().unwrap_or_else(file));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
    }

    /// `leasehold run ARGUMENTS -- sh -c SCRIPT`.
    pub(crate) fn run_sh(&self, arguments: &[&str], script: &str) -> Command {
        self.leasehold([&["run"], arguments, &["--", "sh", "-c", script]].concat())
    }

    pub(crate) fn start(&self, arguments: &[&str], script: &str) -> Running {
        Running::new(self.run_sh(arguments, script).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// What a script has written into `name`, without the last newline; nothing before it has written a whole line.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(name)).ok()?;
        Some(text.strip_suffix('\n')?.to_owned())
    }

    pub(crate) fn await_file(&self, name: &str) -> String {
        wait_for(SOON, name, || self.read(name))
    }

    pub(crate) fn await_pid(&self, name: &str) -> Pid {
        Pid::from_raw(self.await_file(name).trim().parse().unwrap()).unwrap()
    }
}

/// A process that is ended with its test.
#[derive(Debug)]
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn new(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Waits for its end and returns it with what it has written.
    pub(crate) fn end(mut self) -> Output {
        wait_for(SOON, "the end of leasehold", || self.has_ended().then_some(()));
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // The watcher clears up after it.
            let _ = child.kill();
            let _ = kill_process(Pid::from_child(child), Signal::CONT);
            let _ = child.wait();
        }
    }
}

/// Runs it to its end.
pub(crate) fn end_of(command: &mut Command) -> Output {
    Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped())).end()
}

pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| panic!("ended by signal {:?}", status.signal()))
}

/// Its exit code and its one line on stderr. A shell under it may say `Terminated`, and nobody anything else.
pub(crate) fn complaint(output: &Output) -> (i32, String) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(text.ends_with('\n'), "no whole line: {text:?}");
    let lines: Vec<&str> = text.lines().filter(|line| *line != "Terminated").collect();
    let [line] = lines[..] else { panic!("not one line: {text}") };
    assert!(line.starts_with("leasehold: ") && !line.contains("panicked"), "{text}");
    (code(output.status), line.to_owned())
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Whether the process does anything: one that has ended and has not been waited for does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    if test_kill_process(pid).is_err() {
        return false;
    }
    if cfg!(not(target_os = "linux")) {
        return true;
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

/// Asks until there is an answer, and panics when there is none within `limit`.
pub(crate) fn wait_for<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        pause(Duration::from_millis(5));
    }
}

#[expect(clippy::disallowed_methods, reason = "real processes take real time")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[expect(clippy::disallowed_methods, reason = "real processes take real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
