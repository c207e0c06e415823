//! Store time: hosts an hour off, either way, mixed with right ones; dates that are missing, shifted, frozen or outliers.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod engine;

use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, OffClock, TABLE, TTL, age, ask, fresh_key, granted, stored_token};
use leasehold::{
    AcquireOutcome, Clock, LeaseKey, LeaseOptions, LeaseStore, Leases, OsChance, StoreErrorKind, SystemClock,
    TryAcquire,
};
use leasehold_dynamodb::{DynamoDbOptions, DynamoDbStore, ExpiryPolicy};
use leasehold_wire::{Fault, Matcher, Proxy};

const ENGINE: Engine = Engine::Dynoxide;

const HOUR: i64 = 3600;

/// A store on a host whose wall clock is off by so many seconds.
async fn host(endpoint: &str, clock: Arc<OffClock>) -> DynamoDbStore {
    let options = DynamoDbOptions::new().with_clock(clock);
    DynamoDbStore::open_with(engine::client(endpoint), TABLE, options).await.unwrap()
}

async fn leases(endpoint: &str, clock: Arc<OffClock>) -> Leases {
    let store = host(endpoint, clock.clone()).await;
    Leases::with_parts(Arc::new(store), LeaseOptions::default(), clock, Arc::new(OsChance)).unwrap()
}

