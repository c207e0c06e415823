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

/// The longest that a grant which nobody wants any more is tried to be given back.
const GIVE_BACK: Duration = Duration::from_secs(10);

/// Acquires `key`, answers, and keeps what it got.
pub(crate) async fn contend(
    inner: Arc<Inner>,
    key: LeaseKey,
    patience: Patience,
    mut answer: Answer<TryAcquire, AcquireError>,
) {
    let nonce = match Nonce::draw(inner.attempts.chance()) {
        Ok(nonce) => nonce,
        Err(error) => {
            let _ = answer.send(Err(error.into()));
            return;
        }
    };
    let began = inner.attempts.clock().read();
    let mut contender = Contender {
        closing: inner.closing.subscribe(),
        inner: &inner,
        key: &key,
        nonce,
        patience,
        began,
        may_have_landed: false,
        seen: None,
        last_error: None,
    };
    match contender.contend(&mut answer).await {
        Ok(Won::Lease(extent)) => {
            let options = &inner.options;
            let term = Term {
                holder: options.holder().clone(),
                ttl: options.ttl(),
                granted: extent.sent,
                granted_ms: extent.sent.unix_ms(),
            };
            let (lease, keeper) = appoint(&inner, *extent, term);
            // A shutdown that came before the keeper was on the list knows nothing of it. If the caller has gone, the lease comes
            // back with the error. Either way it is dropped here, which tells the keeper.
            let won = if *inner.closing.borrow() {
                drop(lease);
                Err(AcquireError::ShutDown)
            } else {
                Ok(TryAcquire::Acquired(lease))
            };
            drop(answer.send(won));
            keeper.keep().await;
        }
        Ok(Won::Nothing(held)) => {
            let orphan = contender.orphan();
            let contention = inner.contention(&key, held);
            tracing::debug!(%key, holder = %contention.held.holder, token = %contention.held.token, "the lease is held");
            let _ = answer.send(Ok(TryAcquire::Held(contention)));
            give_back(&inner, orphan).await;
        }
        Err(error) => {
            let orphan = contender.orphan();
            let _ = answer.send(Err(error));
            give_back(&inner, orphan).await;
        }
    }
}

