//! Holds many leases for a while in one process, on one thread, and measures what that costs.
//!
//!     many_leases [--store memory|dynamodb] [--leases 10000] [--seconds 70] [--batches]
//!
//! Prints the heap per lease (what the program asked the allocator for, guards and the store's records included), the share of
//! one core, how evenly renewals are spread, and how many go in one request. `--batches`, on DynamoDB, sends renewals that are
//! due together in one request. The ttl is 30 s. Renewals count as spread after two thirds of it.

use std::alloc::System;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, Finding, Lease, LeaseKey, LeaseOptions, LeaseStore, Leases,
    MemoryStore, Nonce, Observation, OsChance, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest,
    StoreError, StoreProfile, SystemClock,
};
use leasehold_benches::{Arguments, Failure, cpu, dynamodb, endpoint, keep, machine, now, pause};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TTL: Duration = Duration::from_secs(30);

/// Renewals are noted by the 10 ms in which they reached the store.
const SLOT_MS: u128 = 10;

/// 100 ms, in slots.
const WINDOW: usize = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read(include_str!("many_leases.rs"));
    let count = arguments.number("--leases", 10_000)?;
    let seconds = arguments.number("--seconds", 70)?;
    let on_dynamodb = arguments.text("--store") == Some("dynamodb");
    let batches = arguments.flag("--batches");
    println!("{}", machine());

    let store: Arc<dyn LeaseStore> = if on_dynamodb {
        Arc::new(dynamodb(&endpoint(), batches).await?)
    } else {
        println!("heap per record of the memory store alone: {} bytes", record_alone(count).await?);
        Arc::new(MemoryStore::new())
    };
    let counting = Arc::new(Counting::new(store, seconds));
    let options = LeaseOptions::builder().ttl(TTL).build()?;
    let store: Arc<dyn LeaseStore> = Arc::clone(&counting) as _;
    let leases = Leases::with_parts(store, options, Arc::new(SystemClock), Arc::new(OsChance))?;

    let keys = (0..count)
        .map(|number| LeaseKey::new(format!("many/{}/{number}", std::process::id())))
        .collect::<Result<Vec<_>, _>>()?;
    let (heap_before, resident_before) = (live(), resident_kb());
    let began = now();
    let held = take_all(&leases, &keys).await?;
    println!("{count} leases taken in {:.2?}", began.elapsed());

    let (mut heap, mut cpu_when_spread, mut spread_at) = (Vec::new(), Duration::ZERO, began);
    let spread_after = TTL * 2 / 3;
    let spread_slot = counting.slot() + usize::try_from(spread_after.as_millis() / SLOT_MS)?;
    let mut requests_when_spread = 0;
    let mut renewals_when_spread = 0;
    let cpu_taken = cpu();
    let taken = now();
    while began.elapsed() < Duration::from_secs(u64::try_from(seconds)?) {
        pause(Duration::from_secs(1)).await;
        heap.push(live().saturating_sub(heap_before));
        if spread_at == began && taken.elapsed() >= spread_after {
            (cpu_when_spread, spread_at) = (cpu(), now());
            requests_when_spread = counting.requests.load(Ordering::Relaxed);
            renewals_when_spread = counting.renewals.load(Ordering::Relaxed);
        }
    }
    let share = percent(cpu().saturating_sub(cpu_when_spread), spread_at.elapsed());
    let share_all = percent(cpu().saturating_sub(cpu_taken), taken.elapsed());
    let minutes = spread_at.elapsed().as_secs_f64() / 60.0;
    let requests = counting.requests.load(Ordering::Relaxed) - requests_when_spread;
    let renewals = counting.renewals.load(Ordering::Relaxed) - renewals_when_spread;
    let refused = counting.refused.load(Ordering::Relaxed);
    let lost = held.iter().filter(|lease| !lease.is_held()).count();
    let per_lease = |bytes: usize| bytes / count.max(1);
    let (first, most) = (heap.first().copied().unwrap_or(0), heap.iter().copied().max().unwrap_or(0));
    let resident = resident_kb().saturating_sub(resident_before);
    let aligned = counting.busiest(spread_slot, spread_slot, WINDOW);
    let sliding = counting.busiest(spread_slot, spread_slot, 1);
    let from_the_start = counting.busiest(0, spread_slot, WINDOW);

    println!(
        "heap per lease, records included: {} bytes at first, {} at most",
        per_lease(first),
        per_lease(most)
    );
    println!("resident memory per lease: {} bytes", resident * 1024 / count.max(1));
    println!("share of one core: {share:.2} % once spread, {share_all:.2} % since all were taken");
    println!(
        "busiest 100 ms of renewals / mean, once spread: {aligned:.3} (windows side by side), {sliding:.3} (every window, in steps of 10 ms)"
    );
    println!("the same since the first grant, over the mean once spread: {from_the_start:.3}");
    let per_request = ratio(renewals, requests);
    println!("renewals per request: {per_request:.2}");
    println!(
        "per minute: {:.0} renewals in {:.0} requests; write units, one for each renewal: {:.0}",
        as_f64(renewals) / minutes,
        as_f64(requests) / minutes,
        as_f64(renewals) / minutes,
    );
    println!("leases lost: {lost}; renewals that the store did not grant: {refused}");
    let name = match (on_dynamodb, batches) {
        (false, _) => "many_leases-memory",
        (true, false) => "many_leases-dynamodb",
        (true, true) => "many_leases-dynamodb-batches",
    };
    keep(
        name,
        json!({
            "leases": count, "seconds": seconds, "heap_per_lease_first": per_lease(first),
            "heap_per_lease_most": per_lease(most), "core_share_percent": share, "busiest_over_mean": aligned,
            "busiest_over_mean_sliding": sliding, "busiest_over_mean_from_the_start": from_the_start,
            "renewals_per_request": per_request, "renewals_per_minute": as_f64(renewals) / minutes,
            "requests_per_minute": as_f64(requests) / minutes, "lost": lost, "refused": refused,
        }),
    )
}

