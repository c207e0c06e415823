//! The one room that asks for the time and that sleeps.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What [`Clock::sleep`] returns.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The three clocks of a machine, read together. Injected, so that tests script them.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Reads the three clocks.
    fn read(&self) -> Reading;

    /// Completes when at least `duration` has passed on the monotonic clock.
    fn sleep(&self, duration: Duration) -> Sleep;
}

/// One reading of the three clocks.
///
/// Each is a time since an origin of its own, so only differences mean anything; the wall clock's origin is the Unix epoch.
/// The monotonic and the boot clock are one for all processes of a machine between two boots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "complete by nature: these are the clocks there are")]
pub struct Reading {
    /// Does not run while the machine is suspended (Linux, macOS). What timers run on.
    pub monotonic: Duration,
    /// Runs during suspend too. Where a platform has none, the monotonic clock.
    pub boot: Duration,
    /// Time since the Unix epoch; can be set, so it can jump either way.
    pub wall: Duration,
}

impl Reading {
    /// Lease clock: the time that has passed since `earlier`, by whichever of the three clocks says the most.
    ///
    /// A clock that went back says nothing. So each of them can end a lease, and none can extend it.
    pub fn elapsed_since(&self, earlier: &Self) -> Duration {
        let monotonic = self.monotonic.saturating_sub(earlier.monotonic);
        let boot = self.boot.saturating_sub(earlier.boot);
        let wall = self.wall.saturating_sub(earlier.wall);
        monotonic.max(boot).max(wall)
    }

    /// Unix time in milliseconds by the wall clock; 0 before 1970.
    pub fn unix_ms(&self) -> u64 {
        saturating_ms(self.wall)
    }
}

/// Whole milliseconds of `duration`, or the greatest number there is.
pub(crate) fn saturating_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The last instant at which a holder may act: a length of time on the lease clock, counted from a reading.
///
/// Plain data. On one machine another process may check it against its own reading of the same clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "complete by nature: from when, and how long")]
pub struct Deadline {
    /// Read before the request that is in the store was sent.
    pub since: Reading,
    /// How long from then on the holder may act.
    pub length: Duration,
}

impl Deadline {
    /// What is left of it at `now`; zero when it has passed.
    pub fn remaining(&self, now: &Reading) -> Duration {
        self.length.saturating_sub(now.elapsed_since(&self.since))
    }

    /// Whether it has passed at `now`.
    pub fn has_passed(&self, now: &Reading) -> bool {
        self.remaining(now).is_zero()
    }

    /// The one of two that comes first, seen from `now`.
    pub fn earlier(self, other: Self, now: &Reading) -> Self {
        if other.remaining(now) < self.remaining(now) { other } else { self }
    }

    /// The one of two that comes last, seen from `now`.
    pub fn later(self, other: Self, now: &Reading) -> Self {
        if other.remaining(now) > self.remaining(now) { other } else { self }
    }

    /// This deadline moved forward by `lead`, never before its own beginning.
    pub fn before(self, lead: Duration) -> Self {
        Self { length: self.length.saturating_sub(lead), ..self }
    }
}

/// The clocks of this machine; sleeps by Tokio's timer.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "has no parts")]
pub struct SystemClock;

impl Clock for SystemClock {
    fn read(&self) -> Reading {
        let (monotonic, boot) = platform::monotonic_and_boot();
        Reading { monotonic, boot, wall: platform::wall() }
    }

    #[expect(clippy::disallowed_methods, reason = "the one room that sleeps")]
    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[cfg(unix)]
mod platform {
    use std::time::Duration;

    use rustix::time::{ClockId, Timespec, clock_gettime};

    pub(super) fn monotonic_and_boot() -> (Duration, Duration) {
        (since_origin(clock_gettime(ClockId::Monotonic)), since_origin(clock_gettime(BOOT)))
    }

    pub(super) fn wall() -> Duration {
        since_origin(clock_gettime(ClockId::Realtime))
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const BOOT: ClockId = ClockId::Boottime;
    // CLOCK_MONOTONIC of macOS goes on during sleep, and of the BSDs there is no other.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const BOOT: ClockId = ClockId::Monotonic;

    fn since_origin(time: Timespec) -> Duration {
        // Negative only for a wall clock before 1970, of which nothing needs to be told apart.
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(seconds, nanoseconds)
    }
}

#[cfg(not(unix))]
mod platform {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant, SystemTime};

    #[expect(clippy::disallowed_methods, reason = "the one room that asks for the time")]
    pub(super) fn monotonic_and_boot() -> (Duration, Duration) {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(*ORIGIN.get_or_init(|| now));
        (elapsed, elapsed)
    }

    #[expect(clippy::disallowed_methods, reason = "the one room that asks for the time")]
    pub(super) fn wall() -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reading(monotonic: u64, boot: u64, wall: u64) -> Reading {
        Reading {
            monotonic: Duration::from_secs(monotonic),
            boot: Duration::from_secs(boot),
            wall: Duration::from_secs(wall),
        }
    }

    #[test]
    fn the_clock_that_says_the_most_counts_and_none_counts_backwards() {
        let earlier = reading(100, 200, 1_000_000);
        for (now, expected) in [
            (reading(105, 205, 1_000_005), 5),
            (reading(105, 265, 1_000_005), 65),
            (reading(105, 205, 1_003_600), 3600),
            (reading(105, 205, 0), 5),
            (reading(0, 0, 0), 0),
        ] {
            assert_eq!(now.elapsed_since(&earlier), Duration::from_secs(expected), "{now:?}");
        }
    }

    #[test]
    fn the_system_clocks_run() {
        let before = SystemClock.read();
        let after = SystemClock.read();
        assert!(after.monotonic >= before.monotonic && after.boot >= before.boot);
        // Suspend can only put the boot clock ahead.
        assert!(after.boot + Duration::from_millis(1) >= after.monotonic, "{after:?}");
        assert!(after.unix_ms() > 1_700_000_000_000, "{after:?}");
    }

    proptest! {
        #[test]
        fn no_clock_that_stands_still_or_goes_back_extends_a_deadline(
            passed in 0_u64..100, boot in -50_i64..100, wall in -5_000_i64..5_000,
        ) {
            let since = reading(1_000, 1_000, 1_000_000);
            let deadline = Deadline { since, length: Duration::from_secs(30) };
            let now = reading(
                1_000 + passed, 1_000_u64.saturating_add_signed(boot), 1_000_000_u64.saturating_add_signed(wall),
            );
            let monotonic_alone = Duration::from_secs(30).saturating_sub(Duration::from_secs(passed));
            prop_assert!(deadline.remaining(&now) <= monotonic_alone);
        }
    }
}