/// Renews a saved grant, answers, and keeps it.
pub(crate) async fn resume(inner: Arc<Inner>, saved: SavedLease, answer: Answer<Lease, ResumeError>) {
    if *inner.closing.borrow() {
        let _ = answer.send(Err(ResumeError::ShutDown));
        return;
    }
    let now = inner.attempts.clock().read();
    let limit = Deadline { since: now, length: saved.ttl / 3 };
    match inner.attempts.renew(saved.grant.clone(), saved.ttl, limit, true, |_| {}).await {
        Renewal::Renewed(extent) => {
            let term = Term {
                holder: saved.holder,
                ttl: saved.ttl,
                granted: extent.sent,
                granted_ms: saved.granted_ms,
            };
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
        Renewal::Lost(reason) => {
            let _ = answer.send(Err(ResumeError::Lost(reason)));
        }
        Renewal::GaveUp(error) => {
            let error = error.and_then(Arc::into_inner).unwrap_or_else(|| {
                StoreError::unknown(
                    StoreErrorKind::Unavailable,
                    "the store gave no answer within a third of the ttl",
                )
            });
            let _ = answer.send(Err(error.into()));
        }
    }
}

/// What a keeper needs to know of a grant beside its extent.
struct Term {
    holder: Holder,
    ttl: Duration,
    granted: Reading,
    granted_ms: u64,
}

/// Makes guard and keeper of a grant.
fn appoint(inner: &Arc<Inner>, extent: Extent, term: Term) -> (Lease, Keeper) {
    let clock = inner.attempts.clock();
    let now = clock.read();
    // Of a resumed lease only the wall clock tells how long it has been held.
    let held_before = Duration::from_millis(now.unix_ms().saturating_sub(term.granted_ms));
    let held_before = held_before.max(now.elapsed_since(&term.granted));
    let until = |bound: Duration| Deadline { since: now, length: bound.saturating_sub(held_before) };
    let hold_end = inner.options.max_hold().map(until);
    let shared = Arc::new(Shared {
        key: extent.grant.key.clone(),
        holder: term.holder,
        token: extent.grant.token,
        granted: term.granted,
        validity: Validity::new(Arc::clone(clock), extent.deadline, hold_end),
        running: watch::Sender::new(0),
    });
    let (commands, asked) = mpsc::unbounded_channel();
    let note = inner.note_kept(&shared.key, shared.token, commands.clone());
    tracing::info!(key = %shared.key, token = %shared.token, holder = %shared.holder, "lease acquired");
    let lease = Lease::new(Arc::clone(&shared), commands);
    let tenure = until(inner.options.hold_at_least());
    let keeper =
        Keeper::new(Arc::clone(inner), shared, extent, term.ttl, term.granted_ms, tenure, asked, note);
    (lease, keeper)
}

/// Ends a grant that may have been won and that nobody wants.
async fn give_back(inner: &Inner, orphan: Option<ReleaseRequest>) {
    if let Some(orphan) = orphan {
        let key = orphan.key.clone();
        if let Err(error) = inner.attempts.release(orphan, GIVE_BACK.min(inner.options.ttl())).await {
            tracing::debug!(%key, %error, "a grant that may have been won was not given back and expires by itself");
        }
    }
}

/// How contending ended without an error.
enum Won {
    Lease(Box<Extent>),
    Nothing(Held),
}

struct Contender<'a> {
    inner: &'a Arc<Inner>,
    key: &'a LeaseKey,
    nonce: Nonce,
    patience: Patience,
    began: Reading,
    closing: watch::Receiver<bool>,
    /// Whether a request may have been granted, or may yet be, without our knowing.
    may_have_landed: bool,
    seen: Option<Held>,
    last_error: Option<StoreError>,
}

