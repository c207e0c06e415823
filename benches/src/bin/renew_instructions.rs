//! Instructions of one renewal through the whole stack, against the bare SDK call with the same expression.
//!
//!     renew_instructions [--count 200] [--repeat 3]
//!
//! Needs valgrind. Runs itself under callgrind with N and with 2N renewals, on one thread, and divides the difference by N, so
//! that what happens once does not count. A responder in a process of its own answers every request with the same bytes. Each
//! kind is measured `--repeat` times:
//!
//!     bare        the SDK's `UpdateItem`, as a client comes
//!     bare-once   the same without the SDK's retries, as leasehold's client is
//!     store       `DynamoDbStore::renew`
//!     manual      `ManualLease::renew`: core, then the store
//!
//! Then the same kinds without valgrind: processor time per renewal, in alternating batches.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, Grant, LeaseKey, LeaseOptions, LeaseStore, ManualLease,
    ManualLeases, Nonce, OsChance, RenewOutcome, RenewRequest,
};
use leasehold_benches::{Arguments, Failure, Figures, client, cpu, keep, machine, spawn};
use leasehold_dynamodb::DynamoDbStore;
use serde_json::{Map, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const KINDS: [&str; 4] = ["bare", "bare-once", "store", "manual"];

const TTL: Duration = Duration::from_secs(24 * 60 * 60);

const TABLE: &str = "canned";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read(include_str!("renew_instructions.rs"));
    match (arguments.word(0), arguments.word(1), arguments.word(2), arguments.word(3)) {
        (Some("respond"), ..) => return respond().await,
        (Some("run"), Some(kind), Some(count), Some(endpoint)) => {
            return renew(&mut Kind::new(kind, endpoint).await?, count.parse()?).await;
        }
        _ => {}
    }

    let count = arguments.number("--count", 200)?;
    let repeat = arguments.number("--repeat", 3)?;
    println!("{}", machine());
    let mut responder = Command::new(std::env::current_exe()?)
        .arg("respond")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = responder.stdout.take().ok_or("the responder has no output")?;
    let endpoint = BufReader::new(output).lines().next_line().await?.ok_or("the responder has ended")?;

    let mut measured = Vec::new();
    for kind in KINDS {
        let mut each = Vec::new();
        for _ in 0..repeat {
            let (once, twice) = (
                instructions(kind, count, &endpoint).await?,
                instructions(kind, 2 * count, &endpoint).await?,
            );
            each.push((twice - once) / f64::from(u32::try_from(count)?));
        }
        measured.push(Figures::new(each));
    }
    let used = processor(&endpoint).await?;
    let mut figures = Map::new();
    for ((kind, instructions), used) in KINDS.into_iter().zip(&measured).zip(&used) {
        let more = 100.0 * (instructions.median() / measured[0].median() - 1.0);
        println!("{kind}: instructions per renewal: {instructions}, {more:+.2} % against bare");
        println!("{kind}: processor per renewal, ms: {used}");
        figures.insert(
            String::from(kind),
            json!({ "instructions": instructions.json(), "percent_more": more, "cpu_ms": used.json() }),
        );
    }
    keep("renew_instructions", json!({ "count": count, "kinds": figures }))
}

/// All instructions of a run with so many renewals.
async fn instructions(kind: &str, count: usize, endpoint: &str) -> Result<f64, Failure> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["run", kind, &count.to_string(), endpoint])
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    match collected.and_then(|(_, number)| number.trim().parse().ok()) {
        Some(number) if output.status.success() => Ok(number),
        _ => Err(format!("valgrind did not count: {said}").into()),
    }
}

/// Processor time per renewal, in batches that alternate between the kinds.
async fn processor(endpoint: &str) -> Result<Vec<Figures>, Failure> {
    const BATCH: u32 = 500;
    let mut kinds = Vec::new();
    for kind in KINDS {
        kinds.push((Kind::new(kind, endpoint).await?, Vec::new()));
    }
    // A multiple of the number of kinds, so that they end in their order.
    for round in 0..12 {
        for (kind, used) in &mut kinds {
            let before = cpu();
            renew(kind, BATCH).await?;
            // The first round warms up.
            if round > 0 {
                used.push((cpu() - before) / BATCH);
            }
        }
        kinds.rotate_left(1);
    }
    Ok(kinds.iter().map(|(_, used)| Figures::ms(used)).collect())
}

/// Somebody who renews.
enum Kind {
    Bare(Client, Grant),
    Store(DynamoDbStore, Grant),
    Manual(ManualLease),
}

