//! The keeper: one task per lease, the sole owner of its grant. Renews it, tells of its loss, and ends it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::acquire::Term;
use crate::attempts::{Extent, Renewal};
use crate::clock::{Deadline, Reading};
use crate::error::StoreError;
use crate::lease::{Command, Shared};
use crate::leases::{Inner, KeptNote};
use crate::options::OnDrop;
use crate::saved::SavedLease;
use crate::store::{Grant, ReleaseOutcome, ReleaseRequest};
use crate::timing;
use crate::validity::LostReason;

type Confirmation = oneshot::Sender<Result<Duration, LostReason>>;
type Ended = oneshot::Sender<Result<ReleaseOutcome, StoreError>>;

pub(crate) struct Keeper {
    inner: Arc<Inner>,
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    gaps: watch::Receiver<u64>,
    grant: Grant,
    ttl: Duration,
    granted_ms: u64,
    /// When the attempt was sent that is in the store.
    renewed: Reading,
    deadline: Deadline,
    /// How long after `renewed` the next renewal is due.
    due: Duration,
    /// The end of `hold_at_least`.
    tenure: Deadline,
    /// Asked for before the renewal in flight began, so answered by it.
    confirming: Vec<Confirmation>,
    /// Asked for since; answered by the next one.
    to_confirm: Vec<Confirmation>,
    note: Option<KeptNote>,
}

/// A renewal in flight.
type InFlight = Pin<Box<dyn Future<Output = Renewal> + Send>>;

/// What the guard wants, as far as it ends the keeper's work.
enum Ending {
    /// At once, without serving `hold_at_least`.
    GiveBack,
    LeaveToExpire,
    Release(Option<Ended>),
    Save(oneshot::Sender<SavedLease>),
    ShutDown(Ended),
}

impl Keeper {
    pub(crate) fn new(
        inner: Arc<Inner>,
        shared: Arc<Shared>,
        extent: Extent,
        term: Term,
        tenure: Deadline,
        commands: mpsc::UnboundedReceiver<Command>,
        note: KeptNote,
    ) -> Self {
        Self {
            gaps: inner.gaps.subscribe(),
            due: timing::first_renewal(term.ttl, inner.attempts.fraction()),
            inner,
            shared,
            commands,
            grant: extent.grant,
            ttl: term.ttl,
            granted_ms: term.granted_ms,
            renewed: extent.sent,
            deadline: extent.deadline,
            tenure,
            confirming: Vec::new(),
            to_confirm: Vec::new(),
            note: Some(note),
        }
    }

    /// Keeps the lease until its guard ends it.
    pub(crate) async fn keep(mut self: Box<Self>) {
        // However this task ends, nobody renews any more: a runtime that goes away takes it along.
        let _last_word = LastWord(Arc::clone(&self.shared));
        let ending = self.renew_until_told().await;
        // In a box, so that a lease does not carry along, while it is held, what its end will take.
        Box::pin(self.end(ending)).await;
    }

