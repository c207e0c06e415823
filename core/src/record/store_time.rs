use std::time::Duration;

use crate::clock::{Reading, saturating_ms};
use crate::timing;

/// How exact a `Date` header is: it names a second.
const RESOLUTION_MS: u64 = 1000;

/// What a client knows of its store's clock, learnt from the store's own answers.
///
/// For stores that keep an expiry but have no clock of their own to judge it by. Nobody guesses an offset: an answer bounds the
/// store's time from below and from above, and each side uses the end of the interval that can only hurt itself. So machines whose
/// wall clocks are an hour off, either way, and jump, work together with right ones.
///
/// Kept are the newest two answers, on the boot clock; a fork drops them.
#[derive(Debug)]
pub struct StoreTime {
    newest: Option<StoreAnswer>,
    second: Option<StoreAnswer>,
    pid: u32,
}

/// One answer of a store that told its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "complete by nature: what was said, and between which two instants"
)]
pub struct StoreAnswer {
    /// The store's time as the answer says it, in Unix milliseconds, rounded down to the second.
    pub date_ms: u64,
    /// The boot clock, read before the request was built.
    pub sent: Duration,
    /// The boot clock, read after the answer arrived.
    pub arrived: Duration,
}

impl Default for StoreTime {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreTime {
    /// Nothing known.
    pub fn new() -> Self {
        Self { newest: None, second: None, pid: std::process::id() }
    }

    /// Keeps an answer.
    pub fn note(&mut self, answer: StoreAnswer) {
        self.drop_inherited();
        if answer.arrived < answer.sent {
            return;
        }
        if self.newest.is_none_or(|newest| answer.arrived >= newest.arrived) {
            self.second = self.newest.replace(answer);
        } else if self.second.is_none_or(|second| answer.arrived >= second.arrived) {
            self.second = Some(answer);
        }
    }

    /// The earliest that the store's clock can show at `boot`, in Unix milliseconds. Nothing without an answer.
    pub fn earliest_ms(&self, boot: Duration) -> Option<u64> {
        self.kept()
            .map(|answer| {
                let since = timing::shrunk(boot.saturating_sub(answer.arrived));
                answer.date_ms.saturating_add(saturating_ms(since))
            })
            .min()
    }

    /// The latest that the store's clock can show at `boot`, in Unix milliseconds. Nothing without an answer.
    pub fn latest_ms(&self, boot: Duration) -> Option<u64> {
        self.kept()
            .map(|answer| {
                let since = timing::stretched(boot.saturating_sub(answer.sent));
                // A millisecond more, since both are rounded down.
                answer
                    .date_ms
                    .saturating_add(RESOLUTION_MS)
                    .saturating_add(saturating_ms(since))
                    .saturating_add(1)
            })
            .max()
    }

    /// The instant on the boot clock at which [`latest_ms`](Self::latest_ms) reaches `at_ms`. Nothing without an answer.
    pub fn reaches(&self, at_ms: u64) -> Option<Duration> {
        self.kept()
            .map(|answer| {
                let left =
                    at_ms.saturating_sub(answer.date_ms.saturating_add(RESOLUTION_MS).saturating_add(1));
                answer.sent.saturating_add(timing::unstretched(Duration::from_millis(left)))
            })
            .min()
    }

    /// Whether the interval may be used to say that somebody's lease is over: two answers are kept, or one and the wall clock
    /// agrees with it. One answer alone may be an outlier.
    pub fn is_trusted(&self, now: &Reading) -> bool {
        if self.kept().count() == 2 {
            return true;
        }
        let wall = now.unix_ms();
        self.earliest_ms(now.boot).is_some_and(|earliest| earliest <= wall)
            && self.latest_ms(now.boot).is_some_and(|latest| wall <= latest)
    }

    /// Whether an expiry at `at_ms` has been reached for certain, with `max_skew` for the spread of the store's own clocks.
    pub fn has_reached(&self, at_ms: u64, now: &Reading, max_skew: Duration) -> bool {
        let cut = self.cut_ms(now, max_skew);
        cut.is_some_and(|cut| at_ms <= cut)
    }

    /// The latest expiry that has been reached for certain. Nothing while the interval is not to be trusted.
    pub fn cut_ms(&self, now: &Reading, max_skew: Duration) -> Option<u64> {
        if !self.is_trusted(now) {
            return None;
        }
        self.earliest_ms(now.boot)?.checked_sub(saturating_ms(max_skew))
    }

    /// The kept answers, if this is the process that got them.
    fn kept(&self) -> impl Iterator<Item = StoreAnswer> {
        let ours = self.pid == std::process::id();
        [self.newest, self.second].into_iter().flatten().filter(move |_| ours)
    }

