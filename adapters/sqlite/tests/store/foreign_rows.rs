//! A record that no lease library wrote.

use std::fs;

use leasehold::{
    BreakHow, Effect, FencingToken, LeaseAdmin, LeaseStore, Nonce, ReleaseRequest, RenewOutcome, Severity,
    StoreError, StoreErrorKind,
};

use crate::rig::{Place, TTL, ask, grant, key, renewal};

/// A table of the right name and columns that takes any value, as somebody else may have made it.
const LOOSE: &str = "
PRAGMA application_id = 1279607123; PRAGMA user_version = 1;
CREATE TABLE lease (key TEXT PRIMARY KEY, version, nonce, attempt, holder, seq, ttl_ms, since_ms, until_ms, boot_id,
                    expires_boot_ms, break_requested, sealed);
INSERT INTO lease VALUES ('k', 7, X'A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5', 1, 'host:1', 0, 30000, 1, 2, 'b', 3, 0, 0);
INSERT INTO lease VALUES ('sound', 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0)";

fn expect_corrupt(error: &StoreError, column: &str, found: &str) {
    let line = format!("{error} {error:?}");
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Corrupt, Effect::NotApplied), "{line}");
    assert!(line.contains("`k`") && line.contains(&format!("`{column}`")) && line.contains(found), "{line}");
    assert!(line.contains("repair the row"), "{line}");
    assert!(!line.to_lowercase().contains("a5a5") && !line.contains("165, 165"), "the nonce is in {line}");
}

/// Every verb on every kind of nonsense: the same clear answer, and the file stays as it was.
#[tokio::test]
async fn every_verb_names_the_column_and_changes_nothing() {
    for (column, value, found) in [
        ("version", "'7'", "text of 1 bytes"),
        ("version", "-7", "a negative number"),
        ("version", "0", "zero"),
        ("version", "9223372036854775808", "beyond 63 bits"),
        ("version", "1.5", "a number with a fraction"),
        ("version", "NULL", "nothing"),
        ("version", "X'07'", "a blob of 1 bytes"),
        ("nonce", "X'A5A5'", "a blob of 2 bytes"),
        ("nonce", "'A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5'", "text of 32 bytes"),
        ("attempt", "NULL", "nothing"),
        ("holder", "5", "another whole number"),
        ("seq", "'x'", "text of 1 bytes"),
        ("ttl_ms", "-1", "a negative number"),
        ("ttl_ms", "1e300", "beyond 63 bits"),
        ("since_ms", "NULL", "nothing"),
        ("until_ms", "X''", "a blob of 0 bytes"),
        ("boot_id", "NULL", "nothing"),
        ("boot_id", "CAST(X'FFFE' AS TEXT)", "text of 2 bytes"),
        ("expires_boot_ms", "-9223372036854775808", "a negative number"),
        ("break_requested", "'no'", "text of 2 bytes"),
        ("sealed", "2", "another whole number"),
    ] {
        let place = Place::new();
        let raw = place.raw();
        raw.execute_batch(LOOSE).unwrap();
        raw.execute(&format!("UPDATE lease SET {column} = {value} WHERE key = 'k'"), []).unwrap();
        drop(raw);
        let before = fs::read(&place.path).unwrap();
        let store = place.open().await;

        let token = FencingToken::try_from(7_u64).unwrap();
        let held = leasehold::Grant::new(key("k"), Nonce::from_bytes([0xa5; 16]), token, 0);
        let mut answers = vec![
            store.acquire(&ask("k", 1)).await.map(drop),
            store.release(&ReleaseRequest::of(&held)).await.map(drop),
            store.inspect(&key("k"), TTL).await.map(drop),
            store.list("", None, 10).await.map(drop),
            store.break_lease(&key("k"), token, BreakHow::Immediate).await.map(drop),
            store.raise_floor(&key("k"), token).await,
            store.seal(&key("k"), true).await,
        ];
        answers.extend(store.renew(&[renewal(&held)]).await.into_iter().map(|answer| answer.map(drop)));
        for answer in answers {
            expect_corrupt(&answer.unwrap_err(), column, found);
        }
        assert_eq!(fs::read(&place.path).unwrap(), before, "{column} = {value}");
        grant(&store, "sound", 1).await;
    }
}

