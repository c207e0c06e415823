//! The command's process group.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// A process group that the watcher has made for the command; named by the command's own process id.
///
/// The id stays the group's as long as anything of the group is there, be it a command that has ended and has not been
/// waited for. Whoever has seen the group empty must not signal it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(Pid);

impl Group {
    pub(crate) fn from_raw(id: i32) -> Option<Self> {
        // 1 is no group of ours, and minus 1 would be everybody.
        Pid::from_raw(id).filter(|pid| pid.as_raw_pid() > 1).map(Self)
    }

    pub(crate) const fn id(self) -> Pid {
        self.0
    }

    pub(crate) const fn leader(self) -> Pid {
        self.0
    }

    /// Signals everybody in it. That nobody is left, or that somebody has changed to another user and may not be signalled,
    /// is found out by [`is_empty`](Self::is_empty).
    pub(crate) fn signal(self, signal: Signal) {
        let _ = kill_process_group(self.0, signal);
    }

    /// Asks everybody to stop, those too who are stopped.
    pub(crate) fn ask_to_stop(self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Whether nothing of it is left. A process that may not be signalled is something.
    pub(crate) fn is_empty(self) -> bool {
        test_kill_process_group(self.0) == Err(Errno::SRCH)
    }
}

/// From now on, descendants of ours whose parents have died become our children, instead of those of an init that may be
/// missing or slow: a group that nobody waits for never gets empty. Linux only; elsewhere init does what it can.
pub(crate) fn adopt_orphans() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}
