//! Several users of one file.

use std::pin::pin;
use std::time::Duration;

use leasehold::{Effect, LeaseStore, ReleaseOutcome, ReleaseRequest, RenewOutcome, StoreErrorKind};

use crate::rig::{
    Place, Scripted, TTL, ask, begin, begin_in_turn, grant, granted, is_held, key, renewal, timed_by,
};

#[tokio::test]
async fn two_stores_on_one_file_contend() {
    let place = Place::new();
    let clock = Scripted::new();
    let one = timed_by(&clock).open(&place.path).await.unwrap();
    let two = timed_by(&clock).open(&place.path).await.unwrap();
    let first = grant(&one, "k", 1).await;
    assert!(is_held(two.acquire(&ask("k", 2)).await));
    assert_eq!(one.release(&ReleaseRequest::of(&first)).await.unwrap(), ReleaseOutcome::Released);
    let second = grant(&two, "k", 2).await;
    assert!(second.token > first.token);
    clock.pass(TTL);
    let third = grant(&one, "k", 1).await;
    assert!(third.token > second.token);
    let answers = two.renew(&[renewal(&second)]).await;
    assert!(
        matches!(&answers[..], [Ok(RenewOutcome::Superseded { by })] if *by == Some(third.token)),
        "{answers:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_has_one_winner() {
    let place = Place::new();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(place.open().await);
    }
    let mut last = None;
    for round in 0..20_u8 {
        let mut race = tokio::task::JoinSet::new();
        for (number, store) in stores.iter().cloned().enumerate() {
            let asked = ask("k", 1 + round * 4 + u8::try_from(number).unwrap());
            race.spawn(async move { store.acquire(&asked).await });
        }
        let outcomes = race.join_all().await;
        let mut winners =
            outcomes.into_iter().filter(|outcome| !matches!(outcome, Ok(leasehold::AcquireOutcome::Held(_))));
        let winner = granted(winners.next().unwrap());
        assert!(winners.next().is_none());
        assert!(last < Some(winner.token));
        last = Some(winner.token);
        stores[0].release(&ReleaseRequest::of(&winner)).await.unwrap();
    }
}

#[tokio::test]
async fn a_busy_file_is_waited_for_and_no_longer_than_asked() {
    let place = Place::new();
    let store = place.open().await;
    let mut other = place.raw();
    let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();

    let mut impatient = ask("k", 1);
    impatient.timeout = Duration::from_millis(30);
    let error = store.acquire(&impatient).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Unavailable, Effect::NotApplied), "{error}");
    assert_eq!(error.code(), Some("SQLITE_BUSY"));
    assert!(error.to_string().contains("another process keeps the file locked"), "{error}");
    // Looking needs no write lock.
    assert_eq!(store.inspect(&key("k"), TTL).await.unwrap().token, None);

    let mut patient = ask("k", 2);
    patient.timeout = Duration::from_secs(60);
    let mut waiting = pin!(store.acquire(&patient));
    begin(waiting.as_mut());
    drop(lock);
    granted(waiting.await);
}

/// The clock stands in for the time that a job spends behind a slow one.
#[tokio::test]
async fn a_step_whose_time_passed_in_the_queue_is_not_taken() {
    let place = Place::new();
    let clock = Scripted::new();
    let store = timed_by(&clock).open(&place.path).await.unwrap();
    let mut other = place.raw();
    let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let mut slow = ask("slow", 1);
    slow.timeout = Duration::from_secs(60);
    let mut slow = pin!(store.acquire(&slow));
    begin(slow.as_mut());
    let late = ask("late", 2);
    let mut late = pin!(store.acquire(&late));
    begin(late.as_mut());
    clock.pass(Duration::from_secs(3));
    drop(lock);
    granted(slow.await);
    let error = late.await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Unavailable, Effect::NotApplied), "{error}");
    assert_eq!(store.inspect(&key("late"), TTL).await.unwrap().token, None);
}

#[tokio::test]
async fn a_call_dropped_before_its_turn_is_never_carried_out() {
    let place = Place::new();
    let store = place.open().await;
    let mut other = place.raw();
    let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let mut first = ask("first", 1);
    first.timeout = Duration::from_secs(60);
    let mut first = pin!(store.acquire(&first));
    begin(first.as_mut());
    {
        let dropped = ask("dropped", 2);
        let mut dropped = pin!(store.acquire(&dropped));
        begin(dropped.as_mut());
    }
    drop(lock);
    granted(first.await);
    assert_eq!(store.inspect(&key("dropped"), TTL).await.unwrap().token, None);
}

#[tokio::test]
async fn a_call_dropped_in_its_turn_is_carried_out_whole() {
    let place = Place::new();
    let clock = Scripted::new();
    let store = timed_by(&clock).open(&place.path).await.unwrap();
    let mut other = place.raw();
    let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    {
        let mut dropped = ask("k", 1);
        dropped.timeout = Duration::from_secs(60);
        let mut dropped = pin!(store.acquire(&dropped));
        begin_in_turn(dropped.as_mut(), &clock);
    }
    drop(lock);
    assert!(is_held(store.acquire(&ask("k", 2)).await));
    assert_eq!(store.inspect(&key("k"), TTL).await.unwrap().held.unwrap().seq, 0);
    granted(store.acquire(&ask("k", 1)).await);
}

#[tokio::test]
async fn a_reader_delays_a_commit_no_longer_than_asked() {
    let place = Place::new();
    let store = place.open().await;
    grant(&store, "other", 9).await;
    let mut other = place.raw();
    let reader = other.transaction().unwrap();
    let _: i64 = reader.query_row("SELECT count(*) FROM lease", [], |row| row.get(0)).unwrap();
    let mut impatient = ask("k", 1);
    impatient.timeout = Duration::from_millis(30);
    let error = store.acquire(&impatient).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Unavailable, Effect::NotApplied), "{error}");
    drop(reader);
    assert_eq!(store.inspect(&key("k"), TTL).await.unwrap().token, None, "rolled back");
    grant(&store, "k", 2).await;
}

#[tokio::test]
async fn what_was_granted_outlives_the_store() {
    let place = Place::new();
    let first = grant(&place.open().await, "k", 1).await;
    let store = place.open().await;
    assert!(is_held(store.acquire(&ask("k", 2)).await));
    assert_eq!(granted(store.acquire(&ask("k", 1)).await), first, "the same nonce is the same grant");
}
