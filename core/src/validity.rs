//! What guard, view and keeper share: may I act?

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{Clock, Deadline, Reading};
use crate::error::StoreError;
use crate::token::FencingToken;

/// How often one who waits for the loss compares the clocks.
const LOOK: Duration = Duration::from_secs(1);

/// Where a lease stands. It goes from held to at risk and back; lost is for good.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LeaseState {
    /// Renewed in time.
    Held,
    /// Not renewed for two thirds of its ttl. Still held, until the deadline.
    AtRisk,
    /// Not held any more.
    Lost(LostReason),
}

/// Why a lease is lost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LostReason {
    /// An operator has ended it, or has asked that it end.
    Broken,
    /// A copy of this process (a fork, a restored snapshot) holds the same grant.
    Cloned,
    /// It could not be renewed before its deadline. Whether anybody else has it is not known.
    Expired {
        /// What the last attempt to renew it met.
        last_error: Option<Arc<StoreError>>,
    },
    /// It has been held for as long as [`LeaseOptions::max_hold`](crate::LeaseOptions::max_hold) allows.
    MaxHold,
    /// Its record, or the newest part of it, is gone from the store.
    RecordGone,
    /// Its own holder has ended it: released, abandoned, saved, dropped, shut down.
    Released,
    /// Somebody else has it.
    Superseded {
        /// With this token, where it is known.
        by: Option<FencingToken>,
    },
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken => f.write_str("an operator has broken the lease"),
            Self::Cloned => f.write_str("a copy of this process holds the same grant"),
            Self::Expired { last_error: Some(error) } => {
                write!(f, "the lease could not be renewed before its deadline; the last attempt met: {error}")
            }
            Self::Expired { last_error: None } => {
                f.write_str("the lease was not renewed before its deadline (the process was paused, or its clocks jumped)")
            }
            Self::MaxHold => f.write_str("the lease has been held for as long as max_hold allows"),
            Self::RecordGone => f.write_str("the record of the lease is gone from the store"),
            Self::Released => f.write_str("its holder has ended the lease"),
            Self::Superseded { by: Some(token) } => write!(f, "somebody else holds the lease, with token {token}"),
            Self::Superseded { by: None } => f.write_str("somebody else holds the lease"),
        }
    }
}

/// A look at a lease: its state, and until when its holder may act.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// Where it stands.
    pub state: LeaseState,
    /// The last instant at which the holder may act, if the state is not lost.
    pub deadline: Deadline,
    /// What the newest failed attempt to renew met; nothing since the last success.
    pub last_error: Option<Arc<StoreError>>,
}

impl LeaseStatus {
    const fn lost(&self) -> Option<&LostReason> {
        match &self.state {
            LeaseState::Lost(reason) => Some(reason),
            LeaseState::Held | LeaseState::AtRisk => None,
        }
    }
}

/// Follows the status of a lease, for dashboards and logs. Sees the newest status, not every one.
///
/// It hands out copies: a subscriber that blocks, however long, holds up neither the renewals nor the release.
#[derive(Debug)]
pub struct StatusWatch {
    changes: watch::Receiver<LeaseStatus>,
    told: Told,
}

/// What a watcher has been told.
#[derive(Debug)]
enum Told {
    Nothing,
    Something,
    TheLoss,
}

impl StatusWatch {
    /// The status as the keeper last left it. For "may I act?" ask [`Lease::is_held`](crate::Lease::is_held), which looks at
    /// the clock.
    pub fn current(&self) -> LeaseStatus {
        self.changes.borrow().clone()
    }

    /// Waits for the next status: a renewal, a risk, a loss. The first call returns at once with the present one; after a
    /// loss there are no more.
    ///
    /// # Cancellation
    /// Nothing is missed when the future is dropped.
    pub async fn next(&mut self) -> Option<LeaseStatus> {
        match self.told {
            Told::Nothing => {}
            // The last status stays readable when nobody can change it any more.
            Told::Something => {
                let alone = self.changes.changed().await.is_err();
                if alone && self.changes.borrow().lost().is_none() {
                    return None;
                }
            }
            Told::TheLoss => return None,
        }
        let status = self.changes.borrow_and_update().clone();
        self.told = if status.lost().is_some() { Told::TheLoss } else { Told::Something };
        Some(status)
    }
}

/// The one small piece of state of a lease. Everybody reads it, the keeper extends it, anybody may find that it has ended.
///
/// Held means: no loss is known *and* the deadline lies ahead on the lease clock *and* this is the process that acquired.
/// So a keeper that hangs or is starved can take away, and can never give.
pub(crate) struct Validity {
    status: watch::Sender<LeaseStatus>,
    /// The end of `max_hold`, which no renewal moves.
    hold_end: Option<Deadline>,
    clock: Arc<dyn Clock>,
    pid: u32,
}

