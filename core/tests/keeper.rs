//! The keeper: what it renews through, what it does not, and when it says so.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod stage;

use std::time::Duration;

use leasehold::testing::{Fault, Verb};
use leasehold::{BreakHow, LeaseAdmin, LeaseOptions, LeaseState, LostReason, StoreErrorKind};
use stage::{Stage, TTL, key, pass, seconds, timed};

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_every_third_of_its_ttl_and_keeps_its_token() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    let token = lease.token();
    pass(seconds(3600)).await;
    assert!(lease.is_held());
    assert_eq!(lease.token(), token);
    // 360 thirds of a ttl in an hour, ± 10 % each.
    assert!((330..=400).contains(&actor.renewals()), "{} renewals", actor.renewals());
    assert_eq!(stage.look().await.token, Some(token));
}

#[tokio::test(start_paused = true)]
async fn d05_d22_a25_a_lost_answer_to_a_renewal_is_not_a_loss() {
    for fault in
        [Fault::FailAfter, Fault::HangAfter, Fault::FailBefore(StoreErrorKind::Unavailable), Fault::Hang]
    {
        let stage = Stage::new();
        let actor = stage.actor();
        let lease = actor.lease().await;
        actor.store.script(Verb::Renew, [fault]);
        pass(seconds(120)).await;
        assert!(lease.is_held(), "{fault:?}");
        assert!(matches!(lease.status().state, LeaseState::Held), "{fault:?}");
        assert!(lease.status().last_error.is_none(), "{fault:?}: forgotten after the next success");
    }
}

