use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{Deadline, Reading};
use crate::error::{StoreError, StoreErrorKind};
use crate::holder::Holder;
use crate::key::LeaseKey;
use crate::saved::SavedLease;
use crate::store::ReleaseOutcome;
use crate::token::FencingToken;
use crate::validity::{LeaseState, LeaseStatus, LostReason, StatusWatch, Validity};

/// A lease that this process holds. Owned: who has the guard ends the lease.
///
/// A keeper renews it in the background. It can be lost all the same, by a pause, a partition, an operator; so ask
/// [`is_held`](Self::is_held) before each act, let [`run`](Self::run) stop the work, and above all give
/// [`token`](Self::token) to what you protect with every write, and let it turn lower ones away.
///
/// End it with [`release`](Self::release) when the work has ended. Dropping it tells the keeper, which releases it in the
/// background as well as it can; after a panic it is left to expire, since other parts of the work may still be running.
#[must_use = "dropping a lease gives it back"]
pub struct Lease {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
    ended: bool,
}

/// A look at a lease, to be cloned into the parts of the work. It cannot end the lease.
#[derive(Clone)]
pub struct LeaseView {
    shared: Arc<Shared>,
}

/// What guard, views and keeper have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) key: LeaseKey,
    pub(crate) holder: Holder,
    pub(crate) token: FencingToken,
    pub(crate) granted: Reading,
    pub(crate) validity: Validity,
    /// How many [`Lease::run`] are at work. A shutdown releases when there are none.
    pub(crate) running: watch::Sender<usize>,
}

/// What a guard may ask of its keeper.
#[derive(Debug)]
pub(crate) enum Command {
    Abandon,
    Confirm(oneshot::Sender<Result<Duration, LostReason>>),
    Dropped {
        unwinding: bool,
    },
    /// Nobody has had the guard.
    GiveBack,
    Release(oneshot::Sender<Result<ReleaseOutcome, StoreError>>),
    Save(oneshot::Sender<SavedLease>),
    ShutDown(oneshot::Sender<Result<ReleaseOutcome, StoreError>>),
}

impl Shared {
    /// Runs `work` for as long as the lease is held.
    pub(crate) async fn run<W: Future>(&self, work: W) -> Result<W::Output, LostReason> {
        let _running = Running::begin(&self.running);
        // Dropped before `_running`, so that a shutdown waits for it.
        let work = work;
        tokio::select! {
            biased;
            reason = self.validity.lost() => Err(reason),
            output = work => Ok(output),
        }
    }

    /// Why the lease is lost, when there is no keeper any more to say so.
    fn reason_without_keeper(&self) -> LostReason {
        self.validity.lose(LostReason::Expired { last_error: None });
        match self.validity.status().state {
            LeaseState::Lost(reason) => reason,
            LeaseState::Held | LeaseState::AtRisk => LostReason::Expired { last_error: None },
        }
    }
}

impl Lease {
    pub(crate) const fn new(shared: Arc<Shared>, commands: mpsc::UnboundedSender<Command>) -> Self {
        Self { shared, commands, ended: false }
    }

    /// What the lease is on.
    pub fn key(&self) -> &LeaseKey {
        &self.shared.key
    }

    /// The label under which others see it.
    pub fn holder(&self) -> &Holder {
        &self.shared.holder
    }

    /// The grant's fencing token. The same for the whole life of the guard.
    pub fn token(&self) -> FencingToken {
        self.shared.token
    }

    /// When it was granted: the clocks as the request was sent.
    pub fn granted(&self) -> Reading {
        self.shared.granted
    }

    /// Whether the holder may act now: no loss is known, the deadline lies ahead by every clock of the machine, and this is
    /// the process that acquired. No network, no waiting. Once false, it stays false.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the holder may act if nothing more is heard from the store. Before a step that cannot be fenced, see that
    /// the longest it can take fits in.
    pub fn remaining(&self) -> Duration {
        self.shared.validity.remaining()
    }

    /// State and deadline.
    pub fn status(&self) -> LeaseStatus {
        self.shared.validity.status()
    }

    /// Follows the status.
    pub fn subscribe(&self) -> StatusWatch {
        self.shared.validity.subscribe()
    }

    /// A look at the lease that can be cloned.
    pub fn view(&self) -> LeaseView {
        LeaseView::new(Arc::clone(&self.shared))
    }

    /// Completes when the lease is lost, at the latest at its deadline; needs no answer from the store.
    ///
    /// # Cancellation
    /// Nothing happens to the lease.
    pub async fn lost(&self) -> LostReason {
        self.shared.validity.lost().await
    }

    /// Runs `work` for as long as the lease is held.
    ///
    /// Work that is stopped is dropped at its current await; what it has spawned or sent to other threads goes on unless it
    /// is tied to it. A future that never awaits cannot be stopped.
    ///
    /// # Errors
    /// The reason, when the lease was lost before `work` ended.
    ///
    /// # Cancellation
    /// Drops `work`. The lease is kept.
    pub async fn run<W: Future>(&self, work: W) -> Result<W::Output, LostReason> {
        self.shared.run(work).await
    }

