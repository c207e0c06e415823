//! What SQLite and the file system say, as what the caller can do about it.

use std::borrow::Cow;
use std::error::Error;
use std::ffi::c_int;
use std::io;
use std::path::Path;
use std::sync::Arc;

use leasehold::{Effect, LeaseKey, StoreError, StoreErrorKind};
use rusqlite::ffi;

const MOVED: &str = "SQLITE_READONLY_DBMOVED";

/// A step that failed. One failure can be the answer to several asks, so it is cloneable; where it happened is added last.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: StoreErrorKind,
    effect: Effect,
    message: Cow<'static, str>,
    key: Option<LeaseKey>,
    code: Option<Cow<'static, str>>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failure {
    /// The step has not been done and will not be.
    pub(crate) fn not_applied(kind: StoreErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            effect: Effect::NotApplied,
            message: message.into(),
            key: None,
            code: None,
            source: None,
        }
    }

    /// The step may have been done.
    pub(crate) fn unknown(kind: StoreErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { effect: Effect::Unknown, ..Self::not_applied(kind, message) }
    }

    /// SQLite failed at COMMIT. Only a lock and a full disk are known to stop it before the point of no return.
    pub(crate) fn at_commit(error: rusqlite::Error) -> Self {
        let known = matches!(primary(extended_code(&error)), Some(ffi::SQLITE_BUSY | ffi::SQLITE_FULL));
        let effect = if known { Effect::NotApplied } else { Effect::Unknown };
        Self { effect, ..Self::from(error) }
    }

    /// The file system failed, before SQLite was asked.
    pub(crate) fn io(what: &str, error: io::Error) -> Self {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (StoreErrorKind::Denied, "let this user write there, or choose another path")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (StoreErrorKind::Unavailable, "free some space")
            }
            io::ErrorKind::NotADirectory => {
                (StoreErrorKind::Misconfigured, "a part of the path is no folder; choose another path")
            }
            _ => (StoreErrorKind::Misconfigured, "choose a path at which this user can create files"),
        };
        Self {
            code: error.raw_os_error().map(|number| Cow::Owned(format!("errno {number}"))),
            ..Self::not_applied(kind, format!("{what}: {advice}")).with_source(error)
        }
    }

    /// The step ended in a panic, or in what cannot be.
    pub(crate) fn defect() -> Self {
        Self::unknown(
            StoreErrorKind::Other,
            "the step ended in a panic, which is a defect of leasehold: please report it with the panic's message",
        )
    }

    /// The file is no longer the one at the path.
    pub(crate) fn moved() -> Self {
        Self {
            code: Some(Cow::Borrowed(MOVED)),
            ..Self::not_applied(
                StoreErrorKind::Unavailable,
                "the store file was deleted or replaced: it is tried again",
            )
        }
    }

    /// With what caused it.
    #[must_use]
    pub(crate) fn with_source(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// Whether the file is no longer the one at the path; SQLite notices too, when it writes.
    pub(crate) fn is_moved(&self) -> bool {
        self.code.as_deref() == Some(MOVED)
    }

    /// With the key that it was about.
    #[must_use]
    pub(crate) fn with_key(self, key: &LeaseKey) -> Self {
        Self { key: Some(key.clone()), ..self }
    }

    /// The error for the caller of the store at `path`.
    pub(crate) fn at(self, path: &Path) -> StoreError {
        // Quoted, so that no path breaks the line.
        let message = format!("{} (store file {path:?})", self.message);
        let mut error = match self.effect {
            Effect::NotApplied => StoreError::not_applied(self.kind, message),
            Effect::Unknown => StoreError::unknown(self.kind, message),
        };
        if let Some(key) = &self.key {
            error = error.with_key(key);
        }
        if let Some(code) = self.code {
            error = error.with_code(code);
        }
        if let Some(source) = self.source {
            error = error.with_source(source);
        }
        error
    }
}

impl From<rusqlite::Error> for Failure {
    /// SQLite failed before COMMIT: the transaction is rolled back, at the latest by the next process that opens the file.
    fn from(error: rusqlite::Error) -> Self {
        let extended = extended_code(&error);
        let (kind, advice) = advise(extended);
        Self { code: extended.map(code_name), ..Self::not_applied(kind, advice).with_source(error) }
    }
}