#[tokio::test(start_paused = true)]
async fn d26_a01_k16_no_kind_of_error_ends_a_lease_before_its_deadline() {
    for kind in [
        StoreErrorKind::Corrupt,
        StoreErrorKind::ClockSkew,
        StoreErrorKind::Denied,
        StoreErrorKind::Misconfigured,
        StoreErrorKind::Other,
        StoreErrorKind::Throttled,
        StoreErrorKind::Unavailable,
    ] {
        let stage = Stage::new();
        let actor = stage.actor();
        let lease = actor.lease().await;
        actor.store.script(Verb::Renew, [Fault::FailBefore(kind); 5]);
        pass(seconds(60)).await;
        assert!(lease.is_held(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn d52_a_panic_in_the_adapter_is_one_failed_attempt() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    actor.store.script(Verb::Renew, [Fault::FailBefore(StoreErrorKind::Other), Fault::Panic]);
    pass(seconds(120)).await;
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn d23_k17_a_store_that_hangs_for_ever_ends_the_lease_at_its_deadline() {
    for fault in [Fault::Hang, Fault::HangAfter, Fault::FailBefore(StoreErrorKind::Unavailable)] {
        let stage = Stage::new();
        let actor = stage.actor();
        let lease = actor.lease().await;
        actor.store.from_now_on(Verb::Renew, fault);
        let (reason, took) = timed(lease.lost()).await;
        let LostReason::Expired { last_error: Some(error) } = reason else { panic!("{fault:?}: {reason}") };
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(took > seconds(29) && took < TTL, "{fault:?}: {took:?}");
        assert!(!lease.is_held());
        // `HangAfter` did land, so the store keeps others away for longer; never for less.
        assert!(
            !stage.look().await.held.unwrap().claimable,
            "{fault:?}: told after others could have taken it"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn s08_at_risk_comes_before_lost_and_each_once() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    actor.store.from_now_on(Verb::Renew, Fault::FailBefore(StoreErrorKind::Unavailable));
    let mut states = lease.subscribe();
    let mut told = Vec::new();
    let (_, took) = timed(async {
        while let Some(status) = states.next().await {
            told.push((status.state, actor.clock.clone()));
        }
    })
    .await;
    let names: Vec<_> = told
        .iter()
        .map(|(state, _)| match state {
            LeaseState::Held => "held",
            LeaseState::AtRisk => "at risk",
            LeaseState::Lost(_) => "lost",
            _ => "?",
        })
        .collect();
    assert_eq!(names, ["held", "at risk", "lost"]);
    assert!(took < TTL);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_brings_a_lease_at_risk_back() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    actor.store.from_now_on(Verb::Renew, Fault::FailBefore(StoreErrorKind::Throttled));
    pass(seconds(25)).await;
    assert!(matches!(lease.status().state, LeaseState::AtRisk));
    assert!(lease.is_held(), "at risk is not lost");
    actor.store.from_now_on(Verb::Renew, Fault::None);
    pass(seconds(2)).await;
    assert!(matches!(lease.status().state, LeaseState::Held));
    pass(seconds(600)).await;
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn any_clock_that_leaps_forward_ends_the_lease_and_lost_completes_within_a_second() {
    for which in ["monotonic", "boot", "wall", "all"] {
        let stage = Stage::new();
        let actor = stage.actor();
        let lease = actor.lease().await;
        pass(seconds(100)).await;
        let leap = 2 * TTL;
        match which {
            "monotonic" => actor.clock.jump_monotonic(leap),
            "boot" => actor.clock.jump_boot(leap),
            "wall" => actor.clock.jump_wall(leap),
            _ => actor.clock.jump(leap),
        }
        // Before any request, and without the keeper having run.
        let renewals = actor.renewals();
        assert!(!lease.is_held(), "{which}");
        assert_eq!(actor.renewals(), renewals);
        let (reason, took) = timed(lease.lost()).await;
        assert!(matches!(reason, LostReason::Expired { .. }), "{which}: {reason}");
        assert!(took <= seconds(1), "{which}: {took:?}");
        pass(seconds(60)).await;
        assert!(!lease.is_held(), "{which}: lost is for good");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sleeper_is_woken_within_a_second_though_its_timer_stands_still() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    let view = lease.view();
    let (reason, took) = timed(async {
        tokio::join!(view.lost(), async {
            pass(seconds(1)).await;
            actor.clock.jump_boot(2 * TTL);
        })
        .0
    })
    .await;
    assert!(matches!(reason, LostReason::Expired { .. }), "{reason}");
    assert!(took <= seconds(2), "{took:?} after the start, so more than a second after the leap");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_goes_back_neither_ends_nor_extends_a_lease() {
    for which in ["monotonic", "boot", "wall"] {
        let stage = Stage::new();
        let actor = stage.actor();
        let lease = actor.lease().await;
        pass(seconds(20)).await;
        let before = lease.remaining();
        match which {
            "monotonic" => actor.clock.set_back_monotonic(seconds(3600)),
            "boot" => actor.clock.set_back_boot(seconds(3600)),
            _ => actor.clock.set_back_wall(seconds(3600)),
        }
        assert!(lease.is_held(), "{which}");
        assert!(lease.remaining() <= before, "{which}");
        actor.store.from_now_on(Verb::Renew, Fault::Hang);
        let (_, took) = timed(lease.lost()).await;
        assert!(took < TTL, "{which}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leap_short_of_the_deadline_brings_a_renewal_at_once() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    let before = actor.renewals();
    actor.clock.jump_boot(seconds(25));
    assert!(lease.is_held());
    pass(seconds(1) + Duration::from_millis(20)).await;
    // One, or two where the ordinary renewal fell due before the leap was noticed.
    assert!((before + 1..=before + 2).contains(&actor.renewals()));
    assert!(lease.remaining() > seconds(28));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_question_and_not_from_the_answer() {
    let stage = Stage::new();
    let actor = stage.actor();
    actor.store.script(Verb::Acquire, [Fault::LateAnswer(Duration::from_millis(1500))]);
    actor.store.from_now_on(Verb::Renew, Fault::LateAnswer(Duration::from_millis(1500)));
    let lease = actor.lease().await;
    assert!(lease.remaining() <= seconds(30) - Duration::from_millis(1500 + 330), "{:?}", lease.remaining());
    lease.confirm().await.unwrap();
    assert!(lease.remaining() <= seconds(30) - Duration::from_millis(1500 + 330), "{:?}", lease.remaining());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_attempt_that_is_in_the_store() {
    let stage = Stage::new();
    let actor = stage.actor();
    // No renewal moves the deadline in between.
    actor.store.from_now_on(Verb::Renew, Fault::Hang);
    // The first attempt lands and its answer is lost; the second finds it two seconds later.
    actor.store.script(Verb::Acquire, [Fault::HangAfter]);
    let (lease, took) = timed(actor.lease()).await;
    assert!(took >= seconds(2));
    assert!(lease.remaining() <= TTL - took, "counted from the second attempt: {:?}", lease.remaining());
    // The first attempt does not land, the second does: from the second.
    let other = stage.actor();
    lease.release().await.unwrap();
    other.store.script(Verb::Acquire, [Fault::Hang]);
    let lease = other.lease().await;
    assert!(
        lease.remaining() > seconds(29),
        "counted from an attempt that never landed: {:?}",
        lease.remaining()
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewal_answered_after_the_deadline_revives_nothing() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    // While a renewal is on its way, time leaps past the deadline; then its answer comes, and it did land.
    actor.store.script(Verb::Renew, [Fault::LateAnswer(seconds(1))]);
    while actor.renewals() == 0 {
        pass(Duration::from_millis(10)).await;
    }
    actor.clock.jump_boot(2 * TTL);
    pass(seconds(3)).await;
    assert_eq!(stage.look().await.held.unwrap().seq, 1, "the renewal did land");
    assert!(!lease.is_held());
    assert!(matches!(lease.status().state, LeaseState::Lost(LostReason::Expired { .. })));
    pass(seconds(60)).await;
    assert!(!lease.is_held());
    assert_eq!(actor.renewals(), 1, "nobody renews a lost lease");
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_a_renewal_that_arrives_late_takes_nothing_back() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    actor.store.script(Verb::Renew, [Fault::Twice]);
    pass(seconds(25)).await;
    let before = stage.look().await.held.unwrap();
    actor.store.deliver().await;
    assert_eq!(stage.look().await.held.unwrap(), before, "the duplicate compares an older seq");
    pass(seconds(60)).await;
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_out_of_order_is_recognised_or_refused() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    actor.store.script(Verb::Renew, [Fault::Delayed]);
    pass(seconds(15)).await;
    actor.store.deliver().await;
    pass(seconds(120)).await;
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn the_loss_names_what_the_store_shows() {
    for case in ["superseded", "broken", "asked to stop", "gone", "restored", "cloned"] {
        let stage = Stage::new();
        let actor = stage.actor();
        let lease = actor.lease().await;
        let token = lease.token();
        match case {
            "superseded" => {
                stage.memory.break_lease(key(), token, BreakHow::Immediate).await.unwrap();
                std::mem::forget(stage.actor().lease().await);
            }
            "broken" => {
                stage.memory.break_lease(key(), token, BreakHow::Immediate).await.unwrap();
            }
            "asked to stop" => {
                stage.memory.break_lease(key(), token, BreakHow::Graceful).await.unwrap();
            }
            "gone" => stage.memory.delete_record(key()),
            "restored" => {
                stage.memory.delete_record(key());
                pass(Duration::from_millis(1)).await;
                std::mem::forget(stage.actor().lease().await);
            }
            _ => {
                // A copy of the process: the same grant, renewed by somebody else.
                let saved = serde_json::to_string(&copy_of(&stage, &actor).await).unwrap();
                let copy = stage.actor();
                let copied = copy.leases.resume(&serde_json::from_str(&saved).unwrap()).await.unwrap();
                std::mem::forget(copied);
            }
        }
        let (reason, took) = timed(lease.lost()).await;
        let fits = match case {
            "superseded" | "restored" => {
                matches!(&reason, LostReason::Superseded { by: Some(by) } if *by > token)
            }
            "broken" | "asked to stop" => matches!(reason, LostReason::Broken),
            "gone" => matches!(reason, LostReason::RecordGone),
            _ => matches!(reason, LostReason::Cloned),
        };
        assert!(fits, "{case}: {reason}");
        // A copy keeps renewing too, so the loser may be told a renewal later.
        assert!(took <= seconds(22), "{case}: {took:?}");
    }
}

/// The grant of `actor`'s lease as its memory holds it: what a fork or a snapshot would copy.
async fn copy_of(stage: &Stage, actor: &stage::Actor) -> leasehold::SavedLease {
    let held = stage.look().await.held.unwrap();
    let (nonce, seq) = actor.store.store().peek(key()).unwrap();
    let text = serde_json::json!({
        "key": "k", "nonce": nonce, "token": held.token, "seq": seq, "holder": "copy",
        "ttl_ms": 30_000, "granted_ms": held.since_ms,
    });
    serde_json::from_value(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn s19_max_hold_ends_a_lease_that_would_be_renewed_for_ever() {
    let stage = Stage::new();
    let actor = stage.actor_with(LeaseOptions::builder().max_hold(seconds(100)).build().unwrap());
    let lease = actor.lease().await;
    let (reason, took) = timed(lease.lost()).await;
    assert!(matches!(reason, LostReason::MaxHold), "{reason}");
    assert!(took > seconds(99) && took <= seconds(100), "{took:?}");
    // The work may still be ending: nobody else gets the key before its guard has gone, or its ttl is over.
    assert!(!stage.is_free().await);
    drop(lease);
    pass(Duration::from_millis(1)).await;
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn one_slow_lease_delays_no_other_and_renewals_are_spread() {
    let stage = Stage::new();
    let actor = stage.actor();
    let mut leases = Vec::new();
    for number in 0..200 {
        let key = leasehold::LeaseKey::new(format!("k{number}")).unwrap();
        leases.push(actor.leases.acquire(&key).await.unwrap());
    }
    // One lease in ten seconds meets a store that hangs.
    actor.store.script(Verb::Renew, [Fault::Hang; 5]);
    let mut busiest = 0;
    for _ in 0..100 {
        let before = actor.renewals();
        pass(seconds(1)).await;
        busiest = busiest.max(actor.renewals() - before);
    }
    assert!(leases.iter().all(leasehold::Lease::is_held));
    // 200 leases, a renewal in 10 s each: 20 a second on the average.
    assert!(busiest <= 45, "{busiest} renewals in one second");
}

#[tokio::test(start_paused = true)]
async fn renewals_that_are_due_together_go_in_one_batch_and_share_nothing_else() {
    let stage = Stage::new();
    let actor = stage.actor();
    let mut leases = Vec::new();
    for number in 0..1_000 {
        let key = leasehold::LeaseKey::new(format!("k{number}")).unwrap();
        leases.push(actor.leases.acquire(&key).await.unwrap());
    }
    // One of them is taken away: the others, in whatever batch, do not notice.
    let (first, _) = (leases[0].token(), leases[0].key().clone());
    stage.memory.break_lease(leases[0].key(), first, BreakHow::Immediate).await.unwrap();
    let before = actor.renewals();
    pass(seconds(100)).await;
    let batches = actor.renewals() - before;
    assert!(matches!(leases[0].status().state, LeaseState::Lost(LostReason::Broken)));
    assert!(leases[1..].iter().all(leasehold::Lease::is_held));
    // 1,000 leases renewed ten times in 100 s: 100 a second, so about two in each batch of 10 ms.
    assert!(batches <= 6_500, "{batches} requests for 10,000 renewals");
    // A batch that fails, hangs or is answered late is each renewal's own failed attempt.
    actor.store.script(
        Verb::Renew,
        [Fault::Hang, Fault::FailAfter, Fault::HangAfter, Fault::LateAnswer(seconds(1))],
    );
    pass(seconds(100)).await;
    assert!(leases[1..].iter().all(leasehold::Lease::is_held));
}

#[tokio::test(start_paused = true)]
async fn many_confirmations_at_once_are_one_request() {
    let stage = Stage::new();
    let actor = stage.actor();
    let mut leases = Vec::new();
    for number in 0..50 {
        let key = leasehold::LeaseKey::new(format!("k{number}")).unwrap();
        leases.push(actor.leases.acquire(&key).await.unwrap());
    }
    let before = actor.renewals();
    let confirmed = futures_util::future::join_all(leases.iter().map(leasehold::Lease::confirm)).await;
    assert!(confirmed.iter().all(Result::is_ok));
    assert!(actor.renewals() - before <= 2, "{} requests", actor.renewals() - before);
}

#[test]
fn a_runtime_that_ends_takes_no_other_runtimes_renewals_along() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let stage = first.block_on(async { Stage::new() });
    let actor = first.block_on(async { stage.actor() });
    first.block_on(async {
        let lease = actor.lease().await;
        // Ends while a renewal waits for others.
        tokio::select! {
            biased;
            _ = lease.confirm() => panic!("answered"),
            () = pass(Duration::from_millis(5)) => {}
        }
        std::mem::forget(lease);
    });
    drop(first);
    second.block_on(async {
        let key = leasehold::LeaseKey::new("another").unwrap();
        let lease = actor.leases.acquire(&key).await.unwrap();
        assert!(lease.confirm().await.is_ok());
    });
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_leaves_no_task_behind() {
    let stage = Stage::new();
    let actor = stage.actor();
    let lease = actor.lease().await;
    actor.store.from_now_on(Verb::Renew, Fault::Hang);
    pass(seconds(29)).await;
    lease.release().await.unwrap();
    pass(seconds(5)).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_does_not_pass_is_not_asked_about_without_end() {
    let stage = Stage::new();
    let actor = stage.actor_with(LeaseOptions::builder().ttl(seconds(24 * 3600)).build().unwrap());
    let lease = actor.lease().await;
    actor.store.from_now_on(Verb::Renew, Fault::FailBefore(StoreErrorKind::Denied));
    lease.lost().await;
    assert!(actor.renewals() < 2_500, "{} requests in a day", actor.renewals());
}
