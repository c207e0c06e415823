//! One acquire call: asks, waits, and hands a grant to a keeper. Runs in a task of its own, which owns the nonce.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::attempts::{Extent, Renewal, Retry, Sends};
use crate::clock::{Deadline, Reading};
use crate::error::{Effect, StoreError, StoreErrorKind};
use crate::holder::Holder;
use crate::keeper::Keeper;
use crate::key::LeaseKey;
use crate::lease::{Lease, Shared};
use crate::leases::{AcquireError, Contention, Inner, ResumeError, TryAcquire};
use crate::nonce::Nonce;
use crate::queue::Turn;
use crate::saved::SavedLease;
use crate::store::{AcquireOutcome, AcquireRequest, Held, ReleaseRequest};
use crate::timing;
use crate::validity::Validity;

/// How long a call waits for somebody else's lease to end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    Once,
    /// Until it does.
    Unlimited,
    /// Until it does, or until this has passed.
    Within(Duration),
}

/// Where the answer of a call goes. Closed when the caller has dropped its future.
type Answer<T, E> = oneshot::Sender<Result<T, E>>;

/// Acquires `key`, answers, and keeps what it got.
pub(crate) async fn contend(
    inner: Arc<Inner>,
    key: LeaseKey,
    patience: Patience,
    answer: Answer<TryAcquire, AcquireError>,
) {
    // In a box of its own, which goes before the keeping begins: what it takes to contend is not held for as long as the lease.
    if let Some(keeper) = Box::pin(contend_and_answer(inner, key, patience, answer)).await {
        keeper.keep().await;
    }
}

async fn contend_and_answer(
    inner: Arc<Inner>,
    key: LeaseKey,
    patience: Patience,
    answer: Answer<TryAcquire, AcquireError>,
) -> Option<Box<Keeper>> {
    let contending = inner.note_contending(&key);
    let mut contender = Contender::new(&inner, &key, inner.options.ttl(), patience, answer);
    let outcome = contender.contend().await;
    let orphan = contender.orphan();
    let answer = contender.answer;
    match outcome {
        Ok(Won::Lease(extent)) => {
            let term = Term::of(&extent, inner.options.holder(), inner.options.ttl());
            let (lease, keeper) = appoint(&inner, *extent, term);
            // A shutdown that came before the keeper was on the list knows nothing of it.
            let won = if *inner.closing.borrow() {
                lease.give_back();
                Err(AcquireError::ShutDown)
            } else {
                Ok(TryAcquire::Acquired(lease))
            };
            // If the caller has gone, the lease comes back.
            if let Err(Ok(TryAcquire::Acquired(unwanted))) = answer.send(won) {
                unwanted.give_back();
            }
            drop(contending);
            Some(keeper)
        }
        Ok(Won::Nothing(held)) => {
            let contention = inner.contention(&key, held);
            let _ = answer.send(Ok(TryAcquire::Held(contention)));
            give_back(&inner, orphan).await;
            None
        }
        Err(error) => {
            let _ = answer.send(Err(error));
            give_back(&inner, orphan).await;
            None
        }
    }
}

/// Acquires `key` in the caller's own future, without a task. A grant that may have been won without our hearing of it is given
/// back once; if that fails, or the future is dropped, it expires by itself.
pub(crate) async fn contend_here(
    inner: &Arc<Inner>,
    key: &LeaseKey,
    ttl: Duration,
    patience: Patience,
) -> Result<TryAcquire<(Extent, Term)>, AcquireError> {
    // The caller is there for as long as this runs.
    let (answer, _caller) = oneshot::channel::<()>();
    let mut contender = Contender::new(inner, key, ttl, patience, answer);
    match contender.contend().await {
        Ok(Won::Lease(extent)) => {
            let term = Term::of(&extent, inner.options.holder(), ttl);
            Ok(TryAcquire::Acquired((*extent, term)))
        }
        Ok(Won::Nothing(held)) => Ok(TryAcquire::Held(inner.contention(key, held))),
        Err(error) => {
            // Once, and not at all when the caller's time is over.
            let orphan = contender.orphan().filter(|_| !matches!(error, AcquireError::TimedOut { .. }));
            if let Some(orphan) = orphan {
                let _ = inner.attempts.release(orphan, Duration::ZERO).await;
            }
            Err(error)
        }
    }
}

