//! `leasehold`'s end of the line to its watcher.

use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Pair;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::message::{Inbox, Start, ToMain, ToWatcher, line};
use crate::watch::SUBCOMMAND;

/// How the watcher calls itself. Not `leasehold`, so that a `pkill leasehold` leaves somebody to clear up after it.
const NAME: &str = "lh-watch";

/// A watcher that does not read (somebody has stopped it) is told no more than this.
const BACKLOG: usize = 64 * 1024;

/// A watcher that has been started.
#[derive(Debug)]
pub(crate) struct Watcher {
    socket: UnixStream,
    inbox: Inbox,
    /// What the socket has not taken yet.
    unsent: Vec<u8>,
    process: Child,
}

impl Watcher {
    /// Starts a watcher and tells it what to do. Our stdin becomes the command's.
    pub(crate) fn start(start: Start) -> std::io::Result<Self> {
        let (ours, theirs) = Pair::pair()?;
        let process = Command::new(this_program()?)
            .arg0(NAME)
            .arg(SUBCOMMAND)
            // Out of reach of what is sent to our own group: Ctrl-C, `kill -9 %1`, `timeout -s KILL`.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        send_stdin(&ours)?;
        ours.set_nonblocking(true)?;
        let socket = UnixStream::from_std(ours)?;
        let mut watcher = Self { socket, inbox: Inbox::default(), unsent: Vec::new(), process };
        watcher.unsent = line(&ToWatcher::Start(start));
        watcher.send_what_it_takes();
        Ok(watcher)
    }

    /// Tells it something. Does not wait.
    pub(crate) fn tell(&mut self, message: &ToWatcher) {
        if self.unsent.len() < BACKLOG {
            self.unsent.extend(line(message));
        }
        self.send_what_it_takes();
    }

    /// What it says next; nothing when it has gone, or says what no watcher says. Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<ToMain> {
        loop {
            if let Some(message) = self.inbox.next() {
                return message.ok();
            }
            let writing = if self.unsent.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let ready = self.socket.ready(writing).await.ok()?;
            if ready.is_writable() {
                self.send_what_it_takes();
            }
            let mut bytes = [0; 1024];
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(length) => self.inbox.push(&bytes[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return None,
            }
        }
    }

    /// Ends it. What it watched becomes ours.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Leaves it alone: it ends by itself.
    pub(crate) fn leave(mut self) {
        drop(self.socket);
        let _ = self.process.try_wait();
    }

    fn send_what_it_takes(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.try_write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // It has gone. What it had to say last can still be read.
                Err(_) => self.unsent.clear(),
            }
        }
    }
}

/// What to execute to start ourselves anew.
fn this_program() -> std::io::Result<PathBuf> {
    // Is what runs now, also when the file has been replaced or deleted since.
    let running = PathBuf::from("/proc/self/exe");
    if cfg!(any(target_os = "linux", target_os = "android")) && running.exists() {
        return Ok(running);
    }
    std::env::current_exe()
}

/// Sends our stdin along with one byte.
fn send_stdin(socket: &Pair) -> std::io::Result<()> {
    let stdin = [rustix::stdio::stdin()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // There is room for one.
    control.push(SendAncillaryMessage::ScmRights(&stdin));
    sendmsg(socket.as_fd(), &[IoSlice::new(b"i")], &mut control, SendFlags::empty())?;
    Ok(())
}
