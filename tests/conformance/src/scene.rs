use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold::testing::FaultyStore;
use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, BreakHow, BreakOutcome, Clock, Effect, FencingToken, Grant,
    Granted, Held, LeaseAdmin, LeaseKey, LeaseStore, Nonce, Observation, OsChance, ReleaseOutcome,
    ReleaseRequest, RenewOutcome, RenewRequest, StoreError, StoreErrorKind, SystemClock, TokenOrigin,
};

use crate::clause::Clause;
use crate::harness::Harness;

/// What one case works with: the harness, the clause under test, a key of its own, and each verb with the answer that the
/// case expects. An answer that it does not expect ends the case with a line that names the clause.
#[derive(Debug)]
pub(crate) struct Scene<'h, H> {
    pub(crate) harness: &'h H,
    pub(crate) clause: Clause,
    pub(crate) key: LeaseKey,
}

impl<'h, H: Harness> Scene<'h, H> {
    pub(crate) fn new(harness: &'h H, clause: Clause) -> Self {
        Self { harness, clause, key: fresh_key() }
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.harness.ttl()
    }

    /// So much of a ttl that a store which divides or rounds it is found out, and a slow one is not.
    pub(crate) fn most_of_ttl(&self) -> Duration {
        self.ttl() * 3 / 4
    }

    /// Two independent clients.
    pub(crate) async fn two(&self) -> (H::Store, H::Store) {
        (self.harness.store().await, self.harness.store().await)
    }

    /// A client whose requests go astray as scripted.
    pub(crate) async fn faulty(&self) -> FaultyStore<H::Store> {
        FaultyStore::new(self.harness.store().await, Arc::new(SystemClock))
    }

    /// A new acquire call for the key.
    pub(crate) fn ask(&self) -> AcquireRequest {
        self.ask_for(&self.key)
    }

    pub(crate) fn ask_for(&self, key: &LeaseKey) -> AcquireRequest {
        AcquireRequest::new(key.clone(), nonce(), attempt(), self.ttl())
    }

    pub(crate) async fn acquire(&self, store: &impl LeaseStore, ask: &AcquireRequest) -> AcquireOutcome {
        let mut tries = Tries::new(self.clause);
        loop {
            match store.acquire(ask).await {
                Ok(outcome) => return outcome,
                Err(error) => tries.after("acquire", &error).await,
            }
        }
    }

    /// Acquires, and expects to be granted the key.
    pub(crate) async fn granted(&self, store: &impl LeaseStore, ask: &AcquireRequest) -> Granted {
        match self.acquire(store, ask).await {
            AcquireOutcome::Granted(granted) => {
                self.check_grant(ask, &granted);
                granted
            }
            other => self.clause.broken(format_args!(
                "acquire should be granted: the key is free, its grant is over, or it is this nonce's own. It answered {other:?}"
            )),
        }
    }

    fn check_grant(&self, ask: &AcquireRequest, granted: &Granted) {
        let Grant { key, nonce, .. } = &granted.grant;
        if *key != ask.key || *nonce != ask.nonce {
            self.clause.broken(format_args!(
                "a grant must carry the key and the nonce that were asked for: asked for {:?}, got {granted:?}",
                ask.key
            ));
        }
        if granted.ttl.is_zero() {
            self.clause.broken(format_args!("a grant must say the ttl in force, not zero: {granted:?}"));
        }
    }

    /// Acquires with a nonce of its own, and expects to be granted the key.
    pub(crate) async fn fresh(&self, store: &impl LeaseStore) -> Granted {
        self.granted(store, &self.ask()).await
    }

    /// Acquires, and expects to be told that somebody holds the key.
    pub(crate) async fn held(&self, store: &impl LeaseStore, ask: &AcquireRequest) -> Held {
        match self.acquire(store, ask).await {
            AcquireOutcome::Held(held) => held,
            other => self.clause.broken(format_args!(
                "acquire should answer Held: another grant of the key is current. It answered {other:?}"
            )),
        }
    }

    /// Asks with a nonce of its own, and expects to be told that the holder is the one with this token.
    pub(crate) async fn refused(&self, store: &impl LeaseStore, holder: FencingToken) {
        let held = self.held(store, &self.ask()).await;
        if held.token != holder {
            self.clause.broken(format_args!("Held should name the current token {holder}: {held:?}"));
        }
    }

