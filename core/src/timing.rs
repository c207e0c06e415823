//! The numbers of a lease's life, as pure arithmetic.

use std::time::Duration;

/// Clocks of two machines may differ in rate by one part in so many: 0.1 %, twice the 500 ppm that NTP allows.
const DRIFT: u32 = 1000;

/// How far the rest of an attempt's time is kept free, so that an answer can still be acted on.
const ATTEMPT_RESERVE: Duration = Duration::from_millis(50);

/// What is taken off the end of a grant for a slow last act: max(50 ms, ttl/100).
pub(crate) fn margin(ttl: Duration) -> Duration {
    Duration::from_millis(50).max(ttl / 100)
}

/// A release is asked for at least this long, even if the lease would expire before.
pub(crate) const RELEASE_AT_LEAST: Duration = Duration::from_secs(2);

/// And no longer than this, however long the lease would last: nobody should wait for minutes to be told that it expires.
pub(crate) const RELEASE_AT_MOST: Duration = Duration::from_secs(10);

/// How long a release is asked for when `left` is left of the lease.
pub(crate) fn release_limit(left: Duration) -> Duration {
    left.clamp(RELEASE_AT_LEAST, RELEASE_AT_MOST)
}

/// The wait after an error that does not pass by itself: 1 s, doubled each time, at most a minute. A person may mend it.
pub(crate) fn patient_back_off(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.saturating_sub(1).min(6)).min(Duration::from_secs(60))
}

/// The ttl whose validity is `needed`, with a second for the request itself.
pub(crate) fn ttl_for(needed: Duration) -> Duration {
    let needed = needed.saturating_add(Duration::from_secs(1)).min(Duration::from_secs(24 * 60 * 60));
    stretched(stretched(needed)) + margin(needed) + margin(needed) / 10
}

/// How long after the sending of the request a holder may act: ttl less drift and margin.
pub(crate) fn validity(ttl: Duration) -> Duration {
    shrunk(ttl).saturating_sub(margin(ttl))
}

/// How long an observer watches a grant of this ttl before it is over by its own clock.
pub(crate) fn stretched(ttl: Duration) -> Duration {
    ttl.saturating_add(ttl / DRIFT)
}

/// The least that has passed elsewhere while `passed` passed here.
pub(crate) fn shrunk(passed: Duration) -> Duration {
    passed.saturating_sub(passed / DRIFT)
}

/// The least that has to pass here for `passed` to have passed elsewhere.
pub(crate) fn unstretched(passed: Duration) -> Duration {
    passed.saturating_sub(passed / (DRIFT + 1))
}

/// How long one attempt may take when `left` is left for all of them; nothing when it is not worth starting.
pub(crate) fn attempt_timeout(ttl: Duration, left: Duration) -> Option<Duration> {
    let left = left.checked_sub(ATTEMPT_RESERVE)?;
    let timeout = Duration::from_secs(2).min(ttl / 6).min(left);
    (!timeout.is_zero()).then_some(timeout)
}

/// When the first renewal is due after the grant: a uniform point of (0, ttl/3], so that leases taken together are not
/// renewed together. `fraction` lies in [0, 1).
pub(crate) fn first_renewal(ttl: Duration, fraction: f64) -> Duration {
    (ttl / 3).mul_f64(1.0 - fraction)
}

/// When the next renewal is due after the last one: ttl/3 ± 10 %. `fraction` lies in [0, 1).
pub(crate) fn next_renewal(ttl: Duration, fraction: f64) -> Duration {
    (ttl / 3).mul_f64(0.9 + 0.2 * fraction)
}

/// When a lease without a successful renewal is at risk: 2/3 ttl.
pub(crate) fn at_risk_after(ttl: Duration) -> Duration {
    ttl * 2 / 3
}

/// The wait before attempt number `failures` + 1: full jitter up to 100 ms, doubled each time, at most 1 s.
pub(crate) fn back_off(failures: u32, fraction: f64) -> Duration {
    let ceiling = Duration::from_millis(100).saturating_mul(1 << failures.saturating_sub(1).min(10));
    ceiling.min(Duration::from_secs(1)).mul_f64(fraction)
}

/// The wait between two reads of a waiter: 200–500 ms, longer after `throttled` refusals in a row.
pub(crate) fn between_reads(throttled: u32, fraction: f64) -> Duration {
    let base = Duration::from_millis(200) + Duration::from_millis(300).mul_f64(fraction);
    base.saturating_mul(1 << throttled.min(4))
}

/// How long before the deadline work is asked to stop, where it can be asked: ttl/6, within 0.5–10 s.
pub fn grace(ttl: Duration) -> Duration {
    (ttl / 6).clamp(Duration::from_millis(500), Duration::from_secs(10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let ttl = Duration::from_secs(30);
        assert_eq!(validity(ttl), Duration::from_millis(29_670));
        assert_eq!(attempt_timeout(ttl, ttl), Some(Duration::from_secs(2)));
        assert_eq!(at_risk_after(ttl), Duration::from_secs(20));
        assert_eq!(grace(ttl), Duration::from_secs(5));
        assert_eq!(grace(Duration::from_secs(1)), Duration::from_millis(500));
        assert_eq!(grace(Duration::from_secs(3600)), Duration::from_secs(10));
    }

    #[test]
    fn no_attempt_starts_without_time_left() {
        let ttl = Duration::from_secs(30);
        for left in [0, 1, 50] {
            assert_eq!(attempt_timeout(ttl, Duration::from_millis(left)), None, "{left} ms");
        }
        assert_eq!(attempt_timeout(ttl, Duration::from_millis(150)), Some(Duration::from_millis(100)));
    }

    proptest! {
        #[test]
        fn every_number_keeps_its_bounds(ttl_ms in 1_000_u64..86_400_000, left_ms in 0_u64..86_400_000,
                                         fraction in 0.0_f64..1.0, failures in 0_u32..100) {
            let (ttl, left) = (Duration::from_millis(ttl_ms), Duration::from_millis(left_ms));
            prop_assert!(validity(ttl) < ttl && validity(ttl) > ttl * 9 / 10);
            prop_assert!(attempt_timeout(ttl, left).is_none_or(|timeout| timeout < left));
            let first = first_renewal(ttl, fraction);
            prop_assert!(!first.is_zero() && first <= ttl / 3);
            let next = next_renewal(ttl, fraction);
            prop_assert!(next >= ttl * 29 / 100 && next <= ttl * 37 / 100);
            prop_assert!(back_off(failures, fraction) <= Duration::from_secs(1));
            prop_assert!(between_reads(failures, fraction) >= Duration::from_millis(200));
        }
    }
}
