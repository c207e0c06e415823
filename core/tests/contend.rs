//! Acquiring: contention, waiting, lost answers, cancellation.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod stage;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::testing::{Fault, Verb};
use leasehold::{AcquireError, LeaseAdmin, LeaseOptions, LeaseStore, OnDrop, StoreErrorKind, TryAcquire};
use stage::{Stage, TTL, key, pass, seconds, timed};

#[tokio::test(start_paused = true)]
async fn an_uncontended_acquire_is_one_request_and_a_contended_try_too() {
    let stage = Stage::new();
    let (one, two) = (stage.actor(), stage.actor());
    let lease = one.lease().await;
    let TryAcquire::Held(contention) = two.leases.try_acquire(key()).await.unwrap() else {
        panic!("two holders")
    };
    assert_eq!((contention.held.token, contention.own), (lease.token(), false));
    assert!(contention.held.since_ms.is_some() && contention.held.until_ms.is_some());
    for actor in [&one, &two] {
        assert_eq!((actor.store.requests(Verb::Acquire), actor.store.requests(Verb::Inspect)), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_acquire_of_ones_own_is_contention_and_says_so() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    let TryAcquire::Held(contention) = actor.leases.try_acquire(key()).await.unwrap() else {
        panic!("re-entrant")
    };
    assert!(contention.own);
    assert!(contention.to_string().contains("not re-entrant"), "{contention}");
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a04_k09_a_new_grant_is_a_new_guard_with_a_greater_token() {
    let stage = Stage::new();
    let actor = stage.actor();
    let mut last = None;
    for _ in 0..100 {
        let lease = actor.lease().await;
        assert!(Some(lease.token()) > last);
        last = Some(lease.token());
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn d37_d39_a_lost_answer_to_an_acquire_is_recognised() {
    for fault in [
        Fault::FailAfter,
        Fault::HangAfter,
        Fault::Hang,
        Fault::FailBefore(StoreErrorKind::Throttled),
        Fault::Panic,
    ] {
        let stage = Stage::new();
        let actor = stage.actor();
        actor.store.script(Verb::Acquire, [fault]);
        // A panic of the adapter is not transient: it is reported.
        if fault == Fault::Panic {
            assert!(matches!(actor.leases.acquire(key()).await, Err(AcquireError::Store(_))));
            continue;
        }
        let (lease, took) = timed(actor.lease()).await;
        assert!(took < seconds(4), "{fault:?}: waited for its own orphan: {took:?}");
        assert_eq!(stage.look().await.token, Some(lease.token()), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_its_deadline_is_renewed_once_or_not_handed_out() {
    let stage = Stage::new();
    let actor = stage.actor();
    let leap = |clock: std::sync::Arc<leasehold::testing::VirtualClock>| async move {
        pass(seconds(1)).await;
        clock.jump_boot(2 * TTL);
    };
    actor.store.script(Verb::Acquire, [Fault::LateAnswer(Duration::from_millis(1900))]);
    let (lease, ()) = tokio::join!(actor.lease(), leap(actor.clock.clone()));
    assert!(lease.is_held() && lease.remaining() > seconds(29));
    lease.release().await.unwrap();

    actor.store.script(Verb::Acquire, [Fault::LateAnswer(Duration::from_millis(1900))]);
    actor.store.from_now_on(Verb::Renew, Fault::Hang);
    let (outcome, ()) = tokio::join!(actor.leases.acquire(key()), leap(actor.clock.clone()));
    assert!(matches!(outcome, Err(AcquireError::ExpiredOnArrival)), "{outcome:?}");
    pass(Duration::from_millis(1)).await;
    assert!(stage.is_free().await, "given back");
}

#[tokio::test(start_paused = true)]
async fn s22_one_limit_covers_the_whole_call_whatever_hangs() {
    let stage = Stage::new();
    let holder = stage.actor();
    let _held = holder.lease().await;
    for (acquire, inspect) in
        [(Fault::Hang, Fault::None), (Fault::None, Fault::Hang), (Fault::None, Fault::None)]
    {
        let actor = stage.actor();
        actor.store.from_now_on(Verb::Acquire, acquire);
        actor.store.from_now_on(Verb::Inspect, inspect);
        let (outcome, took) = timed(actor.leases.acquire_within(key(), seconds(1))).await;
        assert!(matches!(outcome, Err(AcquireError::TimedOut { .. })), "{outcome:?}");
        assert!(took <= seconds(1), "{acquire:?} {inspect:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_ends_says_who_holds_the_key() {
    let stage = Stage::new();
    let lease = stage.actor().lease().await;
    let error = stage.actor().leases.acquire_within(key(), seconds(3)).await.unwrap_err();
    let AcquireError::TimedOut { contention: Some(contention), .. } = &error else { panic!("{error:?}") };
    assert_eq!(contention.held.token, lease.token());
    assert!(error.to_string().contains(&lease.holder().to_string()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn d35_a_try_is_bounded_when_the_store_is_silent() {
    let stage = Stage::new();
    let actor = stage.actor();
    actor.store.from_now_on(Verb::Acquire, Fault::Hang);
    let (outcome, took) = timed(actor.leases.try_acquire(key())).await;
    let Err(AcquireError::Store(error)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(took <= TTL / 3, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_silent_for_a_ttl_ends_even_an_unlimited_wait() {
    let stage = Stage::new();
    let _held = stage.actor().lease().await;
    let actor = stage.actor();
    actor.store.from_now_on(Verb::Inspect, Fault::FailBefore(StoreErrorKind::Unavailable));
    let (outcome, took) = timed(actor.leases.acquire(key())).await;
    assert!(matches!(outcome, Err(AcquireError::Store(_))), "{outcome:?}");
    assert!(took >= TTL && took < 2 * TTL, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_pass_by_itself_is_not_tried_again() {
    for kind in [
        StoreErrorKind::Denied,
        StoreErrorKind::Misconfigured,
        StoreErrorKind::Corrupt,
        StoreErrorKind::NoStoreClock,
    ] {
        let stage = Stage::new();
        let actor = stage.actor();
        actor.store.from_now_on(Verb::Acquire, Fault::FailBefore(kind));
        let outcome = actor.leases.acquire(key()).await;
        assert!(matches!(&outcome, Err(AcquireError::Store(error)) if error.kind() == kind), "{outcome:?}");
        assert_eq!(actor.store.requests(Verb::Acquire), 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_for_clock_skew_is_repeated_once() {
    let stage = Stage::new();
    let actor = stage.actor();
    actor.store.script(Verb::Acquire, [Fault::FailBefore(StoreErrorKind::ClockSkew)]);
    assert!(actor.lease().await.is_held());
    pass(Duration::from_millis(1)).await;
    actor.store.from_now_on(Verb::Acquire, Fault::FailBefore(StoreErrorKind::ClockSkew));
    let before = actor.store.requests(Verb::Acquire);
    assert!(actor.leases.acquire(key()).await.is_err());
    assert_eq!(actor.store.requests(Verb::Acquire), before + 2);
}

#[tokio::test(start_paused = true)]
async fn waiting_reads_and_writes_once_per_observed_change() {
    let stage = Stage::new();
    let lease = stage.actor().lease().await;
    let actor = stage.actor();
    let waiter = actor.leases.acquire(key());
    let (next, ()) = tokio::join!(waiter, async {
        pass(seconds(100)).await;
        lease.release().await.unwrap();
    });
    let reads = actor.store.requests(Verb::Inspect);
    assert!((200..=501).contains(&reads), "{reads} reads in 100 s");
    assert_eq!(actor.store.requests(Verb::Acquire), 2, "one that found it held, one that took it");
    assert!(next.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_waiter_slows_down() {
    let stage = Stage::new();
    let _held = stage.actor().lease().await;
    let actor = stage.actor();
    actor.store.from_now_on(Verb::Inspect, Fault::FailBefore(StoreErrorKind::Throttled));
    let _ = actor.leases.acquire_within(key(), seconds(20)).await;
    assert!(
        actor.store.requests(Verb::Inspect) <= 12,
        "{} reads in 20 s",
        actor.store.requests(Verb::Inspect)
    );
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_process_cost_one_and_come_in_order() {
    let stage = Stage::new();
    let lease = stage.actor().lease().await;
    let actor = stage.actor();
    let order = std::sync::Mutex::new(Vec::new());
    let waiters = (0..20).map(|number| {
        let (leases, order) = (&actor.leases, &order);
        async move {
            let lease = leases.acquire(key()).await.unwrap();
            order.lock().unwrap().push(number);
            lease.release().await.unwrap();
        }
    });
    tokio::join!(futures_util::future::join_all(waiters), async {
        pass(seconds(20)).await;
        assert_eq!(actor.store.requests(Verb::Acquire), 1);
        assert!(actor.store.requests(Verb::Inspect) <= 101);
        lease.release().await.unwrap();
    });
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn d04_a_dead_holders_key_is_taken_soon_after_its_ttl() {
    let stage = Stage::new();
    let dead = stage.actor().lease().await;
    dead.abandon();
    let (lease, took) = timed(stage.actor().leases.acquire(key())).await;
    assert!(took >= TTL && took <= TTL + Duration::from_millis(501), "{took:?}");
    assert!(lease.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn d08_d16_repeated_tries_get_a_dead_holders_key() {
    let stage = Stage::new();
    stage.actor().lease().await.abandon();
    let actor = stage.actor();
    let mut tries = 0;
    while actor.leases.try_acquire(key()).await.unwrap().acquired().is_none() {
        tries += 1;
        assert!(tries <= 31);
        pass(seconds(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn d17_waiters_of_many_processes_all_come_to_their_turn() {
    let stage = Stage::new();
    let waiters = (0..50).map(|_| {
        let actor = stage.actor();
        async move {
            let lease = actor.leases.acquire(key()).await.unwrap();
            pass(Duration::from_millis(20)).await;
            assert!(lease.is_held());
            lease.release().await.unwrap();
        }
    });
    futures_util::future::join_all(waiters).await;
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_sealed_key_ends_the_call_and_the_wait() {
    let stage = Stage::new();
    stage.memory.seal(key(), true).await.unwrap();
    assert!(matches!(stage.actor().leases.acquire(key()).await, Err(AcquireError::Sealed)));
    stage.memory.seal(key(), false).await.unwrap();
    let _held = stage.actor().lease().await;
    let actor = stage.actor();
    let (outcome, ()) = tokio::join!(actor.leases.acquire(key()), async {
        pass(seconds(5)).await;
        stage.memory.seal(key(), true).await.unwrap();
    });
    assert!(matches!(outcome, Err(AcquireError::Sealed)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn d19_shutdown_does_not_wait_for_waiters() {
    let stage = Stage::new();
    let _held = stage.actor().lease().await;
    let actor = stage.actor();
    let (outcome, took) = timed(async {
        let waiters = futures_util::future::join(actor.leases.acquire(key()), actor.leases.acquire(key()));
        let (waiters, closed) = tokio::join!(waiters, async {
            pass(seconds(10)).await;
            actor.leases.shutdown(seconds(60)).await
        });
        closed.unwrap();
        waiters
    })
    .await;
    assert!(matches!(outcome, (Err(AcquireError::ShutDown), Err(AcquireError::ShutDown))), "{outcome:?}");
    assert!(took <= seconds(10) + Duration::from_millis(10), "{took:?}");
    assert!(matches!(actor.leases.acquire(key()).await, Err(AcquireError::ShutDown)));
}

#[tokio::test(start_paused = true)]
async fn a_win_that_comes_after_a_shutdown_is_given_back() {
    let stage = Stage::new();
    let actor = stage.actor();
    actor.store.script(Verb::Acquire, [Fault::LateAnswer(seconds(1))]);
    let (outcome, closed) = tokio::join!(actor.leases.acquire(key()), async {
        pass(Duration::from_millis(500)).await;
        actor.leases.shutdown(seconds(60)).await
    });
    assert!(matches!(outcome, Err(AcquireError::ShutDown)), "{outcome:?}");
    closed.unwrap();
    assert!(stage.is_free().await, "the shutdown waits until it is");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_what_a_dropped_call_gives_back() {
    let stage = Stage::new();
    let actor = stage.actor();
    actor.store.script(Verb::Acquire, [Fault::LateAnswer(seconds(1))]);
    assert!(dropped_after(3, actor.leases.acquire(key())).await.is_none());
    let (closed, took) = timed(actor.leases.shutdown(seconds(60))).await;
    closed.unwrap();
    assert!(stage.is_free().await);
    assert!(took <= seconds(1), "{took:?}");
}

/// Polls the call `polls` times with a little time in between, then drops it.
async fn dropped_after<T>(polls: usize, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    for _ in 0..polls {
        if let Poll::Ready(output) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(output);
        }
        pass(Duration::from_millis(100)).await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a15_s16_s17_a_call_dropped_at_any_await_leaves_no_holder() {
    let faults = [
        Fault::None,
        Fault::LateAnswer(Duration::from_millis(950)),
        Fault::LateArrival(Duration::from_millis(950)),
        Fault::HangAfter,
        Fault::FailAfter,
        Fault::Hang,
    ];
    for fault in faults {
        let mut finished = false;
        for polls in 0..60 {
            let stage = Stage::new();
            let actor = stage.actor();
            actor.store.script(Verb::Acquire, [fault, fault]);
            if dropped_after(polls, actor.leases.acquire(key())).await.is_some() {
                finished = true;
                break;
            }
            // A call may have been granted and renewed before it was dropped.
            let renewals = actor.renewals();
            // Longer than two attempts and a release, much shorter than the ttl.
            pass(seconds(6)).await;
            let seen = stage.look().await;
            assert!(seen.held.is_none(), "{fault:?} dropped after {polls} polls: {seen:?}");
            assert_eq!(actor.renewals(), renewals, "{fault:?} after {polls} polls: renewed for nobody");
        }
        assert!(finished, "{fault:?}: the call never got to its end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_lets_the_next_one_through() {
    let stage = Stage::new();
    let lease = stage.actor().lease().await;
    let actor = stage.actor();
    for polls in 0..5 {
        assert!(dropped_after(polls, actor.leases.acquire(key())).await.is_none());
    }
    let (next, ()) = tokio::join!(actor.leases.acquire(key()), async {
        pass(seconds(2)).await;
        lease.release().await.unwrap();
    });
    assert!(next.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn k15_a_win_that_comes_after_the_limit_is_given_back() {
    let stage = Stage::new();
    let actor = stage.actor();
    actor.store.script(Verb::Acquire, [Fault::LateArrival(seconds(5))]);
    actor.store.script(Verb::Acquire, [Fault::HangAfter]);
    let outcome = actor.leases.acquire_within(key(), seconds(3)).await;
    assert!(matches!(outcome, Err(AcquireError::TimedOut { .. })), "{outcome:?}");
    pass(seconds(1)).await;
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn inspect_writes_nothing() {
    let stage = Stage::new();
    let actor = stage.actor();
    assert_eq!(actor.leases.inspect(key()).await.unwrap().token, None);
    let lease = actor.lease().await;
    let seen = stage.actor().leases.inspect(key()).await.unwrap();
    assert_eq!(seen.held.as_ref().map(|held| held.token), Some(lease.token()));
    assert!(!seen.is_claimable());
    let again = stage.memory.inspect(key(), seconds(1)).await.unwrap();
    assert_eq!(again, seen);
}

#[tokio::test(start_paused = true)]
async fn an_own_attempt_that_lands_late_is_recognised_while_waiting() {
    let stage = Stage::new();
    let lease = stage.actor().lease().await;
    let actor = stage.actor();
    // The first attempt is on its way for long; the second finds the key held.
    actor.store.script(Verb::Acquire, [Fault::Delayed]);
    let (won, took) = timed(async {
        tokio::join!(actor.leases.acquire(key()), async {
            pass(seconds(10)).await;
            lease.release().await.unwrap();
            // Before anybody has looked.
            actor.store.deliver().await;
        })
        .0
    })
    .await;
    let won = won.unwrap();
    assert!(took < seconds(12), "waited for its own orphan: {took:?}");
    assert!(won.remaining() < TTL - seconds(9), "counted from a later attempt: {:?}", won.remaining());
    assert_eq!(stage.look().await.token, Some(won.token()));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_given_back_whatever_the_options_say_of_guards() {
    let options = [
        LeaseOptions::builder().hold_at_least(seconds(600)).build().unwrap(),
        LeaseOptions::builder().on_drop(OnDrop::Expire).build().unwrap(),
    ];
    for options in options {
        let stage = Stage::new();
        let actor = stage.actor_with(options.clone());
        actor.store.script(Verb::Acquire, [Fault::LateAnswer(seconds(1))]);
        assert!(dropped_after(3, actor.leases.acquire(key())).await.is_none());
        pass(seconds(2)).await;
        assert!(stage.is_free().await, "{options:?}");
        assert_eq!(actor.renewals(), 0, "{options:?}");
    }
}
