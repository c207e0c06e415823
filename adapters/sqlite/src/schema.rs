//! Whose file it is, and how a connection to it is set.

use leasehold::StoreErrorKind;
use rusqlite::config::DbConfig;
use rusqlite::types::FromSql;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::Failure;
use crate::record;

/// "This file belongs to leasehold": the bytes `LEAS`.
const APPLICATION_ID: i64 = 0x4c45_4153;
/// The schema below.
const SCHEMA_VERSION: i64 = 1;
const SCHEMA: &str = "
CREATE TABLE lease (
  key TEXT PRIMARY KEY NOT NULL,
  version INTEGER NOT NULL,
  nonce BLOB,
  attempt INTEGER,
  holder TEXT,
  seq INTEGER,
  ttl_ms INTEGER,
  since_ms INTEGER,
  until_ms INTEGER,
  boot_id TEXT,
  expires_boot_ms INTEGER,
  break_requested INTEGER NOT NULL DEFAULT 0,
  sealed INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID";

/// Makes a new connection ours. A file that is not ours is left as it was.
pub(crate) fn prepare(connection: &mut Connection) -> Result<(), Failure> {
    distrust(connection)?;
    if connection.is_readonly("main")? {
        return Err(Failure::not_applied(
            StoreErrorKind::Denied,
            "this user may only read the store file: let it write, or choose another path",
        ));
    }
    let header = Header::read(connection)?;
    if !header.is_blank() {
        header.expect_ours()?;
    }
    make_durable(connection)?;
    if header.is_blank() {
        create_schema(connection)?;
    }
    check_schema(connection)
}

/// Somebody may have copied another database over the file, or a newer leasehold may have changed its schema.
/// One who has emptied the file has as good as deleted it.
pub(crate) fn expect_ours(connection: &Connection) -> Result<(), Failure> {
    let header = Header::read(connection)?;
    if header.is_blank() { Err(Failure::moved()) } else { header.expect_ours() }
}

/// The file may have been made by anybody: nothing in it is run, and closing it writes nothing.
fn distrust(connection: &Connection) -> rusqlite::Result<()> {
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
    ] {
        connection.set_db_config(setting, on)?;
    }
    connection.execute_batch("PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON;")
}

/// An acknowledged commit survives the loss of power: with this pair the truncated journal is synced too.
fn make_durable(connection: &Connection) -> Result<(), Failure> {
    let found: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    let set = connection.query_row("PRAGMA journal_mode = TRUNCATE", [], |row| row.get::<_, String>(0));
    match set {
        Ok(mode) if mode == "truncate" => {}
        Err(error) if found != "wal" => return Err(error.into()),
        _ => {
            return Err(Failure::not_applied(
                StoreErrorKind::Unavailable,
                format!(
                    "something has put the store file into journal mode {found:?} and still uses it: stop that, and \
                     leasehold sets it right"
                ),
            ));
        }
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;")?;
    Ok(())
}

fn create_schema(connection: &mut Connection) -> Result<(), Failure> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    let header = Header::read(&transaction)?;
    if !header.is_blank() {
        // Another process was faster.
        return header.expect_ours();
    }
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    // Even where this fails in an unknown way, no lease has been touched.
    transaction.commit()?;
    Ok(())
}

/// Whether the table has what the statements rely on. What its rows hold is checked row by row.
fn check_schema(connection: &Connection) -> Result<(), Failure> {
    let foreign = |what: String| {
        misconfigured(format!(
            "{what}, so leasehold did not make it: choose another path, or stop everything that uses the file and move \
             it away"
        ))
    };
    let columns: Vec<(String, String)> =
        pairs(connection, "SELECT name, type FROM pragma_table_xinfo('lease')")?;
    for name in ["key"].iter().chain(&record::COLUMNS) {
        if !columns.iter().any(|(column, _)| column == name) {
            return Err(foreign(format!("the table `lease` has no column `{name}`")));
        }
    }
    if !columns.contains(&(String::from("key"), String::from("TEXT"))) {
        return Err(foreign(String::from("the column `key` of table `lease` is not of type TEXT")));
    }
    // Another collation would make one key of two.
    let keys: Vec<(Option<String>, String)> = pairs(
        connection,
        "SELECT part.name, part.coll \
         FROM pragma_index_list('lease') AS list, pragma_index_xinfo(list.name) AS part \
         WHERE list.origin = 'pk' AND part.key = 1",
    )?;
    if keys != [(Some(String::from("key")), String::from("BINARY"))] {
        return Err(foreign(String::from(
            "the primary key of table `lease` is not `key`, compared byte by byte",
        )));
    }
    let encoding: String = connection.query_row("PRAGMA encoding", [], |row| row.get(0))?;
    if encoding != "UTF-8" {
        return Err(foreign(format!("the database keeps text as {encoding}")));
    }
    Ok(())
}

fn pairs<A: FromSql, B: FromSql>(connection: &Connection, query: &str) -> rusqlite::Result<Vec<(A, B)>> {
    connection.prepare(query)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Whose file it is.
struct Header {
    application_id: i64,
    user_version: i64,
    /// How often the schema has been changed.
    schema_version: i64,
}

impl Header {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached(
            "SELECT application_id, user_version, schema_version \
             FROM pragma_application_id, pragma_user_version, pragma_schema_version",
        )?;
        statement.query_row([], |row| {
            Ok(Self { application_id: row.get(0)?, user_version: row.get(1)?, schema_version: row.get(2)? })
        })
    }

    /// Whether nobody has put anything into the file, ever.
    fn is_blank(&self) -> bool {
        (self.application_id, self.user_version, self.schema_version) == (0, 0, 0)
    }

    fn expect_ours(&self) -> Result<(), Failure> {
        Err(misconfigured(match (self.application_id, self.user_version) {
            (APPLICATION_ID, SCHEMA_VERSION) => return Ok(()),
            (APPLICATION_ID, newer) if newer > SCHEMA_VERSION => {
                format!(
                    "the store file has schema version {newer}, made by a newer leasehold: update this program"
                )
            }
            (APPLICATION_ID, odd) => format!(
                "the store file has schema version {odd}, which leasehold never made: choose another path, or stop \
                 everything that uses the file and move it away"
            ),
            _ => String::from("the file is the database of another application: choose another path"),
        }))
    }
}

fn misconfigured(message: String) -> Failure {
    Failure::not_applied(StoreErrorKind::Misconfigured, message)
}
