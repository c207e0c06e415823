//! Manual mode: nothing happens that was not asked for.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod stage;

use std::sync::Arc;
use std::time::Duration;

use leasehold::testing::{Fault, FaultyStore, SeededChance, Verb, VirtualClock};
use leasehold::{
    BreakHow, LeaseAdmin, LeaseOptions, LostReason, ManualLease, ManualLeases, MemoryStore, OptionsError,
    ReleaseOutcome, RenewError, ResumeError, StoreErrorKind,
};
use stage::{Stage, TTL, key, pass, seconds, timed};

struct Function {
    clock: Arc<VirtualClock>,
    store: FaultyStore<MemoryStore>,
    leases: ManualLeases,
}

impl Function {
    fn on(stage: &Stage, seed: u64) -> Self {
        let clock = Arc::new(VirtualClock::new());
        let store = FaultyStore::new(stage.memory.clone(), clock.clone());
        let chance = Arc::new(SeededChance::new(seed));
        let leases =
            ManualLeases::with_parts(Arc::new(store.clone()), LeaseOptions::default(), clock.clone(), chance)
                .unwrap();
        Self { clock, store, leases }
    }

    async fn lease(&self) -> ManualLease {
        self.leases.try_acquire(key()).await.unwrap().acquired().unwrap()
    }

