//! The store file deleted or replaced under those who have it open.

use std::fs;
use std::pin::pin;
use std::time::Duration;

use leasehold::{LeaseAdmin, LeaseStore, ReleaseOutcome, ReleaseRequest, RenewOutcome, Severity};

use crate::rig::{Place, Scripted, TTL, ask, begin_in_turn, grant, granted, is_held, key, renewal, timed_by};

#[tokio::test]
async fn a_holder_whose_file_was_deleted_learns_it_and_the_next_gets_a_greater_token() {
    let place = Place::new();
    let clock = Scripted::new();
    let store = timed_by(&clock).open(&place.path).await.unwrap();
    let other = timed_by(&clock).open(&place.path).await.unwrap();
    let first = grant(&store, "k", 1).await;
    fs::remove_file(&place.path).unwrap();
    clock.pass(TTL / 3);

    let answers = store.renew(&[renewal(&first)]).await;
    assert!(matches!(answers[..], [Ok(RenewOutcome::RecordGone)]), "{answers:?}");
    let second = grant(&other, "k", 2).await;
    assert!(second.token > first.token);
    assert!(is_held(store.acquire(&ask("k", 3)).await), "both use the new file");
    assert_eq!(
        store.release(&ReleaseRequest::of(&first)).await.unwrap(),
        ReleaseOutcome::HeldByOther { by: second.token }
    );
}

/// Between the look at the path and the lock: what counts is the file that is there when the lock has been got.
#[tokio::test]
async fn a_file_deleted_while_a_step_waits_for_it_grants_nothing() {
    let place = Place::new();
    let clock = Scripted::new();
    let store = timed_by(&clock).open(&place.path).await.unwrap();
    let lost = grant(&store, "k", 9).await;
    let mut other = place.raw();
    let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let mut waiting = ask("k", 1);
    waiting.timeout = Duration::from_secs(60);
    let mut waiting = pin!(store.acquire(&waiting));
    begin_in_turn(waiting.as_mut(), &clock);
    fs::remove_file(&place.path).unwrap();
    drop(lock);
    let own = granted(waiting.await);
    let newcomer = timed_by(&clock).open(&place.path).await.unwrap();
    assert!(is_held(newcomer.acquire(&ask("k", 2)).await), "the grant is in the new file");
    assert_eq!(newcomer.inspect(&key("k"), TTL).await.unwrap().token, Some(own.token));
    let old: i64 = other.query_row("SELECT version FROM lease", [], |row| row.get(0)).unwrap();
    assert_eq!(old, lost.token.as_i64(), "and not in the old one");
}

#[tokio::test]
async fn an_acquire_makes_a_new_file_and_folder() {
    let place = Place::new();
    let folder = place.folder.path().join("state");
    let path = folder.join("leases.db");
    let store = leasehold_sqlite::SqliteStore::open(&path).await.unwrap();
    let first = grant(&store, "k", 1).await;
    fs::remove_dir_all(&folder).unwrap();
    let second = grant(&store, "k", 2).await;
    assert!(second.token > first.token && path.exists());
}

#[tokio::test]
async fn looking_at_a_deleted_file_shows_nothing_and_makes_none() {
    let place = Place::new();
    let store = place.open().await;
    grant(&store, "k", 1).await;
    fs::remove_file(&place.path).unwrap();
    assert!(store.inspect(&key("k"), TTL).await.unwrap().is_claimable());
    assert!(store.list("", None, 10).await.unwrap().is_empty());
    let findings = store.check().await.unwrap();
    assert!(
        findings.iter().any(|found| found.severity == Severity::Warning && found.what.contains("gone")),
        "{findings:?}"
    );
    assert!(!place.path.exists());
}

#[tokio::test]
async fn a_file_moved_into_place_counts_from_then_on() {
    let place = Place::new();
    let clock = Scripted::new();
    let store = timed_by(&clock).open(&place.path).await.unwrap();
    let lost = grant(&store, "k", 1).await;

    let elsewhere = place.folder.path().join("elsewhere.db");
    clock.pass(TTL / 2);
    let theirs = grant(&timed_by(&clock).open(&elsewhere).await.unwrap(), "k", 2).await;
    fs::rename(&elsewhere, &place.path).unwrap();

    let answers = store.renew(&[renewal(&lost)]).await;
    let [Ok(RenewOutcome::Superseded { by })] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(*by, Some(theirs.token));
    assert!(is_held(store.acquire(&ask("k", 3)).await));
    assert_eq!(store.inspect(&key("k"), TTL).await.unwrap().token, Some(theirs.token));
}

#[tokio::test]
async fn an_old_copy_put_back_is_a_record_that_is_gone() {
    let place = Place::new();
    let clock = Scripted::new();
    let store = timed_by(&clock).open(&place.path).await.unwrap();
    let first = grant(&store, "k", 1).await;
    let copy = place.folder.path().join("copy.db");
    fs::copy(&place.path, &copy).unwrap();
    store.release(&ReleaseRequest::of(&first)).await.unwrap();
    clock.pass(TTL);
    let second = grant(&store, "k", 2).await;
    fs::rename(&copy, &place.path).unwrap();

    let answers = store.renew(&[renewal(&second)]).await;
    assert!(matches!(answers[..], [Ok(RenewOutcome::RecordGone)]), "{answers:?}");
    clock.pass(TTL);
    assert!(grant(&store, "k", 3).await.token > second.token, "the clock keeps the floor");
}

#[tokio::test]
async fn what_is_put_in_the_place_of_the_file_is_not_trusted() {
    let place = Place::new();
    let store = place.open().await;
    grant(&store, "k", 1).await;
    fs::remove_file(&place.path).unwrap();
    fs::create_dir(&place.path).unwrap();
    let error = store.acquire(&ask("k", 2)).await.unwrap_err();
    assert!(error.to_string().contains("name a file in it"), "{error}");
    fs::remove_dir(&place.path).unwrap();
    fs::write(&place.path, "not a database, and long enough not to be taken for an empty one").unwrap();
    let error = store.acquire(&ask("k", 2)).await.unwrap_err();
    assert_eq!(error.code(), Some("SQLITE_NOTADB"), "{error}");
    fs::remove_file(&place.path).unwrap();
    grant(&store, "k", 2).await;
}

#[tokio::test]
async fn an_emptied_file_is_made_a_store_again() {
    let place = Place::new();
    let store = place.open().await;
    let first = grant(&store, "k", 1).await;
    fs::write(&place.path, "").unwrap();
    let answers = store.renew(&[renewal(&first)]).await;
    assert!(matches!(answers[..], [Ok(RenewOutcome::RecordGone)]), "{answers:?}");
    fs::write(&place.path, "").unwrap();
    assert_eq!(store.inspect(&key("k"), TTL).await.unwrap().token, None);
    assert!(grant(&store, "k", 2).await.token > first.token);
}
