//! What the kit does not ask: requests counted on the wire, races, crash windows, credentials, secrets, foreign blobs.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod azurite;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use azurite::{
    KEY, NAME, TTL, account, account_at, again, ask, attempt, blob, end_lease, fresh_key, granted, head, raw,
    server, signature,
};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakHow, Clock, Effect, LeaseAdmin, LeaseKey, LeaseStore, Reading,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Sleep, StoreError, StoreErrorKind,
    SystemClock,
};
use leasehold_azure_blob::{Account, AzureBlobOptions, AzureBlobStore, Mode, TokenSource};
use leasehold_wire::{Fault, Matcher, Proxy};

const LEASES: &str = "tests-lease";
const PAGES: &str = "tests-page";
const RECORDS: &str = "tests-record";

fn options(container: &str) -> AzureBlobOptions {
    match container {
        PAGES => AzureBlobOptions::new().with_token_source(TokenSource::PageBlob),
        RECORDS => AzureBlobOptions::new().with_mode(Mode::Record),
        _ => AzureBlobOptions::new(),
    }
}

async fn store_at(server: &str, container: &str) -> AzureBlobStore {
    azurite::container(container).await;
    AzureBlobStore::open(account_at(server), container, options(container)).await.unwrap()
}

/// Asks until there is an answer, as core does.
async fn settled(store: &AzureBlobStore, ask: &AcquireRequest) -> AcquireOutcome {
    loop {
        match store.acquire(&again(ask)).await {
            Ok(outcome) => return outcome,
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
}

/// Requests of each step: acquire of a new key, the same call again, contended for the first time and again, renewal, release, acquire
/// of what was just released, acquire by a new process, and a look.
async fn requests(container: &str) -> Vec<usize> {
    let proxy = Proxy::start(&server()).await.unwrap();
    let (store, other) = (store_at(&proxy.url(), container).await, store_at(&proxy.url(), container).await);
    let key = fresh_key("count");
    let count = || {
        let count = proxy.count(&Matcher::any());
        proxy.clear();
        count
    };
    count();
    let mut counts = Vec::new();
    let call = ask(&key);
    let first = granted(&store, &call).await.grant;
    counts.push(count());
    granted(&store, &again(&call)).await;
    counts.push(count());
    // The first is told to ask again, where nobody can know yet whether the holder has his token.
    let contended = other.acquire(&ask(&key)).await;
    assert!(!matches!(contended, Ok(AcquireOutcome::Granted(_))), "{contended:?}");
    counts.push(count());
    SystemClock.sleep(Duration::from_millis(150)).await;
    assert!(matches!(other.acquire(&ask(&key)).await.unwrap(), AcquireOutcome::Held(_)));
    counts.push(count());
    let renewed = store.renew(&[RenewRequest::new(first, attempt(), TTL)]).await.remove(0).unwrap();
    counts.push(count());
    let RenewOutcome::Renewed(renewed) = renewed else { panic!("{renewed:?}") };
    store.release(&ReleaseRequest::of(&renewed.grant)).await.unwrap();
    counts.push(count());
    let warm = granted(&store, &ask(&key)).await.grant;
    counts.push(count());
    store.release(&ReleaseRequest::of(&warm)).await.unwrap();
    count();
    granted(&store_at(&proxy.url(), container).await, &ask(&key)).await;
    // Less the container's creation and the look at opening.
    counts.push(count() - 1);
    other.inspect(&key, TTL).await.unwrap();
    counts.push(count());
    counts
}

#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn each_step_takes_as_many_requests_as_the_documentation_says() {
    // new key · the same again · contended, first and again · renew · release · acquire again, warm · acquire, cold · look
    assert_eq!(requests(LEASES).await, [4, 2, 3, 1, 1, 1, 2, 3, 1]);
    assert_eq!(requests(PAGES).await, [5, 2, 3, 1, 1, 1, 3, 4, 1]);
    assert_eq!(requests(RECORDS).await, [2, 1, 1, 1, 1, 1, 1, 2, 1]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn of_32_that_create_a_key_at_once_one_wins_and_no_token_is_given_twice() {
    let stores = [store_at(&server(), LEASES).await, store_at(&server(), LEASES).await];
    for round in 0..200 {
        let key = fresh_key("first");
        let contenders = (0..32).map(|task| {
            let (store, ask) = (stores[task % 2].clone(), ask(&key));
            async move { settled(&store, &ask).await }
        });
        let outcomes = futures_util::future::join_all(contenders).await;
        let won = outcomes.iter().filter(|outcome| matches!(outcome, AcquireOutcome::Granted(_))).count();
        assert_eq!(won, 1, "round {round}: {outcomes:?}");
    }
}

/// The process ends after the lock and before the token: the key is locked for a ttl at most, no token was issued, the next is new.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_crash_between_lock_and_token_burns_nothing() {
    let client = azurite::container(LEASES).await;
    let proxy = Proxy::start(&server()).await.unwrap();
    let (store, other) = (store_at(&proxy.url(), LEASES).await, store_at(&server(), LEASES).await);
    let key = fresh_key("crash");
    let first = granted(&other, &ask(&key)).await.grant;
    other.release(&ReleaseRequest::of(&first)).await.unwrap();
    proxy.script_for(&Matcher::any().query("comp=metadata"), [Fault::HoldBack]);
    let orphan = ask(&key);
    let token = Matcher::any().query("comp=metadata");
    tokio::select! {
        outcome = store.acquire(&orphan) => panic!("{outcome:?}"),
        () = proxy.arrived(&token, 1) => {}
    }
    // Contended, and known to nobody. Given back by its nonce, it is free.
    assert!(!other.inspect(&key, TTL).await.unwrap().is_claimable());
    let given_back =
        other.release(&ReleaseRequest::of_nonce(key.clone(), orphan.nonce.clone())).await.unwrap();
    assert_eq!(given_back, ReleaseOutcome::Released);
    let next = granted(&other, &ask(&key)).await.grant;
    assert!(next.token > first.token);
    // The late token meets another ETag.
    let late = proxy.deliver().await.unwrap();
    assert_eq!(late[0].status.as_u16(), 412);
    assert_eq!(azurite::stored_token(&client, &key).await, Some(next.token));
}

/// The answer to the token is lost and the acquire asked again; a copy of that second attempt arrives when the key has been given
/// back. It locks nothing.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_repeated_acquire_that_arrives_after_the_release_locks_nothing() {
    azurite::container(LEASES).await;
    let proxy = Proxy::start(&server()).await.unwrap();
    let store = store_at(&proxy.url(), LEASES).await;
    let key = fresh_key("late");
    let ask = ask(&key);
    let first = granted(&store, &ask).await;
    proxy.script_for(&Matcher::any().query("comp=lease"), [Fault::DuplicateLater]);
    let told = granted(&store, &again(&ask)).await;
    assert_eq!((told.grant.token, told.ttl), (first.grant.token, first.ttl));
    assert_eq!(store.release(&ReleaseRequest::of(&told.grant)).await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(proxy.deliver().await.unwrap()[0].status.as_u16(), 409);
    assert!(store.inspect(&key, TTL).await.unwrap().held.is_none());
}

/// The emulator renews an expired lease for a wrong id, and answers 200. A holder must not believe it.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_renewal_that_the_emulator_gives_to_a_stranger_is_no_renewal() {
    let store = store_at(&server(), LEASES).await;
    let key = fresh_key("stranger");
    let grant = granted(&store, &ask(&key)).await.grant;
    SystemClock.sleep(TTL + Duration::from_millis(500)).await;
    let mut forged = grant.clone();
    forged.nonce = ask(&key).nonce;
    let outcome = store.renew(&[RenewRequest::new(forged, attempt(), TTL)]).await.remove(0).unwrap();
    assert!(!matches!(outcome, RenewOutcome::Renewed(_)), "{outcome:?}");
}

/// A lease that has run out, and that nobody has taken, is renewed with the same token. After a takeover it is not.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_lease_that_ran_out_is_renewed_until_somebody_has_taken_it() {
    let (store, other) = (store_at(&server(), LEASES).await, store_at(&server(), LEASES).await);
    let key = fresh_key("lapsed");
    let grant = granted(&store, &ask(&key)).await.grant;
    SystemClock.sleep(TTL + Duration::from_millis(500)).await;
    assert!(other.inspect(&key, TTL).await.unwrap().is_claimable());
    let renewed = store.renew(&[RenewRequest::new(grant, attempt(), TTL)]).await.remove(0).unwrap();
    let RenewOutcome::Renewed(renewed) = renewed else { panic!("{renewed:?}") };
    assert!(matches!(settled(&other, &ask(&key)).await, AcquireOutcome::Held(_)));
    SystemClock.sleep(TTL + Duration::from_millis(500)).await;
    let next = granted(&other, &ask(&key)).await.grant;
    let outcome = store.renew(&[RenewRequest::new(renewed.grant, attempt(), TTL)]).await.remove(0).unwrap();
    assert!(matches!(outcome, RenewOutcome::Superseded { by } if by == Some(next.token)), "{outcome:?}");
}

