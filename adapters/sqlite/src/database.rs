//! A SQLite database at a path: opened with care, and opened anew when another file has taken its place.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Clock, StoreErrorKind};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::error::Failure;
use crate::file::{self, FileId};
use crate::schema;

/// How often one step follows the path to a new file before it gives up.
const ROUNDS: usize = 5;

/// How long a step may wait for other processes.
#[derive(Debug)]
pub(crate) struct Patience {
    clock: Arc<dyn Clock>,
    since: Duration,
    timeout: Duration,
}

impl Patience {
    /// From now on, for `timeout`.
    pub(crate) fn new(clock: Arc<dyn Clock>, timeout: Duration) -> Self {
        let since = clock.read().monotonic;
        Self { clock, since, timeout }
    }

    /// What is left, or a failure when it was used up before the step began.
    fn left(&self) -> Result<Duration, Failure> {
        let passed = self.clock.read().monotonic.saturating_sub(self.since);
        self.timeout.checked_sub(passed).ok_or_else(|| {
            Failure::not_applied(
                StoreErrorKind::Unavailable,
                "the time for this step had passed before its turn came: it is tried again",
            )
        })
    }
}

/// A database and the path at which it is looked for.
#[derive(Debug)]
pub(crate) struct Database {
    path: Arc<Path>,
    opened: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    connection: Connection,
    file: FileId,
}

impl Database {
    /// Opens the database at `path`, making it if there is none.
    pub(crate) fn open(path: Arc<Path>, patience: &Patience) -> Result<Self, Failure> {
        let mut database = Self { path, opened: None };
        database.opened(patience)?;
        Ok(database)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` under the write lock of the file at the path, and commits if it says that it has written.
    ///
    /// `work` may run again, on another file, when what it did before has been rolled back.
    pub(crate) fn write<T>(
        &mut self,
        patience: &Patience,
        mut work: impl FnMut(&Connection) -> Result<(T, bool), Failure>,
    ) -> Result<T, Failure> {
        let path = Arc::clone(&self.path);
        for _ in 0..ROUNDS {
            let Opened { connection, file } = self.opened(patience)?;
            wait_at_most(connection, patience.left()?)?;
            let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
            // Only now is it certain that nobody else is writing, so only now does it count which file is at the path.
            let done = if file::look(&path)? == Some(*file) {
                schema::expect_ours(&transaction).and_then(|()| work(&transaction))
            } else {
                Err(Failure::moved())
            };
            return match done {
                Ok((answer, true)) => {
                    wait_at_most(&transaction, patience.left().unwrap_or_default())?;
                    transaction.commit().map_err(Failure::at_commit)?;
                    Ok(answer)
                }
                Ok((answer, false)) => {
                    transaction.rollback()?;
                    Ok(answer)
                }
                Err(failure) if failure.is_moved() => {
                    drop(transaction);
                    self.let_go();
                    continue;
                }
                Err(failure) => Err(failure),
            };
        }
        Err(replaced_too_often())
    }

    /// Runs `work`, which only reads, on the file at the path. Nothing where there is no file; none is made.
    pub(crate) fn read<T>(
        &mut self,
        patience: &Patience,
        mut work: impl FnMut(&Connection) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let path = Arc::clone(&self.path);
        for _ in 0..ROUNDS {
            if file::look(&path)?.is_none() {
                return Ok(None);
            }
            let Opened { connection, file } = self.opened(patience)?;
            wait_at_most(connection, patience.left()?)?;
            let answer = schema::expect_ours(connection).and_then(|()| work(connection));
            let moved = answer.as_ref().is_err_and(Failure::is_moved) || file::look(&path)? != Some(*file);
            if !moved {
                return answer.map(Some);
            }
            self.let_go();
        }
        Err(replaced_too_often())
    }

    /// The connection, to the file that is at the path now.
    fn opened(&mut self, patience: &Patience) -> Result<&mut Opened, Failure> {
        if let Some(Opened { connection, file }) = &self.opened {
            if !connection.is_autocommit() {
                // A rollback has failed. Closing the connection leaves it to the journal.
                self.opened = None;
            } else if file::look(&self.path)? != Some(*file) {
                // Before SQLite is asked anything: it would take the journal of the new file for that of the deleted one.
                self.let_go();
            }
        }
        match &mut self.opened {
            Some(opened) => Ok(opened),
            closed => Ok(closed.insert(Opened::open(&self.path, patience)?)),
        }
    }

    /// Lets go of a file that is no longer at the path. What it granted is lost with it, and it grants nothing any more.
    fn let_go(&mut self) {
        tracing::warn!(path = ?self.path, "the store file was deleted, replaced or emptied while in use; it is opened anew");
        self.opened = None;
    }
}

impl Opened {
    fn open(path: &Path, patience: &Patience) -> Result<Self, Failure> {
        for _ in 0..ROUNDS {
            let file = file::ensure(path)?;
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut connection = Connection::open_with_flags(path, flags)?;
            if file::look(path)? != Some(file) {
                continue;
            }
            wait_at_most(&connection, patience.left()?)?;
            schema::prepare(&mut connection)?;
            tracing::debug!(?path, "opened the store file");
            return Ok(Self { connection, file });
        }
        Err(replaced_too_often())
    }
}

fn replaced_too_often() -> Failure {
    Failure::not_applied(
        StoreErrorKind::Unavailable,
        "the store file is deleted or replaced again and again: it is tried again; find out what does that",
    )
}

fn wait_at_most(connection: &Connection, wait: Duration) -> rusqlite::Result<()> {
    // SQLite counts milliseconds in 32 bits, which no attempt needs.
    connection.busy_timeout(wait.min(Duration::from_secs(24 * 60 * 60)))
}
