//! The dedicated thread and the blocking API, in real time: what they are for is an executor that stands still.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "blocks and sleeps on purpose, with a ttl of a second"
)]

use std::time::Duration;

use leasehold::blocking;
use leasehold::{
    LeaseKey, LeaseOptions, Leases, LostReason, MemoryStore, OnThreadError, ReleaseOutcome, StoreError,
    StoreErrorKind, TryAcquire,
};

fn options() -> LeaseOptions {
    LeaseOptions::builder().ttl(Duration::from_secs(1)).build().unwrap()
}

fn key() -> LeaseKey {
    LeaseKey::new("k").unwrap()
}

/// Blocks the calling thread, and with it its executor, for two ttls.
fn block() {
    std::thread::sleep(Duration::from_secs(2));
}

#[tokio::test]
async fn a_blocked_executor_does_not_cost_a_lease_that_is_kept_on_a_thread() {
    let store = MemoryStore::new();
    let theirs = store.clone();
    let leases = Leases::on_thread(options(), move || async { Ok(theirs) }).await.unwrap();
    let lease = leases.acquire(&key()).await.unwrap();
    block();
    assert!(lease.is_held(), "renewed by the thread");
    let contender = Leases::new(store.clone(), options()).unwrap();
    assert!(matches!(contender.try_acquire(&key()).await.unwrap(), TryAcquire::Held(_)));
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(contender.try_acquire(&key()).await.unwrap().acquired().is_some());
}

#[tokio::test]
async fn a_blocked_executor_costs_a_lease_in_task_mode_and_in_time() {
    let store = MemoryStore::new();
    let leases = Leases::new(store.clone(), options()).unwrap();
    let lease = leases.acquire(&key()).await.unwrap();
    block();
    // The first thing that runs after the block sees it, before the keeper has had its turn.
    assert!(!lease.is_held());
    assert!(matches!(lease.lost().await, LostReason::Expired { .. }));
}

#[test]
fn a_guard_whose_runtime_has_gone_is_released_by_the_thread() {
    let store = MemoryStore::new();
    let theirs = store.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (leases, lease) = runtime.block_on(async {
        let leases = Leases::on_thread(options(), move || async { Ok(theirs) }).await.unwrap();
        let lease = leases.acquire(&key()).await.unwrap();
        (leases, lease)
    });
    drop(runtime);
    block();
    assert!(lease.is_held());
    drop(lease);
    drop(leases);
    let contender = blocking::Leases::new(options(), move || async { Ok(store) }).unwrap();
    let next = contender.acquire_within(&key(), Duration::from_millis(900)).unwrap();
    next.release().unwrap();
}

#[tokio::test]
async fn the_thread_ends_with_the_last_lease_and_the_last_leases() {
    let (gone, went) = std::sync::mpsc::channel::<()>();
    let leases = Leases::on_thread(options(), move || async move {
        // Lives as long as the thread's runtime.
        tokio::spawn(async move {
            let _gone = gone;
            std::future::pending::<()>().await;
        });
        Ok(MemoryStore::new())
    })
    .await
    .unwrap();
    let lease = leases.acquire(&key()).await.unwrap();
    drop(leases);
    assert!(
        went.recv_timeout(Duration::from_millis(50))
            .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout)
    );
    assert!(lease.is_held());
    lease.release().await.unwrap();
    let ended = went.recv_timeout(Duration::from_secs(5));
    assert_eq!(ended, Err(std::sync::mpsc::RecvTimeoutError::Disconnected), "the thread goes on for nobody");
}

#[tokio::test]
async fn a_thread_that_nobody_waits_for_ends_though_its_store_hangs() {
    let (gone, went) = std::sync::mpsc::channel::<()>();
    let made = Leases::on_thread(options(), move || async move {
        let _gone = gone;
        std::future::pending::<Result<MemoryStore, StoreError>>().await
    });
    tokio::select! {
        _ = made => panic!("made"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    let ended = went.recv_timeout(Duration::from_secs(5));
    assert_eq!(ended, Err(std::sync::mpsc::RecvTimeoutError::Disconnected), "the thread hangs for nobody");
}

#[tokio::test]
async fn what_cannot_be_made_is_said() {
    let failed = Leases::on_thread(options(), || async {
        Err::<MemoryStore, _>(StoreError::not_applied(StoreErrorKind::Misconfigured, "no such table"))
    })
    .await;
    assert!(
        matches!(failed, Err(OnThreadError::Store(error)) if error.kind() == StoreErrorKind::Misconfigured)
    );
    let panicked = Leases::on_thread(options(), || async {
        assert!(std::hint::black_box(false), "making the store panics on purpose");
        Ok(MemoryStore::new())
    })
    .await;
    assert!(matches!(panicked, Err(OnThreadError::Ended)));
}

#[test]
fn a_program_without_a_runtime_takes_works_and_gives_back() {
    let store = MemoryStore::new();
    let theirs = store.clone();
    let leases = blocking::Leases::new(options(), move || async { Ok(theirs) }).unwrap();
    let lease = leases.acquire(&key()).unwrap();
    let token = lease.token();
    assert!(matches!(leases.try_acquire(&key()).unwrap(), TryAcquire::Held(contention) if contention.own));
    assert!(leases.acquire_within(&key(), Duration::from_millis(300)).is_err());
    block();
    assert!(lease.is_held());
    lease.confirm().unwrap();
    assert!(leases.inspect(&key()).unwrap().held.is_some());
    let saved = lease.save().unwrap();
    let resumed = leases.resume(&saved).unwrap();
    assert_eq!(resumed.token(), token);
    assert_eq!(resumed.release().unwrap(), ReleaseOutcome::Released);

    let seen = leases.run(&key(), |lease| (lease.token(), lease.is_held())).unwrap();
    assert!(seen.0 > token && seen.1);
    let lease = leases.acquire(&key()).unwrap();
    leases.shutdown(Duration::from_secs(5)).unwrap();
    assert!(!lease.is_held());
    assert!(leases.acquire(&key()).is_err());
}

#[tokio::test]
async fn blocking_calls_in_async_code_block_and_do_not_panic() {
    let leases = blocking::Leases::new(options(), || async { Ok(MemoryStore::new()) }).unwrap();
    leases.acquire(&key()).unwrap().release().unwrap();
}
