//! Acquire and release, over and over, side by side with the public crates `dynamodb-lease` and `dlock` on one engine.
//!
//!     cycles [--rounds 20] [--batch 50] [--grants 1000]
//!
//! Needs `localstack/up dynoxide`. Each round runs a batch of every library, in another order each time, so that drift of the
//! machine hits all alike. All use clients of the same configuration, one thread, one key each, without contention. Wall and
//! processor time per cycle are those of this process; then requests are counted through a proxy, and so are the tokens that
//! each gave out. `store alone` is leasehold's store without a keeper.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TimeToLiveSpecification,
};
use dlock::{DLock, DynamodbProvider, Lease as _};
use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, LeaseKey, LeaseOptions, LeaseStore, Leases, Nonce, OsChance,
    ReleaseRequest,
};
use leasehold_benches::{
    Arguments, Failure, Figures, client, cpu, dynamodb, endpoint, fresh_key, keep, machine, now,
};
use leasehold_dynamodb::DynamoDbStore;
use leasehold_wire::Proxy;
use serde_json::{Map, json};

const TTL: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read(include_str!("cycles.rs"));
    let rounds = arguments.number("--rounds", 20)?;
    let batch = arguments.number("--batch", 50)?;
    let grants = arguments.number("--grants", 1000)?;
    println!("{}", machine());

    let libraries = all(&endpoint()).await?;
    let mut measured = vec![(Vec::new(), Vec::new()); libraries.len()];
    for library in &libraries {
        run(library, 20).await?;
    }
    for round in 0..rounds {
        for turn in 0..libraries.len() {
            let place = (round + turn) % libraries.len();
            let (used, began) = (cpu(), now());
            run(&libraries[place], batch).await?;
            let cycles = u32::try_from(batch)?;
            measured[place].0.push(began.elapsed() / cycles);
            measured[place].1.push((cpu() - used) / cycles);
        }
    }

    let proxy = Proxy::start(&endpoint()).await?;
    let counted = all(&proxy.url()).await?;
    let mut figures = Map::new();
    let ours = (Figures::ms(&measured[0].0).median(), Figures::ms(&measured[0].1).median());
    for (place, library) in libraries.iter().enumerate() {
        run(&counted[place], 1).await?;
        proxy.clear();
        run(&counted[place], 20).await?;
        let requests = f64::from(u32::try_from(proxy.requests().len())?) / 20.0;
        let (wall, used) = (Figures::ms(&measured[place].0), Figures::ms(&measured[place].1));
        let tokens = run(library, grants).await?;
        let growing =
            tokens.windows(2).filter(|pair| pair[0] < pair[1]).count() + usize::from(!tokens.is_empty());
        let distinct = tokens.iter().collect::<BTreeSet<_>>().len();
        let name = library.name();
        println!("{name}");
        println!("  wall per cycle, ms:      {wall}");
        println!("  processor per cycle, ms: {used}");
        println!(
            "  leasehold's medians over these: wall {:.3}, processor {:.3}",
            ours.0 / wall.median(),
            ours.1 / used.median()
        );
        println!("  requests per cycle: {requests}");
        if tokens.is_empty() {
            println!("  tokens: gives none");
        } else {
            println!(
                "  tokens in {grants} grants: {distinct} distinct, {growing} greater than the one before"
            );
        }
        figures.insert(
            String::from(name),
            json!({
                "wall_ms": wall.json(), "cpu_ms": used.json(), "requests": requests,
                "grants": grants, "distinct_tokens": distinct, "growing_tokens": growing,
            }),
        );
    }
    keep("cycles", json!({ "rounds": rounds, "batch": batch, "libraries": figures }))
}

/// One library, ready to take its key.
enum Library {
    Leasehold(Leases, LeaseKey),
    StoreAlone(DynamoDbStore, LeaseKey),
    DynamodbLease(dynamodb_lease::Client, String),
    Dlock(DLock<DynamodbProvider>),
}

