use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use zeroize::Zeroizing;

use crate::clock::Deadline;
use crate::error::StoreError;
use crate::holder::Holder;
use crate::key::LeaseKey;
use crate::nonce::{AttemptId, Nonce};
use crate::profile::StoreProfile;
use crate::token::FencingToken;

/// A store of leases. What an adapter implements; users talk to [`Leases`](crate::Leases).
///
/// # Contract
/// Each clause has tests of the same number in `leasehold-conformance`.
///
/// 1. **Exclusion.** At most one grant of a key is current.
/// 2. **Growth.** Every grant's token is greater than all earlier ones of that key.
/// 3. **Repetition.** Asking again with the same nonce yields the same grant while it is current.
/// 4. **Patience.** A current grant is not superseded before its ttl has passed, by the store's rule of expiry.
/// 5. **Renewal** extends only the current grant, keeps its token, and never moves its expiry back.
/// 6. **Release** ends only the current grant, keeps the record, and may be repeated.
/// 7. **Honesty.** `Ok` means known. An error says whether the step may have landed.
/// 8. **Cancellation.** A dropped future leaves a record from which the same nonce goes on or one ttl recovers; never two
///    current grants, never a token handed out twice.
/// 9. **Names.** Keys are byte-exact and never alias.
/// 10. **Modesty.** One logical step, no retry, no background task, no clock but the one given at construction.
/// 11. **Profile.** What a store cannot do, its profile says.
///
/// Methods have no defaults: what an adapter forgets must not compile.
#[async_trait]
pub trait LeaseStore: fmt::Debug + Send + Sync + 'static {
    /// What this store can and promises.
    fn profile(&self) -> &StoreProfile;

    /// Looks for what will hurt: rights, schema, settings, clock. Writes nothing.
    ///
    /// # Errors
    /// When the store cannot be asked at all. What it finds is a [`Finding`], not an error.
    async fn check(&self) -> Result<Vec<Finding>, StoreError>;

    /// Grants the key if it is free or its grant is over.
    ///
    /// Returns [`AcquireOutcome::Granted`] also when the record already shows the nonce of `ask`: the grant is ours, and
    /// `attempt` names the request that made it. [`AcquireOutcome::Held`] is ordinary contention. A nonce that comes back after
    /// its release wins a new grant, with a new token. A ttl outside the profile's bounds is granted or refused as
    /// [`Effect::NotApplied`](crate::Effect::NotApplied); [`Leases`](crate::Leases) never asks for one.
    ///
    /// # Errors
    /// When it is not known who has the key; [`StoreError::effect`] tells whether the request may have landed.
    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError>;

    /// Extends grants: one answer for each of `asks`, in their order. Usually there is one.
    ///
    /// A store that takes no batches is never given more than [`StoreProfile::max_batch`]. A grant whose ttl has passed and
    /// that nobody has taken over may be renewed or be reported gone, always the same on one store.
    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>>;

    /// Ends the grant with this nonce, if it is the current one. The record stays, and with it the token.
    ///
    /// # Errors
    /// When it is not known whether the grant has ended. It then ends by itself when its ttl has passed.
    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError>;

    /// Looks at a key without writing. Stale when it arrives.
    ///
    /// # Errors
    /// When the record cannot be read or makes no sense.
    async fn inspect(&self, key: &LeaseKey, timeout: Duration) -> Result<Observation, StoreError>;
}

/// What an operator may do to leases and no holder should. Apart from [`LeaseStore`], because not every store can.
#[async_trait]
pub trait LeaseAdmin: LeaseStore {
    /// A page of keys that have a record and begin with `prefix`, in byte order, those after `after` only.
    ///
    /// # Errors
    /// When the store cannot be read.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&LeaseKey>,
        limit: usize,
    ) -> Result<Vec<Observation>, StoreError>;

    /// Ends somebody's grant, provided that it is still the one with the token `seen`.
    ///
    /// # Errors
    /// When it is not known whether the grant has ended.
    async fn break_lease(
        &self,
        key: &LeaseKey,
        seen: FencingToken,
        how: BreakHow,
    ) -> Result<BreakOutcome, StoreError>;

    /// Makes every later token of the key greater than `floor`. Lowers nothing. Ends the current grant if it raises
    /// anything, since that grant's token is then too low.
    ///
    /// # Errors
    /// When it is not known whether the floor stands; `Unsupported` where tokens are the server's own numbers.
    async fn raise_floor(&self, key: &LeaseKey, floor: FencingToken) -> Result<(), StoreError>;

    /// Closes the key to new grants (`true`) or opens it again (`false`). A current grant goes on.
    ///
    /// # Errors
    /// When it is not known whether the seal stands.
    async fn seal(&self, key: &LeaseKey, sealed: bool) -> Result<(), StoreError>;
}