impl Kind {
    async fn new(kind: &str, endpoint: &str) -> Result<Self, Failure> {
        let client = client(endpoint);
        let key = LeaseKey::new("renewed")?;
        let store = DynamoDbStore::open(client.clone(), TABLE).await?;
        let ask = AcquireRequest::new(key.clone(), Nonce::draw(&OsChance)?, AttemptId::draw(&OsChance)?, TTL);
        let AcquireOutcome::Granted(granted) = store.acquire(&ask).await? else {
            return Err("the responder grants every key".into());
        };
        match kind {
            "bare" => Ok(Self::Bare(client, granted.grant)),
            "bare-once" => {
                let once = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
                Ok(Self::Bare(Client::from_conf(once), granted.grant))
            }
            "store" => Ok(Self::Store(store, granted.grant)),
            "manual" => {
                let leases = ManualLeases::new(store, LeaseOptions::builder().ttl(TTL).build()?)?;
                let lease = leases.try_acquire(&key).await?.acquired();
                Ok(Self::Manual(lease.ok_or("the responder grants every key")?))
            }
            other => Err(format!("no such kind: {other}").into()),
        }
    }
}

async fn renew(kind: &mut Kind, count: u32) -> Result<(), Failure> {
    for _ in 0..count {
        match kind {
            Kind::Bare(client, grant) => {
                bare(client, grant).await?;
                *grant = grant.clone().with_seq(grant.seq + 1);
            }
            Kind::Store(store, grant) => {
                let ask = RenewRequest::new(grant.clone(), AttemptId::draw(&OsChance)?, TTL);
                match store.renew(&[ask]).await.pop() {
                    Some(Ok(RenewOutcome::Renewed(granted))) => *grant = granted.grant,
                    other => return Err(format!("not renewed: {other:?}").into()),
                }
            }
            Kind::Manual(lease) => lease.renew().await.map(drop)?,
        }
    }
    Ok(())
}

/// The request that the store sends, word for word, by hand.
async fn bare(client: &Client, grant: &Grant) -> Result<(), Failure> {
    let number = |number: u64| AttributeValue::N(number.to_string());
    let names = [
        ("#a", "attempt"),
        ("#b", "break_requested"),
        ("#d", "duration_ms"),
        ("#e", "expires_at"),
        ("#n", "nonce"),
        ("#s", "seq"),
        ("#v", "version"),
        ("#z", "schema"),
    ];
    let values = [
        (":a", number(AttemptId::draw(&OsChance)?.get())),
        (":s", number(grant.seq + 1)),
        (":d", number(u64::try_from(TTL.as_millis())?)),
        (":z", number(1)),
        (":n", AttributeValue::S(String::from("0123456789abcdef0123456789abcdef"))),
        (":v", number(grant.token.get())),
        (":seen_s", number(grant.seq)),
        (":e", number(1_796_056_775_000 + grant.seq)),
    ];
    let owned = |(name, value): (&str, &str)| (String::from(name), String::from(value));
    let key = HashMap::from([(String::from("pk"), AttributeValue::S(String::from(grant.key.as_str())))]);
    client
        .update_item()
        .table_name(TABLE)
        .set_key(Some(key))
        .update_expression("SET #a = :a, #s = :s, #d = :d, #e = :e")
        .condition_expression("#z = :z AND #n = :n AND #v = :v AND #s = :seen_s AND attribute_not_exists(#b)")
        .set_expression_attribute_names(Some(names.into_iter().map(owned).collect()))
        .set_expression_attribute_values(Some(
            values.into_iter().map(|(name, value)| (String::from(name), value)).collect(),
        ))
        .return_values(ReturnValue::None)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await?;
    Ok(())
}

/// Answers every request as a service does that grants everything, and prints where.
async fn respond() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that breaks off is nobody's loss.
        drop(spawn(serve(stream)));
    }
}

async fn serve(stream: TcpStream) -> Result<(), Failure> {
    const DESCRIPTION: &str = r#"{"Table":{"TableName":"canned","TableStatus":"ACTIVE","DeletionProtectionEnabled":true,"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}]}}"#;
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut describe) = (0, false);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            describe |= line.ends_with(".describetable");
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let body = if describe { DESCRIPTION } else { "{}" };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nServer: canned\r\nDate: {}\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\nConnection: keep-alive\r\nx-amzn-RequestId: 0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123\r\nx-amz-crc32: {}\r\n\r\n{body}",
            date(),
            body.len(),
            if describe { 0 } else { 2_745_614_147_u32 },
        );
        let answer = if describe { answer.replace("x-amz-crc32: 0\r\n", "") } else { answer };
        stream.get_mut().write_all(answer.as_bytes()).await?;
    }
}

/// The time as HTTP writes it.
fn date() -> String {
    use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
    let wall = leasehold::Clock::read(&leasehold::SystemClock).wall;
    let seconds = i64::try_from(wall.as_secs()).unwrap_or(0);
    DateTime::from_secs(seconds).fmt(DateTimeFormat::HttpDate).unwrap_or_default()
}
