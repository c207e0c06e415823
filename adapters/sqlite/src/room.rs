//! What the worker thread has: the database, and what it has seen of time.

use std::path::Path;

use leasehold::record::{Moment, Record, Step};
use leasehold::{LeaseKey, Observation, StoreError};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter};

use crate::database::{Database, Patience};
use crate::error::Failure;
use crate::judge::Judge;
use crate::record::{self, COLUMNS};

const SELECT: &str = "
SELECT version, nonce, attempt, holder, seq, ttl_ms, since_ms, until_ms, boot_id, expires_boot_ms, break_requested, sealed
FROM lease WHERE key = ?1";
const REPLACE: &str = "
INSERT INTO lease (key, version, nonce, attempt, holder, seq, ttl_ms, since_ms, until_ms, boot_id, expires_boot_ms,
                   break_requested, sealed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (key) DO UPDATE SET
  version = excluded.version, nonce = excluded.nonce, attempt = excluded.attempt, holder = excluded.holder,
  seq = excluded.seq, ttl_ms = excluded.ttl_ms, since_ms = excluded.since_ms, until_ms = excluded.until_ms,
  boot_id = excluded.boot_id, expires_boot_ms = excluded.expires_boot_ms,
  break_requested = excluded.break_requested, sealed = excluded.sealed";
const LIST: &str = "
SELECT version, nonce, attempt, holder, seq, ttl_ms, since_ms, until_ms, boot_id, expires_boot_ms, break_requested, sealed,
       key
FROM lease WHERE key >= ?1 AND key > ?2 ORDER BY key";

/// The state of the worker thread.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) database: Database,
    pub(crate) judge: Judge,
}

impl Room {
    /// Takes a step on each of several keys, all in one transaction. A row that makes no sense fails its own step alone.
    pub(crate) fn steps<O, V>(
        &mut self,
        path: &Path,
        asks: &[(LeaseKey, V)],
        patience: &Patience,
    ) -> Result<Vec<Result<O, StoreError>>, Failure>
    where
        V: Fn(Option<&Record>, &Moment) -> Result<Step<O>, StoreError>,
    {
        let Self { database, judge } = self;
        database.write(patience, |connection| {
            let mut written = false;
            let mut answers = Vec::with_capacity(asks.len());
            for (key, verb) in asks {
                answers.push(match step(connection, judge, key, verb) {
                    Ok(Ok((outcome, wrote))) => {
                        written |= wrote;
                        Ok(outcome)
                    }
                    Ok(Err(refused)) => Err(refused),
                    // Of some failures SQLite makes the end of the whole transaction.
                    Err(failure) if failure.is_moved() || connection.is_autocommit() => return Err(failure),
                    Err(failure) => Err(failure.with_key(key).at(path)),
                });
            }
            Ok((answers, written))
        })
    }

    /// Looks at a key, and watches it if only that can tell whether its grant is over.
    pub(crate) fn inspect(&mut self, key: &LeaseKey, patience: &Patience) -> Result<Observation, Failure> {
        let current = self.database.read(patience, |connection| load(connection, key))?.flatten();
        let moment = self.judge.moment(key, current.as_ref());
        Ok(Record::observe(current.as_ref(), key, moment.over))
    }

    /// Looks at the keys that begin with `prefix`, those after `after` only. Begins to watch none of them.
    pub(crate) fn list(
        &mut self,
        prefix: &str,
        after: &str,
        limit: usize,
        patience: &Patience,
    ) -> Result<Vec<Observation>, Failure> {
        let Self { database, judge } = self;
        let found = database.read(patience, |connection| page(connection, judge, prefix, after, limit))?;
        Ok(found.unwrap_or_default())
    }
}

/// One step on one key, and whether it has written.
fn step<O>(
    connection: &Connection,
    judge: &mut Judge,
    key: &LeaseKey,
    verb: impl Fn(Option<&Record>, &Moment) -> Result<Step<O>, StoreError>,
) -> Result<Result<(O, bool), StoreError>, Failure> {
    let current = load(connection, key)?;
    let moment = judge.moment(key, current.as_ref());
    Ok(match verb(current.as_ref(), &moment) {
        Ok(Step::Keep(outcome)) => Ok((outcome, false)),
        Ok(Step::Write(record, outcome)) => {
            replace(connection, key, &record)?;
            judge.forget(key);
            Ok((outcome, true))
        }
        Err(refused) => Err(refused),
    })
}

fn load(connection: &Connection, key: &LeaseKey) -> Result<Option<Record>, Failure> {
    let mut select = connection.prepare_cached(SELECT)?;
    let row = select.query_row([key.as_str()], |row| Ok(record::parse(&columns(row)?))).optional()?;
    Ok(row.transpose()?)
}

fn replace(connection: &Connection, key: &LeaseKey, record: &Record) -> Result<(), Failure> {
    let key = ToSqlOutput::Borrowed(ValueRef::Text(key.as_str().as_bytes()));
    let values = [key].into_iter().chain(record::print(record));
    connection.prepare_cached(REPLACE)?.execute(params_from_iter(values))?;
    Ok(())
}