/// The record's own times, by the service alone: a record of 15 s is taken some 18 s after its last write, and not before 15.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_record_is_over_by_the_services_own_times() {
    let (store, other) = (store_at(&server(), RECORDS).await, store_at(&server(), RECORDS).await);
    let key = fresh_key("record");
    granted(&store, &ask(&key)).await;
    let began = SystemClock.read();
    loop {
        let passed = SystemClock.read().elapsed_since(&began);
        match other.acquire(&ask(&key)).await.unwrap() {
            AcquireOutcome::Granted(_) => {
                assert!(passed >= TTL + Duration::from_secs(2), "{passed:?}");
                return;
            }
            _ => assert!(passed < TTL + Duration::from_secs(6), "{passed:?}"),
        }
        SystemClock.sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_seal_does_not_make_a_record_younger() {
    let client = azurite::container(RECORDS).await;
    let store = store_at(&server(), RECORDS).await;
    let key = fresh_key("seal");
    granted(&store, &ask(&key)).await;
    let before = head(&client, &key).await.unwrap().last_modified_ms.unwrap();
    SystemClock.sleep(Duration::from_secs(2)).await;
    store.seal(&key, true).await.unwrap();
    let after = head(&client, &key).await.unwrap();
    assert!(after.last_modified_ms.unwrap() > before);
    assert_eq!(after.metadata["fromms"], before.to_string());
}

#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn nobody_can_seal_a_native_lease_that_is_held_and_is_told_so() {
    let store = store_at(&server(), LEASES).await;
    let key = fresh_key("seal");
    let grant = granted(&store, &ask(&key)).await.grant;
    let error = store.seal(&key, true).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Unsupported, Effect::NotApplied));
    store.break_lease(&key, grant.token, BreakHow::Immediate).await.unwrap();
    store.seal(&key, true).await.unwrap();
    assert!(matches!(store.acquire(&ask(&key)).await.unwrap(), AcquireOutcome::Sealed));
    store.seal(&key, false).await.unwrap();
    granted(&store, &ask(&key)).await;
}

