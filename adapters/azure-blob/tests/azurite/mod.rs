//! The emulator, and containers on it.
//!
//! A test that needs it is ignored in a bare `cargo test`, and fails with the command that starts it when there is none.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "helpers; each test file uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use azure_core::http::Url;
use azure_storage_blob::BlobContainerClient;
use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, FencingToken, Granted, LeaseKey, LeaseStore, Nonce, OsChance,
    SystemClock,
};
use leasehold_azure_blob::port::{BlobPort, Call, Fault, Reply};
use leasehold_azure_blob::{Account, AzureBlobStore, AzureClient};

pub const NAME: &str = "devstoreaccount1";
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
pub const TTL: Duration = Duration::from_secs(15);

/// `http://host:port` of the emulator.
pub fn server() -> String {
    std::env::var("LEASEHOLD_AZURITE_ENDPOINT").unwrap_or_else(|_| {
        let port = std::env::var("LEASEHOLD_AZURITE_PORT").unwrap_or_else(|_| String::from("10000"));
        format!("http://127.0.0.1:{port}")
    })
}

pub fn account_at(server: &str) -> Account {
    Account::emulator().with_endpoint(&format!("{server}/{NAME}")).unwrap()
}

pub fn account() -> Account {
    account_at(&server())
}

/// Sees to it that the emulator runs and has the container.
pub async fn container(name: &str) -> AzureClient {
    if let Err(error) = AzureBlobStore::create_container(account(), name).await {
        panic!("no Azurite at {}: start it with `localstack/up azurite` ({error} {error:?})", server());
    }
    AzureClient::new(account(), name, Arc::new(SystemClock)).unwrap()
}

/// The name of the blob of a key, as `name.rs` makes it of keys of letters, digits, `-` and `/`.
pub fn blob(key: &LeaseKey) -> String {
    let mut name = String::new();
    for byte in key.as_str().bytes() {
        match byte {
            b'-' | b'_' => name.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => name.push(char::from(byte)),
            byte => name.push_str(&format!("~{byte:02X}")),
        }
    }
    if name.len() > 1024 {
        use azure_core::base64::encode_url_safe;
        name = format!("~~{}", encode_url_safe(key.as_str()).trim_end_matches('='));
    }
    name
}

pub async fn head(client: &AzureClient, key: &LeaseKey) -> Option<Reply> {
    // A dot is written in one of two ways.
    for name in [blob(key), blob(key).replace("~2E", ".")] {
        match client.send(&Call::Head { blob: name }).await {
            Ok(reply) => return Some(reply),
            Err(Fault::Refused(refusal)) if refusal.code.as_deref() == Some("BlobNotFound") => {}
            Err(fault) => panic!("{fault:?}"),
        }
    }
    None
}

/// Ends the lease of a key at once, behind everybody's back. The blob stays as it is.
pub async fn end_lease(client: &AzureClient, key: &LeaseKey) {
    let seen = head(client, key).await.unwrap();
    let call = Call::Break { blob: blob(key), seconds: Some(0), if_match: seen.etag.unwrap() };
    match client.send(&call).await {
        Ok(_) => {}
        Err(Fault::Refused(refusal))
            if refusal.code.as_deref() == Some("LeaseNotPresentWithLeaseOperation") => {}
        Err(fault) => panic!("{fault:?}"),
    }
}

pub async fn write_metadata(
    client: &AzureClient,
    key: &LeaseKey,
    seen: &Reply,
    metadata: BTreeMap<String, String>,
) {
    let if_match = seen.etag.clone().unwrap();
    client.send(&Call::SetMetadata { blob: blob(key), metadata, id: None, if_match }).await.unwrap();
}

pub async fn stored_token(client: &AzureClient, key: &LeaseKey) -> Option<FencingToken> {
    let seen = head(client, key).await?;
    let token = seen.metadata.get("token")?.parse::<u64>().unwrap();
    // The number of a page blob counts, and the metadata say it again.
    let token = seen.sequence.filter(|_| seen.metadata["kind"] == "page").unwrap_or(token);
    Some(FencingToken::try_from(token).unwrap())
}

/// What signs for everything in the account for a day, from now on.
pub fn signature(permissions: &str) -> String {
    let expiry = "2099-01-01T00:00:00Z";
    let text = format!("{NAME}\n{permissions}\nb\nsco\n\n{expiry}\n\n\n2021-12-02\n\n");
    let signature = hmac_sha256(&text, &Secret::new(KEY)).unwrap();
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("sv=2021-12-02&ss=b&srt=sco&sp={permissions}&se={expiry}&sig={signature}")
}

/// A client of the vendor's own, which can do what the port cannot.
pub fn raw(container: &str) -> BlobContainerClient {
    let url = Url::parse(&format!("{}/{NAME}/{container}?{}", server(), signature("rwdlac"))).unwrap();
    BlobContainerClient::new(url, None, None).unwrap()
}

pub fn fresh_key(stem: &str) -> LeaseKey {
    LeaseKey::new(format!("{stem}/{}", Nonce::draw(&OsChance).unwrap().expose_hex())).unwrap()
}

pub fn attempt() -> AttemptId {
    AttemptId::draw(&OsChance).unwrap()
}

pub fn ask(key: &LeaseKey) -> AcquireRequest {
    AcquireRequest::new(key.clone(), Nonce::draw(&OsChance).unwrap(), attempt(), TTL)
}

/// The same logical request, as a new attempt.
pub fn again(ask: &AcquireRequest) -> AcquireRequest {
    let mut again = ask.clone();
    again.attempt = attempt();
    again
}

pub async fn granted(store: &impl LeaseStore, ask: &AcquireRequest) -> Granted {
    match store.acquire(ask).await.unwrap() {
        AcquireOutcome::Granted(granted) => granted,
        other => panic!("{other:?}"),
    }
}