impl Contender<'_> {
    /// What has to be given back if the call ends without a lease.
    fn orphan(&self) -> Option<ReleaseRequest> {
        self.may_have_landed.then(|| ReleaseRequest::of_nonce(self.key.clone(), self.nonce.clone()))
    }

    async fn contend(&mut self, answer: &mut Answer<TryAcquire, AcquireError>) -> Result<Won, AcquireError> {
        if *self.closing.borrow() {
            return Err(AcquireError::ShutDown);
        }
        let once = matches!(self.patience, Patience::Once);
        let _turn = if once { None } else { Some(self.turn(answer).await?) };
        loop {
            match self.ask(answer).await? {
                Won::Nothing(held) if !once => self.seen = Some(held),
                won => return Ok(won),
            }
            self.watch(answer).await?;
        }
    }

    /// Asks for the key until the store has answered.
    async fn ask(&mut self, answer: &mut Answer<TryAcquire, AcquireError>) -> Result<Won, AcquireError> {
        let attempts = &self.inner.attempts;
        let ttl = self.inner.options.ttl();
        // A grant older than its ttl is worth nothing, and a call that does not wait should leave most of it.
        let limit = if matches!(self.patience, Patience::Once) { ttl / 3 } else { ttl };
        let started = attempts.clock().read();
        let mut sends = Sends::default();
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
                ..AcquireRequest::new(self.key.clone(), self.nonce.clone(), sends.begin(attempts)?, ttl)
            };
            match attempts.acquire(&request).await {
                Ok(AcquireOutcome::Granted(granted)) => {
                    self.may_have_landed = true;
                    let extent = sends.extent(granted).map_err(|_| copied(self.key))?;
                    return self.settle(extent).await;
                }
                Ok(AcquireOutcome::Held(held)) => return Ok(Won::Nothing(held)),
                Ok(AcquireOutcome::Sealed) => return Err(AcquireError::Sealed),
                Err(error) => {
                    tracing::debug!(key = %self.key, %error, "an attempt to acquire failed");
                    self.may_have_landed |= error.effect() == Effect::Unknown;
                    if retry.is_in_vain(&error) {
                        return Err(error.into());
                    }
                    let wait = retry.after(&error, attempts.fraction());
                    self.last_error = Some(error);
                    let now = attempts.clock().read();
                    if wait >= self.left_of(limit, &started, &now) {
                        return Err(self.gave_up(&now));
                    }
                    self.pause(wait, answer).await?;
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
        let ttl = self.inner.options.ttl();
        let limit = Deadline { since: attempts.clock().read(), length: ttl / 3 };
        match attempts.renew(extent.grant, ttl, limit, false, |_| {}).await {
            Renewal::Renewed(renewed) if !renewed.deadline.has_passed(&attempts.clock().read()) => {
                Ok(Won::Lease(Box::new(renewed)))
            }
            _ => Err(AcquireError::ExpiredOnArrival),
        }
    }

    /// Reads the record until it shows the key free or its grant over.
    async fn watch(&mut self, answer: &mut Answer<TryAcquire, AcquireError>) -> Result<(), AcquireError> {
        let attempts = &self.inner.attempts;
        let mut throttled = 0;
        let mut silent_since: Option<Reading> = None;
        loop {
            self.pause(timing::between_reads(throttled, attempts.fraction()), answer).await?;
            let now = attempts.clock().read();
            let left = self.left(&now).unwrap_or(Duration::MAX);
            match attempts.inspect(self.key, left.min(self.inner.options.ttl())).await {
                Ok(seen) if seen.sealed => return Err(AcquireError::Sealed),
                Ok(seen) if seen.is_claimable() => return Ok(()),
                Ok(seen) => {
                    self.seen = seen.held;
                    throttled = 0;
                    silent_since = None;
                }
                Err(error) if !error.is_transient() => return Err(error.into()),
                Err(error) => {
                    tracing::debug!(key = %self.key, %error, "a look at the lease failed");
                    let since = *silent_since.get_or_insert(now);
                    if now.monotonic.saturating_sub(since.monotonic) > self.inner.options.ttl() {
                        return Err(error.into());
                    }
                    throttled += u32::from(error.kind() == StoreErrorKind::Throttled);
                    self.last_error = Some(error);
                }
            }
        }
    }

    async fn turn(&mut self, answer: &mut Answer<TryAcquire, AcquireError>) -> Result<Turn, AcquireError> {
        let now = self.inner.attempts.clock().read();
        let left = self.left(&now).unwrap_or(Duration::MAX);
        tokio::select! {
            biased;
            () = interrupted(&mut self.closing, answer) => Err(AcquireError::ShutDown),
            turn = self.inner.queue.turn(self.key) => Ok(turn),
            () = self.inner.attempts.clock().sleep(left) => Err(self.timed_out()),
        }
    }

    /// Sleeps, unless the limit, the caller or a shutdown ends the call before.
    async fn pause(
        &mut self,
        wait: Duration,
        answer: &mut Answer<TryAcquire, AcquireError>,
    ) -> Result<(), AcquireError> {
        let clock = self.inner.attempts.clock();
        let left = self.left(&clock.read());
        tokio::select! {
            biased;
            () = interrupted(&mut self.closing, answer) => return Err(AcquireError::ShutDown),
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
        let callers_limit = self.left(now).is_some_and(|left| left < self.inner.options.ttl());
        match self.last_error.take_if(|_| !callers_limit) {
            Some(error) => error.into(),
            None => self.timed_out(),
        }
    }
}

/// Completes when the caller has gone or the process is shutting down.
async fn interrupted(closing: &mut watch::Receiver<bool>, answer: &mut Answer<TryAcquire, AcquireError>) {
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
