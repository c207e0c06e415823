//! What a path may be, and what becomes of what is there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use leasehold::{Effect, LeaseStore, Severity, StoreError, StoreErrorKind};
use leasehold_sqlite::SqliteStore;

use crate::rig::{Place, TTL, grant, key, raw};

async fn refusal(path: impl AsRef<Path> + Send) -> StoreError {
    let error = SqliteStore::open(path).await.unwrap_err();
    let line = error.to_string();
    assert_eq!(error.effect(), Effect::NotApplied, "{line}");
    assert!(!line.contains('\n') && line.contains("store file"), "{line}");
    error
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn what_is_made_is_for_this_user_alone() {
    let place = Place::new();
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = place.folder.path().join("state").join("leasehold").join("leases.db");
    let store = SqliteStore::open(&path).await.unwrap();
    grant(&store, "k", 1).await;
    assert_eq!(store.path(), path);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_file_name("leases.db-journal")), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(path.parent().unwrap().parent().unwrap()), 0o700);
    assert_eq!(mode(place.folder.path()), 0o755, "what was there keeps its mode");
    let findings = store.check().await.unwrap();
    assert!(findings.iter().all(|finding| finding.severity < Severity::Warning), "{findings:?}");
}

#[tokio::test]
async fn a_relative_path_stays_where_it_was() {
    let place = Place::new();
    let here = std::env::current_dir().unwrap();
    let up: std::path::PathBuf = here.components().skip(1).map(|_| "..").collect();
    let store = SqliteStore::open(up.join(place.path.strip_prefix("/").unwrap())).await.unwrap();
    grant(&store, "k", 1).await;
    assert!(store.path().is_absolute() && place.path.exists());
}

#[tokio::test]
async fn settings_are_those_that_survive_the_loss_of_power() {
    let place = Place::new();
    let store = place.open().await;
    let findings = store.check().await.unwrap();
    assert!(!findings.iter().any(|finding| finding.what.contains("synchronous")), "{findings:?}");
    // Somebody turns the file into one with a write-ahead log while it is in use.
    let other = place.raw();
    let mode: String = other.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    let findings = store.check().await.unwrap();
    assert!(findings.iter().any(|finding| finding.what.contains("\"wal\"")), "{findings:?}");
}

#[tokio::test]
async fn the_next_opener_sets_another_journal_mode_right() {
    let place = Place::new();
    grant(&place.open().await, "k", 1).await;
    let other = place.raw();
    let mode: String = other.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    let _: i64 = other.query_row("SELECT count(*) FROM lease", [], |row| row.get(0)).unwrap();
    let error = refusal(&place.path).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("journal mode \"wal\""), "{error}");
    drop(other);
    let store = place.open().await;
    assert!(store.inspect(&key("k"), TTL).await.unwrap().held.is_some());
    let mode: String = place.raw().query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete", "which is what a connection makes of any mode but WAL");
}

#[tokio::test]
async fn loose_rights_are_found() {
    let place = Place::new();
    let store = place.open().await;
    for (file_mode, folder_mode, expected) in [
        (0o666, 0o700, Some("may write to the store file (mode 0666)")),
        (0o644, 0o700, Some("may read the store file (mode 0644)")),
        (0o600, 0o777, Some("delete or replace files in the store's folder (mode 0777)")),
        (0o600, 0o1777, None),
    ] {
        fs::set_permissions(&place.path, fs::Permissions::from_mode(file_mode)).unwrap();
        fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(folder_mode)).unwrap();
        let findings = store.check().await.unwrap();
        let mut warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
        match expected {
            Some(what) => {
                let finding = warnings.next().unwrap();
                assert!(finding.what.contains(what) && finding.remedy.starts_with("chmod "), "{finding:?}");
            }
            None => assert_eq!(warnings.next(), None),
        }
    }
}

#[tokio::test]
async fn a_path_that_cannot_hold_a_store_is_refused() {
    let place = Place::new();
    let folder = place.folder.path();
    let file = folder.join("file");
    fs::write(&file, "no folder").unwrap();
    let dangling = folder.join("dangling");
    std::os::unix::fs::symlink(folder.join("nowhere"), &dangling).unwrap();
    let folder_by_name = format!("{}/new/", folder.display());
    for (path, advice) in [
        (folder.to_owned(), "name a file in it"),
        (folder_by_name.into(), "name a file in it"),
        (file.join("leases.db"), "a part of the path is no folder"),
        (file.join("deeper").join("leases.db"), "a part of the path is no folder"),
        (dangling.clone(), "symbolic link to nothing"),
        ("/dev/null".into(), "device, pipe or socket"),
        ("".into(), "unusable"),
        ("a\0b".into(), "cannot be looked at"),
    ] {
        let error = refusal(&path).await;
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{path:?}: {error}");
        assert!(error.to_string().contains(advice), "{path:?}: {error}");
    }
    assert!(!folder.join("nowhere").exists() && !folder.join("new").exists(), "nothing was made");
    assert_eq!(fs::read(&file).unwrap(), b"no folder");
}