    fn requests(&self) -> usize {
        [Verb::Acquire, Verb::Inspect, Verb::Release, Verb::Renew]
            .iter()
            .map(|verb| self.store.requests(*verb))
            .sum()
    }
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn d29_no_task_no_timer_and_no_request_that_was_not_asked_for() {
    let stage = Stage::new();
    let function = Function::on(&stage, 1);
    let mut lease = function.lease().await;
    assert_eq!((function.requests(), tasks()), (1, 0));
    pass(seconds(20)).await;
    assert_eq!((function.requests(), tasks()), (1, 0));
    assert!(lease.is_held());
    assert!(lease.renew().await.unwrap() > seconds(29));
    assert!(lease.confirm().await.unwrap() > seconds(29));
    assert_eq!((function.requests(), tasks()), (3, 0));
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!((function.requests(), tasks()), (4, 0));
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_renews_ends_at_its_deadline() {
    let stage = Stage::new();
    let function = Function::on(&stage, 1);
    let mut lease = function.lease().await;
    let (outcome, took) = timed(lease.run(std::future::pending::<()>())).await;
    assert!(matches!(outcome, Err(LostReason::Expired { .. })));
    assert!(took > seconds(29) && took < TTL, "{took:?}");
    let requests = function.requests();
    assert!(matches!(lease.renew().await, Err(RenewError::Lost(LostReason::Expired { .. }))));
    assert_eq!(function.requests(), requests, "known without asking");
}

#[tokio::test(start_paused = true)]
async fn d10_a_frozen_and_thawed_function_reports_its_loss_before_any_request() {
    for which in ["monotonic", "boot", "wall"] {
        let stage = Stage::new();
        let function = Function::on(&stage, 1);
        let mut lease = function.lease().await;
        match which {
            "monotonic" => function.clock.jump_monotonic(2 * TTL),
            "boot" => function.clock.jump_boot(2 * TTL),
            _ => function.clock.jump_wall(2 * TTL),
        }
        assert!(!lease.is_held(), "{which}");
        assert!(matches!(lease.renew().await, Err(RenewError::Lost(_))), "{which}");
        assert_eq!(function.requests(), 1, "{which}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_until_the_end_of_an_invocation_needs_no_renewal_and_ends_with_it() {
    let stage = Stage::new();
    for left in [3, 60, 900] {
        let function = Function::on(&stage, left);
        let taken = function.leases.acquire_until(key(), seconds(left)).await.unwrap();
        let lease = taken.acquired().unwrap();
        assert!(
            lease.remaining() > seconds(left) - Duration::from_millis(1),
            "{left} s: {:?}",
            lease.remaining()
        );
        let (outcome, took) = timed(lease.run(std::future::pending::<()>())).await;
        assert!(matches!(outcome, Err(LostReason::MaxHold)), "{left} s: {outcome:?}");
        assert!(
            took <= seconds(left) && took > seconds(left) - Duration::from_millis(2),
            "{left} s: {took:?}"
        );
        assert_eq!(function.requests(), 1, "{left} s");
        drop(lease);
        // The key is free soon after the invocation would have ended.
        let next = Function::on(&stage, left + 1);
        let (next, took) = timed(next.leases.acquire_within(key(), seconds(60))).await;
        next.unwrap().release().await.unwrap();
        assert!(took <= seconds(1 + left / 50 + 2), "{left} s: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_renewal_is_recognised_also_over_dropped_calls() {
    let stage = Stage::new();
    let function = Function::on(&stage, 1);
    let mut lease = function.lease().await;
    function.store.script(Verb::Renew, [Fault::FailAfter]);
    lease.renew().await.unwrap();
    // The call is dropped after its request has landed.
    function.store.script(Verb::Renew, [Fault::HangAfter]);
    tokio::select! {
        biased;
        _ = lease.renew() => panic!("answered"),
        () = pass(Duration::from_millis(10)) => {}
    }
    lease.renew().await.unwrap();
    assert!(lease.is_held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_the_process_is_found_out() {
    let stage = Stage::new();
    let function = Function::on(&stage, 1);
    let mut lease = function.lease().await;
    let (nonce, seq) = stage.memory.peek(key()).unwrap();
    let copy = serde_json::json!({
        "key": "k", "nonce": nonce, "token": lease.token(), "seq": seq, "holder": "copy", "ttl_ms": 30_000, "granted_ms": 0,
    });
    let copied = Function::on(&stage, 2).leases.resume(&serde_json::from_value(copy).unwrap()).await.unwrap();
    assert!(matches!(lease.renew().await, Err(RenewError::Lost(LostReason::Cloned))));
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::AlreadyEnded, "the copy may be at work");
    assert!(!stage.is_free().await);
    drop(copied);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_silent_leaves_the_lease_held_until_its_deadline() {
    let stage = Stage::new();
    let function = Function::on(&stage, 1);
    let mut lease = function.lease().await;
    function.store.from_now_on(Verb::Renew, Fault::Hang);
    let (outcome, took) = timed(lease.renew()).await;
    assert!(matches!(outcome, Err(RenewError::Store(error)) if error.kind() == StoreErrorKind::Unavailable));
    assert!(took <= TTL / 3, "{took:?}");
    assert!(lease.is_held());
    function.store.from_now_on(Verb::Renew, Fault::None);
    lease.renew().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn save_and_resume_over_invocations_keep_the_token() {
    let stage = Stage::new();
    let lease = Function::on(&stage, 1).lease().await;
    let token = lease.token();
    let text = serde_json::to_string(&lease.save().unwrap()).unwrap();
    pass(seconds(20)).await;
    let next = Function::on(&stage, 2);
    let mut resumed = next.leases.resume(&serde_json::from_str(&text).unwrap()).await.unwrap();
    assert_eq!((resumed.token(), next.requests(), tasks()), (token, 1, 0));
    resumed.renew().await.unwrap();
    stage.memory.break_lease(key(), token, BreakHow::Immediate).await.unwrap();
    assert!(matches!(resumed.confirm().await, Err(RenewError::Lost(LostReason::Broken))));
    assert!(resumed.save().is_err());
    let gone = next.leases.resume(&serde_json::from_str(&text).unwrap()).await;
    assert!(matches!(gone, Err(ResumeError::Lost(LostReason::Broken))), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn dropped_it_is_left_to_expire_and_asks_nothing() {
    let stage = Stage::new();
    let function = Function::on(&stage, 1);
    let lease = function.lease().await;
    let view = lease.view();
    drop(lease);
    assert!(!view.is_held());
    assert_eq!(function.requests(), 1);
    pass(seconds(29)).await;
    assert!(!stage.look().await.is_claimable());
    pass(seconds(2)).await;
    assert!(stage.look().await.is_claimable());
}

#[test]
fn hold_at_least_is_refused_where_nobody_can_see_to_it() {
    let options = LeaseOptions::builder().hold_at_least(seconds(5)).build().unwrap();
    assert_eq!(
        ManualLeases::new(MemoryStore::new(), options).unwrap_err(),
        OptionsError::HoldAtLeastNeedsKeeper
    );
}

#[tokio::test(start_paused = true)]
async fn work_is_stopped_within_a_second_of_a_thaw() {
    let stage = Stage::new();
    let function = Function::on(&stage, 1);
    let lease = function.lease().await;
    let freeze = async {
        pass(seconds(1)).await;
        function.clock.jump_boot(2 * TTL);
    };
    let ((outcome, ()), took) =
        timed(async { tokio::join!(lease.run(std::future::pending::<()>()), freeze) }).await;
    assert!(matches!(outcome, Err(LostReason::Expired { .. })));
    assert!(took <= seconds(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn renewals_dropped_one_after_the_other_do_not_look_like_a_copy() {
    let stage = Stage::new();
    let function = Function::on(&stage, 1);
    let mut lease = function.lease().await;
    for round in 0..5 {
        // From the second on, a call first finds the attempt of the one before.
        let finds_it = (round > 0).then_some(Fault::None);
        function.store.script(Verb::Renew, finds_it.into_iter().chain([Fault::HangAfter]));
        tokio::select! {
            biased;
            _ = lease.renew() => panic!("answered"),
            () = pass(Duration::from_millis(10)) => {}
        }
    }
    function.store.from_now_on(Verb::Renew, Fault::None);
    pass(Duration::from_millis(1)).await;
    lease.renew().await.unwrap();
    lease.renew().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_won_is_given_back_once_when_the_call_fails() {
    let stage = Stage::new();
    let function = Function::on(&stage, 1);
    function.store.script(Verb::Acquire, [Fault::FailAfter, Fault::FailBefore(StoreErrorKind::Denied)]);
    assert!(function.leases.try_acquire(key()).await.is_err());
    assert!(stage.is_free().await);
    assert_eq!(function.store.requests(Verb::Release), 1);
}
