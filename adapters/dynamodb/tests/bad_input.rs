//! What a user gets wrong, and what somebody else left in the table: a clear error, nothing changed, no panic.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod engine;

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TimeToLiveSpecification,
};
use engine::{Engine, TABLE, TTL, ask, attempt, fresh_key, number, text};
use leasehold::record::TokenPolicy;
use leasehold::{
    Effect, FencingToken, Grant, LeaseAdmin, LeaseKey, LeaseStore, Nonce, ReleaseRequest, RenewRequest,
    Severity, StoreError, StoreErrorKind,
};
use leasehold_dynamodb::{DynamoDbOptions, DynamoDbStore};
use leasehold_wire::{Answer, Fault, Matcher, Proxy, dynamodb};

const ENGINE: Engine = Engine::Dynoxide;

async fn refused(client: Client, table: &str) -> StoreError {
    DynamoDbStore::open(client, table).await.unwrap_err()
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_missing_table_names_the_command_that_makes_it() {
    let error = refused(ENGINE.client().await, "no-such-table").await;
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    assert_eq!(error.code(), Some("ResourceNotFoundException"));
    assert!(error.to_string().contains("leasehold init"), "{error}");
    // The table goes away while a store is open.
    let store = DynamoDbStore::unchecked(&ENGINE.client().await, "no-such-table", DynamoDbOptions::new());
    let error = store.acquire(&ask(&fresh_key("gone"))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Misconfigured, Effect::NotApplied));
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn another_key_schema_names_both() {
    let client = ENGINE.client().await;
    for (hash, kind, range) in [
        ("id", ScalarAttributeType::S, None),
        ("pk", ScalarAttributeType::N, None),
        ("pk", ScalarAttributeType::S, Some("sk")),
    ] {
        let table = fresh_key("schema").as_str().replace('/', "-");
        let mut request = client
            .create_table()
            .table_name(&table)
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(
                KeySchemaElement::builder().attribute_name(hash).key_type(KeyType::Hash).build().unwrap(),
            )
            .attribute_definitions(
                AttributeDefinition::builder().attribute_name(hash).attribute_type(kind).build().unwrap(),
            );
        if let Some(range) = range {
            request = request
                .key_schema(
                    KeySchemaElement::builder()
                        .attribute_name(range)
                        .key_type(KeyType::Range)
                        .build()
                        .unwrap(),
                )
                .attribute_definitions(
                    AttributeDefinition::builder()
                        .attribute_name(range)
                        .attribute_type(ScalarAttributeType::S)
                        .build()
                        .unwrap(),
                );
        }
        request.send().await.unwrap();
        let error = refused(client.clone(), &table).await;
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("the options say `pk`"), "{error}");
        let error = DynamoDbStore::create_table(&client, &table, &DynamoDbOptions::new()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn foreign_items_are_errors_in_every_verb_and_stay_as_they_are() {
    let client = ENGINE.client().await;
    let store = ENGINE.store().await;
    let lease = |name: &'static str, value: AttributeValue| {
        let mut item = vec![
            ("schema", number(1)),
            ("version", number(7)),
            ("nonce", text(&"ab".repeat(16))),
            ("attempt", number(1)),
            ("holder", text("somebody")),
            ("seq", number(0)),
            ("duration_ms", number(30_000)),
            // Not over: what is over is taken whatever else it says, as long as it is a lease.
            ("expires_at", number(9_000_000_000_000)),
        ];
        item.retain(|(known, _)| *known != name);
        item.push((name, value));
        item
    };
    let digits = |digits: &str| AttributeValue::N(digits.to_owned());
    let items: Vec<Vec<(&str, AttributeValue)>> = vec![
        vec![("order", text("an order, not a lease"))],
        vec![("version", number(7))],
        vec![("blob", text(&"x".repeat(390_000)))],
        lease("version", text("7")),
        lease("version", digits("-7")),
        lease("version", digits("0")),
        lease("version", digits(&"9".repeat(38))),
        lease("version", digits("7.5")),
        lease("nonce", number(5)),
        lease("nonce", text("short")),
        lease("seq", text("0")),
        lease("seq", digits("-1")),
        lease("attempt", AttributeValue::Bool(true)),
        lease("duration_ms", AttributeValue::L(Vec::new())),
        lease("expires_at", text("never")),
        lease("schema", text("1")),
        lease("schema", number(2)),
    ];
    for item in items {
        let key = fresh_key("foreign");
        engine::put(&client, &key, &item).await;
        let before = engine::item(&client, &key).await;
        let grant = Grant::new(key.clone(), Nonce::from_bytes([1; 16]), 7_u64.try_into().unwrap(), 0);
        let errors = [
            store.acquire(&ask(&key)).await.unwrap_err(),
            store.renew(&[RenewRequest::new(grant.clone(), attempt(), TTL)]).await.remove(0).unwrap_err(),
            store.release(&ReleaseRequest::of(&grant)).await.unwrap_err(),
            store.inspect(&key, TTL).await.unwrap_err(),
        ];
        for error in errors {
            let kind = error.kind();
            assert!(
                matches!(kind, StoreErrorKind::Corrupt | StoreErrorKind::Misconfigured),
                "{:?}: {error}",
                item.last()
            );
            assert_eq!(error.effect(), Effect::NotApplied);
            assert!(!error.to_string().contains(&"ab".repeat(16)), "{error}");
        }
        assert_eq!(engine::item(&client, &key).await, before, "{:?}", item.last());
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_lease_whose_version_is_no_token_is_not_taken_even_when_free_or_over() {
    let client = ENGINE.client().await;
    let digits = |digits: &str| AttributeValue::N(digits.to_owned());
    let versions = [
        digits("-7"),
        digits("0"),
        digits("9223372036854775807"),
        digits("9223372036854775808"),
        digits(&"9".repeat(38)),
        text("7"),
        AttributeValue::Bool(true),
    ];
    let over = [
        ("nonce", text(&"ab".repeat(16))),
        ("attempt", number(1)),
        ("holder", text("somebody")),
        ("seq", number(0)),
        ("duration_ms", number(30_000)),
        ("expires_at", number(1_000)),
    ];
    for tokens in [TokenPolicy::ClockFloor, TokenPolicy::Sequential { seed: 0 }] {
        let options = DynamoDbOptions::new().with_tokens(tokens);
        let store = DynamoDbStore::open_with(client.clone(), TABLE, options).await.unwrap();
        for (version, grant) in versions.iter().flat_map(|version| [(version, &[][..]), (version, &over[..])])
        {
            let key = fresh_key("no-token");
            let lease = [&[("schema", number(1)), ("version", version.clone())], grant].concat();
            engine::put(&client, &key, &lease).await;
            let before = engine::item(&client, &key).await;
            let error = store.acquire(&ask(&key)).await.unwrap_err();
            let name = format!("{tokens:?}, {version:?}, {} more: {error}", grant.len());
            assert_eq!(
                (error.kind(), error.effect()),
                (StoreErrorKind::Corrupt, Effect::NotApplied),
                "{name}"
            );
            assert_eq!(engine::item(&client, &key).await, before, "{name}");
        }
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn what_is_remembered_of_a_key_decides_nothing() {
    let client = ENGINE.client().await;
    let store = ENGINE.store().await;
    let key = fresh_key("remembered");
    engine::put(&client, &key, &[("schema", number(1)), ("version", number(FencingToken::MAX.get()))]).await;
    assert_eq!(store.acquire(&ask(&key)).await.unwrap_err().kind(), StoreErrorKind::Corrupt);
    // An operator repairs the item.
    engine::set(&client, &key, "version", number(7)).await;
    engine::granted(&store, &ask(&key)).await;
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_broken_item_does_not_spoil_a_listing() {
    let client = ENGINE.client().await;
    let store = ENGINE.store().await;
    let good = fresh_key("listed");
    engine::granted(&store, &ask(&good)).await;
    let prefix = good.as_str();
    for (name, version) in [("a", text("7")), ("b", number(0))] {
        let broken = LeaseKey::new(format!("{prefix}/{name}")).unwrap();
        engine::put(&client, &broken, &[("schema", number(1)), ("version", version)]).await;
    }
    let listed = store.list(prefix, None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|seen| &seen.key).collect::<Vec<_>>(), [&good]);
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn d07_time_to_live_on_the_table_is_found() {
    let client = ENGINE.client().await;
    let table = fresh_key("ttl").as_str().replace('/', "-");
    DynamoDbStore::create_table(&client, &table, &DynamoDbOptions::new()).await.unwrap();
    let store = DynamoDbStore::open(client.clone(), &table).await.unwrap();
    assert_eq!(store.check().await.unwrap(), [], "a table of our own making has nothing to complain of");
    let specification =
        TimeToLiveSpecification::builder().enabled(true).attribute_name("expires_at").build().unwrap();
    client
        .update_time_to_live()
        .table_name(&table)
        .time_to_live_specification(specification)
        .send()
        .await
        .unwrap();
    let findings = store.check().await.unwrap();
    assert_eq!(
        findings.iter().map(|finding| finding.severity).collect::<Vec<_>>(),
        [Severity::Error],
        "{findings:?}"
    );
    assert!(findings[0].what.contains("expires_at"), "{findings:?}");
}

/// What DescribeTable says of a global table. The members are those of the API reference (`TableDescription`: `Replicas`,
/// `MultiRegionConsistency`), which no emulator here returns.
fn global_table(consistency: &str) -> Answer {
    let body = format!(
        r#"{{"Table":{{"TableName":"leases","TableStatus":"ACTIVE","DeletionProtectionEnabled":true,
        "KeySchema":[{{"AttributeName":"pk","KeyType":"HASH"}}],
        "AttributeDefinitions":[{{"AttributeName":"pk","AttributeType":"S"}}],
        "Replicas":[{{"RegionName":"eu-west-1","ReplicaStatus":"ACTIVE"}},{{"RegionName":"us-east-1","ReplicaStatus":"ACTIVE"}}],
        "MultiRegionConsistency":"{consistency}"}}}}"#
    );
    Answer::new(200)
        .header("content-type", "application/x-amz-json-1.0")
        .header("x-amzn-requestid", "canned")
        .body(body)
}

async fn in_front_of(answer: Answer) -> Proxy {
    ENGINE.client().await;
    let proxy = Proxy::start(&ENGINE.endpoint()).await.unwrap();
    proxy.from_now_on(&Matcher::target("DescribeTable"), Fault::AnswerInstead(answer));
    proxy
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn d11_d49_an_eventual_global_table_is_refused_outside_its_home_region() {
    let proxy = in_front_of(global_table("EVENTUAL")).await;
    let error = refused(engine::client(&proxy.url()), TABLE).await;
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("home region"), "{error}");

    let open = |region: &str, home: &str| {
        let options = DynamoDbOptions::new().with_home_region(home);
        DynamoDbStore::open_with(engine::client_in(&proxy.url(), region), TABLE, options)
    };
    let store = open("eu-west-1", "eu-west-1").await.unwrap();
    assert!(store.check().await.unwrap().iter().any(|finding| finding.severity == Severity::Warning));
    let error = open("us-east-1", "eu-west-1").await.unwrap_err();
    assert!(error.to_string().contains("point the client to eu-west-1"), "{error}");
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a_strong_global_table_works_with_what_it_lacks_switched_off() {
    let proxy = in_front_of(global_table("STRONG")).await;
    let store = DynamoDbStore::open(engine::client(&proxy.url()), TABLE).await.unwrap();
    assert_eq!(store.profile().min_ttl, Duration::from_secs(15));
    assert_eq!(store.profile().scope, leasehold::Scope::MultiRegion);
    engine::granted(&store, &ask(&fresh_key("strong"))).await;
}

#[tokio::test]
async fn no_credentials_say_where_to_get_some() {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .endpoint_url("http://127.0.0.1:9")
        .build();
    let error = refused(Client::from_conf(config), TABLE).await;
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Denied, Effect::NotApplied), "{error:?}");
    assert!(error.to_string().contains("AWS_ACCESS_KEY_ID"), "{error}");
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn a30_refused_credentials_are_denied_and_name_the_code() {
    for code in [
        "UnrecognizedClientException",
        "AccessDeniedException",
        "ExpiredTokenException",
        "InvalidSignatureException",
    ] {
        let answer = dynamodb::error(400, code, "The security token included in the request is invalid.");
        let proxy = in_front_of(answer).await;
        let error = refused(engine::client(&proxy.url()), TABLE).await;
        assert_eq!((error.kind(), error.code()), (StoreErrorKind::Denied, Some(code)), "{error}");
    }
}

#[tokio::test]
async fn an_endpoint_where_nobody_listens_is_unavailable_and_certainly_not_applied() {
    // Port 9 (discard) is served by nobody; the connection is refused.
    let store =
        DynamoDbStore::unchecked(&engine::client("http://127.0.0.1:9"), TABLE, DynamoDbOptions::new());
    let error = store
        .release(&ReleaseRequest::of_nonce(fresh_key("nobody"), Nonce::from_bytes([1; 16])))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (StoreErrorKind::Unavailable, Effect::NotApplied),
        "{error:?}"
    );
    assert!(error.to_string().contains("nobody listens"), "{error}");
}

#[tokio::test]
#[ignore = "needs ministack: localstack/up ministack"]
async fn the_wrong_region_is_a_missing_table_that_names_the_region() {
    Engine::Ministack.client().await;
    let error = refused(engine::client_in(&Engine::Ministack.endpoint(), "sa-east-1"), TABLE).await;
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("the region"), "{error}");
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn no_secret_shows_in_debug_or_errors() {
    let store = ENGINE.store().await;
    let grant = engine::granted(&store, &ask(&fresh_key("secret"))).await;
    let nonce = grant.nonce.expose_hex();
    let proxy = in_front_of(dynamodb::internal_server_error()).await;
    proxy.from_now_on(
        &Matcher::any(),
        Fault::AnswerInstead(dynamodb::error(400, "ValidationException", "canned")),
    );
    let broken = DynamoDbStore::unchecked(&engine::client(&proxy.url()), TABLE, DynamoDbOptions::new());
    let error = broken.release(&ReleaseRequest::of(&grant)).await.unwrap_err();
    for shown in [format!("{store:?}"), format!("{grant:?}"), format!("{error:?}"), error.to_string()] {
        assert!(!shown.contains(&nonce), "{shown}");
        assert!(!shown.contains("\"test\""), "credentials in {shown}");
    }
}

#[tokio::test]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn who_may_not_make_tables_can_use_one_that_is_there() {
    let proxy = in_front_of(dynamodb::error(400, "ResourceNotFoundException", "canned")).await;
    let denied =
        Fault::AnswerInstead(dynamodb::error(400, "AccessDeniedException", "not authorized to CreateTable"));
    proxy.from_now_on(&Matcher::target("CreateTable"), denied.clone());
    let client = engine::client(&proxy.url());
    let error = DynamoDbStore::create_table(&client, TABLE, &DynamoDbOptions::new()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied, "no such table, and no right to make one: {error}");
    proxy.heal();
    proxy.from_now_on(&Matcher::target("CreateTable"), denied);
    let created = DynamoDbStore::create_table(&client, TABLE, &DynamoDbOptions::new()).await.unwrap();
    assert_eq!(created, leasehold_dynamodb::Created::Existed);
}