    fn drop_inherited(&mut self) {
        if self.pid != std::process::id() {
            *self = Self::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EPOCH_MS: u64 = 1_790_000_000_000;

    fn answer(date_ms: u64, sent: u64, arrived: u64) -> StoreAnswer {
        StoreAnswer { date_ms, sent: Duration::from_millis(sent), arrived: Duration::from_millis(arrived) }
    }

    fn reading(boot_ms: u64, wall_ms: u64) -> Reading {
        Reading {
            monotonic: Duration::from_millis(boot_ms),
            boot: Duration::from_millis(boot_ms),
            wall: Duration::from_millis(wall_ms),
        }
    }

    #[test]
    fn nothing_is_known_without_an_answer() {
        let time = StoreTime::new();
        assert_eq!(time.earliest_ms(Duration::ZERO), None);
        assert_eq!(time.latest_ms(Duration::ZERO), None);
        assert!(!time.is_trusted(&reading(0, EPOCH_MS)));
        assert!(!time.has_reached(0, &reading(0, EPOCH_MS), Duration::ZERO));
    }

    #[test]
    fn one_answer_is_trusted_only_when_the_wall_clock_agrees() {
        let mut time = StoreTime::new();
        time.note(answer(EPOCH_MS, 1_000, 1_100));
        assert!(time.is_trusted(&reading(1_100, EPOCH_MS + 500)));
        for hours in [1, -1] {
            let wall = EPOCH_MS.saturating_add_signed(hours * 3_600_000);
            assert!(!time.is_trusted(&reading(1_100, wall)), "{hours} h");
        }
        time.note(answer(EPOCH_MS, 1_200, 1_300));
        assert!(time.is_trusted(&reading(1_300, 0)), "two answers need no wall clock");
    }

    #[test]
    fn one_outlier_among_two_neither_takes_nor_uncovers() {
        for outlier in [EPOCH_MS - 3_600_000, EPOCH_MS + 3_600_000] {
            let mut time = StoreTime::new();
            time.note(answer(outlier, 1_000, 1_100));
            time.note(answer(EPOCH_MS, 2_000, 2_100));
            let now = Duration::from_millis(2_100);
            assert!(time.earliest_ms(now).unwrap() <= EPOCH_MS, "an early end would take a live lease");
            assert!(time.latest_ms(now).unwrap() >= EPOCH_MS + 1000, "a late end would uncover one");
        }
    }

    #[test]
    fn the_newest_two_are_kept_in_whatever_order_they_arrive() {
        let mut time = StoreTime::new();
        for (date, at) in [(EPOCH_MS + 9_000, 10_000), (EPOCH_MS, 1_000), (EPOCH_MS + 8_000, 9_000)] {
            time.note(answer(date, at, at));
        }
        // The one of 1,000 has gone: what is left agrees within a second.
        let now = Duration::from_millis(10_000);
        assert!(time.earliest_ms(now).unwrap() >= EPOCH_MS + 8_990);
        time.note(answer(EPOCH_MS, 20_000, 19_000));
        assert!(time.earliest_ms(now).unwrap() >= EPOCH_MS + 8_990, "time ran backwards: not kept");
    }

    proptest! {
        /// Whatever the round trips and the rate of our clock within the bound, the store's true time lies in the interval.
        #[test]
        fn the_true_time_lies_between(
            start in 0_u64..100_000, out in 0_u64..5_000, back in 0_u64..5_000, later in 0_u64..600_000,
            rate in 0.9992_f64..1.0008,
        ) {
            // True time runs from EPOCH_MS + start; our boot clock runs at `rate`.
            let ours = |true_ms: u64| (true_ms as f64 * rate) as u64;
            let served = EPOCH_MS + start + out;
            let date_ms = served / 1000 * 1000;
            let mut time = StoreTime::new();
            time.note(answer(date_ms, ours(start), ours(start + out + back) + 1));
            let now_true = start + out + back + later;
            let boot = Duration::from_millis(ours(now_true));
            prop_assert!(time.earliest_ms(boot).unwrap() <= EPOCH_MS + now_true);
            prop_assert!(time.latest_ms(boot).unwrap() + 1 >= EPOCH_MS + now_true);
        }

        /// Before the instant that `reaches` names, `latest` has not reached it.
        #[test]
        fn reaches_is_the_inverse_of_latest(ahead in 2_000_u64..100_000_000, sent in 0_u64..1_000_000, trip in 0_u64..5_000) {
            let mut time = StoreTime::new();
            time.note(answer(EPOCH_MS, sent, sent + trip));
            let instant = time.reaches(EPOCH_MS + ahead).unwrap();
            let before = instant.saturating_sub(Duration::from_millis(1));
            prop_assert!(time.latest_ms(before).unwrap() <= EPOCH_MS + ahead);
            let after = instant + Duration::from_millis(3);
            prop_assert!(time.latest_ms(after).unwrap() >= EPOCH_MS + ahead);
        }
    }
}
