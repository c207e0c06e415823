//! Take a lease, work under it, give it back; and see what a second contender sees.
//!
//! `cargo run -p leasehold --example hold_a_lease`

use leasehold::{LeaseKey, LeaseOptions, Leases, MemoryStore, TryAcquire};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = MemoryStore::new();
    let leases = Leases::new(store.clone(), LeaseOptions::default())?;
    let key = LeaseKey::new("nightly-report")?;

    let lease = leases.acquire(&key).await?;
    println!("held with token {} for at least {:?}", lease.token(), lease.remaining());

    // Another process would have `Leases` of its own on the same store.
    let others = Leases::new(store, LeaseOptions::default())?;
    match others.try_acquire(&key).await? {
        TryAcquire::Acquired(_) => return Err("two hold one lease".into()),
        TryAcquire::Held(contention) => println!("the other sees it {contention}"),
    }

    // The work is stopped at its next await if the lease is lost.
    let view = lease.view();
    let outcome = lease
        .run(async move {
            for step in 1..=3 {
                // Before a step that cannot be taken back and that nothing fences: is there time for it?
                if !view.is_held() {
                    break;
                }
                println!("step {step} with token {}", view.token());
                tokio::task::yield_now().await;
            }
        })
        .await;
    match outcome {
        Ok(()) => println!("done"),
        Err(reason) => println!("stopped: {reason}"),
    }

    println!("{:?}", lease.release().await?);
    Ok(())
}