#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_blob_of_another_kind_is_refused_and_left_as_it_is() {
    let client = azurite::container("tests-mixed").await;
    let key = fresh_key("mixed");
    let open = |options| AzureBlobStore::open(account(), "tests-mixed", options);
    let grant = granted(&open(AzureBlobOptions::new()).await.unwrap(), &ask(&key)).await.grant;
    let before = head(&client, &key).await.unwrap();
    for kind in [PAGES, RECORDS] {
        let error = open(options(kind)).await.unwrap().acquire(&ask(&key)).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (StoreErrorKind::Misconfigured, Some("lease")));
    }
    assert_eq!(head(&client, &key).await.unwrap().etag, before.etag);

    // And what no leasehold has made.
    let foreign = LeaseKey::new(format!("{}-foreign", key.as_str())).unwrap();
    raw("tests-mixed")
        .blob_client(&blob(&foreign))
        .upload(azure_core::http::RequestContent::from(Vec::new()), None)
        .await
        .unwrap();
    let store = open(AzureBlobOptions::new()).await.unwrap();
    assert_eq!(store.acquire(&ask(&foreign)).await.unwrap_err().kind(), StoreErrorKind::Corrupt);
    assert_eq!(store.inspect(&foreign, TTL).await.unwrap_err().kind(), StoreErrorKind::Corrupt);
    drop(grant);
}

