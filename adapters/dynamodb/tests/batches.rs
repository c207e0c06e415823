//! Renewals in batches: answered in part, lost, throttled in part; and what others do to one lease of a batch.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod engine;

use engine::{Engine, TABLE, TTL, ask, attempt, fresh_key, granted};
use leasehold::{
    BreakHow, Clock, Effect, Grant, LeaseAdmin, LeaseOptions, LeaseStore, Leases, LostReason, RenewOutcome,
    RenewRequest, StoreError, StoreErrorKind, SystemClock,
};
use leasehold_dynamodb::{DynamoDbOptions, DynamoDbStore};
use leasehold_wire::{Answer, Fault, Matcher, Proxy, dynamodb};

const ENGINE: Engine = Engine::Dynoxide;

async fn store(endpoint: &str) -> DynamoDbStore {
    let options = DynamoDbOptions::new().with_batches(true);
    DynamoDbStore::open_with(engine::client(endpoint), TABLE, options).await.unwrap()
}

fn renewals(grants: &[Grant]) -> Vec<RenewRequest> {
    grants.iter().map(|grant| RenewRequest::new(grant.clone(), attempt(), TTL)).collect()
}

fn is_renewed(answer: &Result<RenewOutcome, StoreError>) -> bool {
    matches!(answer, Ok(RenewOutcome::Renewed(_)))
}

async fn three(store: &DynamoDbStore) -> Vec<Grant> {
    let mut grants = Vec::new();
    for _ in 0..3 {
        grants.push(granted(store, &ask(&fresh_key("batch"))).await);
    }
    grants
}

