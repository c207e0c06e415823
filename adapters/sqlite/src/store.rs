use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::record::{Moment, Record, Step, TokenPolicy};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, Clock, FencingToken, Finding, LeaseAdmin,
    LeaseKey, LeaseStore, Observation, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Scope,
    StoreError, StoreProfile, Timing, TokenOrigin,
};

use crate::boot;
use crate::check;
use crate::database::{Database, Patience};
use crate::error::Failure;
use crate::file;
use crate::judge::Judge;
use crate::options::SqliteOptions;
use crate::room::Room;
use crate::worker::Worker;

/// How long a call waits for other processes when its caller does not say.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Leases among the processes of one machine, in a SQLite file.
///
/// Every step is one transaction that takes the write lock at its beginning, and an answer stands when it is on the disk.
/// A grant is timed by the machine's boot clock, which runs on in suspend; one that was made before a reboot is over when
/// it has been watched for its whole ttl. Tokens are kept in the file, and with the default
/// [`TokenPolicy::ClockFloor`] they go on growing even when the file is deleted.
///
/// Clones share one connection and its thread, which ends with the last of them. Stores of several processes, and several
/// stores of one process, contend correctly for one file.
///
/// # Cancellation
/// A call whose future is dropped before the thread has begun with it is never carried out; one that has been begun is
/// carried out whole. So the record is that before the step or that after it.
#[derive(Clone)]
pub struct SqliteStore {
    worker: Worker<Room>,
    path: Arc<Path>,
    clock: Arc<dyn Clock>,
    tokens: TokenPolicy,
    profile: Arc<StoreProfile>,
}

impl SqliteStore {
    /// Opens the store in the file at `path`, with the default [`SqliteOptions`].
    ///
    /// A file that is missing is made, readable by this user alone, as are the folders on the way to it. An empty file is
    /// made a store. Nothing else is changed: a file that is no database, or the database of another application, stays
    /// as it was.
    ///
    /// # Errors
    /// [`Misconfigured`](leasehold::StoreErrorKind::Misconfigured) when the path cannot hold a store: a folder, a network
    /// file system, a foreign or newer file. [`Denied`](leasehold::StoreErrorKind::Denied) when this user may not write
    /// there. [`Unavailable`](leasehold::StoreErrorKind::Unavailable) when the disk is full or another process keeps the
    /// file locked.
    ///
    /// # Cancellation
    /// A dropped future may leave an empty store behind.
    pub async fn open(path: impl AsRef<Path> + Send) -> Result<Self, StoreError> {
        SqliteOptions::new().open(path).await
    }

    pub(crate) async fn open_with(options: SqliteOptions, path: PathBuf) -> Result<Self, StoreError> {
        let path: Arc<Path> = file::absolute(&path).map_err(|failure| failure.at(&path))?.into();
        let SqliteOptions { clock, tokens, boot_id } = options;
        let patience = Patience::new(Arc::clone(&clock), TIMEOUT);
        let (place, time) = (Arc::clone(&path), Arc::clone(&clock));
        let worker = Worker::start(move || {
            let timeline = boot_id.map_or_else(boot::timeline, Ok)?;
            let database = Database::open(place, &patience)?;
            Ok(Room { database, judge: Judge::new(time, timeline) })
        });
        let worker = worker.await.map_err(|failure| failure.at(&path))?;
        Ok(Self { worker, path, clock, tokens, profile: Arc::new(profile(tokens)) })
    }

    /// The path of the store file, independent of the current folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn step<O: Send + 'static>(
        &self,
        key: &LeaseKey,
        timeout: Duration,
        verb: impl Fn(Option<&Record>, &Moment) -> Result<Step<O>, StoreError> + Send + 'static,
    ) -> Result<O, StoreError> {
        let answers = self.steps(vec![(key.clone(), verb)], timeout).await;
        let answers = answers.map_err(|failure| failure.with_key(key).at(&self.path))?;
        // One ask, one answer.
        answers.into_iter().next().unwrap_or_else(|| Err(Failure::defect().with_key(key).at(&self.path)))
    }

    async fn steps<O: Send + 'static>(
        &self,
        asks: Vec<(
            LeaseKey,
            impl Fn(Option<&Record>, &Moment) -> Result<Step<O>, StoreError> + Send + 'static,
        )>,
        timeout: Duration,
    ) -> Result<Vec<Result<O, StoreError>>, Failure> {
        let (path, patience) = (Arc::clone(&self.path), self.patience(timeout));
        self.worker.call(move |room| room.steps(&path, &asks, &patience)).await
    }

    fn patience(&self, timeout: Duration) -> Patience {
        Patience::new(Arc::clone(&self.clock), timeout)
    }
}

