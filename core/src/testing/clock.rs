use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{Clock, Reading, Sleep};

/// Three clocks that run with Tokio's time, paused or not, and that a test can make jump.
///
/// Give each holder one of its own to let them disagree.
#[derive(Debug)]
pub struct VirtualClock {
    began: Instant,
    origin: Mutex<Reading>,
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl VirtualClock {
    /// Clocks that begin at some time in 2026.
    #[expect(clippy::disallowed_methods, reason = "a clock")]
    pub fn new() -> Self {
        let origin = Reading {
            monotonic: Duration::from_secs(1_000_000),
            boot: Duration::from_secs(2_000_000),
            wall: Duration::from_secs(1_790_000_000),
        };
        Self { began: Instant::now(), origin: Mutex::new(origin) }
    }

    /// Puts the monotonic clock forward.
    pub fn jump_monotonic(&self, by: Duration) {
        self.origin().monotonic += by;
    }

    /// Puts the boot clock forward, as a suspend does.
    pub fn jump_boot(&self, by: Duration) {
        self.origin().boot += by;
    }

    /// Puts the wall clock forward.
    pub fn jump_wall(&self, by: Duration) {
        self.origin().wall += by;
    }

    /// Puts all three forward: time passes, and no timer notices.
    pub fn jump(&self, by: Duration) {
        self.jump_monotonic(by);
        self.jump_boot(by);
        self.jump_wall(by);
    }

    /// Puts the monotonic clock back, as none should.
    pub fn set_back_monotonic(&self, by: Duration) {
        let mut origin = self.origin();
        origin.monotonic = origin.monotonic.saturating_sub(by);
    }

    /// Puts the boot clock back, as none should.
    pub fn set_back_boot(&self, by: Duration) {
        let mut origin = self.origin();
        origin.boot = origin.boot.saturating_sub(by);
    }

    /// Puts the wall clock back.
    pub fn set_back_wall(&self, by: Duration) {
        let mut origin = self.origin();
        origin.wall = origin.wall.saturating_sub(by);
    }

    fn origin(&self) -> MutexGuard<'_, Reading> {
        // Adding leaves nothing half done.
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for VirtualClock {
    #[expect(clippy::disallowed_methods, reason = "a clock")]
    fn read(&self) -> Reading {
        let run = Instant::now().saturating_duration_since(self.began);
        let origin = *self.origin();
        Reading { monotonic: origin.monotonic + run, boot: origin.boot + run, wall: origin.wall + run }
    }

    #[expect(clippy::disallowed_methods, reason = "a clock")]
    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }
}