/// Renews a saved grant, answers, and keeps it.
pub(crate) async fn resume(inner: Arc<Inner>, saved: SavedLease, answer: Answer<Lease, ResumeError>) {
    if *inner.closing.borrow() {
        let _ = answer.send(Err(ResumeError::ShutDown));
        return;
    }
    match renew_saved(&inner, &saved).await {
        Ok((extent, term)) => {
            let (lease, keeper) = appoint(&inner, extent, term);
            let resumed = if *inner.closing.borrow() {
                lease.abandon();
                Err(ResumeError::ShutDown)
            } else {
                Ok(lease)
            };
            if let Err(Ok(unwanted)) = answer.send(resumed) {
                unwanted.abandon();
            }
            keeper.keep().await;
        }
        Err(error) => {
            let _ = answer.send(Err(error));
        }
    }
}

/// Renews a saved grant once.
pub(crate) async fn renew_saved(inner: &Inner, saved: &SavedLease) -> Result<(Extent, Term), ResumeError> {
    let now = inner.attempts.clock().read();
    let limit = Deadline { since: now, length: saved.ttl / 3 };
    match inner.attempts.renew(saved.grant.clone(), saved.ttl, limit, true, |_| {}, |_| {}).await {
        Renewal::Renewed(extent) => {
            let term = Term {
                holder: saved.holder.clone(),
                ttl: saved.ttl,
                granted: extent.sent,
                granted_ms: saved.granted_ms,
            };
            Ok((extent, term))
        }
        Renewal::Lost(reason) => Err(ResumeError::Lost(reason)),
        Renewal::GaveUp(error) => Err(error.map_or_else(silent, |error| StoreError::clone(&error)).into()),
    }
}

fn silent() -> StoreError {
    StoreError::unknown(StoreErrorKind::Unavailable, "the store gave no answer within a third of the ttl")
}

/// What has to be known of a grant beside its extent.
pub(crate) struct Term {
    pub(crate) holder: Holder,
    pub(crate) ttl: Duration,
    pub(crate) granted: Reading,
    pub(crate) granted_ms: u64,
}

impl Term {
    /// The term of a grant that has just been won.
    fn of(extent: &Extent, holder: &Holder, ttl: Duration) -> Self {
        Self { holder: holder.clone(), ttl, granted: extent.sent, granted_ms: extent.sent.unix_ms() }
    }

    /// The instant at which the lease has been held for `bound`. Of a resumed one only the wall clock tells since when.
    fn until(&self, bound: Duration, now: &Reading) -> Deadline {
        let by_wall = Duration::from_millis(now.unix_ms().saturating_sub(self.granted_ms));
        let held = by_wall.max(now.elapsed_since(&self.granted));
        Deadline { since: *now, length: bound.saturating_sub(held) }
    }
}

/// What guard and views of a grant share. `hold_end`: a bound beside `max_hold`.
pub(crate) fn share(inner: &Inner, extent: &Extent, term: &Term, hold_end: Option<Deadline>) -> Arc<Shared> {
    let clock = inner.attempts.clock();
    let now = clock.read();
    let max_hold = inner.options.max_hold().map(|bound| term.until(bound, &now));
    let hold_end = [max_hold, hold_end].into_iter().flatten().reduce(|one, other| one.earlier(other, &now));
    tracing::info!(key = %extent.grant.key, token = %extent.grant.token, holder = %term.holder, "lease acquired");
    Arc::new(Shared {
        key: extent.grant.key.clone(),
        holder: term.holder.clone(),
        token: extent.grant.token,
        granted: term.granted,
        validity: Validity::new(Arc::clone(clock), extent.deadline, hold_end),
        running: watch::Sender::new(0),
    })
}

/// Makes guard and keeper of a grant.
fn appoint(inner: &Arc<Inner>, extent: Extent, term: Term) -> (Lease, Box<Keeper>) {
    let shared = share(inner, &extent, &term, None);
    let (commands, asked) = mpsc::unbounded_channel();
    let note = inner.note_kept(&shared.key, shared.token, commands.clone());
    let lease = Lease::new(Arc::clone(&shared), commands);
    let tenure = term.until(inner.options.hold_at_least(), &inner.attempts.clock().read());
    let keeper = Keeper::new(Arc::clone(inner), shared, extent, term, tenure, asked, note);
    (lease, Box::new(keeper))
}

/// Ends a grant that may have been won and that nobody wants.
async fn give_back(inner: &Inner, orphan: Option<ReleaseRequest>) {
    if let Some(orphan) = orphan {
        let key = orphan.key.clone();
        if let Err(error) =
            inner.attempts.release(orphan, timing::RELEASE_AT_MOST.min(inner.options.ttl())).await
        {
            tracing::debug!(%key, %error, "a grant that may have been won was not given back and expires by itself");
        }
    }
}

/// How contending ended without an error.
enum Won {
    Lease(Box<Extent>),
    Nothing(Held),
}