#[tokio::test]
async fn one_bad_row_of_a_batch_fails_alone() {
    let place = Place::new();
    place.raw().execute_batch(LOOSE).unwrap();
    let store = place.open().await;
    let (first, last) = (grant(&store, "first", 1).await, grant(&store, "last", 2).await);
    place.raw().execute("UPDATE lease SET version = 'seven' WHERE key = 'k'", []).unwrap();
    let bad = leasehold::Grant::new(key("k"), Nonce::from_bytes([1; 16]), FencingToken::MIN, 0);
    let answers = store.renew(&[renewal(&first), renewal(&bad), renewal(&last)]).await;
    let [Ok(RenewOutcome::Renewed(one)), Err(error), Ok(RenewOutcome::Renewed(two))] = &answers[..] else {
        panic!("{answers:?}");
    };
    expect_corrupt(error, "version", "text of 5 bytes");
    assert_eq!((&one.grant.key, &two.grant.key), (&first.key, &last.key));
    for text in ["first", "last"] {
        assert_eq!(store.inspect(&key(text), TTL).await.unwrap().held.unwrap().seq, 1);
    }
}

#[tokio::test]
async fn our_own_table_takes_no_nonsense() {
    let place = Place::new();
    let store = place.open().await;
    grant(&store, "k", 1).await;
    for change in [
        "version = 'seven'",
        "version = NULL",
        "version = 9223372036854775808",
        "nonce = 'x'",
        "ttl_ms = 0.5",
    ] {
        assert!(place.raw().execute(&format!("UPDATE lease SET {change}"), []).is_err(), "{change}");
    }
}

#[tokio::test]
async fn a_table_that_vanishes_is_misconfigured_and_a_trigger_does_not_run() {
    let place = Place::new();
    let store = place.open().await;
    place
        .raw()
        .execute_batch("CREATE TRIGGER t AFTER INSERT ON lease BEGIN UPDATE lease SET version = 1; END")
        .unwrap();
    let first = grant(&store, "k", 1).await;
    assert_eq!(store.inspect(&key("k"), TTL).await.unwrap().token, Some(first.token));

    place.raw().execute_batch("DROP TABLE lease").unwrap();
    let error = store.acquire(&ask("k", 2)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (StoreErrorKind::Misconfigured, Effect::NotApplied),
        "{error}"
    );
    assert!(error.to_string().contains("the table `lease`"), "{error}");
}

/// In place, so that it stays the same file.
#[tokio::test]
async fn what_is_copied_over_the_file_in_use_is_not_written_to() {
    for (sql, advice) in [
        ("CREATE TABLE notes (text TEXT)".to_owned(), "another application"),
        (format!("{LOOSE}; PRAGMA user_version = 2"), "update this program"),
    ] {
        let place = Place::new();
        let store = place.open().await;
        grant(&store, "k", 1).await;
        let other = Place::new();
        other.raw().execute_batch(&sql).unwrap();
        let content = fs::read(&other.path).unwrap();
        fs::write(&place.path, &content).unwrap();
        let error = store.acquire(&ask("new", 2)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (StoreErrorKind::Misconfigured, Effect::NotApplied),
            "{error}"
        );
        assert!(error.to_string().contains(advice), "{error}");
        assert_eq!(fs::read(&place.path).unwrap(), content);
    }
}

#[tokio::test]
async fn an_absurd_but_lawful_record_does_no_harm() {
    let place = Place::new();
    place.raw().execute_batch(LOOSE).unwrap();
    place
        .raw()
        .execute("UPDATE lease SET version = 9223372036854775807, ttl_ms = 9223372036854775807, seq = 9223372036854775807, until_ms = 9223372036854775807, holder = 'a' || char(10) || 'b'", [])
        .unwrap();
    let store = place.open().await;
    let seen = store.inspect(&key("k"), TTL).await.unwrap().held.unwrap();
    assert_eq!((seen.holder.as_str(), seen.token, seen.claimable), ("a?b", FencingToken::MAX, false));
    // No token is left for a key that is free.
    let error = store.acquire(&ask("sound", 1)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Corrupt, Effect::NotApplied), "{error}");
}

/// Random-looking bytes over every page but the first, whose header says that the file is a store.
#[tokio::test]
async fn a_damaged_file_is_said_to_be_one() {
    let sound = Place::new();
    let store = sound.open().await;
    for number in 0..40 {
        grant(&store, &format!("{number}{}", "k".repeat(400)), 1).await;
    }
    let mut content = fs::read(&sound.path).unwrap();
    assert!(content.len() > 3 * 4096);
    for (at, byte) in content[4096..].iter_mut().enumerate() {
        *byte = (at * 167 % 251) as u8;
    }
    let place = Place::new();
    fs::write(&place.path, &content).unwrap();
    let store = place.open().await;
    let error = store.acquire(&ask("k", 1)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Corrupt, Effect::NotApplied), "{error}");
    assert!(error.to_string().contains("damaged: stop everything that uses it and move it away"), "{error}");
    let findings = store.check().await.unwrap();
    assert!(findings.iter().any(|finding| finding.severity == Severity::Error), "{findings:?}");
    assert_eq!(fs::read(&place.path).unwrap(), content);
}
