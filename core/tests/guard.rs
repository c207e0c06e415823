//! The guard: release, drop, shutdown, save and resume.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::testing::{Fault, Verb};
use leasehold::{
    BreakHow, LeaseAdmin, LeaseKey, LeaseOptions, LeaseState, LostReason, OnDrop, ReleaseOutcome,
    ResumeError, RunError, StoreErrorKind,
};
use stage::{Stage, TTL, key, pass, seconds, timed};

#[tokio::test(start_paused = true)]
async fn release_frees_the_key_and_keeps_the_token() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    let (token, view) = (lease.token(), lease.view());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(stage.is_free().await);
    assert_eq!(stage.look().await.token, Some(token));
    assert!(!view.is_held());
    assert!(matches!(view.lost().await, LostReason::Released));
}

#[tokio::test(start_paused = true)]
async fn d27_no_renewal_follows_a_release_even_when_one_was_in_flight() {
    for fault in [Fault::Hang, Fault::HangAfter, Fault::LateAnswer(seconds(1)), Fault::Delayed] {
        let stage = Stage::new();
        let actor = stage.actor();
        let lease = actor.lease().await;
        actor.store.script(Verb::Renew, [fault]);
        while actor.renewals() == 0 {
            pass(Duration::from_millis(10)).await;
        }
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released, "{fault:?}");
        let next = stage.actor().lease().await;
        actor.store.deliver().await;
        pass(seconds(300)).await;
        assert_eq!(actor.renewals(), 1, "{fault:?}");
        assert!(next.is_held(), "{fault:?}: the late renewal disturbed the next holder");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_release_is_asked_again() {
    let stage = Stage::new();
    let actor = stage.actor();
    for fault in
        [Fault::FailAfter, Fault::HangAfter, Fault::Hang, Fault::FailBefore(StoreErrorKind::Throttled)]
    {
        let lease = actor.lease().await;
        actor.store.script(Verb::Release, [fault]);
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released, "{fault:?}");
        assert!(stage.is_free().await, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_cannot_be_done_says_so_in_bounded_time() {
    let stage = Stage::new();
    let actor = stage.actor();
    actor.store.from_now_on(Verb::Release, Fault::Hang);
    let lease = actor.lease().await;
    let (outcome, took) = timed(lease.release()).await;
    assert_eq!(outcome.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert!(took <= TTL + seconds(2), "{took:?}");
    assert!(stage.actor().lease().await.is_held(), "it frees itself");
}

#[tokio::test(start_paused = true)]
async fn a13_s01_releasing_a_lost_lease_is_quiet_and_touches_nobody() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    stage.memory.break_lease(key(), lease.token(), BreakHow::Immediate).await.unwrap();
    let next = stage.actor();
    let theirs = next.lease().await;
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::HeldByOther { by: theirs.token() });
    pass(seconds(120)).await;
    assert!(theirs.is_held());
    stage.memory.delete_record(key());
    assert_eq!(theirs.release().await.unwrap(), ReleaseOutcome::AlreadyEnded);
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_by_silence_is_still_given_back_when_its_guard_goes() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    actor.clock.jump_wall(2 * TTL);
    assert!(!lease.is_held());
    assert!(!stage.is_free().await, "the store has not seen it end");
    drop(lease);
    pass(Duration::from_millis(1)).await;
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn s21_drop_gives_back_in_the_background() {
    let stage = Stage::new();
    let actor = stage.actor();
    drop(actor.lease().await);
    pass(Duration::from_millis(1)).await;
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn on_drop_expire_leaves_the_key_until_its_ttl_is_over() {
    let stage = Stage::new();
    let actor = stage.actor_with(LeaseOptions::builder().on_drop(OnDrop::Expire).build().unwrap());
    drop(actor.lease().await);
    pass(seconds(29)).await;
    assert!(!stage.look().await.is_claimable());
    pass(seconds(2)).await;
    assert!(stage.look().await.is_claimable());
    assert_eq!(actor.store.requests(Verb::Release), 0);
}

#[tokio::test(start_paused = true)]
async fn abandon_stops_renewals_and_keeps_others_away_until_the_expiry() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    let view = lease.view();
    lease.abandon();
    assert!(!view.is_held());
    let (next, took) = timed(stage.actor().leases.acquire(key())).await;
    assert!(took > seconds(29), "{took:?}");
    assert_eq!((actor.renewals(), actor.store.requests(Verb::Release)), (0, 0));
    drop(next);
}

#[test]
fn drop_needs_no_runtime_and_a_runtime_that_goes_takes_no_lease_along() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (lease, view) = runtime.block_on(async {
        let lease = Stage::new().actor().lease().await;
        let view = lease.view();
        (lease, view)
    });
    assert!(view.is_held());
    drop(runtime);
    assert!(!view.is_held(), "nobody renews it any more");
    drop(lease);
}

#[test]
fn release_without_its_runtime_is_an_error_and_no_hang() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let lease = runtime.block_on(async { Stage::new().actor().lease().await });
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = other.block_on(lease.release()).unwrap_err();
    assert!(error.to_string().contains("release leases before the runtime ends"), "{error}");
}

#[test]
fn a_lease_can_be_dropped_on_a_thread_without_a_runtime() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let stage = Stage::new();
        let lease = stage.actor().lease().await;
        std::thread::scope(|scope| {
            scope.spawn(move || drop(lease));
        });
        pass(Duration::from_millis(1)).await;
        assert!(stage.is_free().await);
    });
}

