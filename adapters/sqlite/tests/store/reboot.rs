//! The boot clock, and records that another boot has timed.

use std::time::Duration;

use leasehold::record::TokenPolicy;
use leasehold::{FencingToken, LeaseAdmin, LeaseStore, RenewOutcome};

use crate::rig::{Place, Scripted, TTL, ask, grant, is_held, key, renewal, timed_by};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_grant_ends_by_the_boot_clock_alone() {
    let place = Place::new();
    let clock = Scripted::new();
    let store = timed_by(&clock).open(&place.path).await.unwrap();
    let first = grant(&store, "k", 1).await;
    // A wall clock an hour ahead or behind, or a monotonic clock that ran on, ends nothing.
    for wall in [1_800_003_600, 1_799_996_400, 0] {
        clock.set(|reading| reading.wall = Duration::from_secs(wall));
        assert!(is_held(store.acquire(&ask("k", 2)).await), "{wall}");
    }
    clock.set(|reading| reading.boot += TTL - Duration::from_millis(1));
    assert!(is_held(store.acquire(&ask("k", 2)).await));
    // Suspended: only the boot clock moves.
    clock.set(|reading| reading.boot += Duration::from_millis(1));
    let second = grant(&store, "k", 2).await;
    assert!(second.token > first.token, "though the wall clock shows 1970");
}

#[tokio::test]
async fn a_renewal_counts_from_its_own_time_and_never_moves_back() {
    let place = Place::new();
    let clock = Scripted::new();
    let store = timed_by(&clock).open(&place.path).await.unwrap();
    let first = grant(&store, "k", 1).await;
    clock.pass(20 * SECOND);
    let Ok(RenewOutcome::Renewed(renewed)) = &store.renew(&[renewal(&first)]).await[0] else { panic!() };
    assert_eq!((renewed.grant.token, renewed.grant.seq), (first.token, 1));
    clock.pass(29 * SECOND);
    assert!(is_held(store.acquire(&ask("k", 2)).await));
    let mut shorter = renewal(&renewed.grant);
    shorter.ttl = Duration::from_millis(1);
    assert!(matches!(store.renew(&[shorter]).await[0], Ok(RenewOutcome::Renewed(_))));
    clock.pass(SECOND - Duration::from_millis(1));
    assert!(is_held(store.acquire(&ask("k", 2)).await), "the longer renewal before still counts");
    clock.pass(SECOND);
    grant(&store, "k", 2).await;
}

#[tokio::test]
async fn a_grant_of_another_boot_is_watched_for_its_whole_ttl() {
    let place = Place::new();
    let clock = Scripted::new();
    let before = timed_by(&clock).with_boot_id("before").open(&place.path).await.unwrap();
    let first = grant(&before, "k", 1).await;

    // The boot clock begins anew, and happens to stand far beyond the expiry.
    clock.set(|reading| reading.boot = 90_000 * SECOND);
    let after = timed_by(&clock).with_boot_id("after").open(&place.path).await.unwrap();
    assert!(
        !after.inspect(&key("k"), TTL).await.unwrap().held.unwrap().claimable,
        "looking begins the watch"
    );
    assert!(!after.list("", None, 9).await.unwrap()[0].is_claimable(), "a list does not watch");
    clock.pass(TTL);
    assert!(is_held(after.acquire(&ask("k", 2)).await), "the drift of the clocks is not covered yet");
    clock.pass(SECOND);
    assert!(after.inspect(&key("k"), TTL).await.unwrap().held.unwrap().claimable);
    let second = grant(&after, "k", 2).await;
    assert!(second.token > first.token);
    assert!(is_held(after.acquire(&ask("k", 3)).await), "it is timed by this boot now");
    clock.pass(TTL);
    assert!(after.list("", None, 9).await.unwrap()[0].is_claimable());
}

#[tokio::test]
async fn a_renewal_from_another_timeline_begins_the_watch_anew() {
    let place = Place::new();
    let clock = Scripted::new();
    let here = timed_by(&clock).with_boot_id("here").open(&place.path).await.unwrap();
    let there = timed_by(&clock).with_boot_id("there").open(&place.path).await.unwrap();
    let mut held = grant(&there, "k", 1).await;
    for _ in 0..5 {
        assert!(is_held(here.acquire(&ask("k", 2)).await));
        clock.pass(20 * SECOND);
        let Ok(RenewOutcome::Renewed(renewed)) = there.renew(&[renewal(&held)]).await.remove(0) else {
            panic!()
        };
        held = renewed.grant;
    }
    assert!(is_held(here.acquire(&ask("k", 2)).await));
    clock.pass(TTL + SECOND);
    grant(&here, "k", 2).await;
}

#[tokio::test]
async fn a_store_that_was_closed_begins_its_watch_anew() {
    let place = Place::new();
    let clock = Scripted::new();
    grant(&timed_by(&clock).with_boot_id("before").open(&place.path).await.unwrap(), "k", 1).await;
    for _ in 0..2 {
        let store = timed_by(&clock).with_boot_id("after").open(&place.path).await.unwrap();
        assert!(is_held(store.acquire(&ask("k", 2)).await));
        clock.pass(TTL + SECOND);
    }
}

#[tokio::test]
async fn tokens_are_made_by_the_chosen_policy() {
    let place = Place::new();
    let clock = Scripted::new();
    let by_clock = timed_by(&clock).open(&place.path).await.unwrap();
    assert_eq!(grant(&by_clock, "k", 1).await.token.get(), 1_800_000_000_000);
    assert!(by_clock.profile().token_survives_deletion);

    let counted = timed_by(&clock).with_tokens(TokenPolicy::Sequential { seed: 41 });
    let counted = counted.open(&place.path).await.unwrap();
    assert_eq!(grant(&counted, "new", 1).await.token, FencingToken::try_from(42_u64).unwrap());
    assert!(!counted.profile().token_survives_deletion);
    // Two that differ in their policy still never let a token fall.
    clock.pass(TTL);
    assert_eq!(grant(&counted, "k", 2).await.token.get(), 1_800_000_000_001);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_default_is_this_boot() {
    let place = Place::new();
    let store = place.open().await;
    grant(&store, "k", 1).await;
    let id: String = place.raw().query_row("SELECT boot_id FROM lease", [], |row| row.get(0)).unwrap();
    assert!(id.len() >= 36, "{id}");
    assert!(id.starts_with(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim()));
}