fn advise(extended: Option<c_int>) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Corrupt, Denied, Misconfigured, Other, Unavailable};
    match primary(extended) {
        Some(ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL) => (
            Unavailable,
            "another process keeps the file locked: it is tried again; if this goes on, find the program that has the \
             file open",
        ),
        Some(ffi::SQLITE_READONLY | ffi::SQLITE_PERM | ffi::SQLITE_AUTH) => (
            Denied,
            "this user may not write to the store file or to its folder: allow both, or choose another path",
        ),
        Some(ffi::SQLITE_CANTOPEN) => (
            Denied,
            "the store file, or the journal beside it, cannot be opened: let this user read and write the file and \
             create files in its folder, and see that the process has not run out of open files",
        ),
        Some(ffi::SQLITE_FULL) => (Unavailable, "the disk is full: free some space"),
        Some(ffi::SQLITE_IOERR) => (
            Unavailable,
            "the file system failed to read or write: it is tried again; if this goes on, see the system's log and the \
             limits on this process",
        ),
        Some(ffi::SQLITE_NOMEM) => (Unavailable, "there is no memory left: it is tried again"),
        Some(ffi::SQLITE_NOTADB) => {
            (Misconfigured, "the file is no SQLite database: choose another path, or move the file away")
        }
        Some(ffi::SQLITE_CORRUPT) => (
            Corrupt,
            "the store file is damaged: stop everything that uses it and move it away; a new one is made by the next use",
        ),
        Some(ffi::SQLITE_ERROR | ffi::SQLITE_SCHEMA | ffi::SQLITE_CONSTRAINT | ffi::SQLITE_MISMATCH) => (
            Misconfigured,
            "the table `lease` is not as leasehold made it: choose another path, or stop everything that uses the file \
             and move it away",
        ),
        _ => (
            Other,
            "sqlite failed in a way that leasehold does not know: see the code and the source of this error",
        ),
    }
}

fn primary(extended: Option<c_int>) -> Option<c_int> {
    extended.map(|code| code & 0xff)
}

fn extended_code(error: &rusqlite::Error) -> Option<c_int> {
    match error {
        rusqlite::Error::SqliteFailure(error, _) | rusqlite::Error::SqlInputError { error, .. } => {
            Some(error.extended_code)
        }
        _ => None,
    }
}

macro_rules! names {
    ($code:expr; $($name:ident)*) => {
        match $code {
            $(ffi::$name => Cow::Borrowed(stringify!($name)),)*
            other => Cow::Owned(format!("SQLite code {other}")),
        }
    };
}

