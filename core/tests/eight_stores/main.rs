//! The trait fits: eight stores, each with its own way to lock, mapped onto [`LeaseStore`] in code that compiles.
//!
//! A design check, not adapters. Every vendor is a `Wire` trait with the requests that it offers, and a wire that is
//! unplugged answers none. What is shown is where each thing goes: whose clock, whose token, how many requests, what a grant
//! has to carry. The reasons are in `docs/adr/0001-one-trait-for-eight-stores.md`.

#![allow(dead_code, reason = "no wire answers, so what an answer is made of is never made")]

mod azure_blob;
mod dynamodb;
mod etcd;
mod mysql;
mod postgres;
mod redis;
mod sqlite;
mod zookeeper;

use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    AttemptId, FencingToken, Held, Holder, LeaseKey, LeaseStore, Nonce, Observation, OsChance, StoreError,
    StoreErrorKind,
};

type Answer<T> = Result<T, StoreError>;

/// A wire that leads nowhere.
#[derive(Debug)]
struct Unplugged;

fn nowhere<T>() -> Answer<T> {
    Err(StoreError::not_applied(StoreErrorKind::Unavailable, "the wire is unplugged"))
}

fn token(number: u64) -> Answer<FencingToken> {
    FencingToken::try_from(number).map_err(|error| {
        StoreError::not_applied(StoreErrorKind::Corrupt, "the token is none").with_source(error)
    })
}

fn observation(key: &LeaseKey, newest: Option<FencingToken>, held: Option<Held>) -> Observation {
    let mut seen = Observation::absent(key.clone());
    seen.token = newest;
    seen.held = held;
    seen
}

fn held(label: &str, token: FencingToken, ttl: Duration) -> Held {
    Held::new(Holder::from_record(label), token, ttl)
}

#[tokio::test]
async fn eight_stores_fit_behind_one_trait() {
    let stores: [Arc<dyn LeaseStore>; 8] = [
        Arc::new(sqlite::Store::new(Unplugged)),
        Arc::new(dynamodb::Store::new(Unplugged)),
        Arc::new(azure_blob::Store::new(Unplugged)),
        Arc::new(redis::Store::new(Unplugged)),
        Arc::new(etcd::Store::new(Unplugged)),
        Arc::new(zookeeper::Store::new(Unplugged)),
        Arc::new(postgres::Store::new(Unplugged)),
        Arc::new(mysql::Store::new(Unplugged)),
    ];
    let names: Vec<_> = stores.iter().map(|store| store.profile().name).collect();
    assert_eq!(names, ["sqlite", "dynamodb", "azblob", "redis", "etcd", "zookeeper", "postgres", "mysql"]);
    let key = LeaseKey::new("k").unwrap();
    for store in stores {
        let nonce = Nonce::draw(&OsChance).unwrap();
        let attempt = AttemptId::draw(&OsChance).unwrap();
        let ask = leasehold::AcquireRequest::new(key.clone(), nonce, attempt, Duration::from_secs(30));
        let error = store.acquire(&ask).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{}", store.profile().name);
    }
}