#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn each_credential_works_and_each_wrong_one_is_denied() {
    azurite::container(LEASES).await;
    let endpoint = format!("{}/{NAME}", server());
    let text = format!("AccountName={NAME};AccountKey={KEY};BlobEndpoint={endpoint}");
    let at = |account: Account| account.with_endpoint(&endpoint).unwrap();
    let good = [
        at(Account::shared_key(NAME, KEY).unwrap()),
        at(Account::sas(NAME, &signature("racwl")).unwrap()),
        Account::connection_string(&text).unwrap(),
        Account::connection_string(&format!(
            "BlobEndpoint={endpoint};AccountName={NAME};SharedAccessSignature={}",
            signature("racwl")
        ))
        .unwrap(),
    ];
    for account in good {
        let store = AzureBlobStore::open(account.clone(), LEASES, AzureBlobOptions::new()).await.unwrap();
        let grant = granted(&store, &ask(&fresh_key("credential"))).await.grant;
        let renewed =
            store.renew(&[RenewRequest::new(grant.clone(), attempt(), TTL)]).await.remove(0).unwrap();
        assert!(matches!(renewed, RenewOutcome::Renewed(_)), "{account:?}");
        assert_eq!(
            store.release(&ReleaseRequest::of(&grant)).await.unwrap(),
            ReleaseOutcome::Released,
            "{account:?}"
        );
        for finding in store.check().await.unwrap() {
            assert!(finding.severity < leasehold::Severity::Error, "{finding:?}");
        }
    }

    let forged = signature("racwl").replace("sig=", "sig=AAAA");
    let bad = [
        at(Account::shared_key(NAME, "d3Jvbmcga2V5").unwrap()),
        at(Account::sas(NAME, &forged).unwrap()),
        at(Account::sas(NAME, &signature("racwl").replace("2099", "2020")).unwrap()),
    ];
    for account in bad {
        let error = AzureBlobStore::open(account.clone(), LEASES, AzureBlobOptions::new()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (StoreErrorKind::Denied, Effect::NotApplied),
            "{account:?}: {error:?}"
        );
        hides(&error, &[&forged[forged.len() - 20..], KEY, "d3Jvbmcga2V5"]);
    }

    // One that may only read is told at its first write.
    let reader = AzureBlobStore::open(
        at(Account::sas(NAME, &signature("rl")).unwrap()),
        LEASES,
        AzureBlobOptions::new(),
    );
    let error = reader.await.unwrap().acquire(&ask(&fresh_key("credential"))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Denied, Effect::NotApplied), "{error:?}");
}

#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_missing_container_is_told_at_opening_with_the_command_that_makes_it() {
    let error = AzureBlobStore::open(account(), "tests-no-such", AzureBlobOptions::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (StoreErrorKind::Misconfigured, Some("ContainerNotFound")));
    assert!(error.to_string().contains("create_container"), "{error}");
}

/// No lease id, key or signature is in an error, a `Debug` or a `Display`, whatever goes wrong on the way.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn no_secret_is_shown_whatever_goes_wrong() {
    azurite::container(LEASES).await;
    let proxy = Proxy::start(&server()).await.unwrap();
    let endpoint = format!("{}/{NAME}", proxy.url());
    let sas = signature("racwl");
    let secret = &sas[sas.find("sig=").unwrap() + 4..];
    let account = Account::sas(NAME, &sas).unwrap().with_endpoint(&endpoint).unwrap();
    let store = AzureBlobStore::open(account, LEASES, AzureBlobOptions::new()).await.unwrap();
    let key = fresh_key("secret");
    let held = granted(&store, &ask(&key)).await.grant;
    let id = held.nonce.expose_hex();
    assert!(!format!("{store:?} {held:?}").contains(secret), "{store:?}");
    let renewal = RenewRequest::new(held, attempt(), TTL);
    for fault in [
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::ResetMidBody,
        Fault::AnswerInstead(leasehold_wire::azure::error(409, "SomethingNew", "canned")),
        Fault::AnswerInstead(leasehold_wire::azure::internal_error()),
    ] {
        proxy.script([fault]);
        let error = store.renew(std::slice::from_ref(&renewal)).await.remove(0).unwrap_err();
        hides(&error, &[secret, &id, &id[..8], "http"]);
    }
    proxy.cut().await;
    let error = store.renew(std::slice::from_ref(&renewal)).await.remove(0).unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (StoreErrorKind::Unavailable, Effect::NotApplied),
        "{error:?}"
    );
    hides(&error, &[secret, &id, &id[..8], "http"]);
}