/// One attempt to acquire a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// What is asked for.
    pub key: LeaseKey,
    /// Identifies the grant; the same for all attempts of one acquire call.
    pub nonce: Nonce,
    /// Marks this attempt.
    pub attempt: AttemptId,
    /// A label for people.
    pub holder: Holder,
    /// How long the grant lasts unless renewed.
    pub ttl: Duration,
    /// How long the caller waits for the answer. A store that would itself wait (a busy file) gives up by then.
    pub timeout: Duration,
}

impl AcquireRequest {
    /// An attempt with the default holder and a timeout of two seconds.
    pub fn new(key: LeaseKey, nonce: Nonce, attempt: AttemptId, ttl: Duration) -> Self {
        Self { key, nonce, attempt, holder: Holder::default(), ttl, timeout: Duration::from_secs(2) }
    }
}

/// One attempt to renew a grant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RenewRequest {
    /// The grant, with the `seq` that the record is expected to show.
    pub grant: Grant,
    /// Marks this attempt.
    pub attempt: AttemptId,
    /// How long the grant lasts from now on.
    pub ttl: Duration,
    /// How long the caller waits for the answer.
    pub timeout: Duration,
}

impl RenewRequest {
    /// An attempt with a timeout of two seconds.
    pub const fn new(grant: Grant, attempt: AttemptId, ttl: Duration) -> Self {
        Self { grant, attempt, ttl, timeout: Duration::from_secs(2) }
    }
}

/// One attempt to release. By nonce alone: an acquire whose answer was lost knows no token and is released all the same.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReleaseRequest {
    /// The key.
    pub key: LeaseKey,
    /// The grant's nonce.
    pub nonce: Nonce,
    /// The grant's token, where it is known. Tells "released before" from "taken over".
    pub token: Option<FencingToken>,
    /// The grant's state, where it is known.
    pub state: GrantState,
    /// How long the caller waits for the answer.
    pub timeout: Duration,
}

impl ReleaseRequest {
    /// Releases `grant`, with a timeout of two seconds.
    pub fn of(grant: &Grant) -> Self {
        Self {
            key: grant.key.clone(),
            nonce: grant.nonce.clone(),
            token: Some(grant.token),
            state: grant.state.clone(),
            timeout: Duration::from_secs(2),
        }
    }

    /// Releases whatever grant `nonce` may have won, with a timeout of two seconds.
    pub fn of_nonce(key: LeaseKey, nonce: Nonce) -> Self {
        Self { key, nonce, token: None, state: GrantState::default(), timeout: Duration::from_secs(2) }
    }
}

/// One win of a key, from acquire to its end. Plain data: it can be saved and resumed by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The key.
    pub key: LeaseKey,
    /// Identifies the grant. Secret.
    pub nonce: Nonce,
    /// The grant's fencing token.
    pub token: FencingToken,
    /// How often the grant has been renewed, as the record is expected to show.
    pub seq: u64,
    /// What the adapter needs beside these (an ETag, a session id).
    pub state: GrantState,
}

impl Grant {
    /// A grant without state of the adapter's own.
    pub const fn new(key: LeaseKey, nonce: Nonce, token: FencingToken, seq: u64) -> Self {
        Self { key, nonce, token, seq, state: GrantState(None) }
    }

    /// With state of the adapter's own.
    #[must_use]
    pub fn with_state(self, state: GrantState) -> Self {
        Self { state, ..self }
    }

    /// As it is after so many renewals.
    #[must_use]
    pub fn with_seq(self, seq: u64) -> Self {
        Self { seq, ..self }
    }
}

/// Text that an adapter keeps with a grant. May be a secret, so `Debug` shows nothing of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct GrantState(Option<Arc<Zeroizing<String>>>);

impl GrantState {
    /// Keeps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Some(Arc::new(Zeroizing::new(text.into()))))
    }

    /// The text, where there is one. Keep it out of logs and errors.
    pub fn expose(&self) -> Option<&str> {
        self.0.as_ref().map(|text| text.as_str())
    }
}

impl fmt::Debug for GrantState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "GrantState(secret)" } else { "GrantState(none)" })
    }
}

/// A grant as a store gives or extends it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Granted {
    /// The grant, with the `seq` and state that the record now has.
    pub grant: Grant,
    /// The attempt that is in the store. The deadline counts from the sending of this one. A store that times by the
    /// arrival of the last request names the attempt just made.
    pub attempt: AttemptId,
    /// The ttl in force; some servers grant another than was asked.
    pub ttl: Duration,
    /// A further bound of the store's own on how long the holder may act, before margin.
    pub until: Option<Deadline>,
}

impl Granted {
    /// A grant without a further bound.
    pub const fn new(grant: Grant, attempt: AttemptId, ttl: Duration) -> Self {
        Self { grant, attempt, ttl, until: None }
    }

    /// With a bound of the store's own.
    #[must_use]
    pub fn with_until(self, until: Deadline) -> Self {
        Self { until: Some(until), ..self }
    }
}

