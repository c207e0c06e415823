use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::record::{Record, TokenPolicy};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, FencingToken, Finding, LeaseAdmin, LeaseKey,
    LeaseStore, Observation, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Scope, StoreError,
    StoreErrorKind, StoreProfile, Timing, TokenOrigin,
};

use crate::answers::{self, ServiceTime};
use crate::error::{no_store_clock, of_fault};
use crate::name;
use crate::options::{AzureBlobOptions, Mode, TokenSource};
use crate::port::{BlobPort, Call, Fault, LeaseState, Reply};
use crate::record::{self, Metadata};
use crate::seen::Seen;

/// The ttls of native leases, and of records.
const NATIVE_TTL: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(60));
const RECORD_TTL: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(24 * 60 * 60));

/// Leases in a container of Azure Blob Storage. Cheap to clone.
#[derive(Clone)]
pub struct AzureBlobStore {
    pub(crate) room: Arc<Room>,
}

/// What the verbs of both modes share.
pub(crate) struct Room {
    pub(crate) port: Arc<dyn BlobPort>,
    pub(crate) options: AzureBlobOptions,
    pub(crate) time: ServiceTime,
    pub(crate) kind: &'static str,
    seen: Mutex<Seen>,
    makes_versions: AtomicBool,
    profile: StoreProfile,
}

/// A blob as a look showed it.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) etag: String,
    /// Nothing for a blob that was made and never granted.
    pub(crate) record: Option<Record>,
    pub(crate) lease: LeaseState,
    /// What the grant's time runs from, where that counts.
    pub(crate) modified_ms: Option<u64>,
    pub(crate) date_ms: Option<u64>,
    /// The number of a page blob.
    pub(crate) sequence: Option<u64>,
}

impl Look {
    /// Whether a lease on it has certainly not been numbered yet.
    pub(crate) fn lacks_its_token(&self) -> bool {
        let Some(record) = &self.record else { return true };
        self.sequence.is_some_and(|number| number > record.version.get())
    }
}

#[cfg(feature = "client")]
impl AzureBlobStore {
    /// Opens the leases in `container`. One request, a read: it tells a missing container and a credential that is not taken, and
    /// the service's time.
    ///
    /// # Errors
    /// `Misconfigured` when there is no such container ([`create_container`](Self::create_container) makes it), `Denied` when the credential is not accepted.
    pub async fn open(
        account: crate::Account,
        container: &str,
        options: AzureBlobOptions,
    ) -> Result<Self, StoreError> {
        Self::on(Arc::new(client(account, container, &options)?), options).await
    }

    /// The same without a request: for functions that must start fast.
    ///
    /// # Errors
    /// `Misconfigured` when account, container or options cannot be.
    pub fn unchecked(
        account: crate::Account,
        container: &str,
        options: AzureBlobOptions,
    ) -> Result<Self, StoreError> {
        Self::assemble(Arc::new(client(account, container, &options)?), options)
    }

    /// Makes the container if there is none, private. True if it was made now. Needs a right that holders do not.
    ///
    /// # Errors
    /// When it could not be made.
    pub async fn create_container(account: crate::Account, container: &str) -> Result<bool, StoreError> {
        let port = client(account, container, &AzureBlobOptions::new())?;
        match port.send(&Call::CreateContainer).await {
            Ok(_) => Ok(true),
            Err(fault) if fault.code() == Some("ContainerAlreadyExists") => Ok(false),
            Err(fault) => Err(of_fault(fault, None)),
        }
    }
}

#[cfg(feature = "client")]
fn client(
    account: crate::Account,
    container: &str,
    options: &AzureBlobOptions,
) -> Result<crate::AzureClient, StoreError> {
    crate::AzureClient::new(account, container, Arc::clone(&options.clock))
}

impl AzureBlobStore {
    /// Opens the leases of a container that is reached through `port`. One request, a read.
    ///
    /// # Errors
    /// `Misconfigured` when there is no such container, `Denied` when the credential is not accepted.
    pub async fn on(port: Arc<dyn BlobPort>, options: AzureBlobOptions) -> Result<Self, StoreError> {
        let store = Self::assemble(port, options)?;
        // No key has this name. Every holder may read, so this needs no right of its own.
        let probe = Call::Head { blob: format!("{}probe", name::LONG) };
        match store.room.call(&probe).await {
            Ok(_) => Ok(store),
            Err(fault) if fault.is_missing_blob() => Ok(store),
            Err(fault) => Err(of_fault(fault, None)),
        }
    }

    fn assemble(port: Arc<dyn BlobPort>, options: AzureBlobOptions) -> Result<Self, StoreError> {
        let profile = profile(&options)?;
        let room = Room {
            port,
            time: ServiceTime::new(Arc::clone(&options.clock)),
            kind: record::kind(&options),
            seen: Mutex::default(),
            makes_versions: AtomicBool::new(false),
            profile,
            options,
        };
        Ok(Self { room: Arc::new(room) })
    }
}