/// An answer to three statements, as the API reference of `BatchExecuteStatement` and `BatchStatementError` gives it.
fn in_part(codes: [Option<&str>; 3]) -> Answer {
    let responses = codes.map(|code| match code {
        Some(code) => format!(r#"{{"Error":{{"Code":"{code}","Message":"canned"}},"TableName":"{TABLE}"}}"#),
        None => format!(r#"{{"TableName":"{TABLE}"}}"#),
    });
    Answer::new(200)
        .header("content-type", "application/x-amz-json-1.0")
        .header("x-amzn-requestid", "canned")
        .body(format!(r#"{{"Responses":[{}]}}"#, responses.join(",")))
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_batch_is_one_request_with_an_answer_each() {
    ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let store = store(&proxy.url()).await;
    let grants = three(&store).await;
    store.break_lease(&grants[1].key, grants[1].token, BreakHow::Immediate).await.unwrap();
    proxy.clear();
    let answers = store.renew(&renewals(&grants)).await;
    assert_eq!(proxy.requests().len(), 1);
    assert!(is_renewed(&answers[0]) && is_renewed(&answers[2]), "{answers:?}");
    assert!(matches!(answers[1], Ok(RenewOutcome::Broken)), "{answers:?}");
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_batch_answered_in_part_is_each_renewals_own_answer() {
    use StoreErrorKind::{Denied, Misconfigured, Other, Throttled, Unavailable};
    ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let store = store(&proxy.url()).await;
    let table = [
        ("ThrottlingError", Throttled, Effect::NotApplied),
        ("ProvisionedThroughputExceeded", Throttled, Effect::NotApplied),
        ("RequestLimitExceeded", Throttled, Effect::NotApplied),
        ("TransactionConflict", Unavailable, Effect::NotApplied),
        ("InternalServerError", Unavailable, Effect::Unknown),
        ("AccessDenied", Denied, Effect::NotApplied),
        ("ResourceNotFound", Misconfigured, Effect::NotApplied),
        ("SomethingNew", Other, Effect::NotApplied),
    ];
    for (code, kind, effect) in table {
        let grants = three(&store).await;
        let batch = Matcher::target("BatchExecuteStatement");
        // All three have landed, whatever is said of the second.
        proxy.script_for(&batch, [Fault::ForwardThenAnswer(in_part([None, Some(code), None]))]);
        let answers = store.renew(&renewals(&grants)).await;
        assert!(is_renewed(&answers[0]) && is_renewed(&answers[2]), "{code}: {answers:?}");
        let error = answers[1].as_ref().unwrap_err();
        assert_eq!((error.kind(), error.effect(), error.code()), (kind, effect, Some(code)), "{error}");
        // Asked again, the second finds its own write.
        let again = store.renew(&renewals(&grants[1..2])).await;
        assert!(is_renewed(&again[0]), "{code}: {again:?}");
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_batch_that_fails_as_a_whole_is_nobodys_loss() {
    ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let store = store(&proxy.url()).await;
    let faults = [
        (Fault::ResetAfter, Effect::Unknown),
        (Fault::ResetMidBody, Effect::Unknown),
        (Fault::ForwardThenAnswer(dynamodb::internal_server_error()), Effect::Unknown),
        (Fault::AnswerInstead(dynamodb::throttling()), Effect::NotApplied),
        (Fault::AnswerInstead(in_part([None, None, None]).body(r#"{"Responses":[]}"#)), Effect::Unknown),
    ];
    for (fault, effect) in faults {
        let grants = three(&store).await;
        proxy.script_for(&Matcher::target("BatchExecuteStatement"), [fault.clone()]);
        let answers = store.renew(&renewals(&grants)).await;
        assert!(
            answers.iter().all(|answer| answer.as_ref().unwrap_err().effect() == effect),
            "{fault:?}: {answers:?}"
        );
        let again = store.renew(&renewals(&grants)).await;
        assert!(again.iter().all(is_renewed), "{fault:?}: {again:?}");
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_refusal_that_must_be_looked_up_does_not_delay_the_others() {
    ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let store = store(&proxy.url()).await;
    let grants = three(&store).await;
    let refused = in_part([None, Some("ConditionalCheckFailed"), None]);
    let batch = Matcher::target("BatchExecuteStatement");
    proxy.script_for(&batch, [Fault::ForwardThenAnswer(refused.clone()), Fault::AnswerInstead(refused)]);
    proxy.script_for(&Matcher::target("GetItem"), [Fault::DropRequest]);

    let asks = renewals(&grants);
    let began = SystemClock.read().monotonic;
    let answers = store.renew(&asks).await;
    let took = SystemClock.read().monotonic - began;
    assert!(took < asks[0].timeout * 3 / 4, "the others would have given up: {took:?}");
    assert!(is_renewed(&answers[0]) && is_renewed(&answers[2]), "{answers:?}");
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Unavailable, Effect::NotApplied), "{error}");
    // Asked again, in a batch as before, it gets its answer.
    assert!(is_renewed(&store.renew(&asks).await[1]));
    assert_eq!(proxy.unmet(), 0);
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_batch_answered_without_a_code_or_request_id_says_nothing() {
    ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let store = store(&proxy.url()).await;
    let codeless =
        in_part([None; 3]).body(r#"{"Responses":[{"Error":{"Message":"?"}},{"Error":{}},{"Error":{}}]}"#);
    let mut nameless = in_part([None; 3]);
    nameless.headers.remove("x-amzn-requestid");
    for answer in [codeless, nameless] {
        let grants = three(&store).await;
        proxy.script_for(&Matcher::target("BatchExecuteStatement"), [Fault::ForwardThenAnswer(answer)]);
        for answer in store.renew(&renewals(&grants)).await {
            let error = answer.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Unavailable, Effect::Unknown));
        }
        assert!(store.renew(&renewals(&grants)).await.iter().all(is_renewed));
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_keeper_renews_many_in_few_requests_and_one_lost_lease_disturbs_no_other() {
    ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let leases = Leases::new(store(&proxy.url()).await, LeaseOptions::default()).unwrap();
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(leases.acquire(&fresh_key("many")).await.unwrap());
    }
    let admin = ENGINE.store().await;
    admin.break_lease(held[7].key(), held[7].token(), BreakHow::Immediate).await.unwrap();
    proxy.clear();
    let confirmed = futures_util::future::join_all(held.iter().map(leasehold::Lease::confirm)).await;
    assert!(matches!(confirmed[7], Err(LostReason::Broken)), "{:?}", confirmed[7]);
    assert_eq!(confirmed.iter().filter(|confirmed| confirmed.is_ok()).count(), 29);
    // 30 renewals: a full batch, and the rest.
    assert!(proxy.requests().len() <= 4, "{} requests for 30 renewals", proxy.requests().len());
    leases.shutdown(std::time::Duration::from_secs(10)).await.unwrap();
}
