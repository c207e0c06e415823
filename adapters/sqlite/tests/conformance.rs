//! The contract, clause by clause, on a SQLite file.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, BreakHow, Clock, FencingToken, LeaseAdmin, LeaseKey,
    LeaseStore, Nonce, OsChance, Reading, Sleep, SystemClock,
};
use leasehold_conformance::{Harness, Impossible, async_trait, suite};
use leasehold_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, OptionalExtension as _};
use tempfile::TempDir;

suite!(Sqlite::new());

/// A file of its own for each case, timed by a clock of its own.
struct Sqlite {
    folder: TempDir,
    clock: Arc<ManualClock>,
}

impl Sqlite {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Arc::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("leases.db")
    }

    fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

#[async_trait]
impl Harness for Sqlite {
    type Store = SqliteStore;

    async fn store(&self) -> SqliteStore {
        let clock: Arc<dyn Clock> = self.clock.clone();
        SqliteOptions::new().with_clock(clock).open(self.path()).await.unwrap()
    }

    async fn age(&self, _key: &LeaseKey, by: Duration) {
        self.clock.advance(by);
    }

    async fn expire(&self, _key: &LeaseKey) {
        let max_ttl = self.store().await.profile().max_ttl;
        self.clock.advance(max_ttl);
    }

    async fn usurp(&self, key: &LeaseKey) {
        let store = self.store().await;
        let token = self.stored_token(key).await.unwrap();
        store.break_lease(key, token, BreakHow::Immediate).await.unwrap();
        let chance = OsChance;
        let (nonce, attempt) = (Nonce::draw(&chance).unwrap(), AttemptId::draw(&chance).unwrap());
        let outcome =
            store.acquire(&AcquireRequest::new(key.clone(), nonce, attempt, self.ttl())).await.unwrap();
        assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
    }

    async fn delete_record(&self, key: &LeaseKey) -> Result<(), Impossible> {
        self.raw().execute("DELETE FROM lease WHERE key = ?1", [key.as_str()]).unwrap();
        Ok(())
    }

    async fn stored_token(&self, key: &LeaseKey) -> Option<FencingToken> {
        let raw = self.raw();
        let number: Option<i64> = raw
            .query_row("SELECT version FROM lease WHERE key = ?1", [key.as_str()], |row| row.get(0))
            .optional()
            .unwrap();
        number.map(|number| FencingToken::try_from(number).unwrap())
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// The clocks of this machine, moved forward at will.
#[derive(Debug, Default)]
struct ManualClock {
    ahead: Mutex<Duration>,
}

impl ManualClock {
    fn advance(&self, by: Duration) {
        *self.ahead.lock().unwrap() += by;
    }
}

impl Clock for ManualClock {
    fn read(&self) -> Reading {
        let (now, ahead) = (SystemClock.read(), *self.ahead.lock().unwrap());
        Reading { monotonic: now.monotonic + ahead, boot: now.boot + ahead, wall: now.wall + ahead }
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        SystemClock.sleep(duration)
    }
}
