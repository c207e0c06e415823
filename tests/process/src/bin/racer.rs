//! One process among several. `racer count STORE COUNTER LIMIT TTL_MS` counts with others up to the limit;
//! `racer late STORE COUNTER LIMIT TTL_MS` takes the lease, waits for a line on stdin, and then writes without asking.
//! STORE is `sqlite:PATH`, or `dynamodb:PREFIX@ENDPOINT` for keys with that prefix in the tests' table.

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::time::Duration;

use leasehold::{Clock as _, LeaseKey, LeaseOptions, Leases, SystemClock};
use leasehold_process_tests::{Counter, open_store};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [task, store, counter, limit, ttl] = &words[..] else {
        return Err("racer count|late STORE COUNTER LIMIT TTL_MS".into());
    };
    let options = LeaseOptions::builder().ttl(Duration::from_millis(ttl.parse()?)).build()?;
    let leases = Leases::new(open_store(store).await?, options)?;
    let counter = Counter::open(Path::new(counter))?;
    match task.as_str() {
        "count" => count(&leases, counter, limit.parse()?).await,
        "late" => write_late(&leases, counter).await,
        _ => Err("no such task".into()),
    }
}

async fn count(leases: &Leases, counter: Counter, limit: i64) -> Result<(), Box<dyn Error>> {
    let key = LeaseKey::new("counter")?;
    loop {
        let lease = leases.acquire(&key).await?;
        let token = lease.token();
        counter.claim(token)?.map_err(|_| "a fresh token is stale")?;
        let value = counter.value()?;
        if value < limit {
            // Whoever gets in between now would be overwritten.
            SystemClock.sleep(Duration::from_millis(1)).await;
            if !lease.is_held() {
                return Err("lost it: the machine is too slow for this ttl".into());
            }
            counter.set(value + 1, token)?.map_err(|_| "overtaken while it was held")?;
        }
        lease.release().await?;
        if value >= limit {
            return Ok(());
        }
    }
}

async fn write_late(leases: &Leases, counter: Counter) -> Result<(), Box<dyn Error>> {
    let lease = leases.acquire(&LeaseKey::new("counter")?).await?;
    counter.claim(lease.token())?.map_err(|_| "a fresh token is stale")?;
    let value = counter.value()?;
    say(&format!("held {}", lease.token()))?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let held = if lease.is_held() { "held" } else { "lost" };
    let written = if counter.set(value + 1, lease.token())?.is_ok() { "written" } else { "stale" };
    say(&format!("{held} {written}"))?;
    Ok(())
}

fn say(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}