/// The answer to an acquire.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AcquireOutcome {
    /// The key is ours.
    Granted(Granted),
    /// Somebody else has it.
    Held(Held),
    /// An operator has closed the key to new grants.
    Sealed,
}

/// The answer to a renewal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RenewOutcome {
    /// Extended, now or by an earlier attempt whose answer was lost: [`Granted::attempt`] says which.
    Renewed(Granted),
    /// An operator has ended the grant, or has asked that it be ended.
    Broken,
    /// The record shows our nonce with more renewals than we have made: another process holds a copy of the grant.
    Cloned,
    /// The record, or its newest part, is gone.
    RecordGone,
    /// The key has been granted to another since; to whom with which token, where it is known.
    Superseded {
        /// The newest token of the key.
        by: Option<FencingToken>,
    },
}

/// The answer to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The grant has ended by this request.
    Released,
    /// The grant had ended before: released earlier, broken, or its record deleted.
    AlreadyEnded,
    /// The grant had ended before, and the key has been granted to another since.
    HeldByOther {
        /// The newest token of the key.
        by: FencingToken,
    },
}

/// How an operator ends a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakHow {
    /// The holder is told at its next renewal and the key frees itself at the expiry. Safe.
    Graceful,
    /// The key is free at once, while the holder may still act. Unsafe without fencing.
    Immediate,
}

/// The answer to a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakOutcome {
    /// Done, or asked for.
    Broken,
    /// There is no grant with that token any more.
    NotCurrent,
}

/// What the record of a key shows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observation {
    /// The key.
    pub key: LeaseKey,
    /// The token of the newest grant, or the floor; nothing if the key has no record.
    pub token: Option<FencingToken>,
    /// The grant that stands in the record. It may be over; [`Held::claimable`] tells.
    pub held: Option<Held>,
    /// Whether an operator has closed the key to new grants.
    pub sealed: bool,
}

impl Observation {
    /// A key that has no record.
    pub const fn absent(key: LeaseKey) -> Self {
        Self { key, token: None, held: None, sealed: false }
    }

    /// Whether an acquire that came now would be granted.
    pub fn is_claimable(&self) -> bool {
        !self.sealed && self.held.as_ref().is_none_or(|held| held.claimable)
    }
}

/// Somebody's grant, as others see it. Without the nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Who holds it, for people.
    pub holder: Holder,
    /// The grant's token.
    pub token: FencingToken,
    /// How often it has been renewed.
    pub seq: u64,
    /// The ttl that the holder chose.
    pub ttl: Duration,
    /// When it was granted, Unix time in milliseconds by the holder's wall clock. For people.
    pub since_ms: Option<u64>,
    /// When it expires unless renewed, Unix time in milliseconds. For people.
    pub until_ms: Option<u64>,
    /// Whether the store's rule of expiry says that it is over and may be taken.
    pub claimable: bool,
    /// Whether an operator has asked its holder to stop.
    pub break_requested: bool,
}

impl Held {
    /// A grant of which only label, token and ttl are known.
    pub const fn new(holder: Holder, token: FencingToken, ttl: Duration) -> Self {
        Self {
            holder,
            token,
            seq: 0,
            ttl,
            since_ms: None,
            until_ms: None,
            claimable: false,
            break_requested: false,
        }
    }
}

/// Something that [`LeaseStore::check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Finding {
    /// A finding.
    pub fn new(severity: Severity, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity, what: what.into(), remedy: remedy.into() }
    }
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Good to know.
    Info,
    /// Will hurt one day.
    Warning,
    /// Leases do not work, or do not hold.
    Error,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: LeaseStore + ?Sized> LeaseStore for Arc<S> {
    fn profile(&self) -> &StoreProfile {
        (**self).profile()
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        (**self).check().await
    }

    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        (**self).acquire(ask).await
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        (**self).renew(asks).await
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        (**self).release(ask).await
    }

    async fn inspect(&self, key: &LeaseKey, timeout: Duration) -> Result<Observation, StoreError> {
        (**self).inspect(key, timeout).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: LeaseAdmin + ?Sized> LeaseAdmin for Arc<S> {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&LeaseKey>,
        limit: usize,
    ) -> Result<Vec<Observation>, StoreError> {
        (**self).list(prefix, after, limit).await
    }

    async fn break_lease(
        &self,
        key: &LeaseKey,
        seen: FencingToken,
        how: BreakHow,
    ) -> Result<BreakOutcome, StoreError> {
        (**self).break_lease(key, seen, how).await
    }

    async fn raise_floor(&self, key: &LeaseKey, floor: FencingToken) -> Result<(), StoreError> {
        (**self).raise_floor(key, floor).await
    }

    async fn seal(&self, key: &LeaseKey, sealed: bool) -> Result<(), StoreError> {
        (**self).seal(key, sealed).await
    }
}