    /// Makes sure of the lease by a renewal now, before an act that cannot be taken back. Returns how long it is then held.
    ///
    /// A paused virtual machine can leave all clocks of a process behind; only the store can tell then.
    ///
    /// # Errors
    /// The reason, when the lease is lost. A store that does not answer is asked again until the deadline.
    ///
    /// # Cancellation
    /// The renewal goes on in the background.
    pub async fn confirm(&self) -> Result<Duration, LostReason> {
        self.confirming().await
    }

    /// The same, for a caller that cannot lend the lease.
    pub(crate) fn confirming(&self) -> impl Future<Output = Result<Duration, LostReason>> + Send + use<> {
        let (answer, confirmed) = oneshot::channel();
        let asked = self.commands.send(Command::Confirm(answer)).is_ok();
        let shared = Arc::clone(&self.shared);
        async move {
            if asked {
                if let Ok(outcome) = confirmed.await {
                    return outcome;
                }
            }
            Err(shared.reason_without_keeper())
        }
    }

    /// Ends the lease. Call it when the work has ended. The record stays in the store, and with it the token.
    ///
    /// Renewals stop first. A store that does not answer is asked again for at most 10 s. A lease that is lost already is no error: the outcome says what the store shows. With
    /// [`hold_at_least`](crate::LeaseOptionsBuilder::hold_at_least), returns when that time is over.
    ///
    /// # Errors
    /// When the store did not confirm it. The lease then frees itself at the end of its ttl.
    ///
    /// # Cancellation
    /// The release goes on in the background.
    pub async fn release(mut self) -> Result<ReleaseOutcome, StoreError> {
        self.end();
        let (answer, released) = oneshot::channel();
        if self.commands.send(Command::Release(answer)).is_ok() {
            if let Ok(outcome) = released.await {
                return outcome;
            }
        }
        Err(StoreError::unknown(
            StoreErrorKind::Unavailable,
            "the runtime that kept the lease has gone, so it was not released: it expires by itself; release leases before the runtime ends",
        )
        .with_key(&self.shared.key))
    }

    /// Stops renewing and leaves the lease to expire: others are kept away until then.
    pub fn abandon(mut self) {
        self.end();
        // A keeper that has gone does not renew either.
        let _ = self.commands.send(Command::Abandon);
    }

    /// Stops renewing and returns what another process, or a later call of a function, needs to go on with this grant and
    /// its token: see [`Leases::resume`](crate::Leases::resume). The lease expires unless it is resumed within its ttl.
    ///
    /// # Errors
    /// The reason, when it is lost.
    ///
    /// # Cancellation
    /// The lease is left to expire.
    pub async fn save(mut self) -> Result<SavedLease, LostReason> {
        if let LeaseState::Lost(reason) = self.status().state {
            return Err(reason);
        }
        self.end();
        let (answer, saved) = oneshot::channel();
        if self.commands.send(Command::Save(answer)).is_ok() {
            if let Ok(saved) = saved.await {
                return Ok(saved);
            }
        }
        Err(LostReason::Expired { last_error: None })
    }

    /// Ends a lease that nobody has had: at once, whatever the options say of leases that somebody has.
    pub(crate) fn give_back(mut self) {
        self.end();
        let _ = self.commands.send(Command::GiveBack);
    }

    /// From here on the guard and its views say no.
    fn end(&mut self) {
        self.ended = true;
        self.shared.validity.lose(LostReason::Released);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.ended {
            self.end();
            // A keeper that has gone does not renew: the lease expires.
            let _ = self.commands.send(Command::Dropped { unwinding: std::thread::panicking() });
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_shared("Lease", &self.shared, f)
    }
}

impl LeaseView {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// What the lease is on.
    pub fn key(&self) -> &LeaseKey {
        &self.shared.key
    }

    /// The label under which others see it.
    pub fn holder(&self) -> &Holder {
        &self.shared.holder
    }

    /// The grant's fencing token.
    pub fn token(&self) -> FencingToken {
        self.shared.token
    }

    /// Whether the holder may act now; see [`Lease::is_held`].
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the holder may act; see [`Lease::remaining`].
    pub fn remaining(&self) -> Duration {
        self.shared.validity.remaining()
    }

    /// State and deadline.
    pub fn status(&self) -> LeaseStatus {
        self.shared.validity.status()
    }

    /// Follows the status.
    pub fn subscribe(&self) -> StatusWatch {
        self.shared.validity.subscribe()
    }

    /// The last instant at which the holder may act. Another process of this machine may check it against its own reading
    /// of the clocks.
    pub fn deadline(&self) -> Deadline {
        self.status().deadline
    }

    /// Completes when the lease is lost, at the latest at its deadline.
    ///
    /// # Cancellation
    /// Nothing happens to the lease.
    pub async fn lost(&self) -> LostReason {
        self.shared.validity.lost().await
    }
}

impl fmt::Debug for LeaseView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_shared("LeaseView", &self.shared, f)
    }
}

fn debug_shared(name: &str, shared: &Shared, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("key", &shared.key)
        .field("token", &shared.token)
        .field("status", &shared.validity)
        .finish_non_exhaustive()
}

/// Counts one [`Lease::run`] while it is at work. Dropped after the work.
struct Running<'a>(&'a watch::Sender<usize>);

impl<'a> Running<'a> {
    fn begin(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|running| *running += 1);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}