#[track_caller]
fn hides(error: &StoreError, secrets: &[&str]) {
    let mut shown = format!("{error} {error:?}");
    let mut next = error.source();
    while let Some(source) = next {
        shown.push_str(&format!(" {source} {source:?}"));
        next = source.source();
    }
    for secret in secrets {
        assert!(!shown.contains(secret), "{secret:?} is shown: {shown}");
    }
}

/// A machine whose clock is an hour off is refused once, and is heard when it has been told the time.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_machine_whose_clock_is_off_is_refused_once() {
    azurite::container(LEASES).await;
    let proxy = Proxy::start(&server()).await.unwrap();
    proxy.refuse_skew(Duration::from_secs(15 * 60));
    let options = AzureBlobOptions::new().with_clock(Arc::new(Slow));
    let store = AzureBlobStore::unchecked(account_at(&proxy.url()), LEASES, options).unwrap();
    let ask = ask(&fresh_key("skew"));
    let error = store.acquire(&ask).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::ClockSkew, Effect::NotApplied), "{error:?}");
    granted(&store, &again(&ask)).await;
    let findings = store.check().await.unwrap();
    assert!(findings.iter().any(|finding| finding.what.contains("clock")), "{findings:?}");
}

/// An answer without a date tells no time: no token is made from this machine's own.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn without_a_date_nothing_is_granted() {
    azurite::container(LEASES).await;
    let proxy = Proxy::start(&server()).await.unwrap();
    proxy.remove_date();
    for container in [LEASES, RECORDS] {
        azurite::container(container).await;
        let store =
            AzureBlobStore::open(account_at(&proxy.url()), container, options(container)).await.unwrap();
        let error = store.acquire(&ask(&fresh_key("dateless"))).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (StoreErrorKind::NoStoreClock, Effect::NotApplied),
            "{container}"
        );
    }
}

/// A lease that is broken between lock and token: the acquire says that it does not know, and the next one goes through.
#[tokio::test]
#[ignore = "needs Azurite: localstack/up azurite"]
async fn a_break_between_lock_and_token_is_not_taken_for_a_grant() {
    let client = azurite::container(LEASES).await;
    let proxy = Proxy::start(&server()).await.unwrap();
    let store = store_at(&proxy.url(), LEASES).await;
    let key = fresh_key("broken");
    let before = granted(&store, &ask(&key)).await.grant;
    store.release(&ReleaseRequest::of(&before)).await.unwrap();
    proxy.script_for(&Matcher::any().query("comp=metadata"), [Fault::Delay(Duration::from_millis(300))]);
    let ask = ask(&key);
    let (outcome, ()) = futures_util::future::join(store.acquire(&ask), async {
        proxy.arrived(&Matcher::any().query("comp=metadata"), 2).await;
        end_lease(&client, &key).await;
    })
    .await;
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Unavailable, Effect::Unknown), "{error:?}");
    assert!(granted(&store, &again(&ask)).await.grant.token > before.token);
}

/// The clocks of this machine, with a wall clock that is an hour slow.
#[derive(Debug)]
struct Slow;

impl Clock for Slow {
    fn read(&self) -> Reading {
        let now = SystemClock.read();
        Reading { wall: now.wall.saturating_sub(Duration::from_secs(3600)), ..now }
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        SystemClock.sleep(duration)
    }
}