impl Library {
    fn name(&self) -> &'static str {
        match self {
            Self::Leasehold(..) => "leasehold",
            Self::StoreAlone(..) => "leasehold, store alone",
            Self::DynamodbLease(..) => "dynamodb-lease 0.22.1",
            Self::Dlock(..) => "dlock 0.2.0",
        }
    }

    /// Takes the key, gives it back, and says which token there was, if any.
    async fn cycle(&self) -> Result<Option<u64>, Failure> {
        match self {
            Self::Leasehold(leases, key) => {
                let lease = leases.acquire(key).await?;
                let token = lease.token().get();
                lease.release().await?;
                Ok(Some(token))
            }
            Self::StoreAlone(store, key) => {
                let (nonce, attempt) = (Nonce::draw(&OsChance)?, AttemptId::draw(&OsChance)?);
                let ask = AcquireRequest::new(key.clone(), nonce, attempt, TTL);
                let AcquireOutcome::Granted(granted) = store.acquire(&ask).await? else {
                    return Err("the key is held by another".into());
                };
                store.release(&ReleaseRequest::of(&granted.grant)).await?;
                Ok(Some(granted.grant.token.get()))
            }
            Self::DynamodbLease(client, key) => {
                client.acquire(key.as_str()).await?.release().await?;
                Ok(None)
            }
            Self::Dlock(lock) => {
                let lease = lock.acquire().await.map_err(|error| error.to_string())?;
                lease.release().await.map_err(|error| error.to_string())?;
                Ok(Some(lease.token()))
            }
        }
    }
}

async fn run(library: &Library, cycles: usize) -> Result<Vec<u64>, Failure> {
    let mut tokens = Vec::new();
    for _ in 0..cycles {
        tokens.extend(library.cycle().await?);
    }
    Ok(tokens)
}

async fn all(endpoint: &str) -> Result<Vec<Library>, Failure> {
    let options = LeaseOptions::builder().ttl(TTL).build()?;
    let leases = Leases::new(dynamodb(endpoint, false).await?, options)?;
    let other = client(endpoint);
    table(&other, "benches-dynamodb-lease", "key", Some("lease_expiry")).await?;
    table(&other, "benches-dlock", DynamodbProvider::NAME_ATTRIBUTE, None).await?;
    let theirs = dynamodb_lease::Client::builder()
        .table_name("benches-dynamodb-lease")
        .lease_ttl_seconds(60)
        .build_and_check_db(other)
        .await?;
    let provider = DynamodbProvider::builder()
        .client(client(endpoint))
        .table_name(String::from("benches-dlock"))
        .build();
    let lock = DLock::builder()
        .name(fresh_key("cycles")?.as_str().to_owned())
        .owner(String::from("benches"))
        .duration(TTL)
        .provider(provider)
        .build();
    Ok(vec![
        Library::Leasehold(leases, fresh_key("cycles")?),
        Library::StoreAlone(dynamodb(endpoint, false).await?, fresh_key("cycles")?),
        Library::DynamodbLease(theirs, fresh_key("cycles")?.as_str().to_owned()),
        Library::Dlock(lock),
    ])
}

/// Makes a table as the other crates want theirs, if it is not there.
async fn table(client: &Client, name: &str, key: &str, ttl: Option<&str>) -> Result<(), Failure> {
    if client.describe_table().table_name(name).send().await.is_ok() {
        return Ok(());
    }
    let attribute =
        AttributeDefinition::builder().attribute_name(key).attribute_type(ScalarAttributeType::S).build()?;
    let schema = KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash).build()?;
    client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute)
        .key_schema(schema)
        .send()
        .await?;
    if let Some(ttl) = ttl {
        let specification = TimeToLiveSpecification::builder().enabled(true).attribute_name(ttl).build()?;
        client
            .update_time_to_live()
            .table_name(name)
            .time_to_live_specification(specification)
            .send()
            .await?;
    }
    Ok(())
}