async fn take_all(leases: &Leases, keys: &[LeaseKey]) -> Result<Vec<Lease>, Failure> {
    let mut held = Vec::with_capacity(keys.len());
    for key in keys {
        held.push(leases.acquire(key).await?);
    }
    Ok(held)
}

/// What the records alone take, without anybody who keeps them.
async fn record_alone(count: usize) -> Result<usize, Failure> {
    let before = live();
    let store = MemoryStore::new();
    for number in 0..count {
        let key = LeaseKey::new(format!("many/{}/{number}", std::process::id()))?;
        let ask = AcquireRequest::new(key, Nonce::draw(&OsChance)?, AttemptId::draw(&OsChance)?, TTL);
        store.acquire(&ask).await?;
    }
    Ok(live().saturating_sub(before) / count.max(1))
}

fn live() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

fn resident_kb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn percent(part: Duration, whole: Duration) -> f64 {
    100.0 * part.as_secs_f64() / whole.as_secs_f64()
}

fn as_f64(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn ratio(part: u64, whole: u64) -> f64 {
    as_f64(part) / as_f64(whole.max(1))
}

/// A store that counts what it is asked for.
#[derive(Debug)]
struct Counting {
    store: Arc<dyn LeaseStore>,
    began: Instant,
    slots: Mutex<Vec<u32>>,
    requests: AtomicU64,
    renewals: AtomicU64,
    refused: AtomicU64,
}

impl Counting {
    fn new(store: Arc<dyn LeaseStore>, seconds: usize) -> Self {
        Self {
            store,
            began: now(),
            // Made now, so that it is no heap of the leases; with room for the time that taking them needs.
            slots: Mutex::new(vec![0; (seconds + 120) * 100]),
            requests: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    fn slot(&self) -> usize {
        usize::try_from(self.began.elapsed().as_millis() / SLOT_MS).unwrap_or(usize::MAX)
    }

    /// The busiest 100 ms from the slot `from` on, over the mean from the slot `spread` on. A window begins every `step` slots.
    fn busiest(&self, from: usize, spread: usize, step: usize) -> f64 {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let until = self.slot().min(slots.len());
        let seen = slots.get(from..until).unwrap_or_default();
        let evenly = slots.get(spread..until).unwrap_or_default();
        let busiest = seen.windows(WINDOW).step_by(step).map(|window| window.iter().sum::<u32>()).max();
        let length = f64::from(u32::try_from(evenly.len().max(1)).unwrap_or(u32::MAX));
        let mean_slot = f64::from(evenly.iter().sum::<u32>()) / length;
        f64::from(busiest.unwrap_or(0)) / (mean_slot * f64::from(u32::try_from(WINDOW).unwrap_or(1)))
    }
}

#[async_trait]
impl LeaseStore for Counting {
    fn profile(&self) -> &StoreProfile {
        self.store.profile()
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        self.store.check().await
    }

    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.store.acquire(ask).await
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let (slot, count) = (self.slot(), u32::try_from(asks.len()).unwrap_or(u32::MAX));
        if let Some(slot) = self.slots.lock().unwrap_or_else(PoisonError::into_inner).get_mut(slot) {
            *slot += count;
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.renewals.fetch_add(u64::from(count), Ordering::Relaxed);
        let answers = self.store.renew(asks).await;
        let refused = answers.iter().filter(|answer| !matches!(answer, Ok(RenewOutcome::Renewed(_)))).count();
        self.refused.fetch_add(u64::try_from(refused).unwrap_or(0), Ordering::Relaxed);
        answers
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        self.store.release(ask).await
    }

    async fn inspect(&self, key: &LeaseKey, timeout: Duration) -> Result<Observation, StoreError> {
        self.store.inspect(key, timeout).await
    }
}