/// One acquire call. `T`: what the caller waits for on `answer`, which closes when the caller has gone.
struct Contender<'a, T> {
    inner: &'a Inner,
    key: &'a LeaseKey,
    ttl: Duration,
    patience: Patience,
    answer: oneshot::Sender<T>,
    closing: watch::Receiver<bool>,
    began: Reading,
    nonce: Option<Nonce>,
    /// The attempts of the whole call: an early one may land late.
    sends: Sends,
    /// Whether a request may have been granted, or may yet be, without our knowing.
    may_have_landed: bool,
    seen: Option<Held>,
    last_error: Option<StoreError>,
}

impl<'a, T> Contender<'a, T> {
    fn new(
        inner: &'a Inner,
        key: &'a LeaseKey,
        ttl: Duration,
        patience: Patience,
        answer: oneshot::Sender<T>,
    ) -> Self {
        Self {
            inner,
            key,
            ttl,
            patience,
            answer,
            closing: inner.closing.subscribe(),
            began: inner.attempts.clock().read(),
            nonce: None,
            sends: Sends::default(),
            may_have_landed: false,
            seen: None,
            last_error: None,
        }
    }

    /// What has to be given back if the call ends without a lease.
    fn orphan(&self) -> Option<ReleaseRequest> {
        let nonce = self.nonce.clone().filter(|_| self.may_have_landed)?;
        Some(ReleaseRequest::of_nonce(self.key.clone(), nonce))
    }

    async fn contend(&mut self) -> Result<Won, AcquireError> {
        if *self.closing.borrow() {
            return Err(AcquireError::ShutDown);
        }
        // One for the whole call: all its attempts ask for the same grant.
        let nonce = Nonce::draw(self.inner.attempts.chance())?;
        self.nonce = Some(nonce.clone());
        let once = matches!(self.patience, Patience::Once);
        let _turn = if once { None } else { Some(self.turn().await?) };
        loop {
            match self.ask(&nonce).await? {
                Won::Nothing(held) if !once => {
                    if self.seen.is_none() {
                        let (key, holder, token) = (self.key, &held.holder, held.token);
                        tracing::info!(%key, %holder, %token, "waiting for a lease that somebody holds");
                    }
                    self.seen = Some(held);
                }
                won => return Ok(won),
            }
            self.watch().await?;
        }
    }

    /// Asks for the key until the store has answered.
    async fn ask(&mut self, nonce: &Nonce) -> Result<Won, AcquireError> {
        let attempts = &self.inner.attempts;
        let ttl = self.ttl;
        // A grant older than its ttl is worth nothing, and a call that does not wait should leave most of it.
        let limit = if matches!(self.patience, Patience::Once) { ttl / 3 } else { ttl };
        let started = attempts.clock().read();
        let mut retry = Retry::default();
        loop {
            let now = attempts.clock().read();
            let left = self.left_of(limit, &started, &now);
            let Some(timeout) = timing::attempt_timeout(ttl, left) else {
                return Err(self.gave_up(&now));
            };
            let request = AcquireRequest {
                holder: self.inner.options.holder().clone(),
                timeout,
                ..AcquireRequest::new(self.key.clone(), nonce.clone(), self.sends.begin(attempts)?, ttl)
            };
            match attempts.acquire(&request).await {
                Ok(AcquireOutcome::Granted(granted)) => {
                    self.may_have_landed = true;
                    let now = attempts.clock().read();
                    let extent = self.sends.extent(granted, &now).map_err(|_| copied(self.key))?;
                    return self.settle(extent).await;
                }
                Ok(AcquireOutcome::Held(held)) => return Ok(Won::Nothing(held)),
                Ok(AcquireOutcome::Sealed) => return Err(AcquireError::Sealed),
                Err(error) => {
                    tracing::debug!(key = %self.key, %error, "an attempt to acquire failed");
                    self.may_have_landed |= error.effect() == Effect::Unknown;
                    self.sends.settle(&error);
                    if retry.is_in_vain(&error) {
                        return Err(error.into());
                    }
                    let wait = retry.after(&error, attempts.fraction());
                    self.last_error = Some(error);
                    let now = attempts.clock().read();
                    if wait >= self.left_of(limit, &started, &now) {
                        return Err(self.gave_up(&now));
                    }
                    self.pause(wait).await?;
                }
            }
        }
    }

    /// Hands a grant out if it leaves any time. One that does not is renewed once: the store may have been slow that one
    /// time only.
    async fn settle(&self, extent: Extent) -> Result<Won, AcquireError> {
        let attempts = &self.inner.attempts;
        if !extent.deadline.has_passed(&attempts.clock().read()) {
            return Ok(Won::Lease(Box::new(extent)));
        }
        let ttl = self.ttl;
        let limit = Deadline { since: attempts.clock().read(), length: ttl / 3 };
        match attempts.renew(extent.grant, ttl, limit, false, |_| {}, |_| {}).await {
            Renewal::Renewed(renewed) if !renewed.deadline.has_passed(&attempts.clock().read()) => {
                Ok(Won::Lease(Box::new(renewed)))
            }
            _ => Err(AcquireError::ExpiredOnArrival),
        }
    }