    /// A new attempt to renew `grant`.
    pub(crate) fn renewal(&self, grant: &Grant) -> RenewRequest {
        RenewRequest::new(grant.clone(), attempt(), self.ttl())
    }

    pub(crate) async fn renew(&self, store: &impl LeaseStore, ask: &RenewRequest) -> RenewOutcome {
        let mut tries = Tries::new(self.clause);
        loop {
            let mut answers = store.renew(std::slice::from_ref(ask)).await;
            match (answers.pop(), answers.len()) {
                (Some(Ok(outcome)), 0) => return outcome,
                (Some(Err(error)), 0) => tries.after("renew", &error).await,
                (last, more) => self.clause.broken(format_args!(
                    "renew should give one answer for each ask: for one it gave {}",
                    more + usize::from(last.is_some())
                )),
            }
        }
    }

    /// Renews, and expects the grant to be extended.
    pub(crate) async fn renewed(&self, store: &impl LeaseStore, ask: &RenewRequest) -> Granted {
        match self.renew(store, ask).await {
            RenewOutcome::Renewed(granted) => {
                let (before, after) = (&ask.grant, &granted.grant);
                if before.token != after.token || before.nonce != after.nonce || before.key != after.key {
                    self.clause.broken(format_args!(
                        "renewal should keep key, nonce and token: asked with {before:?}, got {after:?}"
                    ));
                }
                granted
            }
            other => self
                .clause
                .broken(format_args!("renewal of the current grant should extend it. It answered {other:?}")),
        }
    }

    pub(crate) async fn release(&self, store: &impl LeaseStore, ask: &ReleaseRequest) -> ReleaseOutcome {
        let mut tries = Tries::new(self.clause);
        loop {
            match store.release(ask).await {
                Ok(outcome) => return outcome,
                Err(error) => tries.after("release", &error).await,
            }
        }
    }

    /// Releases, and expects to have ended the grant.
    pub(crate) async fn released(&self, store: &impl LeaseStore, grant: &Grant) {
        let outcome = self.release(store, &ReleaseRequest::of(grant)).await;
        if outcome != ReleaseOutcome::Released {
            self.clause
                .broken(format_args!("release of the current grant should end it. It answered {outcome:?}"));
        }
    }

    pub(crate) async fn look(&self, store: &impl LeaseStore) -> Observation {
        self.look_at(store, &self.key).await
    }

    pub(crate) async fn look_at(&self, store: &impl LeaseStore, key: &LeaseKey) -> Observation {
        let mut tries = Tries::new(self.clause);
        loop {
            match store.inspect(key, Duration::from_secs(2)).await {
                Ok(seen) => return seen,
                Err(error) => tries.after("inspect", &error).await,
            }
        }
    }

    /// Inspects, and expects to see a grant, current or over.
    pub(crate) async fn standing(&self, store: &impl LeaseStore) -> Held {
        let seen = self.look(store).await;
        let Some(held) = seen.held else {
            self.clause.broken(format_args!("inspect should show the grant that stands, and shows {seen:?}"));
        };
        held
    }

    /// The one record that counts: expects the store itself to keep this token.
    pub(crate) async fn stored(&self, token: FencingToken) {
        let stored = self.harness.stored_token(&self.key).await;
        if stored != Some(token) {
            self.clause.broken(format_args!(
                "the store itself should keep {token} as the newest token of the key, and keeps {stored:?}"
            ));
        }
    }

    /// The answer to an administrator's request, which is sent once: the caller of these is a person.
    pub(crate) fn admin<T>(&self, verb: &str, answer: Result<T, StoreError>) -> T {
        answer.unwrap_or_else(|error| {
            self.clause.broken(format_args!("{verb} should succeed on a healthy store: {error} ({error:?})"))
        })
    }

    /// Breaks, and expects the grant to have been the current one.
    pub(crate) async fn broke(&self, store: &impl LeaseAdmin, seen: FencingToken, how: BreakHow) {
        let outcome = self.admin("break_lease", store.break_lease(&self.key, seen, how).await);
        if outcome != BreakOutcome::Broken {
            self.clause.broken(format_args!(
                "a break ({how:?}) of the current grant, seen with its token {seen}, should answer Broken, not {outcome:?}"
            ));
        }
    }

