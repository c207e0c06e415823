//! What a step costs on this machine: `cargo run --release -p leasehold-sqlite --example cost [FOLDER]`.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, Clock, LeaseKey, LeaseStore, Nonce, OsChance, ReleaseRequest,
    RenewOutcome, RenewRequest, SystemClock,
};
use leasehold_sqlite::SqliteStore;

const ROUNDS: u32 = 500;
const BATCH: u32 = 100;
const TTL: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).map_or_else(env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(folder)?;
    let store = SqliteStore::open(folder.path().join("leases.db")).await?;
    let clock = SystemClock;
    let key = LeaseKey::new("cost")?;
    let (mut acquire, mut renew, mut release, mut inspect) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let ask = request(key.clone())?;
        let began = clock.read().monotonic;
        let AcquireOutcome::Granted(granted) = store.acquire(&ask).await? else { return Err("held".into()) };
        acquire.push(clock.read().monotonic - began);

        let began = clock.read().monotonic;
        let answers = store.renew(&[RenewRequest::new(granted.grant.clone(), ask.attempt, TTL)]).await;
        renew.push(clock.read().monotonic - began);
        assert!(matches!(answers[..], [Ok(RenewOutcome::Renewed(_))]), "{answers:?}");

        let began = clock.read().monotonic;
        store.inspect(&key, TTL).await?;
        inspect.push(clock.read().monotonic - began);

        let began = clock.read().monotonic;
        store.release(&ReleaseRequest::of(&granted.grant)).await?;
        release.push(clock.read().monotonic - began);
    }
    for (name, times) in [("acquire", acquire), ("renew", renew), ("release", release), ("inspect", inspect)]
    {
        print(name, times);
    }
    print(&format!("renew of {BATCH} in one batch"), batches(&store, &clock).await?);
    Ok(())
}

async fn batches(store: &SqliteStore, clock: &SystemClock) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut asks = Vec::new();
    for number in 0..BATCH {
        let ask = request(LeaseKey::new(format!("cost/{number}"))?)?;
        let AcquireOutcome::Granted(granted) = store.acquire(&ask).await? else { return Err("held".into()) };
        asks.push(RenewRequest::new(granted.grant, ask.attempt, TTL));
    }
    let mut times = Vec::new();
    for _ in 0..50 {
        let began = clock.read().monotonic;
        let answers = store.renew(&asks).await;
        times.push(clock.read().monotonic - began);
        for (ask, answer) in asks.iter_mut().zip(answers) {
            let RenewOutcome::Renewed(granted) = answer? else { return Err("lost".into()) };
            ask.grant = granted.grant;
        }
    }
    Ok(times)
}

fn request(key: LeaseKey) -> Result<AcquireRequest, Box<dyn Error>> {
    let chance = OsChance;
    Ok(AcquireRequest::new(key, Nonce::draw(&chance)?, AttemptId::draw(&chance)?, TTL))
}

fn print(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("{name}: median {:.0?}, p99 {:.0?}, {} times", at(50), at(99), times.len());
}
