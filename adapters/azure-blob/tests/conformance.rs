//! The contract, clause by clause, on Azurite.
//!
//! A native lease cannot be made older from outside, so its cases wait, for up to 45 s each. Side by side that is a minute together:
//! `cargo test -p leasehold-azure-blob --test conformance -- --ignored --test-threads 20`. Where a case needs a grant that is over,
//! its lease is broken. In record mode the service's clock is moved: between the emulator and the store, for each blob by itself.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod azurite;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use azurite::{account, ask, blob, end_lease, raw, stored_token};
use leasehold::{
    AcquireOutcome, BreakHow, Clock, FencingToken, LeaseAdmin, LeaseKey, LeaseStore, SystemClock,
};
use leasehold_azure_blob::port::{BlobPort, Call, Fault, Page, Reply};
use leasehold_azure_blob::{AzureBlobOptions, AzureBlobStore, AzureClient, Mode, TokenSource};
use leasehold_conformance::{Harness, Impossible, async_trait};

mod metadata_token {
    use super::Azurite;
    leasehold_conformance::suite!(#[ignore = "needs Azurite: localstack/up azurite"] Azurite::leasing("conf-lease", |o| o).await, without admin);
    super::native_admin_cases!(Azurite::leasing("conf-lease", |o| o).await);
}

mod page_blob_token {
    use super::{Azurite, TokenSource};
    leasehold_conformance::suite!(#[ignore = "needs Azurite: localstack/up azurite"] Azurite::leasing("conf-page", |o| o.with_token_source(TokenSource::PageBlob)).await, without admin);
    super::native_admin_cases!(
        Azurite::leasing("conf-page", |o| o.with_token_source(TokenSource::PageBlob)).await
    );
}

mod record_mode {
    use super::Azurite;
    leasehold_conformance::suite!(
        #[ignore = "needs Azurite: localstack/up azurite"]
        Azurite::recording("conf-record").await
    );
}

/// The cases of an operator that hold for native leases: all but those that seal a key while it is held, which the service
/// does not let anybody do.
macro_rules! native_admin_cases {
    ($harness:expr) => {
        super::native_admin_cases! { [$harness]
            c02_tokens_grow_over_a_graceful_break
            c02_tokens_grow_over_an_immediate_break
            c02_tokens_grow_over_a_raised_floor
            c05_a_renewal_after_an_immediate_break_is_broken
            c05_a_renewal_after_a_graceful_break_is_broken_and_the_key_is_still_held
            c06_a_release_after_a_graceful_break_frees_the_key
            c06_a_release_after_an_immediate_break_has_ended_before
            c09_a_list_shows_names_byte_by_byte
            admin_a_list_shows_what_has_a_record_page_by_page
            admin_a_break_ends_only_the_grant_that_was_seen
            admin_a_break_may_become_immediate
            admin_a_raised_floor_lowers_nothing
            admin_a_raised_floor_ends_the_grant_that_it_overtakes
            admin_a_seal_that_was_not_there_is_taken_off_without_a_trace
        }
    };
    ([$harness:expr] $($case:ident)*) => {
        $(
            #[test]
            #[ignore = "needs Azurite: localstack/up azurite"]
            fn $case() {
                leasehold_conformance::run(async {
                    let harness = $harness;
                    leasehold_conformance::cases::$case(&harness).await;
                });
            }
        )*
    };
}
use native_admin_cases;

struct Azurite {
    container: &'static str,
    client: AzureClient,
    options: AzureBlobOptions,
    mode: Mode,
    clocks: Clocks,
}

impl Azurite {
    async fn leasing(container: &'static str, set: impl Fn(AzureBlobOptions) -> AzureBlobOptions) -> Self {
        let options = set(AzureBlobOptions::new());
        Self { mode: Mode::Native, options, ..Self::recording(container).await }
    }

    async fn recording(container: &'static str) -> Self {
        let client = azurite::container(container).await;
        let options = AzureBlobOptions::new().with_mode(Mode::Record);
        Self { container, client, options, mode: Mode::Record, clocks: Clocks::default() }
    }
}

#[async_trait]
impl Harness for Azurite {
    type Store = AzureBlobStore;

    async fn store(&self) -> AzureBlobStore {
        if self.mode == Mode::Record {
            let client = AzureClient::new(account(), self.container, Arc::new(SystemClock)).unwrap();
            let port = Shifted { client, clocks: self.clocks.clone() };
            return AzureBlobStore::on(Arc::new(port), self.options.clone()).await.unwrap();
        }
        AzureBlobStore::open(account(), self.container, self.options.clone()).await.unwrap()
    }