fn profile(options: &AzureBlobOptions) -> Result<StoreProfile, StoreError> {
    let origin = match options.token_source {
        TokenSource::Metadata => TokenOrigin::Record,
        TokenSource::PageBlob => TokenOrigin::NativePerKey,
    };
    let mut profile = StoreProfile::new("azblob", Timing::Server, origin, Scope::Region);
    profile.durable = true;
    profile.token_survives_deletion = options.tokens == TokenPolicy::ClockFloor;
    // The resolution of `Date`, a round trip of a second, and the spread of the service's clocks.
    profile.floor_resolution = Duration::from_secs(2) + options.max_skew;
    ((profile.min_ttl, profile.max_ttl), profile.requests_per_acquire) =
        match (options.mode, options.token_source) {
            (Mode::Native, TokenSource::Metadata) => (NATIVE_TTL, 3),
            (Mode::Native, TokenSource::PageBlob) => (NATIVE_TTL, 4),
            (Mode::Record, TokenSource::Metadata) => (RECORD_TTL, 2),
            (Mode::Record, TokenSource::PageBlob) => {
                return Err(StoreError::not_applied(
                    StoreErrorKind::Misconfigured,
                    "record mode keeps its token in metadata: leave the token source at its default",
                ));
            }
        };
    profile.detects_clones = options.mode == Mode::Record;
    Ok(profile)
}

impl Room {
    /// One request, from whose answer the service's time is learnt.
    pub(crate) async fn call(&self, call: &Call) -> Result<Reply, Fault> {
        let sent = self.time.now().boot;
        let answer = self.port.send(call).await;
        let date_ms = match &answer {
            Ok(reply) => reply.date_ms,
            Err(fault) => answers::date_of(fault),
        };
        self.time.note(date_ms, sent);
        if answer.as_ref().is_ok_and(|reply| reply.made_version) && writes(call) {
            self.makes_versions.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Looks at a key's blob; nothing if there is none.
    pub(crate) async fn look(&self, key: &LeaseKey) -> Result<Option<Look>, StoreError> {
        match self.call(&Call::Head { blob: name::of_key(key) }).await {
            Ok(reply) => self.look_in(key, reply).map(Some),
            Err(fault) if fault.is_missing_blob() => Ok(None),
            Err(fault) => Err(of_fault(fault, Some(key))),
        }
    }

    pub(crate) fn look_in(&self, key: &LeaseKey, reply: Reply) -> Result<Look, StoreError> {
        let modified_ms = record::counts_from(&reply.metadata, reply.last_modified_ms);
        Ok(Look {
            record: record::parse(key, self.kind, &reply.metadata, modified_ms)?,
            etag: etag(key, reply.etag)?,
            lease: reply.lease.unwrap_or(LeaseState::Available),
            modified_ms,
            date_ms: reply.date_ms,
            sequence: reply.sequence.filter(|_| self.options.token_source == TokenSource::PageBlob),
        })
    }

    /// Makes the blob of a key with this record. Nothing if it has been made meanwhile.
    pub(crate) async fn create(
        &self,
        key: &LeaseKey,
        record: Option<&Record>,
    ) -> Result<Option<Look>, StoreError> {
        let sequence = match self.options.token_source {
            TokenSource::Metadata => None,
            TokenSource::PageBlob => Some(match record {
                Some(record) => record.version.get(),
                None => match self.options.tokens {
                    TokenPolicy::Sequential { seed } => seed,
                    _ => self.floor_ms(key)?,
                },
            }),
        };
        let metadata = record::render(self.kind, record);
        match self.call(&Call::Create { blob: name::of_key(key), sequence, metadata }).await {
            Ok(reply) => Ok(Some(Look {
                etag: etag(key, reply.etag)?,
                record: record.cloned(),
                lease: LeaseState::Available,
                modified_ms: reply.last_modified_ms,
                date_ms: reply.date_ms,
                sequence,
            })),
            Err(fault) => match fault.code() {
                Some("BlobAlreadyExists" | "ConditionNotMet" | "LeaseIdMissing") => Ok(None),
                _ => Err(of_fault(fault, Some(key))),
            },
        }
    }

    /// Replaces the metadata of a blob that nobody has leased, if it is as it was seen.
    pub(crate) async fn replace(
        &self,
        key: &LeaseKey,
        metadata: Metadata,
        if_match: &str,
    ) -> Result<Reply, Fault> {
        let call = Call::SetMetadata {
            blob: name::of_key(key),
            metadata,
            id: None,
            if_match: String::from(if_match),
        };
        self.call(&call).await
    }

    /// The floor of a token that is made now, in the service's time; 0 where tokens are counted.
    pub(crate) fn floor_ms(&self, key: &LeaseKey) -> Result<u64, StoreError> {
        match self.options.tokens {
            TokenPolicy::ClockFloor => self.time.floor_ms().ok_or_else(|| no_store_clock(key)),
            _ => Ok(0),
        }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        // What is remembered is never half written, and decides nothing.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn makes_versions(&self) -> bool {
        self.makes_versions.load(Ordering::Relaxed)
    }

    fn observe(&self, key: &LeaseKey, look: Option<&Look>) -> Observation {
        match self.options.mode {
            Mode::Native => self.observe_lease(key, look),
            Mode::Record => self.observe_record(key, look),
        }
    }

    async fn inspect(&self, key: &LeaseKey) -> Result<Observation, StoreError> {
        let look = self.look(key).await?;
        let seen = self.observe(key, look.as_ref());
        if let Some(look) = look.filter(|look| !look.lease.is_locked() && seen.is_claimable()) {
            self.seen().note_free(key, look);
        }
        Ok(seen)
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&LeaseKey>,
        limit: usize,
    ) -> Result<Vec<Observation>, StoreError> {
        // The service's order is that of names. What is kept is what comes first in the order of keys.
        let mut found = BTreeMap::new();
        for beginning in [name::of_prefix(prefix).as_str(), name::LONG] {
            let mut marker = None;
            loop {
                let page = self
                    .port
                    .list(beginning, marker.as_deref())
                    .await
                    .map_err(|fault| of_fault(fault, None))?;
                for (name, mut blob) in page.blobs {
                    let Some(key) = name::to_key(&name) else { continue };
                    if key.as_str().starts_with(prefix) && after.is_none_or(|after| key > *after) {
                        blob.date_ms = page.date_ms;
                        found.insert(key, blob);
                        if found.len() > limit {
                            found.pop_last();
                        }
                    }
                }
                marker = page.next;
                if marker.is_none() {
                    break;
                }
            }
        }
        let looks = found.into_iter().map(|(key, blob)| {
            let look = self.look_in(&key, blob)?;
            Ok(look.record.is_some().then(|| self.observe(&key, Some(&look))))
        });
        looks.filter_map(Result::transpose).collect()
    }
}

fn writes(call: &Call) -> bool {
    matches!(call, Call::Create { .. } | Call::SetMetadata { .. } | Call::Sequence { .. })
}

pub(crate) fn etag(key: &LeaseKey, etag: Option<String>) -> Result<String, StoreError> {
    etag.ok_or_else(|| {
        StoreError::unknown(
            StoreErrorKind::Other,
            "the service's answer has no ETag, so nothing can be tied to it: look for a proxy that strips it",
        )
        .with_key(key)
    })
}

#[async_trait]
impl LeaseStore for AzureBlobStore {
    fn profile(&self) -> &StoreProfile {
        &self.room.profile
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        self.room.check().await
    }

    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let (min, max) = (self.room.profile.min_ttl, self.room.profile.max_ttl);
        if ask.ttl < min || ask.ttl > max {
            return Err(ttl_unsupported(&ask.key, self.room.options.mode));
        }
        match self.room.options.mode {
            Mode::Native => self.room.acquire_lease(ask).await,
            Mode::Record => self.room.acquire_record(ask).await,
        }
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            answers.push(match self.room.options.mode {
                Mode::Native => self.room.renew_lease(ask).await,
                Mode::Record => self.room.renew_record(ask).await,
            });
        }
        answers
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        match self.room.options.mode {
            Mode::Native => self.room.release_lease(ask).await,
            Mode::Record => self.room.release_record(ask).await,
        }
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        self.room.inspect(key).await
    }
}

