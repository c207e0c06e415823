//! How long a key stands idle between two holders.
//!
//!     handover [--store memory|sqlite|dynamodb] [--rounds 60] [--kills 10]
//!
//! Release: from the call of `release` to the grant of another that waits. Kill: a process that holds the key is killed with
//! signal 9 at a random point of its second ttl; from the kill to the grant of
//!
//!     warm    a waiter that was waiting all the time,
//!     cold    a process that is started at the kill,
//!     late    a process that is started when the lease must be over: counted from its start.
//!
//! Without `--store`, all three; DynamoDB needs `localstack/up dynoxide`. Rounds run in lanes beside each other, a key each.
//! The ttl is 1 s on SQLite and 5 s on DynamoDB. Memory knows no second process.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{LeaseKey, LeaseOptions, LeaseStore, Leases, SystemClock};
use leasehold_benches::{
    Arguments, Failure, Figures, chance, endpoint, fresh_key, keep, machine, now, open, pause, spawn,
};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// How many rounds of the same kind run beside each other.
const LANES: usize = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read(include_str!("handover.rs"));
    // The helper process: `handover hold|take STORE KEY TTL_MS`.
    if let (Some("hold" | "take"), Some(store), Some(key), Some(ttl)) =
        (arguments.word(0), arguments.word(1), arguments.word(2), arguments.word(3))
    {
        let leases = leases(open(store).await?, Duration::from_millis(ttl.parse()?))?;
        let lease = leases.acquire(&LeaseKey::new(key)?).await?;
        println!("granted");
        if arguments.word(0) == Some("hold") {
            std::future::pending::<()>().await;
        }
        lease.release().await?;
        return Ok(());
    }

    let rounds = arguments.number("--rounds", 60)?;
    let kills = arguments.number("--kills", 10)?;
    println!("{}", machine());
    let folder = tempfile::tempdir()?;
    let stores = [
        ("memory", String::from("memory"), 30),
        ("sqlite", format!("sqlite:{}", folder.path().join("leases.db").display()), 1),
        ("dynamodb", format!("dynamodb:{}", endpoint()), 5),
    ];
    for (name, url, ttl) in stores {
        if arguments.text("--store").is_some_and(|wanted| wanted != name) {
            continue;
        }
        let ttl = Duration::from_secs(ttl);
        let mut figures = Map::new();
        let mut note = |what: &str, measured: &[Duration]| {
            let measured = Figures::ms(measured);
            println!("{name}, {what}, ms: {measured}");
            figures.insert(String::from(what), measured.json());
        };
        note("release", &released(&url, ttl, rounds).await?);
        if name != "memory" {
            for (what, who) in
                [("kill, warm", Who::Warm), ("kill, cold", Who::Cold), ("kill, late", Who::Late)]
            {
                note(what, &killed(&url, ttl, kills, who).await?);
            }
        }
        keep(
            &format!("handover-{name}"),
            json!({ "ttl_seconds": ttl.as_secs(), "ms": Value::from(figures) }),
        )?;
    }
    Ok(())
}

fn leases(store: Arc<dyn LeaseStore>, ttl: Duration) -> Result<Leases, Failure> {
    let options = LeaseOptions::builder().ttl(ttl).build()?;
    Ok(Leases::with_parts(store, options, Arc::new(SystemClock), Arc::new(leasehold::OsChance))?)
}

/// Runs `rounds` in lanes, and returns what each measured.
async fn in_lanes<F>(rounds: usize, round: impl Fn() -> F) -> Result<Vec<Duration>, Failure>
where
    F: Future<Output = Result<Duration, Failure>> + Send + 'static,
{
    let mut measured = Vec::new();
    while measured.len() < rounds {
        let lanes: Vec<_> = (0..LANES.min(rounds - measured.len())).map(|_| spawn(round())).collect();
        for lane in lanes {
            measured.push(lane.await??);
        }
    }
    Ok(measured)
}

async fn released(url: &str, ttl: Duration, rounds: usize) -> Result<Vec<Duration>, Failure> {
    // The memory store has one set of records; of the others each side opens its own.
    let store = open(url).await?;
    let other = if url == "memory" { Arc::clone(&store) } else { open(url).await? };
    let (holder, waiter) = (leases(store, ttl)?, leases(other, ttl)?);
    in_lanes(rounds, || {
        let (holder, waiter) = (holder.clone(), waiter.clone());
        async move {
            let key = fresh_key("release")?;
            let lease = holder.acquire(&key).await?;
            let waiting = spawn(async move { (waiter.acquire(&key).await, now()) });
            // Long enough that it waits, and at a random point between two of its reads.
            pause(Duration::from_millis(600) + Duration::from_millis(500).mul_f64(chance())).await;
            let began = now();
            lease.release().await?;
            let (next, granted) = waiting.await?;
            next?.release().await?;
            Ok(granted.saturating_duration_since(began))
        }
    })
    .await
}

/// Who takes the key after a kill.
#[derive(Clone, Copy)]
enum Who {
    Warm,
    Cold,
    Late,
}

async fn killed(url: &str, ttl: Duration, rounds: usize, who: Who) -> Result<Vec<Duration>, Failure> {
    let waiter = leases(open(url).await?, ttl)?;
    in_lanes(rounds, || {
        let (waiter, url) = (waiter.clone(), url.to_owned());
        async move {
            let key = fresh_key("kill")?;
            let (mut holder, mut lines) = process("hold", &url, &key, ttl)?;
            granted(&mut lines).await?;
            let waiting = matches!(who, Who::Warm).then(|| {
                let (waiter, key) = (waiter.clone(), key.clone());
                spawn(async move { (waiter.acquire(&key).await, now()) })
            });
            // Some renewals later, and at a random point between two of them.
            pause(ttl + ttl.mul_f64(chance())).await;
            let mut began = now();
            holder.kill().await?;
            if let Some(waiting) = waiting {
                let (next, at) = waiting.await?;
                next?.release().await?;
                return Ok(at.saturating_duration_since(began));
            }
            if matches!(who, Who::Late) {
                // The ttl, what the store waits beyond it, and a second.
                pause(ttl.mul_f64(1.1) + Duration::from_secs(6)).await;
                began = now();
            }
            let (_next, mut lines) = process("take", &url, &key, ttl)?;
            Ok(granted(&mut lines).await?.saturating_duration_since(began))
        }
    })
    .await
}

fn process(
    what: &str,
    url: &str,
    key: &LeaseKey,
    ttl: Duration,
) -> Result<(Child, Lines<BufReader<ChildStdout>>), Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([what, url, key.as_str(), &ttl.as_millis().to_string()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().ok_or("the helper has no output")?;
    Ok((child, BufReader::new(output).lines()))
}

async fn granted(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<Instant, Failure> {
    match lines.next_line().await? {
        Some(line) if line == "granted" => Ok(now()),
        other => Err(format!("the helper said {other:?}").into()),
    }
}
