//! The terminal, and which process group has it.
//!
//! Who reads from a terminal or changes its settings must be in its foreground group; anybody else is stopped. The command
//! is in a group of its own, so it has to be given the foreground, and it has to be taken back.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, getpgid, getpgrp, getsid};
use rustix::stdio;
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal that controls this process, if there is one.
#[derive(Debug)]
pub(crate) struct Terminal(OwnedFd);

impl Terminal {
    pub(crate) fn open() -> Option<Self> {
        rustix::fs::open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
            .map(Self)
            .ok()
    }

    /// Whether `group` has the foreground.
    pub(crate) fn is_with(&self, group: Pid) -> bool {
        tcgetpgrp(&self.0) == Ok(group)
    }

    /// Gives `group` the foreground. The caller blocks SIGTTOU, or stops.
    pub(crate) fn give_to(&self, group: Pid) {
        // Fails when the group or the terminal has gone, and then nobody needs it.
        let _ = tcsetpgrp(&self.0, group);
    }
}

/// Whether a person sits before this process: it reads from a terminal and writes to one.
///
/// A command that does both gets the foreground from the start. One whose output goes through a pipe shares the terminal
/// with the rest of the pipeline (`| less`), so it gets it when it first asks.
pub(crate) fn is_interactive() -> bool {
    isatty(stdio::stdin()) && isatty(stdio::stdout())
}

/// Whether this process stands in the foreground of a terminal, so that a Ctrl-C there reaches its group.
pub(crate) fn we_have_it() -> bool {
    Terminal::open().is_some_and(|terminal| terminal.is_with(getpgrp()))
}

/// Whether a shell would go on with this process if it stopped: the leader of its session is alive and in another group.
/// A process group without such a parent is an orphan, and the system does not stop orphans for Ctrl-Z either.
pub(crate) fn somebody_would_continue_us() -> bool {
    let shell = getsid(None).and_then(|leader| getpgid(Some(leader)));
    shell.is_ok_and(|group| group != getpgrp())
}