fn code_name(extended: c_int) -> Cow<'static, str> {
    names! { extended;
        SQLITE_ERROR SQLITE_INTERNAL SQLITE_PERM SQLITE_ABORT SQLITE_BUSY SQLITE_LOCKED SQLITE_NOMEM SQLITE_READONLY
        SQLITE_INTERRUPT SQLITE_IOERR SQLITE_CORRUPT SQLITE_NOTFOUND SQLITE_FULL SQLITE_CANTOPEN SQLITE_PROTOCOL
        SQLITE_SCHEMA SQLITE_TOOBIG SQLITE_CONSTRAINT SQLITE_MISMATCH SQLITE_MISUSE SQLITE_NOLFS SQLITE_AUTH
        SQLITE_RANGE SQLITE_NOTADB
        SQLITE_BUSY_RECOVERY SQLITE_BUSY_SNAPSHOT SQLITE_BUSY_TIMEOUT
        SQLITE_CANTOPEN_CONVPATH SQLITE_CANTOPEN_FULLPATH SQLITE_CANTOPEN_ISDIR SQLITE_CANTOPEN_NOTEMPDIR
        SQLITE_CANTOPEN_SYMLINK
        SQLITE_CONSTRAINT_CHECK SQLITE_CONSTRAINT_DATATYPE SQLITE_CONSTRAINT_NOTNULL SQLITE_CONSTRAINT_PRIMARYKEY
        SQLITE_CONSTRAINT_TRIGGER SQLITE_CONSTRAINT_UNIQUE
        SQLITE_CORRUPT_INDEX SQLITE_CORRUPT_SEQUENCE SQLITE_CORRUPT_VTAB
        SQLITE_IOERR_ACCESS SQLITE_IOERR_AUTH SQLITE_IOERR_BEGIN_ATOMIC SQLITE_IOERR_BLOCKED
        SQLITE_IOERR_CHECKRESERVEDLOCK SQLITE_IOERR_CLOSE SQLITE_IOERR_COMMIT_ATOMIC SQLITE_IOERR_CONVPATH
        SQLITE_IOERR_CORRUPTFS SQLITE_IOERR_DATA SQLITE_IOERR_DELETE SQLITE_IOERR_DELETE_NOENT
        SQLITE_IOERR_DIR_CLOSE SQLITE_IOERR_DIR_FSYNC SQLITE_IOERR_FSTAT SQLITE_IOERR_FSYNC
        SQLITE_IOERR_GETTEMPPATH SQLITE_IOERR_LOCK SQLITE_IOERR_MMAP SQLITE_IOERR_NOMEM SQLITE_IOERR_RDLOCK
        SQLITE_IOERR_READ SQLITE_IOERR_ROLLBACK_ATOMIC SQLITE_IOERR_SEEK SQLITE_IOERR_SHMLOCK SQLITE_IOERR_SHMMAP
        SQLITE_IOERR_SHMOPEN SQLITE_IOERR_SHMSIZE SQLITE_IOERR_SHORT_READ SQLITE_IOERR_TRUNCATE
        SQLITE_IOERR_UNLOCK SQLITE_IOERR_VNODE SQLITE_IOERR_WRITE
        SQLITE_LOCKED_SHAREDCACHE
        SQLITE_READONLY_CANTINIT SQLITE_READONLY_CANTLOCK SQLITE_READONLY_DBMOVED SQLITE_READONLY_DIRECTORY
        SQLITE_READONLY_RECOVERY SQLITE_READONLY_ROLLBACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sqlite(code: c_int) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(String::from("what SQLite said")))
    }

    #[test]
    fn every_code_has_a_kind_a_name_and_something_to_do() {
        use StoreErrorKind::{Corrupt, Denied, Misconfigured, Other, Unavailable};
        for (code, kind, name, advice) in [
            (ffi::SQLITE_BUSY, Unavailable, "SQLITE_BUSY", "it is tried again"),
            (ffi::SQLITE_READONLY, Denied, "SQLITE_READONLY", "allow both"),
            (ffi::SQLITE_READONLY_DIRECTORY, Denied, "SQLITE_READONLY_DIRECTORY", "allow both"),
            (ffi::SQLITE_PERM, Denied, "SQLITE_PERM", "allow both"),
            (ffi::SQLITE_CANTOPEN, Denied, "SQLITE_CANTOPEN", "create files in its folder"),
            (ffi::SQLITE_FULL, Unavailable, "SQLITE_FULL", "free some space"),
            (ffi::SQLITE_IOERR_FSYNC, Unavailable, "SQLITE_IOERR_FSYNC", "system's log"),
            (ffi::SQLITE_NOTADB, Misconfigured, "SQLITE_NOTADB", "choose another path"),
            (ffi::SQLITE_CORRUPT, Corrupt, "SQLITE_CORRUPT", "move it away"),
            (ffi::SQLITE_ERROR, Misconfigured, "SQLITE_ERROR", "choose another path"),
            (
                ffi::SQLITE_CONSTRAINT_NOTNULL,
                Misconfigured,
                "SQLITE_CONSTRAINT_NOTNULL",
                "choose another path",
            ),
            (ffi::SQLITE_MISUSE, Other, "SQLITE_MISUSE", "see the code"),
            (99, Other, "SQLite code 99", "see the code"),
        ] {
            let error: StoreError = Failure::from(sqlite(code)).at(Path::new("/x/leases.db"));
            let line = error.to_string();
            assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied), "{line}");
            assert_eq!(error.code(), Some(name), "{line}");
            assert!(line.contains(advice) && line.contains("/x/leases.db") && !line.contains('\n'), "{line}");
            assert!(!line.contains("what SQLite said"), "the source is kept apart: {line}");
            assert!(error.source().is_some());
        }
    }

    #[test]
    fn a_failed_commit_is_unknown_unless_sqlite_stopped_before_it() {
        for (code, effect) in [
            (ffi::SQLITE_BUSY, Effect::NotApplied),
            (ffi::SQLITE_FULL, Effect::NotApplied),
            (ffi::SQLITE_IOERR_FSYNC, Effect::Unknown),
            (ffi::SQLITE_IOERR_TRUNCATE, Effect::Unknown),
            (ffi::SQLITE_CORRUPT, Effect::Unknown),
            (ffi::SQLITE_ERROR, Effect::Unknown),
        ] {
            let error: StoreError = Failure::at_commit(sqlite(code)).at(Path::new("/x"));
            assert_eq!(error.effect(), effect, "{error}");
        }
    }

    #[test]
    fn a_path_cannot_break_the_line() {
        let error = Failure::from(sqlite(ffi::SQLITE_FULL)).at(Path::new("/x\n/y"));
        assert!(!error.to_string().contains('\n'));
    }
}
