//! The order in which a service stops: no new work, end the work, give the leases back, within a bounded time.
//!
//! `cargo run -p leasehold --example shut_down_cleanly`

use std::time::Duration;

use leasehold::{LeaseKey, LeaseOptions, Leases, LostReason, MemoryStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = MemoryStore::new();
    let leases = Leases::new(store.clone(), LeaseOptions::default())?;

    let mut workers = Vec::new();
    for name in ["invoices", "reminders", "statements"] {
        let key = LeaseKey::new(name)?;
        let lease = leases.acquire(&key).await?;
        println!("{name}: token {}", lease.token());
        workers.push(async move {
            // What `run` runs is dropped at its current await when the lease ends, here by the shutdown.
            match lease.run(std::future::pending::<()>()).await {
                Ok(()) => println!("{}: finished", lease.key()),
                Err(LostReason::Released) => println!("{}: stopped for the shutdown", lease.key()),
                Err(reason) => println!("{}: stopped: {reason}", lease.key()),
            }
        });
    }

    let service = async {
        futures_util::future::join_all(workers).await;
    };
    let stop = async {
        // In a service this waits for SIGTERM. Each lease is released when its work has ended.
        leases.shutdown(Duration::from_secs(5)).await
    };
    let ((), stopped) = tokio::join!(service, stop);
    match stopped {
        Ok(()) => println!("every lease was given back"),
        Err(error) => println!("{error}"),
    }

    // The next process need not wait for anything to expire.
    let next = Leases::new(store, LeaseOptions::default())?;
    assert!(next.try_acquire(&LeaseKey::new("invoices")?).await?.acquired().is_some());
    Ok(())
}
