//! Requests per operation, counted on the wire; and races.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod engine;

use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, TABLE, TTL, again, ask, attempt, fresh_key, granted};
use leasehold::{
    AcquireOutcome, BreakHow, LeaseAdmin, LeaseOptions, LeaseStore, Leases, ReleaseRequest, RenewOutcome,
    RenewRequest, TryAcquire,
};
use leasehold_dynamodb::{DynamoDbOptions, DynamoDbStore};
use leasehold_wire::{Fault, Matcher, Proxy};

const ENGINE: Engine = Engine::Dynoxide;

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn d53_every_operation_is_one_request() {
    let client = ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let store = DynamoDbStore::open(engine::client(&proxy.url()), TABLE).await.unwrap();
    assert_eq!(proxy.requests().len(), 1, "open is one DescribeTable");
    let key = fresh_key("count");
    let mut counted = Vec::new();
    let mut count = |name: &'static str| {
        counted.push((name, proxy.requests().len()));
        proxy.clear();
    };

    proxy.clear();
    let first = ask(&key);
    let grant = granted(&store, &first).await;
    count("acquire");
    granted(&store, &again(&first)).await;
    count("acquire, answer lost before");
    assert!(matches!(store.acquire(&ask(&key)).await.unwrap(), AcquireOutcome::Held(_)));
    count("contended acquire");
    store.renew(&[RenewRequest::new(grant.clone(), attempt(), TTL)]).await.remove(0).unwrap();
    count("renew");
    store.renew(&[RenewRequest::new(grant.clone(), attempt(), TTL)]).await.remove(0).unwrap();
    count("renew, answer lost before");
    store.inspect(&key, TTL).await.unwrap();
    count("inspect");
    engine::make_old(&client, &key).await;
    let grant = granted(&store, &ask(&key)).await;
    count("take-over");
    store.release(&ReleaseRequest::of(&grant)).await.unwrap();
    count("release");
    store.release(&ReleaseRequest::of(&grant)).await.unwrap();
    count("release, repeated");
    let grant = granted(&store, &ask(&key)).await;
    proxy.clear();
    store.break_lease(&key, grant.token, BreakHow::Immediate).await.unwrap();
    count("break");
    for _ in 0..2 {
        let grant = granted(&store, &ask(&key)).await;
        count("acquire at once after another");
        store.release(&ReleaseRequest::of(&grant)).await.unwrap();
        proxy.clear();
    }
    for (name, requests) in counted {
        assert_eq!(requests, 1, "{name}");
    }
}