    /// Reads the record until it shows the key free or its grant over.
    async fn watch(&mut self) -> Result<(), AcquireError> {
        let attempts = &self.inner.attempts;
        let mut throttled = 0;
        let mut silent_since: Option<Reading> = None;
        loop {
            self.pause(timing::between_reads(throttled, attempts.fraction())).await?;
            let now = attempts.clock().read();
            let left = self.left(&now).unwrap_or(Duration::MAX);
            match attempts.inspect(self.key, left.min(self.ttl)).await {
                Ok(seen) if seen.sealed => return Err(AcquireError::Sealed),
                Ok(seen) if seen.is_claimable() => return Ok(()),
                Ok(seen) => {
                    let known = self.seen.as_ref().map(|held| held.token);
                    let changed = seen.held.as_ref().map(|held| held.token) != known;
                    self.seen = seen.held;
                    if changed && self.may_have_landed {
                        // Perhaps by a late attempt of our own: asking tells.
                        return Ok(());
                    }
                    throttled = 0;
                    silent_since = None;
                }
                Err(error) if !error.is_transient() => return Err(error.into()),
                Err(error) => {
                    tracing::debug!(key = %self.key, %error, "a look at the lease failed");
                    let since = *silent_since.get_or_insert(now);
                    if now.monotonic.saturating_sub(since.monotonic) > self.ttl {
                        return Err(error.into());
                    }
                    throttled += u32::from(error.kind() == StoreErrorKind::Throttled);
                    self.last_error = Some(error);
                }
            }
        }
    }

    async fn turn(&mut self) -> Result<Turn, AcquireError> {
        let now = self.inner.attempts.clock().read();
        let left = self.left(&now).unwrap_or(Duration::MAX);
        tokio::select! {
            biased;
            () = interrupted(&mut self.closing, &mut self.answer) => Err(AcquireError::ShutDown),
            turn = self.inner.queue.turn(self.key) => Ok(turn),
            () = self.inner.attempts.clock().sleep(left) => Err(self.timed_out()),
        }
    }

    /// Sleeps, unless the limit, the caller or a shutdown ends the call before.
    async fn pause(&mut self, wait: Duration) -> Result<(), AcquireError> {
        let clock = self.inner.attempts.clock();
        let left = self.left(&clock.read());
        tokio::select! {
            biased;
            () = interrupted(&mut self.closing, &mut self.answer) => return Err(AcquireError::ShutDown),
            () = clock.sleep(left.map_or(wait, |left| left.min(wait))) => {}
        }
        if left.is_some_and(|left| left <= wait) { Err(self.timed_out()) } else { Ok(()) }
    }

    /// What is left of the caller's limit, if there is one.
    fn left(&self, now: &Reading) -> Option<Duration> {
        match self.patience {
            Patience::Within(limit) => {
                Some(limit.saturating_sub(now.monotonic.saturating_sub(self.began.monotonic)))
            }
            Patience::Once | Patience::Unlimited => None,
        }
    }

    /// What is left of `limit` since `started`, and of the caller's own limit.
    fn left_of(&self, limit: Duration, started: &Reading, now: &Reading) -> Duration {
        let left = limit.saturating_sub(now.monotonic.saturating_sub(started.monotonic));
        self.left(now).map_or(left, |patience| patience.min(left))
    }

    fn timed_out(&mut self) -> AcquireError {
        let contention: Option<Contention> =
            self.seen.take().map(|held| self.inner.contention(self.key, held));
        AcquireError::TimedOut { contention, last_error: self.last_error.take() }
    }

    /// No time is left for another attempt: the caller's limit is near, or the store has been silent for as long as it may.
    fn gave_up(&mut self, now: &Reading) -> AcquireError {
        let callers_limit = self.left(now).is_some_and(|left| left < self.ttl);
        match self.last_error.take_if(|_| !callers_limit) {
            Some(error) => error.into(),
            None => self.timed_out(),
        }
    }
}

/// Completes when the caller has gone or the process is shutting down.
async fn interrupted<T>(closing: &mut watch::Receiver<bool>, answer: &mut oneshot::Sender<T>) {
    tokio::select! {
        () = answer.closed() => {}
        // The sender lives as long as `Inner`, which the caller's task holds.
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

fn copied(key: &LeaseKey) -> StoreError {
    StoreError::unknown(
        StoreErrorKind::Other,
        "a copy of this process asked for the lease with the same nonce: a fork or a restored snapshot; start it anew",
    )
    .with_key(key)
}