/// What an operator may do. In [`Mode::Native`] nobody but its holder can write to a leased blob, so [`seal`](LeaseAdmin::seal) on
/// a key that is held answers `Unsupported`: break the lease first, or seal when it is free.
#[async_trait]
impl LeaseAdmin for AzureBlobStore {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&LeaseKey>,
        limit: usize,
    ) -> Result<Vec<Observation>, StoreError> {
        self.room.list(prefix, after, limit).await
    }

    async fn break_lease(
        &self,
        key: &LeaseKey,
        seen: FencingToken,
        how: BreakHow,
    ) -> Result<BreakOutcome, StoreError> {
        match self.room.options.mode {
            Mode::Native => self.room.break_native(key, seen, how).await,
            Mode::Record => self.room.break_record(key, seen, how).await,
        }
    }

    async fn raise_floor(&self, key: &LeaseKey, floor: FencingToken) -> Result<(), StoreError> {
        match self.room.options.mode {
            Mode::Native => self.room.raise_native(key, floor).await,
            Mode::Record => self.room.raise_record(key, floor).await,
        }
    }

    async fn seal(&self, key: &LeaseKey, sealed: bool) -> Result<(), StoreError> {
        match self.room.options.mode {
            Mode::Native => self.room.seal_native(key, sealed).await,
            Mode::Record => self.room.seal_record(key, sealed).await,
        }
    }
}

fn ttl_unsupported(key: &LeaseKey, mode: Mode) -> StoreError {
    let message = match mode {
        Mode::Native => {
            "a lease of Azure Blob lasts 15 to 60 seconds: choose a ttl in this range and renew it, or use record mode (15 s to 24 h)"
        }
        Mode::Record => "record mode takes ttls from 15 seconds to 24 hours: choose one in this range",
    };
    StoreError::not_applied(StoreErrorKind::Unsupported, message).with_key(key)
}

impl fmt::Debug for AzureBlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AzureBlobStore")
            .field("port", &self.room.port)
            .field("options", &self.room.options)
            .finish_non_exhaustive()
    }
}
