//! A disk that takes no more.

use std::env;
use std::path::Path;
use std::process::Command;

use leasehold::{LeaseStore, RenewOutcome, StoreErrorKind};
use leasehold_sqlite::SqliteStore;

use crate::rig::{TTL, ask, grant, key, renewal};

const FOLDER: &str = "LEASEHOLD_SQLITE_TEST_FOLDER";

/// Runs itself again, as a process whose files may not grow beyond 16 KiB: each write beyond fails in the kernel.
#[test]
fn a_write_that_the_kernel_refuses_loses_nothing() {
    if let Some(folder) = env::var_os(FOLDER) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        return runtime.block_on(with_files_that_may_not_grow(folder.as_ref()));
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", r#"trap '' XFSZ; ulimit -f 32; exec "$@""#, "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "disk::a_write_that_the_kernel_refuses_loses_nothing", "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn with_files_that_may_not_grow(folder: &Path) {
    let long = |number: usize| format!("{number}{}", "k".repeat(500));
    let store = SqliteStore::open(folder.join("leases.db")).await.unwrap();
    let mut kept = 0;
    let error = loop {
        match store.acquire(&ask(&long(kept), 1)).await {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 1_000, "the limit had no effect");
    };
    assert_eq!(
        (error.kind(), error.code()),
        (StoreErrorKind::Unavailable, Some("SQLITE_IOERR_WRITE")),
        "{error}"
    );
    assert!(error.to_string().contains("see the system's log"), "{error}");
    assert!(kept > 0);
    // What was granted is there, what failed is not, and what needs no more room goes on.
    for number in 0..kept {
        assert!(store.inspect(&key(&long(number)), TTL).await.unwrap().held.is_some());
    }
    assert_eq!(store.inspect(&key(&long(kept)), TTL).await.unwrap().token, None);
    let own = grant(&store, &long(0), 1).await;
    assert!(matches!(store.renew(&[renewal(&own)]).await[..], [Ok(RenewOutcome::Renewed(_))]));
}