/// Places where not even the superuser can make a file or a folder.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_folder_in_which_nothing_can_be_made_is_said_to_be_one() {
    use StoreErrorKind::{Denied, Misconfigured};
    for (path, kind, advice) in [
        ("/sys/leases.db", Denied, "let this user write there"),
        ("/sys/leasehold/leases.db", Denied, "let this user write there"),
        ("/proc/self/leases.db", Misconfigured, "choose a path at which this user can create files"),
    ] {
        let error = refusal(path).await;
        assert_eq!(error.kind(), kind, "{path}: {error}");
        assert!(error.to_string().contains(advice), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_symbolic_link_to_a_store_is_that_store() {
    let place = Place::new();
    let store = place.open().await;
    grant(&store, "k", 1).await;
    let link = place.folder.path().join("link.db");
    std::os::unix::fs::symlink(&place.path, &link).unwrap();
    let linked = SqliteStore::open(&link).await.unwrap();
    assert!(linked.inspect(&key("k"), TTL).await.unwrap().held.is_some());
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_as_it_was() {
    let place = Place::new();
    for content in [
        &b"a shopping list, long enough to be the header of a database: eggs, flour, sugar, and so on"[..],
        b"x",
        b"xy",
    ] {
        fs::write(&place.path, content).unwrap();
        let error = refusal(&place.path).await;
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
        assert!(
            error.to_string().contains("no SQLite database: choose another path, or move the file away"),
            "{error}"
        );
        assert_eq!(fs::read(&place.path).unwrap(), content);
    }
}

#[tokio::test]
async fn an_empty_file_is_made_a_store_and_keeps_its_mode() {
    let place = Place::new();
    fs::write(&place.path, "").unwrap();
    fs::set_permissions(&place.path, fs::Permissions::from_mode(0o640)).unwrap();
    let store = place.open().await;
    grant(&store, "k", 1).await;
    assert_eq!(mode(&place.path), 0o640);
}

/// Every database that is not exactly ours: refused, by name, and not one byte of it changed.
#[tokio::test]
async fn the_database_of_another_application_is_left_as_it_was() {
    for (sql, advice) in [
        ("CREATE TABLE notes (text TEXT)", "another application"),
        ("PRAGMA user_version = 1; CREATE TABLE lease (key TEXT PRIMARY KEY)", "another application"),
        ("PRAGMA application_id = 252006674; CREATE TABLE fossil (x)", "another application"),
        // Empty, but somebody has made it.
        ("CREATE TABLE t (x); DROP TABLE t;", "another application"),
        ("PRAGMA journal_mode = WAL; CREATE TABLE notes (text TEXT)", "another application"),
        ("PRAGMA application_id = 1279607123; PRAGMA user_version = 2", "update this program"),
        ("PRAGMA application_id = 1279607123; CREATE TABLE lease (x)", "schema version 0"),
        ("PRAGMA application_id = 1279607123; PRAGMA user_version = -3", "schema version -3"),
        ("PRAGMA application_id = 1279607123; PRAGMA user_version = 1", "no column `key`"),
        (&ours("key TEXT PRIMARY KEY, version INTEGER"), "no column `nonce`"),
        (&ours(&format!("key TEXT COLLATE NOCASE PRIMARY KEY, {REST}")), "compared byte by byte"),
        (&ours(&format!("key TEXT, {REST}")), "compared byte by byte"),
        (&ours(&format!("key TEXT, {REST}, PRIMARY KEY (key, version)")), "compared byte by byte"),
        (&ours(&format!("key INTEGER PRIMARY KEY, {REST}")), "not of type TEXT"),
        (
            &format!("PRAGMA encoding = 'UTF-16'; {}", ours(&format!("key TEXT PRIMARY KEY, {REST}"))),
            "UTF-16",
        ),
    ] {
        let place = Place::new();
        raw(&place.path).execute_batch(sql).unwrap();
        let before = fs::read(&place.path).unwrap();
        let error = refusal(&place.path).await;
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{sql}: {error}");
        assert!(error.to_string().contains(advice), "{sql}: {error}");
        assert_eq!(fs::read(&place.path).unwrap(), before, "{sql}");
    }
}

const REST: &str = "version, nonce, attempt, holder, seq, ttl_ms, since_ms, until_ms, boot_id, expires_boot_ms, \
                    break_requested, sealed";

fn ours(columns: &str) -> String {
    format!("PRAGMA application_id = 1279607123; PRAGMA user_version = 1; CREATE TABLE lease ({columns})")
}

#[tokio::test]
async fn many_first_openers_make_one_store() {
    for _ in 0..20 {
        let place = Place::new();
        let openers: tokio::task::JoinSet<_> =
            (0..4).map(|_| SqliteStore::open(place.path.clone())).collect();
        for opened in openers.join_all().await {
            opened.unwrap();
        }
        assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 2, "the file and its journal");
    }
}