#[tokio::test]
#[ignore = "needs ministack: localstack/up ministack"]
async fn d48_an_engine_that_keeps_the_old_item_to_itself_costs_one_read() {
    // No engine here withholds it, so the proxy strips it from the answer: a canned failure without an item.
    let proxy = Proxy::start(&Engine::Ministack.endpoint()).await.unwrap();
    let store = {
        Engine::Ministack.client().await;
        DynamoDbStore::open(engine::client(&proxy.url()), TABLE).await.unwrap()
    };
    let key = fresh_key("no-old-item");
    let first = ask(&key);
    granted(&store, &first).await;
    for request in [again(&first), ask(&key)] {
        proxy.clear();
        let bare = leasehold_wire::dynamodb::error(
            400,
            "ConditionalCheckFailedException",
            "The conditional request failed",
        );
        proxy.script_for(&Matcher::target("UpdateItem"), [Fault::AnswerInstead(bare)]);
        let outcome = store.acquire(&request).await.unwrap();
        let own = request.nonce == first.nonce;
        assert_eq!(matches!(outcome, AcquireOutcome::Granted(_)), own, "{outcome:?}");
        assert_eq!(proxy.count(&Matcher::target("GetItem")), 1);
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn unchecked_begins_with_a_read_and_needs_no_description() {
    ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let store = DynamoDbStore::unchecked(&engine::client(&proxy.url()), TABLE, DynamoDbOptions::new());
    granted(&store, &ask(&fresh_key("unchecked"))).await;
    let targets: Vec<_> =
        proxy.requests().iter().map(|request| request.header("x-amz-target").unwrap().to_owned()).collect();
    assert_eq!(targets, ["DynamoDB_20120810.GetItem", "DynamoDB_20120810.UpdateItem"]);
    proxy.clear();
    granted(&store, &ask(&fresh_key("unchecked"))).await;
    assert_eq!(proxy.requests().len(), 1, "from then on the time is known");
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn waiting_reads_and_does_not_write() {
    ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let holder = Leases::new(ENGINE.store().await, LeaseOptions::default()).unwrap();
    let key = fresh_key("waiting");
    let lease = holder.acquire(&key).await.unwrap();
    let store = DynamoDbStore::open(engine::client(&proxy.url()), TABLE).await.unwrap();
    let waiter = Leases::new(store, LeaseOptions::default()).unwrap();
    proxy.clear();
    let outcome = waiter.acquire_within(&key, Duration::from_secs(2)).await;
    assert!(outcome.is_err());
    assert_eq!(proxy.count(&Matcher::target("UpdateItem")), 1);
    assert!(proxy.count(&Matcher::target("GetItem")) <= 10);
    assert!(lease.is_held());
}

/// 32 tasks with a client each, 200 rounds on a key that nobody has had: one winner each.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn first_creation_has_one_winner_on_dynoxide() {
    race(Engine::Dynoxide, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs LocalStack: localstack/up localstack"]
async fn first_creation_has_one_winner_on_localstack() {
    race(Engine::LocalStack, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs ministack: localstack/up ministack"]
async fn first_creation_has_one_winner_on_ministack() {
    race(Engine::Ministack, 200).await;
}

async fn race(engine: Engine, rounds: usize) {
    let client = engine.client().await;
    let mut contenders = Vec::new();
    for _ in 0..32 {
        let store = DynamoDbStore::open(engine::client(&engine.endpoint()), TABLE).await.unwrap();
        contenders.push(Arc::new(store));
    }
    for round in 0..rounds {
        let key = fresh_key("race");
        let tries = contenders.iter().map(|store| {
            let (store, request) = (Arc::clone(store), ask(&key));
            async move { store.acquire(&request).await.unwrap() }
        });
        let outcomes = futures_util::future::join_all(tries).await;
        let winners: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                AcquireOutcome::Granted(granted) => Some(granted.grant.token),
                _ => None,
            })
            .collect();
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        assert_eq!(engine::stored_token(&client, &key).await, Some(winners[0]), "round {round}");
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_seal_that_is_late_does_not_take_a_graceful_break_back() {
    let store = ENGINE.store().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    let late = DynamoDbStore::open(engine::client(&proxy.url()), TABLE).await.unwrap();
    for sealed in [true, false] {
        let key = fresh_key("late-seal");
        let grant = granted(&store, &ask(&key)).await;
        if !sealed {
            store.seal(&key, true).await.unwrap();
        }
        proxy.clear();
        proxy.script_for(&Matcher::target("UpdateItem"), [Fault::HoldBack]);
        tokio::select! {
            answer = late.seal(&key, sealed) => panic!("{answer:?}"),
            () = async { proxy.arrived(&Matcher::target("UpdateItem"), 1).await; proxy.settled().await } => {}
        }
        store.break_lease(&key, grant.token, BreakHow::Graceful).await.unwrap();
        proxy.deliver().await.unwrap();
        let renewal = RenewRequest::new(grant.clone(), attempt(), TTL);
        let outcome = store.renew(&[renewal]).await.remove(0).unwrap();
        assert!(matches!(outcome, RenewOutcome::Broken), "sealed {sealed}: {outcome:?}");
        // Asked again it is done, and the break stands.
        late.seal(&key, sealed).await.unwrap();
        let seen = store.inspect(&key, TTL).await.unwrap();
        assert_eq!((seen.sealed, seen.held.map(|held| held.break_requested)), (sealed, Some(true)));
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_shorter_renewal_says_how_long_its_expiry_still_is() {
    let client = ENGINE.client().await;
    for batches in [false, true] {
        let options = DynamoDbOptions::new().with_batches(batches);
        let store = DynamoDbStore::open_with(client.clone(), TABLE, options).await.unwrap();
        let (one, two) = (fresh_key("shorter"), fresh_key("shorter"));
        let mut renewals = Vec::new();
        for key in [&one, &two] {
            let AcquireOutcome::Granted(granted) = store.acquire(&ask(key)).await.unwrap() else {
                panic!("not granted")
            };
            renewals.push(RenewRequest::new(granted.grant, attempt(), TTL / 6));
        }
        let together = if batches { 2 } else { 1 };
        for renewals in renewals.chunks(together) {
            assert!(store.renew(renewals).await.iter().all(Result::is_ok));
        }
        for key in [one, two] {
            let item = engine::item(&client, &key).await.unwrap();
            let told = Duration::from_millis(engine::number_of(&item, "duration_ms").unwrap());
            // The service's time is known to a second or so.
            assert!(told.abs_diff(TTL) < Duration::from_secs(10), "batches {batches}: {told:?}");
        }
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn leases_live_beside_other_items_and_applications() {
    let client = ENGINE.client().await;
    let key = fresh_key("shared");
    let of = |prefix: &str| {
        let options = DynamoDbOptions::new().with_key_prefix(prefix);
        DynamoDbStore::open_with(client.clone(), TABLE, options)
    };
    let (one, two) = (of("one/").await.unwrap(), of("two/").await.unwrap());
    granted(&one, &ask(&key)).await;
    granted(&two, &ask(&key)).await;
    let listed = one.list(key.as_str(), None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|seen| &seen.key).collect::<Vec<_>>(), [&key]);

    let options = DynamoDbOptions::new().with_key_attribute("id").with_sort_key("kind", "lease");
    let table = fresh_key("sorted").as_str().replace('/', "-");
    for _ in 0..2 {
        DynamoDbStore::create_table(&client, &table, &options).await.unwrap();
    }
    let sorted = DynamoDbStore::open_with(client.clone(), &table, options).await.unwrap();
    let leases = Leases::new(sorted.clone(), LeaseOptions::default()).unwrap();
    let lease = leases.acquire(&key).await.unwrap();
    assert!(matches!(leases.try_acquire(&key).await.unwrap(), TryAcquire::Held(_)));
    // An item that looks like a lease and has another sort key is somebody else's.
    let looks_like_one = [("id", "beside"), ("kind", "order")];
    let mut put = client.put_item().table_name(&table).item("schema", engine::number(1));
    for (name, value) in looks_like_one {
        put = put.item(name, engine::text(value));
    }
    put.item("version", engine::number(7)).send().await.unwrap();
    let listed = sorted.list("", None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|seen| &seen.key).collect::<Vec<_>>(), [&key]);
    lease.release().await.unwrap();
}
