//! The engines that answer as DynamoDB, and a table on each.
//!
//! A test that needs one is ignored in a bare `cargo test`, and fails with the command that starts it when there is none.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "helpers; each test file uses its part")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, Clock, FencingToken, Grant, LeaseKey, LeaseStore, Nonce,
    OsChance, Reading, Sleep, SystemClock,
};
use leasehold_dynamodb::{DynamoDbOptions, DynamoDbStore};

pub const TABLE: &str = "leasehold-tests";

pub const TTL: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Dynoxide,
    LocalStack,
    Ministack,
}

impl Engine {
    pub fn endpoint(self) -> String {
        let (variable, port_variable, port) = match self {
            Self::Dynoxide => ("LEASEHOLD_DYNOXIDE_ENDPOINT", "LEASEHOLD_DYNOXIDE_PORT", "8000"),
            Self::LocalStack => ("LEASEHOLD_LOCALSTACK_ENDPOINT", "LEASEHOLD_LOCALSTACK_PORT", "4566"),
            Self::Ministack => ("LEASEHOLD_MINISTACK_ENDPOINT", "LEASEHOLD_MINISTACK_PORT", "4567"),
        };
        std::env::var(variable).unwrap_or_else(|_| {
            let port = std::env::var(port_variable).unwrap_or_else(|_| String::from(port));
            format!("http://127.0.0.1:{port}")
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dynoxide => "dynoxide",
            Self::LocalStack => "localstack",
            Self::Ministack => "ministack",
        }
    }

    /// A client of this engine, with the table made.
    pub async fn client(self) -> Client {
        let client = client(&self.endpoint());
        if let Err(error) = DynamoDbStore::create_table(&client, TABLE, &DynamoDbOptions::new()).await {
            panic!(
                "no {0} at {1}: start it with `localstack/up {0}` ({error})",
                self.name(),
                self.endpoint()
            );
        }
        client
    }

    pub async fn store(self) -> DynamoDbStore {
        DynamoDbStore::open(self.client().await, TABLE).await.unwrap()
    }
}

/// A client as a user would configure it, retries and all.
pub fn client(endpoint: &str) -> Client {
    client_in(endpoint, "eu-west-1")
}

pub fn client_in(endpoint: &str, region: &str) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(String::from(region)))
        .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
        .endpoint_url(endpoint)
        .build();
    Client::from_conf(config)
}

/// A key that no other test has.
pub fn fresh_key(name: &str) -> LeaseKey {
    let salt = AttemptId::draw(&OsChance).unwrap().get();
    LeaseKey::new(format!("{name}/{salt:x}")).unwrap()
}

pub fn ask(key: &LeaseKey) -> AcquireRequest {
    let nonce = Nonce::draw(&OsChance).unwrap();
    AcquireRequest::new(key.clone(), nonce, attempt(), TTL)
}

pub fn attempt() -> AttemptId {
    AttemptId::draw(&OsChance).unwrap()
}

/// The same logical request once more.
pub fn again(ask: &AcquireRequest) -> AcquireRequest {
    let mut again = ask.clone();
    again.attempt = attempt();
    again
}

pub async fn granted(store: &impl LeaseStore, ask: &AcquireRequest) -> Grant {
    match store.acquire(ask).await.unwrap() {
        AcquireOutcome::Granted(granted) => granted.grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// The item of a lease, behind the adapter's back.
pub async fn item(client: &Client, key: &LeaseKey) -> Option<HashMap<String, AttributeValue>> {
    let request = client.get_item().table_name(TABLE).key("pk", text(key.as_str())).consistent_read(true);
    request.send().await.unwrap().item
}

pub async fn put(client: &Client, key: &LeaseKey, attributes: &[(&str, AttributeValue)]) {
    let mut request = client.put_item().table_name(TABLE).item("pk", text(key.as_str()));
    for (name, value) in attributes {
        request = request.item(*name, value.clone());
    }
    request.send().await.unwrap();
}

pub async fn set(client: &Client, key: &LeaseKey, name: &str, value: AttributeValue) {
    let request = client
        .update_item()
        .table_name(TABLE)
        .key("pk", text(key.as_str()))
        .update_expression("SET #a = :a")
        .expression_attribute_names("#a", name)
        .expression_attribute_values(":a", value);
    request.send().await.unwrap();
}

pub fn number_of(item: &HashMap<String, AttributeValue>, name: &str) -> Option<u64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

pub async fn stored_token(client: &Client, key: &LeaseKey) -> Option<FencingToken> {
    let item = item(client, key).await?;
    Some(FencingToken::try_from(number_of(&item, "version").unwrap()).unwrap())
}

/// Moves the expiry of the grant back.
pub async fn age(client: &Client, key: &LeaseKey, by: Duration) {
    let item = item(client, key).await.unwrap();
    let expires_at = number_of(&item, "expires_at").unwrap();
    let aged = expires_at.saturating_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX));
    set(client, key, "expires_at", number(aged)).await;
}

/// Makes the grant one of a minute ago, whose ttl has passed.
pub async fn make_old(client: &Client, key: &LeaseKey) {
    let version = stored_token(client, key).await.unwrap().get();
    set(client, key, "version", number(version - 60_000)).await;
    age(client, key, 2 * TTL).await;
}

pub fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub fn text(text: &str) -> AttributeValue {
    AttributeValue::S(String::from(text))
}

/// The clocks of this machine, with a wall clock that is off, and all of them movable.
#[derive(Debug, Default)]
pub struct OffClock {
    wall_off_seconds: Mutex<i64>,
    ahead: Mutex<Duration>,
}

impl OffClock {
    pub fn off_by(seconds: i64) -> Arc<Self> {
        let clock = Self::default();
        *clock.wall_off_seconds.lock().unwrap() = seconds;
        Arc::new(clock)
    }

    pub fn jump_wall_to(&self, seconds: i64) {
        *self.wall_off_seconds.lock().unwrap() = seconds;
    }

    pub fn advance(&self, by: Duration) {
        *self.ahead.lock().unwrap() += by;
    }
}

impl Clock for OffClock {
    fn read(&self) -> Reading {
        let (now, ahead) = (SystemClock.read(), *self.ahead.lock().unwrap());
        let off = *self.wall_off_seconds.lock().unwrap();
        let wall = now.wall + ahead;
        let wall = Duration::new(wall.as_secs().saturating_add_signed(off), wall.subsec_nanos());
        Reading { monotonic: now.monotonic + ahead, boot: now.boot + ahead, wall }
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        SystemClock.sleep(duration)
    }
}