    async fn age(&self, key: &LeaseKey, by: Duration) {
        if self.mode == Mode::Record {
            self.clocks.advance(&blob(key), by);
        } else {
            // Nobody can make a lease of the service's older than it is: this waits.
            SystemClock.sleep(by).await;
        }
    }

    async fn expire(&self, key: &LeaseKey) {
        if self.mode == Mode::Record {
            self.clocks.advance(&blob(key), Duration::from_secs(2 * 24 * 60 * 60));
        } else {
            // A lease that is broken at once can be taken like one that has expired, at the same ETag.
            end_lease(&self.client, key).await;
        }
    }

    async fn usurp(&self, key: &LeaseKey) {
        let store = self.store().await;
        if self.mode == Mode::Record {
            let token = self.stored_token(key).await.unwrap();
            store.break_lease(key, token, BreakHow::Immediate).await.unwrap();
        } else {
            end_lease(&self.client, key).await;
        }
        let mut ask = ask(key);
        ask.ttl = self.ttl();
        let outcome = store.acquire(&ask).await.unwrap();
        assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
    }

    async fn delete_record(&self, key: &LeaseKey) -> Result<(), Impossible> {
        if self.mode == Mode::Native {
            end_lease(&self.client, key).await;
        }
        raw(self.container).blob_client(&blob(key)).delete(None).await.unwrap();
        Ok(())
    }

    async fn stored_token(&self, key: &LeaseKey) -> Option<FencingToken> {
        stored_token(&self.client, key).await
    }

    fn ttl(&self) -> Duration {
        // The cases of names take seconds, and minutes of a slow machine are not to be had natively.
        Duration::from_secs(if self.mode == Mode::Record { 60 } else { 20 })
    }

    fn rounds(&self) -> u32 {
        20
    }
}

/// A clock of the service's for each blob.
#[derive(Clone, Debug, Default)]
struct Clocks(Arc<Mutex<HashMap<String, BlobClock>>>);

#[derive(Debug, Default)]
struct BlobClock {
    ahead_ms: u64,
    /// How far it was ahead when the blob got this ETag.
    written: HashMap<String, u64>,
}

impl Clocks {
    fn advance(&self, blob: &str, by: Duration) {
        let mut clocks = self.0.lock().unwrap();
        clocks.entry(blob.to_owned()).or_default().ahead_ms += u64::try_from(by.as_millis()).unwrap();
    }

    /// Makes `Date` and `Last-Modified` what they would be by the blob's clock.
    fn shift(&self, blob: &str, reply: &mut Reply, writes: bool) {
        let mut clocks = self.0.lock().unwrap();
        let clock = clocks.entry(blob.to_owned()).or_default();
        let Some(etag) = reply.etag.clone() else { return };
        if writes {
            clock.written.insert(etag.clone(), clock.ahead_ms);
        }
        // An ETag that is not known yet is of a write whose answer is on the way.
        let written = clock.written.get(&etag).copied().unwrap_or(clock.ahead_ms);
        reply.date_ms = reply.date_ms.map(|date| date + clock.ahead_ms);
        reply.last_modified_ms = reply.last_modified_ms.map(|modified| modified + written);
    }

    fn ahead_ms(&self, blob: &str) -> u64 {
        self.0.lock().unwrap().get(blob).map_or(0, |clock| clock.ahead_ms)
    }
}

/// The emulator with clocks that can be moved.
#[derive(Debug)]
struct Shifted {
    client: AzureClient,
    clocks: Clocks,
}

#[async_trait]
impl BlobPort for Shifted {
    async fn send(&self, call: &Call) -> Result<Reply, Fault> {
        let mut reply = self.client.send(call).await?;
        match call {
            Call::Create { blob, .. } | Call::SetMetadata { blob, .. } => {
                self.clocks.shift(blob, &mut reply, true);
            }
            Call::Head { blob } => self.clocks.shift(blob, &mut reply, false),
            _ => {}
        }
        Ok(reply)
    }

    async fn list(&self, prefix: &str, marker: Option<&str>) -> Result<Page, Fault> {
        let mut page = self.client.list(prefix, marker).await?;
        for (name, blob) in &mut page.blobs {
            self.clocks.shift(name, blob, false);
            // The page has one date for all.
            let ahead_ms = self.clocks.ahead_ms(name);
            blob.last_modified_ms = blob.last_modified_ms.map(|modified| modified.saturating_sub(ahead_ms));
        }
        Ok(page)
    }
}
