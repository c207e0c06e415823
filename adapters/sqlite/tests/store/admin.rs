//! What an operator may do.

use leasehold::{
    AcquireOutcome, BreakHow, BreakOutcome, FencingToken, LeaseAdmin, LeaseStore, ReleaseRequest,
    RenewOutcome,
};

use crate::rig::{Place, Scripted, TTL, ask, grant, is_held, key, renewal, timed_by};

#[tokio::test]
async fn an_immediate_break_frees_the_key_and_a_stale_one_does_nothing() {
    let place = Place::new();
    let store = place.open().await;
    let first = grant(&store, "k", 1).await;
    let wrong = FencingToken::try_from(first.token.get() - 1).unwrap();
    assert_eq!(
        store.break_lease(&key("k"), wrong, BreakHow::Immediate).await.unwrap(),
        BreakOutcome::NotCurrent
    );
    assert!(is_held(store.acquire(&ask("k", 2)).await));
    assert_eq!(
        store.break_lease(&key("k"), first.token, BreakHow::Immediate).await.unwrap(),
        BreakOutcome::Broken
    );
    assert!(matches!(store.renew(&[renewal(&first)]).await[..], [Ok(RenewOutcome::Broken)]));
    assert!(grant(&store, "k", 2).await.token > first.token);
}

#[tokio::test]
async fn a_graceful_break_is_told_at_the_renewal_and_frees_at_the_expiry() {
    let place = Place::new();
    let clock = Scripted::new();
    let store = timed_by(&clock).open(&place.path).await.unwrap();
    let first = grant(&store, "k", 1).await;
    assert_eq!(
        store.break_lease(&key("k"), first.token, BreakHow::Graceful).await.unwrap(),
        BreakOutcome::Broken
    );
    assert!(store.inspect(&key("k"), TTL).await.unwrap().held.unwrap().break_requested);
    assert!(matches!(store.renew(&[renewal(&first)]).await[..], [Ok(RenewOutcome::Broken)]));
    assert!(is_held(store.acquire(&ask("k", 2)).await));
    clock.pass(TTL);
    grant(&store, "k", 2).await;
}

#[tokio::test]
async fn a_floor_lifts_tokens_and_never_lowers_them() {
    let place = Place::new();
    let store = place.open().await;
    let first = grant(&store, "k", 1).await;
    store.raise_floor(&key("k"), FencingToken::MIN).await.unwrap();
    assert!(is_held(store.acquire(&ask("k", 2)).await), "a floor below raises nothing");
    let floor = FencingToken::try_from(first.token.get() * 2).unwrap();
    store.raise_floor(&key("k"), floor).await.unwrap();
    assert!(grant(&store, "k", 2).await.token > floor);
    store.raise_floor(&key("new"), floor).await.unwrap();
    assert!(grant(&store, "new", 2).await.token > floor);
}

#[tokio::test]
async fn a_sealed_key_is_granted_no_more_and_its_holder_goes_on() {
    let place = Place::new();
    let store = place.open().await;
    let first = grant(&store, "k", 1).await;
    store.seal(&key("k"), true).await.unwrap();
    assert!(matches!(store.renew(&[renewal(&first)]).await[..], [Ok(RenewOutcome::Renewed(_))]));
    store.release(&ReleaseRequest::of(&first)).await.unwrap();
    assert!(matches!(store.acquire(&ask("k", 2)).await, Ok(AcquireOutcome::Sealed)));
    // A seal is kept in the file.
    assert!(place.open().await.inspect(&key("k"), TTL).await.unwrap().sealed);
    store.seal(&key("k"), false).await.unwrap();
    assert!(grant(&store, "k", 2).await.token > first.token);
}
