//! Emulators of the tests' own: one that is restarted, and one that speaks https and takes tokens.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod azurite;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use azure_core::base64::encode_url_safe;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::time::OffsetDateTime;
use azurite::{NAME, TTL, account_at, ask, attempt, fresh_key, granted};
use leasehold::{
    Clock, LeaseStore, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, StoreErrorKind,
    SystemClock,
};
use leasehold_azure_blob::{Account, AzureBlobOptions, AzureBlobStore};

const CONTAINER: &str = "leases";

/// An emulator that ends with its test.
struct Emulator {
    process: Child,
    port: u16,
}

impl Emulator {
    async fn start(folder: &Path, port: u16, more: &[&str]) -> Self {
        let program = program();
        let mut command = Command::new("node");
        command.arg(&program).args(["--silent", "--disableTelemetry", "--skipApiVersionCheck"]);
        command
            .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--location"])
            .arg(folder)
            .args(more);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let emulator = Self { process, port };
        for _ in 0..400 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return emulator;
            }
            SystemClock.sleep(Duration::from_millis(50)).await;
        }
        panic!("{} does not answer on port {port}", program.display());
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends it as one does who wants its data kept.
    fn stop(mut self) -> u16 {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.process.wait().unwrap();
        self.port
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../.tools/azurite/node_modules/azurite/dist/src/blob/main.js");
    assert!(program.exists(), "no Azurite in .tools: `localstack/up azurite` installs it");
    program
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The emulator forgets its leases when it is restarted. Tokens are in the blobs, so they grow; and the old holder, whose lease
/// another has now, is told at its next renewal.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn after_a_restart_tokens_grow_and_the_old_holder_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let emulator = Emulator::start(folder.path(), free_port(), &[]).await;
    let account = account_at(&emulator.url());
    AzureBlobStore::create_container(account.clone(), CONTAINER).await.unwrap();
    let open = || AzureBlobStore::open(account.clone(), CONTAINER, AzureBlobOptions::new());
    let (store, other) = (open().await.unwrap(), open().await.unwrap());
    let key = fresh_key("restart");
    let old = granted(&store, &ask(&key)).await.grant;

    let port = emulator.stop();
    let error = store.renew(&[RenewRequest::new(old.clone(), attempt(), TTL)]).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    let _emulator = Emulator::start(folder.path(), port, &[]).await;

    let new = granted(&other, &ask(&key)).await.grant;
    assert!(new.token > old.token, "{new:?} after {old:?}");
    let outcome = store.renew(&[RenewRequest::new(old, attempt(), TTL)]).await.remove(0).unwrap();
    assert!(matches!(outcome, RenewOutcome::Superseded { by } if by == Some(new.token)), "{outcome:?}");
}

/// Where the program that is started anew finds the emulator with https.
const HTTPS: &str = "LEASEHOLD_TEST_HTTPS";

/// A token over https, with a certificate authority of the test's own. The client learns of that by `SSL_CERT_FILE`, which has to be
/// set before the process begins: so the test starts itself once more.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_token_is_taken_over_https() {
    if let Ok(endpoint) = std::env::var(HTTPS) {
        return with_tokens(&endpoint).await;
    }
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let (certificate, key) = (folder.path().join("leaf.pem"), folder.path().join("leaf.key"));
    let secured =
        ["--oauth", "basic", "--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let emulator = Emulator::start(&folder.path().join("data"), free_port(), &secured).await;
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_token_is_taken_over_https", "--ignored", "--nocapture"])
        .env(HTTPS, format!("https://127.0.0.1:{}/{NAME}", emulator.port))
        .env("SSL_CERT_FILE", folder.path().join("ca.pem"))
        .output()
        .unwrap();
    assert!(
        again.status.success(),
        "{}{}",
        String::from_utf8_lossy(&again.stdout),
        String::from_utf8_lossy(&again.stderr)
    );
}

async fn with_tokens(endpoint: &str) {
    let account = |audience| {
        Account::token(NAME, Arc::new(SelfMade { audience })).unwrap().with_endpoint(endpoint).unwrap()
    };
    let good = account("https://storage.azure.com");
    AzureBlobStore::create_container(good.clone(), CONTAINER).await.unwrap();
    let store = AzureBlobStore::open(good, CONTAINER, AzureBlobOptions::new()).await.unwrap();
    let grant = granted(&store, &ask(&fresh_key("token"))).await.grant;
    let renewed = store.renew(&[RenewRequest::new(grant.clone(), attempt(), TTL)]).await.remove(0).unwrap();
    assert!(matches!(renewed, RenewOutcome::Renewed(_)), "{renewed:?}");
    assert_eq!(store.release(&ReleaseRequest::of(&grant)).await.unwrap(), ReleaseOutcome::Released);

    let stranger = account("https://elsewhere.example");
    let error = AzureBlobStore::open(stranger, CONTAINER, AzureBlobOptions::new()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied, "{error:?}");
    let plain = Account::token(NAME, Arc::new(SelfMade { audience: "any" })).unwrap();
    assert_eq!(plain.with_endpoint("http://127.0.0.1:1").unwrap_err().kind(), StoreErrorKind::Misconfigured);
}

/// Tokens that the emulator takes, which looks at their content and not at their signature.
#[derive(Debug)]
struct SelfMade {
    audience: &'static str,
}

#[async_trait::async_trait]
impl TokenCredential for SelfMade {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let now = i64::try_from(SystemClock.read().unix_ms() / 1000).unwrap();
        let tenant = "11111111-1111-1111-1111-111111111111";
        let claims = format!(
            r#"{{"aud":"{}","iss":"https://sts.windows.net/{tenant}/","iat":{now},"nbf":{},"exp":{}}}"#,
            self.audience,
            now - 60,
            now + 3600
        );
        let part = |text: &str| encode_url_safe(text).trim_end_matches('=').to_owned();
        let token =
            format!("{}.{}.{}", part(r#"{"alg":"RS256","typ":"JWT"}"#), part(&claims), part("unsigned"));
        Ok(AccessToken::new(token, OffsetDateTime::from_unix_timestamp(now + 3600).unwrap()))
    }
}

/// A certificate authority and a certificate of 127.0.0.1.
fn certify(folder: &Path) {
    let openssl = |arguments: &str| {
        let done = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
        assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    };
    std::fs::write(folder.join("leaf.ext"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        .unwrap();
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=leasehold-tests");
    openssl("req -newkey rsa:2048 -nodes -keyout leaf.key -out leaf.csr -subj /CN=127.0.0.1");
    openssl(
        "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out leaf.pem -days 2 -extfile leaf.ext",
    );
}