impl fmt::Debug for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.status.borrow(), f)
    }
}

impl Validity {
    pub(crate) fn new(clock: Arc<dyn Clock>, deadline: Deadline, hold_end: Option<Deadline>) -> Self {
        let deadline = capped(deadline, hold_end, &clock.read());
        let status = LeaseStatus { state: LeaseState::Held, deadline, last_error: None };
        Self { status: watch::Sender::new(status), hold_end, clock, pid: std::process::id() }
    }

    /// How long the holder may still act; zero when the lease is lost. Finding the deadline passed makes the loss final.
    pub(crate) fn remaining(&self) -> Duration {
        let remaining = self.remaining_at(&self.clock.read());
        if std::process::id() == self.pid { remaining } else { Duration::ZERO }
    }

    fn remaining_at(&self, now: &Reading) -> Duration {
        let remaining = {
            let status = self.status.borrow();
            if status.lost().is_some() { Duration::ZERO } else { status.deadline.remaining(now) }
        };
        if remaining.is_zero() {
            self.expire(now);
        }
        remaining
    }

    /// Makes a passed deadline a loss. A renewal may have moved the deadline meanwhile, so it is looked at again.
    fn expire(&self, now: &Reading) {
        self.status.send_if_modified(|status| {
            let passed = status.lost().is_none() && status.deadline.has_passed(now);
            if passed {
                let at_max = self.hold_end.is_some_and(|end| end.has_passed(now));
                status.state = LeaseState::Lost(if at_max {
                    LostReason::MaxHold
                } else {
                    LostReason::Expired { last_error: status.last_error.clone() }
                });
            }
            passed
        });
    }

    pub(crate) fn status(&self) -> LeaseStatus {
        let held = !self.remaining().is_zero();
        let mut status = self.status.borrow().clone();
        if !held && status.lost().is_none() {
            // Not the process that acquired: what it inherited is a copy.
            status.state = LeaseState::Lost(LostReason::Cloned);
        }
        status
    }

    pub(crate) fn subscribe(&self) -> StatusWatch {
        StatusWatch { changes: self.status.subscribe(), told: Told::Nothing }
    }

    /// The reason, if the lease is lost at `now`.
    pub(crate) fn lost_at(&self, now: &Reading) -> Option<LostReason> {
        self.remaining_at(now);
        self.status.borrow().lost().cloned()
    }

    /// Moves the deadline forward after a renewal. Does nothing to a lease that is lost.
    pub(crate) fn extend(&self, deadline: Deadline) {
        let now = self.clock.read();
        if self.lost_at(&now).is_some() {
            return;
        }
        let deadline = capped(deadline, self.hold_end, &now);
        self.status.send_if_modified(|status| {
            let alive = status.lost().is_none();
            if alive {
                status.deadline = status.deadline.later(deadline, &now);
                status.state = LeaseState::Held;
                status.last_error = None;
            }
            alive
        });
    }

    /// Says that no renewal has come through for long. True if that was not known before.
    pub(crate) fn put_at_risk(&self) -> bool {
        self.status.send_if_modified(|status| {
            let held = matches!(status.state, LeaseState::Held);
            if held {
                status.state = LeaseState::AtRisk;
            }
            held
        })
    }

    /// Keeps what the last attempt to renew met.
    pub(crate) fn note_error(&self, error: Arc<StoreError>) {
        self.status.send_if_modified(|status| {
            status.last_error = Some(error);
            false
        });
    }

    /// Ends the lease. True if it had not ended before.
    pub(crate) fn lose(&self, reason: LostReason) -> bool {
        self.status.send_if_modified(|status| {
            let alive = status.lost().is_none();
            if alive {
                status.state = LeaseState::Lost(reason);
            }
            alive
        })
    }

    /// Completes when the lease is lost, at the latest at its deadline, whatever the keeper does.
    pub(crate) async fn lost(&self) -> LostReason {
        let mut changes = self.status.subscribe();
        loop {
            let remaining = self.remaining();
            if let LeaseState::Lost(reason) = self.status().state {
                return reason;
            }
            changes.mark_unchanged();
            if self.status.borrow().lost().is_some() {
                continue;
            }
            tokio::select! {
                // The sender lives in `self`, so this cannot fail.
                _ = changes.changed() => {}
                // Timers stand still during suspend: look at the clocks once a second.
                () = self.clock.sleep(remaining.min(LOOK)) => {}
            }
        }
    }
}

fn capped(deadline: Deadline, hold_end: Option<Deadline>, now: &Reading) -> Deadline {
    hold_end.map_or(deadline, |end| deadline.earlier(end, now))
}