#[tokio::test(start_paused = true)]
async fn s12_a_panic_in_the_work_stops_renewals_and_does_not_release() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    let work = std::panic::AssertUnwindSafe(async move {
        let _lease = lease;
        panic!("the work fails")
    });
    assert!(futures_util::FutureExt::catch_unwind(work).await.is_err());
    pass(seconds(20)).await;
    assert!(!stage.is_free().await, "other parts of the work may still be running");
    assert_eq!((actor.renewals(), actor.store.requests(Verb::Release)), (0, 0));
    pass(seconds(11)).await;
    assert!(stage.look().await.is_claimable());
}

#[tokio::test(start_paused = true)]
async fn a07_run_stops_the_work_before_the_lease_ends() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    actor.store.from_now_on(Verb::Renew, Fault::Hang);
    let ended = Arc::new(AtomicBool::new(false));
    let flag = OnEnd(Arc::clone(&ended));
    let (outcome, took) = timed(lease.run(async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    }))
    .await;
    assert!(matches!(outcome, Err(LostReason::Expired { .. })));
    assert!(ended.load(Ordering::SeqCst), "the work was dropped");
    assert!(took < TTL && !stage.look().await.is_claimable(), "{took:?}");
}

struct OnEnd(Arc<AtomicBool>);

impl Drop for OnEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn leases_run_releases_after_the_work_has_ended() {
    let stage = Stage::new();
    let actor = stage.actor();
    let memory = stage.memory.clone();
    let token = actor
        .leases
        .run(key(), |lease| async move {
            pass(seconds(100)).await;
            assert!(lease.is_held());
            lease.token()
        })
        .await
        .unwrap();
    assert!(stage.is_free().await);
    let lost = actor
        .leases
        .run(key(), |lease| async move {
            memory.break_lease(key(), lease.token(), BreakHow::Immediate).await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
    assert!(matches!(lost, Err(RunError::Lost(LostReason::Broken))), "{lost:?}");
    assert!(stage.look().await.token.unwrap() > token);
}

#[tokio::test(start_paused = true)]
async fn a17_a_subscriber_that_blocks_holds_up_nothing() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    // Many who never come back for the next status, and one who holds on to one.
    let idle: Vec<_> = (0..100).map(|_| lease.subscribe()).collect();
    let held = lease.subscribe().current();
    pass(seconds(120)).await;
    assert!(lease.is_held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    drop((idle, held));
}

#[tokio::test(start_paused = true)]
async fn confirm_is_a_round_trip_now() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    for round in 1..=3 {
        let before = actor.renewals();
        assert!(lease.confirm().await.unwrap() > seconds(29));
        assert_eq!(actor.renewals(), before + 1, "round {round}");
    }
    // One that began while a renewal was in flight waits for the next one.
    actor.store.script(Verb::Renew, [Fault::LateAnswer(seconds(1))]);
    let before = actor.renewals();
    let (first, second) = tokio::join!(lease.confirm(), async {
        pass(Duration::from_millis(500)).await;
        lease.confirm().await
    });
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(actor.renewals(), before + 2);
    stage.memory.break_lease(key(), lease.token(), BreakHow::Immediate).await.unwrap();
    assert!(lease.is_held(), "not known yet");
    assert!(matches!(lease.confirm().await, Err(LostReason::Broken)));
    assert!(matches!(lease.confirm().await, Err(LostReason::Broken)), "asked again");
}

#[tokio::test(start_paused = true)]
async fn s05_hold_at_least_keeps_others_away_after_a_short_job() {
    let stage = Stage::new();
    let options = LeaseOptions::builder().hold_at_least(seconds(100)).build().unwrap();
    let actor = stage.actor_with(options);
    let lease = actor.lease().await;
    let view = lease.view();
    let mut release = std::pin::pin!(timed(lease.release()));
    tokio::select! {
        _ = &mut release => panic!("released before its time"),
        () = pass(seconds(99)) => {}
    }
    assert!(!view.is_held(), "the work has ended");
    assert!(!stage.look().await.is_claimable());
    let (outcome, took) = release.await;
    assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
    assert!(took >= seconds(99) && took <= seconds(101), "{took:?}");
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a03_a_saved_lease_is_resumed_with_its_token_and_a_label_alone_resumes_nothing() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    let token = lease.token();
    pass(seconds(45)).await;
    let saved = lease.save().await.unwrap();
    assert!(!format!("{saved:?}").contains(&hex(&saved)), "{saved:?}");
    let text = serde_json::to_string(&saved).unwrap();
    pass(seconds(10)).await;

    let later = stage.actor();
    assert!(later.leases.try_acquire(key()).await.unwrap().acquired().is_none());
    let resumed = later.leases.resume(&serde_json::from_str(&text).unwrap()).await.unwrap();
    assert_eq!(resumed.token(), token);
    pass(seconds(100)).await;
    assert!(resumed.is_held());
    resumed.release().await.unwrap();

    let gone = later.leases.resume(&saved).await.unwrap_err();
    assert!(matches!(gone, ResumeError::Lost(LostReason::Broken)), "{gone:?}");
    let theirs = later.lease().await;
    let gone = later.leases.resume(&saved).await.unwrap_err();
    assert!(
        matches!(gone, ResumeError::Lost(LostReason::Superseded { by: Some(by) }) if by == theirs.token())
    );
}

fn hex(saved: &leasehold::SavedLease) -> String {
    serde_json::to_value(saved).unwrap()["nonce"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_died_with_its_process_does_not_look_like_a_clone() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    actor.store.script(Verb::Renew, [Fault::HangAfter]);
    while actor.renewals() == 0 {
        pass(Duration::from_millis(10)).await;
    }
    let saved = lease.save().await.unwrap();
    let resumed = stage.actor().leases.resume(&saved).await.unwrap();
    assert!(resumed.remaining() > seconds(29));
    pass(seconds(100)).await;
    assert!(resumed.is_held());
}

#[tokio::test(start_paused = true)]
async fn max_hold_goes_on_in_the_process_that_resumes() {
    let stage = Stage::new();
    let options = LeaseOptions::builder().max_hold(seconds(100)).build().unwrap();
    let lease = stage.actor_with(options.clone()).lease().await;
    pass(seconds(60)).await;
    let saved = lease.save().await.unwrap();
    let actor = stage.actor_with(options);
    actor.clock.jump(seconds(60));
    let resumed = actor.leases.resume(&saved).await.unwrap();
    let (reason, took) = timed(resumed.lost()).await;
    assert!(matches!(reason, LostReason::MaxHold), "{reason}");
    assert!(took <= seconds(41), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn d14_shutdown_ends_every_lease_and_collects_the_errors() {
    let stage = Stage::new();
    let actor = stage.actor();
    let keys: Vec<_> = (0..5).map(|number| LeaseKey::new(format!("k{number}")).unwrap()).collect();
    let mut leases = Vec::new();
    for key in &keys {
        leases.push(actor.leases.acquire(key).await.unwrap());
    }
    actor.store.script(Verb::Release, [Fault::None, Fault::FailBefore(StoreErrorKind::Denied)]);
    let error = actor.leases.shutdown(seconds(5)).await.unwrap_err();
    assert_eq!(error.failures().count(), 1, "{error}");
    let (_, cause) = error.failures().next().unwrap();
    assert_eq!(cause.unwrap().kind(), StoreErrorKind::Denied);
    assert!(leases.iter().all(|lease| !lease.is_held()));
    let mut free = 0;
    for key in &keys {
        free += usize::from(stage.actor().leases.try_acquire(key).await.unwrap().acquired().is_some());
    }
    assert_eq!(free, 4);
}

#[tokio::test(start_paused = true)]
async fn a08_k12_shutdown_stops_what_runs_before_it_releases() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = Arc::new(actor.lease().await);
    let ended = Arc::new(AtomicBool::new(false));
    let flag = OnEnd(Arc::clone(&ended));
    let work = {
        let lease = Arc::clone(&lease);
        async move {
            let outcome = lease
                .run(async move {
                    let _flag = flag;
                    std::future::pending::<()>().await;
                })
                .await;
            assert!(matches!(outcome, Err(LostReason::Released)));
        }
    };
    let shutdown = async {
        pass(seconds(1)).await;
        actor.leases.shutdown(seconds(5)).await.unwrap();
        assert!(ended.load(Ordering::SeqCst), "released while the work ran");
    };
    tokio::join!(work, shutdown);
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_bounded_by_its_timeout() {
    let stage = Stage::new();
    let actor = stage.actor();
    let _lease = actor.lease().await;
    actor.store.from_now_on(Verb::Release, Fault::Hang);
    let (outcome, took) = timed(actor.leases.shutdown(seconds(3))).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.failures().count(), 1, "named once: {error}");
    assert!(error.to_string().contains("the timeout came first"));
    assert!(took <= seconds(3) + Duration::from_millis(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn no_secret_shows_in_debug() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    let (nonce, _) = stage.memory.peek(key()).unwrap();
    for text in [
        format!("{lease:?}"),
        format!("{:?}", lease.view()),
        format!("{:?}", stage.memory),
        format!("{:?}", actor.leases),
    ] {
        assert!(!text.contains(&nonce), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_after_a_shutdown_says_what_the_shutdown_did() {
    let stage = Stage::new();
    let actor = stage.actor();
    let (one, two) = (actor.lease().await, stage.actor());
    actor.leases.shutdown(seconds(5)).await.unwrap();
    assert!(matches!(one.confirm().await, Err(LostReason::Released)));
    assert_eq!(one.release().await.unwrap(), ReleaseOutcome::Released);
    let unreleased = two.lease().await;
    two.store.from_now_on(Verb::Release, Fault::FailBefore(StoreErrorKind::Denied));
    assert!(two.leases.shutdown(seconds(5)).await.is_err());
    assert_eq!(unreleased.release().await.unwrap_err().kind(), StoreErrorKind::Denied);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_serves_no_hold_at_least() {
    let stage = Stage::new();
    let actor = stage.actor_with(LeaseOptions::builder().hold_at_least(seconds(600)).build().unwrap());
    drop(actor.lease().await);
    pass(seconds(1)).await;
    assert!(!stage.is_free().await);
    let (closed, took) = timed(actor.leases.shutdown(seconds(5))).await;
    closed.unwrap();
    assert!(stage.is_free().await);
    assert!(took < seconds(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_names_a_call_that_has_not_come_to_its_end() {
    let stage = Stage::new();
    let actor = stage.actor();
    actor.store.from_now_on(Verb::Acquire, Fault::HangAfter);
    actor.store.from_now_on(Verb::Release, Fault::Hang);
    let call = actor.leases.acquire(key());
    let (outcome, closed) = tokio::join!(call, async {
        pass(Duration::from_millis(100)).await;
        actor.leases.shutdown(seconds(1)).await
    });
    assert!(outcome.is_err());
    let error = closed.unwrap_err();
    assert_eq!(error.failures().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["k"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_the_end_also_when_the_guard_has_gone() {
    let stage = Stage::new();
    let lease = stage.actor().lease().await;
    let mut statuses = lease.subscribe();
    assert!(matches!(statuses.next().await.unwrap().state, LeaseState::Held));
    lease.release().await.unwrap();
    pass(seconds(1)).await;
    assert!(matches!(statuses.next().await.unwrap().state, LeaseState::Lost(LostReason::Released)));
    assert!(statuses.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_in_seconds_however_long_the_lease_lasts() {
    let stage = Stage::new();
    let actor = stage.actor_with(LeaseOptions::builder().ttl(seconds(3600)).build().unwrap());
    actor.store.from_now_on(Verb::Release, Fault::FailBefore(StoreErrorKind::Unavailable));
    let (outcome, took) = timed(actor.lease().await.release()).await;
    assert!(outcome.is_err());
    assert!(took <= seconds(11), "{took:?}");
    assert!(actor.store.requests(Verb::Release) < 60, "{} requests", actor.store.requests(Verb::Release));
}
