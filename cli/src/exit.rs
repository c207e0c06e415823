//! What `leasehold` exits with, and what it says then.

use std::error::Error;
use std::fmt;

use leasehold::{AcquireError, OptionsError, StoreError, StoreErrorKind};

/// All is well. `run` then exits with what the command exited with.
pub(crate) const OK: u8 = 0;
/// The command line makes no sense, as with most programs. (clap exits with it too.)
pub(crate) const USAGE: u8 = 2;
/// EX_UNAVAILABLE: the store was not reached or did not answer.
pub(crate) const UNREACHABLE: u8 = 69;
/// EX_SOFTWARE: something of our own broke.
pub(crate) const INTERNAL: u8 = 70;
/// EX_TEMPFAIL: somebody else holds the lease. Try again later.
pub(crate) const HELD: u8 = 75;
/// The lease ended before the command did, and the command was stopped.
pub(crate) const LOST: u8 = 76;
/// EX_CONFIG: a person must set something up.
pub(crate) const MISCONFIGURED: u8 = 78;
/// The command was found and could not be started, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;

/// What a shell shows for a process that a signal ended.
pub(crate) fn of_signal(number: i32) -> u8 {
    u8::try_from(number).unwrap_or(0) | 0x80
}

/// Why `leasehold` gives up: an exit code and one line that says what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    line: String,
}

impl Failure {
    pub(crate) fn new(code: u8, line: impl Into<String>) -> Self {
        Self { code, line: line.into() }
    }

    /// What `error` says, and what its causes say.
    fn of(code: u8, error: &dyn Error) -> Self {
        let failure = Self::new(code, error.to_string());
        error.source().into_iter().fold(failure, |failure, cause| failure.because(cause))
    }

    /// Adds a cause, and the causes of that.
    pub(crate) fn because(mut self, cause: &dyn Error) -> Self {
        let mut next = Some(cause);
        while let Some(error) = next {
            let text = error.to_string();
            // Some errors say in their own line what their source says again.
            if !self.line.ends_with(&text) {
                self.line.push_str(": ");
                self.line.push_str(&text);
            }
            next = error.source();
        }
        self
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

fn code_of(error: &StoreError) -> u8 {
    match error.kind() {
        StoreErrorKind::Throttled | StoreErrorKind::Unavailable => UNREACHABLE,
        StoreErrorKind::Other => INTERNAL,
        _ => MISCONFIGURED,
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::of(code_of(&error), &error)
    }
}

impl From<OptionsError> for Failure {
    fn from(error: OptionsError) -> Self {
        Self::of(USAGE, &error)
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Store(error)
            | AcquireError::TimedOut { contention: None, last_error: Some(error) } => error.into(),
            AcquireError::TimedOut { .. } | AcquireError::Sealed => Self::of(HELD, &error),
            AcquireError::ExpiredOnArrival => Self::of(UNREACHABLE, &error),
            _ => Self::of(INTERNAL, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_every_cause_once() {
        let error = StoreError::not_applied(
            StoreErrorKind::Unavailable,
            "the store was not reached; look at the network",
        )
        .with_source("connection refused");
        let failure = Failure::from(AcquireError::from(error));
        assert_eq!(failure.code(), UNREACHABLE);
        assert_eq!(failure.to_string(), "the store was not reached; look at the network: connection refused");
    }

    #[test]
    fn a_signal_is_shown_as_a_shell_shows_it() {
        assert_eq!((of_signal(2), of_signal(9), of_signal(15)), (130, 137, 143));
    }
}
