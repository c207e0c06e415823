//! What `leasehold` and its watcher say to each other: JSON, one message a line, over a socket pair.

use std::ffi::OsString;
use std::time::Duration;

use leasehold::{Deadline, Reading};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// From `leasehold` to its watcher.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum ToWatcher {
    /// Start the command. The first message, and sent once.
    Start(Start),
    /// The lease has been renewed.
    #[serde(with = "DeadlineParts")]
    Deadline(Deadline),
    /// The lease is lost: ask the command to stop, and see that it does.
    Lost,
    /// Signal the group.
    Signal(i32),
    /// The job goes on after a stop.
    Resume,
}

/// From the watcher to `leasehold`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum ToMain {
    /// The command runs, in the process group of this number.
    Started { group: i32 },
    /// It does not, and will not.
    NotStarted(NotStarted),
    /// The terminal has stopped the command (Ctrl-Z).
    Stopped,
    /// The command has ended. From here on the watcher alone may signal what is left of its group.
    Ended,
    /// Command and group have ended. The last message.
    Exited(Exited),
}

/// How to start the command.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Start {
    /// The command and its arguments; not empty.
    pub(crate) command: Vec<OsString>,
    /// Variables to set, and with nothing, to take away.
    pub(crate) environment: Vec<(String, Option<String>)>,
    #[serde(with = "DeadlineParts")]
    pub(crate) deadline: Deadline,
    /// How long before the deadline the command is asked to stop.
    pub(crate) grace: Duration,
    /// The process group of `leasehold`: the job, as a shell sees it.
    pub(crate) job: i32,
    /// Whether the command gets the terminal from the start.
    pub(crate) interactive: bool,
}

#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum NotStarted {
    NotFound,
    NotExecutable(String),
    /// The deadline had passed before it could be started.
    TooLate,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Exited {
    pub(crate) how: Ending,
    /// Whether the watcher had asked it to stop or killed it, for the lease; or found it ended after the deadline.
    pub(crate) enforced: bool,
    /// Whether it had the terminal's foreground when it ended.
    pub(crate) in_foreground: bool,
    /// Whether something of the group would not die, not even by KILL.
    pub(crate) survivors: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Ending {
    Code(i32),
    Signal(i32),
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Deadline")]
struct DeadlineParts {
    #[serde(with = "ReadingParts")]
    since: Reading,
    length: Duration,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Reading")]
struct ReadingParts {
    monotonic: Duration,
    boot: Duration,
    wall: Duration,
}

/// The line that carries `message`.
pub(crate) fn line(message: &impl Serialize) -> Vec<u8> {
    // Serialising these types into memory cannot fail; an empty line would end the conversation, which is the safe side.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Bytes that have arrived, cut into messages.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message. An error means that the other side is not what we think it is.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Option<serde_json::Result<T>> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let message = serde_json::from_slice(&self.bytes[..end]);
        self.bytes.drain(..=end);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire_in_any_pieces() {
        use std::os::unix::ffi::OsStringExt as _;

        let seconds = Duration::from_secs;
        let since =
            Reading { monotonic: seconds(1), boot: Duration::from_nanos(2), wall: seconds(1_764_504_000) };
        let deadline = Deadline { since, length: Duration::from_millis(949) };
        let odd = OsString::from_vec(b"not \xff utf-8\n".to_vec());
        let start = Start {
            command: vec![OsString::from("echo"), odd.clone()],
            environment: vec![(String::from("LEASEHOLD_KEY"), Some(String::from("a\nb")))],
            deadline,
            grace: Duration::from_millis(500),
            job: 7,
            interactive: true,
        };
        let wire = [line(&ToWatcher::Start(start)), line(&ToWatcher::Deadline(deadline))].concat();
        let mut inbox = Inbox::default();
        let mut messages = Vec::new();
        for byte in wire {
            inbox.push(&[byte]);
            messages.extend(inbox.next::<ToWatcher>());
        }
        let [Ok(ToWatcher::Start(start)), Ok(ToWatcher::Deadline(second))] = &messages[..] else {
            panic!("{messages:?}");
        };
        assert_eq!((&start.command[1], start.deadline, *second), (&odd, deadline, deadline));
        assert!(inbox.next::<ToWatcher>().is_none());
    }
}