fn profile(tokens: TokenPolicy) -> StoreProfile {
    let mut profile = StoreProfile::new("sqlite", Timing::Machine, TokenOrigin::Record, Scope::Machine);
    profile.min_ttl = Duration::from_secs(1);
    profile.max_ttl = Duration::from_secs(24 * 60 * 60);
    profile.token_survives_deletion = tokens == TokenPolicy::ClockFloor;
    profile.durable = true;
    profile.detects_clones = true;
    profile.max_batch = 256;
    profile
}

#[async_trait]
impl LeaseStore for SqliteStore {
    fn profile(&self) -> &StoreProfile {
        &self.profile
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let patience = self.patience(TIMEOUT);
        let findings = self.worker.call(move |room| check::findings(&mut room.database, &patience)).await;
        findings.map_err(|failure| failure.at(&self.path))
    }

    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let (asked, tokens) = (ask.clone(), self.tokens);
        self.step(&ask.key, ask.timeout, move |current, moment| {
            Record::acquire(current, &asked, moment, tokens)
        })
        .await
    }

    /// All of `asks` are one transaction, which waits for other processes as long as the least patient of them does.
    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let timeout = asks.iter().map(|ask| ask.timeout).min().unwrap_or_default();
        let verbs = asks.iter().map(|ask| {
            let asked = ask.clone();
            let verb =
                move |current: Option<&Record>, moment: &Moment| Ok(Record::renew(current, &asked, moment));
            (ask.grant.key.clone(), verb)
        });
        match self.steps(verbs.collect(), timeout).await {
            Ok(answers) => answers,
            Err(failure) => {
                asks.iter().map(|ask| Err(failure.clone().with_key(&ask.grant.key).at(&self.path))).collect()
            }
        }
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let asked = ask.clone();
        self.step(&ask.key, ask.timeout, move |current, _| Ok(Record::release(current, &asked))).await
    }

    async fn inspect(&self, key: &LeaseKey, timeout: Duration) -> Result<Observation, StoreError> {
        let (asked, patience) = (key.clone(), self.patience(timeout));
        let seen = self.worker.call(move |room| room.inspect(&asked, &patience)).await;
        seen.map_err(|failure| failure.with_key(key).at(&self.path))
    }
}

#[async_trait]
impl LeaseAdmin for SqliteStore {
    /// A grant of an earlier boot is shown as not claimable: only [`inspect`](LeaseStore::inspect) watches it.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&LeaseKey>,
        limit: usize,
    ) -> Result<Vec<Observation>, StoreError> {
        let prefix = prefix.to_owned();
        let after = after.map_or("", LeaseKey::as_str).to_owned();
        let patience = self.patience(TIMEOUT);
        let seen = self.worker.call(move |room| room.list(&prefix, &after, limit, &patience)).await;
        seen.map_err(|failure| failure.at(&self.path))
    }

    async fn break_lease(
        &self,
        key: &LeaseKey,
        seen: FencingToken,
        how: BreakHow,
    ) -> Result<BreakOutcome, StoreError> {
        self.step(key, TIMEOUT, move |current, _| Ok(Record::break_grant(current, seen, how))).await
    }

    async fn raise_floor(&self, key: &LeaseKey, floor: FencingToken) -> Result<(), StoreError> {
        self.step(key, TIMEOUT, move |current, _| Ok(Record::raise_floor(current, floor))).await
    }

    async fn seal(&self, key: &LeaseKey, sealed: bool) -> Result<(), StoreError> {
        self.step(key, TIMEOUT, move |current, _| Ok(Record::seal(current, sealed))).await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.path)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}
