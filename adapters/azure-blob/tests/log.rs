//! What is logged. A test program of its own, since it takes the one logger that a process has.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod azurite;

use std::io;
use std::sync::{Arc, Mutex};

use azurite::{NAME, TTL, account, ask, attempt, fresh_key, granted, server, signature};
use leasehold::{AcquireOutcome, LeaseStore, ReleaseRequest, RenewRequest};
use leasehold_azure_blob::{Account, AzureBlobOptions, AzureBlobStore};
use tracing_subscriber::filter::LevelFilter;

/// Whatever anybody logs, at every level.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn no_secret_is_logged() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(move || writer.clone()).init();
    azurite::container("tests-log").await;

    let sas = signature("racwl");
    let by_signature =
        Account::sas(NAME, &sas).unwrap().with_endpoint(&format!("{}/{NAME}", server())).unwrap();
    let mut secrets = vec![String::from(&sas[sas.find("sig=").unwrap() + 4..])];
    for account in [by_signature, account()] {
        let store = AzureBlobStore::open(account, "tests-log", AzureBlobOptions::new()).await.unwrap();
        let key = fresh_key("log");
        let grant = granted(&store, &ask(&key)).await.grant;
        let contended = store.acquire(&ask(&key)).await;
        assert!(!matches!(contended, Ok(AcquireOutcome::Granted(_))), "{contended:?}");
        store.renew(&[RenewRequest::new(grant.clone(), attempt(), TTL)]).await.remove(0).unwrap();
        store.release(&ReleaseRequest::of(&grant)).await.unwrap();
        let id = grant.nonce.expose_hex();
        secrets.extend([String::from(&id[..8]), String::from(&id[20..])]);
    }
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("x-ms-lease-action"), "the vendor's requests are in the log: {logged}");
    for secret in secrets {
        assert!(!logged.contains(&secret), "{secret} is logged");
    }
    assert!(!logged.contains("SharedKey devstoreaccount1:"), "a request's signature is logged");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