    /// Raises the floor. False where the store says that it cannot, and its tokens are not a field of its record.
    pub(crate) async fn raised(&self, store: &impl LeaseAdmin, floor: FencingToken) -> bool {
        match store.raise_floor(&self.key, floor).await {
            Err(error)
                if (error.kind(), error.effect()) == (StoreErrorKind::Unsupported, Effect::NotApplied)
                    && store.profile().token_origin != TokenOrigin::Record =>
            {
                false
            }
            answer => {
                self.admin("raise_floor", answer);
                true
            }
        }
    }

    pub(crate) async fn list(
        &self,
        store: &impl LeaseAdmin,
        prefix: &str,
        after: Option<&LeaseKey>,
        limit: usize,
    ) -> Vec<Observation> {
        self.admin("list", store.list(prefix, after, limit).await)
    }

    /// All pages of a list, one after the other.
    pub(crate) async fn list_all(
        &self,
        store: &impl LeaseAdmin,
        prefix: &str,
        limit: usize,
    ) -> Vec<Observation> {
        let mut listed: Vec<Observation> = Vec::new();
        loop {
            let after = listed.last().map(|seen| seen.key.clone());
            let page = self.list(store, prefix, after.as_ref(), limit).await;
            if page.is_empty() {
                return listed;
            }
            let first = page.first().map(|seen| &seen.key);
            if page.len() > limit || first <= after.as_ref() {
                self.clause.broken(format_args!(
                    "a page of at most {limit} keys after {after:?} was asked for, and it has {} from {first:?} on",
                    page.len()
                ));
            }
            listed.extend(page);
        }
    }

    /// Ends the case if `step` takes longer than any attempt may.
    pub(crate) async fn in_time<T>(&self, verb: &str, step: impl Future<Output = T> + Send) -> T {
        let limit = Duration::from_secs(10);
        match select(pin!(step), SystemClock.sleep(limit)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => self.clause.broken(format_args!(
                "{verb} should answer within its timeout of 2 s, not wait. It has not answered within {limit:?}"
            )),
        }
    }
}

/// A key that no other case and no other run uses.
pub(crate) fn fresh_key() -> LeaseKey {
    LeaseKey::new(format!("conformance/{}", unique())).expect("the kit's own keys are valid")
}

/// Text that no other case and no other run uses: 32 hexadecimal digits.
pub(crate) fn unique() -> String {
    nonce().expose_hex()
}

pub(crate) fn nonce() -> Nonce {
    Nonce::draw(&OsChance).expect("the machine has a source of randomness")
}

pub(crate) fn attempt() -> AttemptId {
    AttemptId::draw(&OsChance).expect("the machine has a source of randomness")
}

/// Waits, without a timer, until the machine's clock shows a later millisecond: tokens may be made from it.
pub(crate) async fn next_millisecond() {
    let start = SystemClock.read();
    while SystemClock.read().monotonic.saturating_sub(start.monotonic) < Duration::from_millis(3) {
        tokio::task::yield_now().await;
    }
}

/// Waits until a clock that is known this exactly has certainly moved on. In real time: it is the service's own clock.
pub(crate) async fn move_on(resolution: Duration) {
    next_millisecond().await;
    if resolution > Duration::from_millis(1) {
        SystemClock.sleep(resolution).await;
    }
}

/// What to do about errors: a step that has certainly not been done and may succeed is sent again, the same request.
///
/// A store does not retry (clause 10), so its caller does.
pub(crate) struct Tries {
    clause: Clause,
    left: u32,
}

impl Tries {
    pub(crate) fn new(clause: Clause) -> Self {
        Self { clause, left: 20 }
    }

    /// Ends the case unless the request may be repeated without another meaning.
    pub(crate) async fn after(&mut self, verb: &str, error: &StoreError) {
        if error.effect() == Effect::Unknown {
            self.give_up(verb, error);
        }
        self.after_any(verb, error).await;
    }

    /// The same where an answer may be lost, as in a race: the nonce tells what became of the request.
    pub(crate) async fn after_any(&mut self, verb: &str, error: &StoreError) {
        if !error.is_transient() || self.left == 0 {
            self.give_up(verb, error);
        }
        self.left -= 1;
        SystemClock.sleep(error.retry_after().unwrap_or(Duration::from_millis(20))).await;
    }

    fn give_up(&self, verb: &str, error: &StoreError) -> ! {
        self.clause.broken(format_args!("{verb} should give an answer. It failed: {error} ({error:?})"))
    }
}

impl fmt::Debug for Tries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tries").field("clause", &self.clause).field("left", &self.left).finish()
    }
}