async fn is_granted(store: &DynamoDbStore, key: &LeaseKey) -> bool {
    matches!(store.acquire(&ask(key)).await.unwrap(), AcquireOutcome::Granted(_))
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn s04_hosts_an_hour_off_neither_take_a_live_lease_nor_are_locked_out() {
    let client = ENGINE.client().await;
    for holder_off in [-HOUR, 0, HOUR] {
        for contender_off in [-HOUR, 0, HOUR] {
            let name = format!("holder {holder_off} s, contender {contender_off} s");
            let key = fresh_key("hosts");
            let holder = leases(&ENGINE.endpoint(), OffClock::off_by(holder_off)).await;
            let lease = holder.acquire(&key).await.unwrap();
            let contender = leases(&ENGINE.endpoint(), OffClock::off_by(contender_off)).await;
            let tried = contender.try_acquire(&key).await.unwrap();
            assert!(matches!(tried, TryAcquire::Held(_)), "{name}: a live lease was taken");
            lease.abandon();
            // A little after its end, not an hour.
            age(&client, &key, TTL + Duration::from_secs(5)).await;
            let taken = contender.try_acquire(&key).await.unwrap().acquired();
            let taken = taken.unwrap_or_else(|| panic!("{name}: locked out of an expired lease"));
            assert!(taken.is_held() && taken.remaining() > TTL - Duration::from_secs(3), "{name}");
            taken.release().await.unwrap();
        }
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn d31_a_cold_contender_takes_an_expired_lease_within_one_call() {
    let client = ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    for (off, writes) in [(0, 1), (HOUR, 2), (-HOUR, 2)] {
        let key = fresh_key("cold");
        granted(&ENGINE.store().await, &ask(&key)).await;
        engine::make_old(&client, &key).await;
        let cold = host(&proxy.url(), OffClock::off_by(off)).await;
        proxy.clear();
        assert!(is_granted(&cold, &key).await, "{off} s");
        let all = proxy.requests().len();
        // A right clock and the answer of `open` agree: one request. A wrong one learns from the first refusal.
        assert_eq!((proxy.count(&Matcher::target("UpdateItem")), all), (writes, writes), "{off} s");
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn tokens_follow_the_services_clock_and_no_wall_clock() {
    let client = ENGINE.client().await;
    let key = fresh_key("floor");
    let mut last = None;
    for off in [HOUR, -HOUR, 0, 20 * 365 * 24 * HOUR, -HOUR] {
        let lease = leases(&ENGINE.endpoint(), OffClock::off_by(off)).await.acquire(&key).await.unwrap();
        assert!(Some(lease.token()) > last, "{off} s");
        let off_from_now = lease.token().get().abs_diff(SystemClock.read().unix_ms());
        assert!(off_from_now < 10_000, "{off} s: the token is {off_from_now} ms from the service's time");
        last = Some(lease.token());
        assert_eq!(stored_token(&client, &key).await, last);
        lease.release().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_wall_clock_that_jumps_changes_nothing_in_the_store() {
    let clock = OffClock::off_by(0);
    let key = fresh_key("jump");
    let store = host(&ENGINE.endpoint(), clock.clone()).await;
    let grant = granted(&store, &ask(&key)).await;
    for off in [HOUR, -HOUR, 0] {
        clock.jump_wall_to(off);
        let contender = host(&ENGINE.endpoint(), clock.clone()).await;
        assert!(!is_granted(&contender, &key).await, "{off} s");
    }
    let renewal = leasehold::RenewRequest::new(grant, engine::attempt(), TTL);
    let outcome = store.renew(&[renewal]).await.remove(0).unwrap();
    assert!(matches!(outcome, leasehold::RenewOutcome::Renewed(_)), "{outcome:?}");
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn without_a_date_nothing_is_taken_and_the_error_says_so() {
    let client = ENGINE.client().await;
    for remove in [Fault::NoDate, Fault::without_header("x-amzn-requestid"), Fault::with_header("age", "7")] {
        let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
        proxy.from_now_on(&Matcher::any(), remove.clone());
        let key = fresh_key("dateless");
        let store = DynamoDbStore::open(engine::client(&proxy.url()), TABLE).await.unwrap();
        let error = store.acquire(&ask(&key)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NoStoreClock, "{remove:?}: {error}");
        assert_eq!(proxy.count(&Matcher::target("UpdateItem")), 0, "{remove:?}");
        assert!(engine::item(&client, &key).await.is_none());
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn one_wrong_date_neither_takes_nor_uncovers_a_live_lease() {
    for off in [-HOUR, HOUR] {
        let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
        let key = fresh_key("outlier");

        // The outlier is a contender's first answer, with a wall clock that does not agree with it.
        granted(&ENGINE.store().await, &ask(&key)).await;
        proxy.script([Fault::ShiftDate(off)]);
        let contender = host(&proxy.url(), OffClock::off_by(0)).await;
        assert!(!is_granted(&contender, &key).await, "{off} s: first answer");
        // The outlier is among two.
        proxy.script([Fault::ShiftDate(off)]);
        assert!(!is_granted(&contender, &key).await, "{off} s: second answer");
        assert!(!is_granted(&contender, &key).await, "{off} s: one good, one not");

        // The outlier is what a holder writes by: it stops before others may begin.
        let key = fresh_key("outlier-holder");
        proxy.script([Fault::ShiftDate(off)]);
        let clock = OffClock::off_by(0);
        let holder = leases(&proxy.url(), clock.clone()).await;
        let slow = Duration::from_millis(400);
        proxy.from_now_on(&Matcher::target("UpdateItem"), Fault::DelayAnswer(slow));
        let lease = holder.acquire(&key).await.unwrap();
        // However late the expiry in the store: the ttl counts from the sending, less drift and margin.
        let left = lease.remaining();
        assert!(left <= TTL.mul_f64(0.999) - TTL / 100 - slow, "{off} s: {left:?} left");
        let item = engine::item(&ENGINE.client().await, &key).await.unwrap();
        let expires_at = engine::number_of(&item, "expires_at").unwrap();
        let others_begin = expires_at.saturating_sub(SystemClock.read().unix_ms());
        assert!(
            left <= Duration::from_millis(others_begin),
            "{off} s: {left:?} left, others begin in {others_begin} ms"
        );
        lease.release().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_frozen_date_takes_nothing_by_expiry_and_everything_by_observation() {
    let client = ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let key = fresh_key("frozen");
    let clock = OffClock::off_by(0);
    proxy.freeze_date(&http_date_of_hour_ago());
    let contender = host(&proxy.url(), clock.clone()).await;
    granted(&ENGINE.store().await, &ask(&key)).await;
    age(&client, &key, 2 * TTL).await;
    assert!(!is_granted(&contender, &key).await, "an hour behind, it does not know that the lease is over");
    clock.advance(TTL + Duration::from_millis(31));
    assert!(is_granted(&contender, &key).await, "it has watched the record for its whole ttl");
}

fn http_date_of_hour_ago() -> String {
    use aws_smithy_types::date_time::Format;
    let seconds = SystemClock.read().wall.as_secs() - 3600;
    let date = aws_smithy_types::DateTime::from_secs(i64::try_from(seconds).unwrap());
    date.fmt(Format::HttpDate).unwrap()
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn d08_d16_tries_remember_what_they_saw() {
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let key = fresh_key("watch");
    granted(&ENGINE.store().await, &ask(&key)).await;
    // No clock to be trusted: one answer an hour off, and then none with a date.
    proxy.script([Fault::ShiftDate(-HOUR)]);
    let clock = OffClock::off_by(0);
    let contender = host(&proxy.url(), clock.clone()).await;
    proxy.remove_date();
    for _ in 0..3 {
        assert!(!is_granted(&contender, &key).await);
        clock.advance(TTL / 4);
    }
    clock.advance(TTL / 2);
    assert!(is_granted(&contender, &key).await);
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_signature_refused_for_its_time_is_sent_once_more_and_right() {
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    for off in [HOUR, -HOUR] {
        // The service is an hour ahead of this machine, or behind: for it, our clock is wrong.
        proxy.shift_date(off);
        proxy.refuse_skew(Duration::from_secs(300));
        let key = fresh_key("skew");
        let store = DynamoDbStore::open(engine::client(&proxy.url()), TABLE).await.unwrap();
        let leases = Leases::new(store, LeaseOptions::default()).unwrap();
        let lease = leases.acquire(&key).await.unwrap();
        assert!(lease.is_held(), "{off} s");
        lease.release().await.unwrap();
    }
}

async fn host_with(clock: &Arc<OffClock>, expiry: ExpiryPolicy) -> DynamoDbStore {
    let options = DynamoDbOptions::new().with_clock(clock.clone()).with_expiry(expiry);
    DynamoDbStore::open_with(engine::client(&ENGINE.endpoint()), TABLE, options).await.unwrap()
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn observed_takes_over_by_watching_alone_and_writes_no_expiry() {
    let client = ENGINE.client().await;
    let key = fresh_key("observed");
    let holder = host_with(&OffClock::off_by(0), ExpiryPolicy::Observed).await;
    let grant = granted(&holder, &ask(&key)).await;
    let renewal = leasehold::RenewRequest::new(grant.clone(), engine::attempt(), TTL);
    assert!(engine::number_of(&engine::item(&client, &key).await.unwrap(), "expires_at").is_none());

    let clock = OffClock::off_by(0);
    let contender = host_with(&clock, ExpiryPolicy::Observed).await;
    // One that goes by time finds none, and has to watch too.
    let by_time = host_with(&clock, ExpiryPolicy::StoreTime).await;
    for host in [&contender, &by_time] {
        assert!(!is_granted(host, &key).await);
    }
    clock.advance(TTL);
    // A renewal starts the watch anew.
    holder.renew(&[renewal]).await.remove(0).unwrap();
    for host in [&contender, &by_time] {
        assert!(!is_granted(host, &key).await);
    }
    clock.advance(TTL);
    assert!(!is_granted(&contender, &key).await, "0.1 % is missing");
    clock.advance(TTL / 500);
    assert!(is_granted(&contender, &key).await);
    assert!(engine::number_of(&engine::item(&client, &key).await.unwrap(), "expires_at").is_none());
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn observed_takes_the_expiry_of_a_grant_by_time_away() {
    let client = ENGINE.client().await;
    for batches in [false, true] {
        let options = DynamoDbOptions::new().with_expiry(ExpiryPolicy::Observed).with_batches(batches);
        let store = DynamoDbStore::open_with(client.clone(), TABLE, options).await.unwrap();
        let by_time = ENGINE.store().await;
        let mut renewals = Vec::new();
        for _ in 0..2 {
            let grant = granted(&by_time, &ask(&fresh_key("by-time"))).await;
            renewals.push(leasehold::RenewRequest::new(grant, engine::attempt(), TTL));
        }
        let together = if batches { 2 } else { 1 };
        // The second time there is nothing left to remove.
        for _ in 0..2 {
            for renewals in renewals.chunks_mut(together) {
                let answers = store.renew(renewals).await;
                for (ask, answer) in renewals.iter_mut().zip(answers) {
                    let leasehold::RenewOutcome::Renewed(granted) = answer.unwrap() else {
                        panic!("batches {batches}: not renewed")
                    };
                    let key = granted.grant.key.clone();
                    let item = engine::item(&client, &key).await.unwrap();
                    assert!(!item.contains_key("expires_at"), "batches {batches}: {item:?}");
                    *ask = leasehold::RenewRequest::new(granted.grant, engine::attempt(), TTL);
                }
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn both_needs_the_clock_and_the_watch() {
    let client = ENGINE.client().await;
    for (aged, watched) in [(false, false), (true, false), (false, true), (true, true)] {
        let key = fresh_key("both");
        granted(&ENGINE.store().await, &ask(&key)).await;
        if aged {
            engine::make_old(&client, &key).await;
        } else {
            // Far in the future, so that the watch does not bring the clock along.
            engine::set(&client, &key, "expires_at", engine::number(9_000_000_000_000)).await;
        }
        let clock = OffClock::off_by(0);
        let contender = host_with(&clock, ExpiryPolicy::Both).await;
        assert!(!is_granted(&contender, &key).await, "at first sight");
        if watched {
            clock.advance(TTL + TTL / 500);
        }
        assert_eq!(is_granted(&contender, &key).await, aged && watched, "aged {aged}, watched {watched}");
    }
}
