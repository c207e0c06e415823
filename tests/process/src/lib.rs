//! A resource that checks fencing tokens, for tests with real processes that race, die and are stopped.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use leasehold::{FencingToken, LeaseStore};
use leasehold_dynamodb::{DynamoDbOptions, DynamoDbStore};
use leasehold_sqlite::SqliteStore;
use rusqlite::{Connection, OptionalExtension as _};

/// The table that the tests share on an engine that answers as DynamoDB.
pub const TABLE: &str = "leasehold-tests";

/// Opens `sqlite:PATH`, or `dynamodb:PREFIX@ENDPOINT`; makes what is missing.
///
/// # Errors
/// When the store cannot be opened, with the command that starts it.
pub async fn open_store(url: &str) -> Result<Arc<dyn LeaseStore>, Box<dyn Error>> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        return Ok(Arc::new(SqliteStore::open(path).await?));
    }
    let place = url.strip_prefix("dynamodb:").and_then(|place| place.split_once('@'));
    let (prefix, endpoint) = place.ok_or("no such store")?;
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
        .endpoint_url(endpoint)
        .build();
    let client = Client::from_conf(config);
    let options = DynamoDbOptions::new().with_key_prefix(prefix);
    if let Err(error) = DynamoDbStore::create_table(&client, TABLE, &options).await {
        return Err(format!("nothing at {endpoint}: start it with `localstack/up` ({error})").into());
    }
    Ok(Arc::new(DynamoDbStore::open_with(client, TABLE, options).await?))
}

/// A counter that turns stale writers away: one row, which keeps the highest token that it has seen.
///
/// Reading it and writing it back are two steps on purpose. Only a lease makes them one.
#[derive(Debug)]
pub struct Counter(Connection);

/// The token was lower than one seen before. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "complete by nature")]
pub struct Stale;

impl Counter {
    /// Opens the counter in `file`, and makes it if it is not there.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn open(file: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(file)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.execute_batch(
            "PRAGMA synchronous = OFF;
             BEGIN IMMEDIATE;
             CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, token INTEGER NOT NULL, value INTEGER NOT NULL);
             INSERT OR IGNORE INTO counter VALUES (1, 0, 0);
             CREATE TABLE IF NOT EXISTS history (step INTEGER PRIMARY KEY, value INTEGER NOT NULL, token INTEGER NOT NULL);
             CREATE TRIGGER IF NOT EXISTS note AFTER UPDATE OF value ON counter
                 BEGIN INSERT INTO history (value, token) VALUES (new.value, new.token); END;
             COMMIT;",
        )?;
        Ok(Self(connection))
    }

    /// Claims the counter for `token`: from here on, lower ones are stale. Done before reading.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn claim(&self, token: FencingToken) -> rusqlite::Result<Result<(), Stale>> {
        let changed =
            self.0.execute("UPDATE counter SET token = ?1 WHERE id = 1 AND token <= ?1", [token.as_i64()])?;
        Ok(if changed == 1 { Ok(()) } else { Err(Stale) })
    }

    /// What it stands at.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn value(&self) -> rusqlite::Result<i64> {
        self.0.query_row("SELECT value FROM counter WHERE id = 1", [], |row| row.get(0))
    }

    /// Sets it, unless `token` is stale: compared and written in one statement.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn set(&self, value: i64, token: FencingToken) -> rusqlite::Result<Result<(), Stale>> {
        let changed = self.0.execute(
            "UPDATE counter SET value = ?1, token = ?2 WHERE id = 1 AND token <= ?2",
            [value, token.as_i64()],
        )?;
        Ok(if changed == 1 { Ok(()) } else { Err(Stale) })
    }

    /// All that was ever written, in order: value and token.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn history(&self) -> rusqlite::Result<Vec<(i64, i64)>> {
        let mut rows = self.0.prepare("SELECT value, token FROM history ORDER BY step")?;
        rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// The highest token seen, if there was any.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn highest(&self) -> rusqlite::Result<Option<FencingToken>> {
        let token: Option<i64> =
            self.0.query_row("SELECT token FROM counter WHERE id = 1", [], |row| row.get(0)).optional()?;
        Ok(token.and_then(|token| FencingToken::try_from(token).ok()))
    }
}