fn page(
    connection: &Connection,
    judge: &Judge,
    prefix: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<Observation>, Failure> {
    let mut seen = Vec::new();
    let mut list = connection.prepare_cached(LIST)?;
    let mut rows = list.query([prefix, after])?;
    while seen.len() < limit {
        let Some(row) = rows.next()? else { break };
        let key = record::key(row.get_ref(COLUMNS.len())?)?;
        if !key.as_str().starts_with(prefix) {
            break;
        }
        let record =
            record::parse(&columns(row)?).map_err(|foreign| Failure::from(foreign).with_key(&key))?;
        seen.push(Record::observe(Some(&record), &key, judge.glance(&record)));
    }
    Ok(seen)
}

fn columns<'row>(row: &'row Row<'_>) -> rusqlite::Result<[ValueRef<'row>; COLUMNS.len()]> {
    let mut values = [ValueRef::Null; COLUMNS.len()];
    for (at, value) in values.iter_mut().enumerate() {
        *value = row.get_ref(at)?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use leasehold::record::TokenPolicy;
    use leasehold::{
        AcquireOutcome, AcquireRequest, AttemptId, Clock, Effect, Nonce, StoreErrorKind, SystemClock,
    };

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    struct Rig {
        folder: tempfile::TempDir,
        room: Room,
    }

    impl Rig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path: Arc<Path> = folder.path().join("leases.db").into();
            let database = Database::open(path, &patience()).unwrap();
            let judge = Judge::new(Arc::new(SystemClock), Arc::from("boot"));
            Self { folder, room: Room { database, judge } }
        }

        /// Acquires each of `keys`, in one transaction.
        fn acquire(&mut self, keys: &[&str]) -> Result<Vec<Result<AcquireOutcome, StoreError>>, StoreError> {
            let path = self.folder.path();
            let asks: Vec<_> = keys
                .iter()
                .map(|text| {
                    let key = LeaseKey::new(text).unwrap();
                    let nonce = Nonce::from_bytes([1; 16]);
                    let ask = AcquireRequest::new(key.clone(), nonce, AttemptId::from_record(1), TTL);
                    let verb = move |current: Option<&Record>, moment: &Moment| {
                        Record::acquire(current, &ask, moment, TokenPolicy::ClockFloor)
                    };
                    (key, verb)
                })
                .collect();
            self.room.steps(path, &asks, &patience()).map_err(|failure| failure.at(path))
        }

        fn sql(&mut self, sql: &str) {
            let run = |connection: &Connection| Ok(connection.execute_batch(sql)?);
            self.room.database.read(&patience(), run).unwrap().unwrap();
        }
    }

    fn patience() -> Patience {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Patience::new(clock, TTL)
    }

    /// `max_page_count` lets SQLite find the disk full without there being one.
    #[test]
    fn a_full_disk_is_said_and_nothing_is_lost() {
        let mut rig = Rig::new();
        rig.acquire(&["first"]).unwrap();
        rig.sql("PRAGMA max_page_count = 3");
        let long: Vec<String> = (0..20).map(|number| format!("{number}{}", "k".repeat(500))).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let answers = rig.acquire(&long);
        let error = match &answers {
            Err(error) => error,
            Ok(answers) => answers.iter().find_map(|answer| answer.as_ref().err()).unwrap(),
        };
        assert_eq!(
            (error.kind(), error.effect()),
            (StoreErrorKind::Unavailable, Effect::NotApplied),
            "{error}"
        );
        assert_eq!(error.code(), Some("SQLITE_FULL"));
        assert!(error.to_string().contains("free some space"), "{error}");

        let seen = rig.room.inspect(&LeaseKey::new("first").unwrap(), &patience()).unwrap();
        assert!(seen.held.is_some());
        rig.sql("PRAGMA max_page_count = 1000");
        for answer in rig.acquire(&long).unwrap() {
            answer.unwrap();
        }
    }

    #[test]
    fn a_panic_in_a_step_leaves_no_transaction_open() {
        let mut rig = Rig::new();
        let key = LeaseKey::new("k").unwrap();
        let broken =
            |_: Option<&Record>, _: &Moment| -> Result<Step<()>, StoreError> { panic!("on purpose") };
        let path = rig.folder.path().to_owned();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(rig.room.steps(&path, &[(key, broken)], &patience()));
        }));
        assert!(caught.is_err());
        rig.acquire(&["k"]).unwrap().remove(0).unwrap();
    }

    #[test]
    fn a_transaction_left_open_is_closed_before_the_next_step() {
        let mut rig = Rig::new();
        rig.sql("BEGIN IMMEDIATE; INSERT INTO lease (key, version) VALUES ('left', 9)");
        rig.acquire(&["k"]).unwrap().remove(0).unwrap();
        assert_eq!(rig.room.inspect(&LeaseKey::new("left").unwrap(), &patience()).unwrap().token, None);
    }

    /// The last moment: after the lock, before the write. SQLite itself notices, and the step is taken on the new file.
    #[test]
    fn a_file_deleted_in_the_middle_of_a_step_grants_nothing() {
        let mut rig = Rig::new();
        let path = rig.room.database.path().to_owned();
        let key = LeaseKey::new("k").unwrap();
        let record = Record { version: leasehold::FencingToken::MIN, grant: None, sealed: true };
        let mut rounds = 0;
        let done = rig.room.database.write(&patience(), |connection| {
            rounds += 1;
            if rounds == 1 {
                std::fs::remove_file(&path).unwrap();
            }
            replace(connection, &key, &record)?;
            Ok(((), true))
        });
        done.unwrap();
        assert_eq!(rounds, 2);
        assert!(rig.room.inspect(&key, &patience()).unwrap().sealed, "in the file that is at the path");
    }

    #[test]
    fn the_statements_name_the_columns_in_their_order() {
        let order = COLUMNS.join(",");
        for statement in [SELECT, LIST] {
            let words: String = statement.split_whitespace().collect::<Vec<_>>().concat();
            assert!(words.starts_with(&format!("SELECT{order}")), "{words}");
        }
        let words: String = REPLACE.split_whitespace().collect::<Vec<_>>().concat();
        assert!(words.contains(&format!("(key,{order})")), "{words}");
        for column in COLUMNS {
            assert!(words.contains(&format!("{column}=excluded.{column}")), "{column}");
        }
    }
}
