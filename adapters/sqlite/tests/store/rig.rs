//! What the tests share.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, Clock, Grant, LeaseKey, LeaseStore, Nonce, Reading,
    RenewRequest, Sleep, StoreError,
};
use leasehold_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// A folder with a store file that is yet to be made.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) path: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        Self { folder, path }
    }

    pub(crate) async fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path).await.unwrap()
    }

    /// The file without leasehold in between.
    pub(crate) fn raw(&self) -> Connection {
        raw(&self.path)
    }
}

pub(crate) fn raw(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

/// Clocks that stand still until they are set forward.
#[derive(Debug)]
pub(crate) struct Scripted {
    reading: Mutex<Reading>,
    times_read: AtomicUsize,
}

impl Scripted {
    pub(crate) fn new() -> Arc<Self> {
        let reading = Reading {
            monotonic: Duration::from_secs(1_000),
            boot: Duration::from_secs(1_000),
            wall: Duration::from_secs(1_800_000_000),
        };
        Arc::new(Self { reading: Mutex::new(reading), times_read: AtomicUsize::new(0) })
    }

    pub(crate) fn pass(&self, time: Duration) {
        let mut reading = self.reading.lock().unwrap();
        reading.monotonic += time;
        reading.boot += time;
        reading.wall += time;
    }

    pub(crate) fn times_read(&self) -> usize {
        self.times_read.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Reading)) {
        change(&mut self.reading.lock().unwrap());
    }
}

impl Clock for Scripted {
    fn read(&self) -> Reading {
        self.times_read.fetch_add(1, Ordering::SeqCst);
        *self.reading.lock().unwrap()
    }

    fn sleep(&self, _duration: Duration) -> Sleep {
        unreachable!("a store does not sleep")
    }
}

pub(crate) fn timed_by(clock: &Arc<Scripted>) -> SqliteOptions {
    SqliteOptions::new().with_clock(Arc::clone(clock) as Arc<dyn Clock>)
}

pub(crate) fn key(text: &str) -> LeaseKey {
    LeaseKey::new(text).unwrap()
}

pub(crate) fn ask(text: &str, who: u8) -> AcquireRequest {
    AcquireRequest::new(key(text), Nonce::from_bytes([who; 16]), AttemptId::from_record(u64::from(who)), TTL)
}

pub(crate) fn renewal(grant: &Grant) -> RenewRequest {
    RenewRequest::new(grant.clone(), AttemptId::from_record(99), TTL)
}

pub(crate) async fn grant(store: &SqliteStore, text: &str, who: u8) -> Grant {
    granted(store.acquire(&ask(text, who)).await)
}

pub(crate) fn granted(outcome: Result<AcquireOutcome, StoreError>) -> Grant {
    match outcome {
        Ok(AcquireOutcome::Granted(granted)) => granted.grant,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_held(outcome: Result<AcquireOutcome, StoreError>) -> bool {
    match outcome {
        Ok(AcquireOutcome::Granted(_)) => false,
        Ok(AcquireOutcome::Held(_)) => true,
        other => panic!("{other:?}"),
    }
}

/// Begins a call: its job is in the queue of the thread when this returns.
pub(crate) fn begin<F: Future>(future: Pin<&mut F>) {
    let Poll::Pending = future.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the call was answered at once");
    };
}

/// Begins a call and waits until its turn has come: the thread reads the clock before it asks for the lock.
pub(crate) fn begin_in_turn<F: Future>(future: Pin<&mut F>, clock: &Scripted) {
    let before = clock.times_read();
    begin(future);
    while clock.times_read() < before + 2 {
        std::thread::yield_now();
    }
}