    /// The renewal loop. Goes on listening after a loss, since the guard is still to be answered.
    async fn renew_until_told(&mut self) -> Ending {
        let mut in_flight: Option<InFlight> = None;
        let mut told = false;
        loop {
            self.inner.gaps.ensure_watched(&self.inner.tasks);
            let now = self.now();
            let lost = self.shared.validity.lost_at(&now);
            if let Some(reason) = &lost {
                in_flight = None;
                self.answer_confirmations(Err(reason));
                if !std::mem::replace(&mut told, true) {
                    tell_of_loss(&self.shared, reason);
                }
            } else {
                self.look_at_risk(&now);
                if in_flight.is_none() && self.until_due(&now).is_zero() {
                    self.confirming.append(&mut self.to_confirm);
                    in_flight = Some(self.renewal());
                }
            }
            let wake =
                if lost.is_some() { Duration::MAX } else { self.until_next_event(&now, in_flight.is_some()) };
            let rest = self.sleep(wake);
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    // The guard's sender goes with the guard, which says something before.
                    match command.unwrap_or(Command::Abandon) {
                        Command::Confirm(answer) => {
                            self.to_confirm.push(answer);
                            self.due = Duration::ZERO;
                        }
                        Command::Abandon => return Ending::LeaveToExpire,
                        Command::Dropped { unwinding } => {
                            let expire = unwinding || self.inner.options.on_drop() == OnDrop::Expire;
                            return if expire { Ending::LeaveToExpire } else { Ending::Release(None) };
                        }
                        Command::GiveBack => return Ending::GiveBack,
                        Command::Release(answer) => return Ending::Release(Some(answer)),
                        Command::Save(answer) => return Ending::Save(answer),
                        Command::ShutDown(answer) => return Ending::ShutDown(answer),
                    }
                }
                _ = self.gaps.changed() => self.due = Duration::ZERO,
                renewal = landing(&mut in_flight) => {
                    in_flight = None;
                    self.settle(renewal);
                }
                () = rest => {}
            }
        }
    }

    fn look_at_risk(&self, now: &Reading) {
        if now.elapsed_since(&self.renewed) >= timing::at_risk_after(self.ttl)
            && self.shared.validity.put_at_risk()
        {
            let left = self.deadline.remaining(now);
            let last_error = self.shared.validity.status().last_error.map(|error| error.to_string());
            tracing::warn!(key = %self.shared.key, token = %self.shared.token, ?left, last_error, "lease at risk: no renewal has come through");
        }
    }

    fn until_due(&self, now: &Reading) -> Duration {
        self.due.saturating_sub(now.elapsed_since(&self.renewed))
    }

    fn until_next_event(&self, now: &Reading, in_flight: bool) -> Duration {
        let passed = now.elapsed_since(&self.renewed);
        let at_risk = timing::at_risk_after(self.ttl).checked_sub(passed).filter(|left| !left.is_zero());
        let due = (!in_flight).then(|| self.until_due(now));
        let deadline = self.shared.validity.remaining();
        [at_risk, due].into_iter().flatten().fold(deadline, Duration::min)
    }

    fn renewal(&self) -> InFlight {
        let inner = Arc::clone(&self.inner);
        let shared = Arc::clone(&self.shared);
        let (grant, ttl, limit) = (self.grant.clone(), self.ttl, self.deadline);
        Box::pin(async move {
            let on_error = |error: &Arc<StoreError>| {
                tracing::debug!(key = %shared.key, token = %shared.token, %error, "an attempt to renew failed");
                shared.validity.note_error(Arc::clone(error));
            };
            inner.attempts.renew(grant, ttl, limit, false, on_error, |_| {}).await
        })
    }

    fn settle(&mut self, renewal: Renewal) {
        match renewal {
            // What comes after the deadline must not revive a guard that has said no.
            Renewal::Renewed(extent) if self.shared.validity.lost_at(&self.now()).is_none() => {
                self.adopt(extent);
                self.shared.validity.extend(self.deadline);
                tracing::debug!(key = %self.shared.key, token = %self.shared.token, seq = self.grant.seq, "lease renewed");
                if !self.to_confirm.is_empty() {
                    self.due = Duration::ZERO;
                }
                let left = self.shared.validity.remaining();
                if !left.is_zero() {
                    self.confirming.drain(..).for_each(|answer| drop(answer.send(Ok(left))));
                }
            }
            Renewal::Lost(reason) => {
                self.shared.validity.lose(reason);
            }
            Renewal::Renewed(_) => {}
            // The deadline is near and says the rest.
            Renewal::GaveUp(_) => self.due = Duration::MAX,
        }
    }

    fn adopt(&mut self, extent: Extent) {
        let now = self.now();
        self.grant = extent.grant;
        self.renewed = extent.sent;
        self.deadline = self.deadline.later(extent.deadline, &now);
        self.due = timing::next_renewal(self.ttl, self.inner.attempts.fraction());
    }

    fn answer_confirmations(&mut self, outcome: Result<Duration, &LostReason>) {
        for answer in self.confirming.drain(..).chain(self.to_confirm.drain(..)) {
            let _ = answer.send(outcome.map_err(LostReason::clone));
        }
    }

    async fn end(mut self: Box<Self>, ending: Ending) {
        match ending {
            Ending::GiveBack => {
                // Nobody waits for the outcome; it is logged.
                let _ = self.release().await;
            }
            Ending::LeaveToExpire => {
                self.shared.validity.lose(LostReason::Released);
                tracing::info!(key = %self.shared.key, token = %self.shared.token, "lease left to expire");
            }
            Ending::Release(answer) => {
                self.serve_tenure().await;
                let outcome = self.release().await;
                if let Some(answer) = answer {
                    let _ = answer.send(outcome);
                }
            }
            Ending::Save(answer) => {
                let saved = SavedLease {
                    grant: self.grant,
                    holder: self.shared.holder.clone(),
                    ttl: self.ttl,
                    granted_ms: self.granted_ms,
                };
                let _ = answer.send(saved);
            }
            Ending::ShutDown(answer) => {
                self.shared.validity.lose(LostReason::Released);
                self.await_work().await;
                let outcome = self.release().await;
                let _ = answer.send(outcome.clone());
                // Off the list of those that a shutdown ends.
                self.note = None;
                self.answer_guard(&outcome).await;
            }
        }
    }

    /// Answers a guard that is still there after a shutdown has ended its lease.
    async fn answer_guard(&mut self, outcome: &Result<ReleaseOutcome, StoreError>) {
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Confirm(answer) => drop(answer.send(Err(LostReason::Released))),
                Command::Release(answer) | Command::ShutDown(answer) => drop(answer.send(outcome.clone())),
                Command::Abandon | Command::Dropped { .. } | Command::GiveBack | Command::Save(_) => return,
            }
        }
    }

    /// Waits until nothing runs in [`Lease::run`](crate::Lease::run) any more, or the lease is over anyway.
    async fn await_work(&self) {
        let mut running = self.shared.running.subscribe();
        let left = self.deadline.remaining(&self.now());
        tokio::select! {
            _ = running.wait_for(|running| *running == 0) => {}
            () = self.sleep(left) => {}
        }
    }

    /// Keeps others away until the end of `hold_at_least`, though the holder is done.
    async fn serve_tenure(&mut self) {
        let mut closing = self.inner.closing.subscribe();
        loop {
            let now = self.now();
            let left = self.tenure.remaining(&now);
            // A process that is shutting down has no time to serve.
            if left.is_zero() || self.deadline.has_passed(&now) || self.was_taken() || *closing.borrow() {
                return;
            }
            if self.until_due(&now).is_zero() {
                match self.renewal().await {
                    Renewal::Renewed(extent) => self.adopt(extent),
                    Renewal::Lost(_) | Renewal::GaveUp(_) => return,
                }
            } else {
                let rest = self.sleep(left.min(self.until_due(&now)));
                tokio::select! {
                    // The sender lives as long as `inner`.
                    _ = closing.wait_for(|closing| *closing) => {}
                    () = rest => {}
                }
            }
        }
    }

    /// Whether the lease was lost before its guard ended it.
    fn was_taken(&self) -> bool {
        !matches!(self.shared.validity.lost_at(&self.now()), None | Some(LostReason::Released))
    }

    async fn release(&self) -> Result<ReleaseOutcome, StoreError> {
        if let Some(LostReason::Cloned) = self.shared.validity.lost_at(&self.now()) {
            // The copy may be at work under this very nonce.
            return Ok(ReleaseOutcome::AlreadyEnded);
        }
        let limit = timing::release_limit(self.deadline.remaining(&self.now()));
        let outcome = self.inner.attempts.release(ReleaseRequest::of(&self.grant), limit).await;
        match &outcome {
            Ok(ReleaseOutcome::Released) => {
                tracing::info!(key = %self.shared.key, token = %self.shared.token, "lease released");
            }
            Ok(ended) => {
                tracing::info!(key = %self.shared.key, token = %self.shared.token, ?ended, "lease had ended before its release");
            }
            Err(error) => {
                tracing::warn!(key = %self.shared.key, token = %self.shared.token, %error, "lease not released: it expires by itself");
            }
        }
        outcome
    }

    fn now(&self) -> Reading {
        self.inner.attempts.clock().read()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + use<> {
        self.inner.attempts.clock().sleep(duration)
    }
}

async fn landing(in_flight: &mut Option<InFlight>) -> Renewal {
    match in_flight {
        Some(renewal) => renewal.await,
        None => std::future::pending().await,
    }
}

fn tell_of_loss(shared: &Shared, reason: &LostReason) {
    let (key, token) = (&shared.key, shared.token);
    match reason {
        LostReason::Released => tracing::debug!(%key, %token, "lease ended by its holder"),
        reason => tracing::warn!(%key, %token, %reason, "lease lost"),
    }
}

/// Says "lost" when the keeper's task ends without having said anything.
struct LastWord(Arc<Shared>);

impl Drop for LastWord {
    fn drop(&mut self) {
        self.0.validity.lose(LostReason::Expired { last_error: None });
    }
}
