//! The columns of a row, as a record and back. Pure.

use std::sync::Arc;
use std::time::Duration;

use leasehold::record::{Expiry, GrantRecord, Record};
use leasehold::{AttemptId, FencingToken, Holder, LeaseKey, Nonce, StoreErrorKind};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use crate::error::Failure;

/// The columns after `key`, in the order in which [`parse`] takes and [`print`] gives them.
pub(crate) const COLUMNS: [&str; 12] = [
    "version",
    "nonce",
    "attempt",
    "holder",
    "seq",
    "ttl_ms",
    "since_ms",
    "until_ms",
    "boot_id",
    "expires_boot_ms",
    "break_requested",
    "sealed",
];

/// A column that holds what no lease library wrote. Says what was found by its type alone: it may be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    column: &'static str,
    found: String,
    expected: &'static str,
}

impl From<Foreign> for Failure {
    fn from(Foreign { column, found, expected }: Foreign) -> Self {
        Self::not_applied(
            StoreErrorKind::Corrupt,
            format!(
                "column `{column}` of table `lease` holds {found} instead of {expected}, which leasehold never writes: \
                 repair the row, or stop whoever uses the lease and delete it"
            ),
        )
    }
}

/// Reads a row.
pub(crate) fn parse(columns: &[ValueRef<'_>; COLUMNS.len()]) -> Result<Record, Foreign> {
    let &[
        version,
        nonce,
        attempt,
        holder,
        seq,
        ttl_ms,
        since_ms,
        until_ms,
        boot_id,
        expires_boot_ms,
        break_requested,
        sealed,
    ] = columns;
    let version = token("version", version)?;
    let sealed = flag("sealed", sealed)?;
    if nonce == ValueRef::Null {
        return Ok(Record { version, grant: None, sealed });
    }
    let grant = GrantRecord {
        nonce: secret("nonce", nonce)?,
        attempt: AttemptId::from_record(integer("attempt", attempt)?.cast_unsigned()),
        holder: Holder::from_record(&text("holder", holder)?),
        seq: count("seq", seq)?,
        ttl: Duration::from_millis(count("ttl_ms", ttl_ms)?),
        since_ms: count("since_ms", since_ms)?,
        until_ms: count("until_ms", until_ms)?,
        expiry: expiry(boot_id, expires_boot_ms)?,
        break_requested: flag("break_requested", break_requested)?,
    };
    Ok(Record { version, grant: Some(grant), sealed })
}

/// Writes a row.
pub(crate) fn print(record: &Record) -> [ToSqlOutput<'_>; COLUMNS.len()] {
    let Record { version, grant, sealed } = record;
    let version = whole(version.get());
    let sealed = whole(u64::from(*sealed));
    let Some(grant) = grant else {
        let null = || ToSqlOutput::Owned(Value::Null);
        return [
            version,
            null(),
            null(),
            null(),
            null(),
            null(),
            null(),
            null(),
            null(),
            null(),
            whole(0),
            sealed,
        ];
    };
    let expiry = grant.expiry.as_ref();
    [
        version,
        ToSqlOutput::Borrowed(ValueRef::Blob(grant.nonce.expose())),
        // A mark is compared and never counted, so one above 2^63 may as well be stored as a negative number.
        ToSqlOutput::Owned(Value::Integer(grant.attempt.get().cast_signed())),
        words(Some(grant.holder.as_str())),
        whole(grant.seq),
        whole(u64::try_from(grant.ttl.as_millis()).unwrap_or(u64::MAX)),
        whole(grant.since_ms),
        whole(grant.until_ms),
        words(expiry.map(|expiry| &*expiry.timeline)),
        expiry.map_or(ToSqlOutput::Owned(Value::Null), |expiry| whole(expiry.at_ms)),
        whole(u64::from(grant.break_requested)),
        sealed,
    ]
}

/// Reads the column `key`.
pub(crate) fn key(value: ValueRef<'_>) -> Result<LeaseKey, Foreign> {
    let key = text("key", value)?;
    LeaseKey::new(key).map_err(|error| foreign("key", value, "a lease key").because(error.to_string()))
}

/// Numbers beyond 2^63 are times that never come; the greatest that the column takes is one too.
fn whole(number: u64) -> ToSqlOutput<'static> {
    ToSqlOutput::Owned(Value::Integer(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn words(text: Option<&str>) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(text.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes())))
}

fn token(column: &'static str, value: ValueRef<'_>) -> Result<FencingToken, Foreign> {
    const EXPECTED: &str = "a whole number from 1 to 9223372036854775807";
    match value {
        ValueRef::Integer(number) => {
            FencingToken::try_from(number).map_err(|_| out_of_range(column, number, EXPECTED))
        }
        _ => Err(foreign(column, value, EXPECTED)),
    }
}

fn secret(column: &'static str, value: ValueRef<'_>) -> Result<Nonce, Foreign> {
    const EXPECTED: &str = "a blob of 16 bytes";
    match value {
        ValueRef::Blob(bytes) => {
            bytes.try_into().map(Nonce::from_bytes).map_err(|_| foreign(column, value, EXPECTED))
        }
        _ => Err(foreign(column, value, EXPECTED)),
    }
}

fn expiry(boot_id: ValueRef<'_>, at_ms: ValueRef<'_>) -> Result<Option<Expiry>, Foreign> {
    if boot_id == ValueRef::Null && at_ms == ValueRef::Null {
        return Ok(None);
    }
    let timeline = Arc::from(text("boot_id", boot_id)?);
    Ok(Some(Expiry { timeline, at_ms: count("expires_boot_ms", at_ms)? }))
}

fn text(column: &'static str, value: ValueRef<'_>) -> Result<String, Foreign> {
    match value {
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(foreign(column, value, "text in UTF-8")),
        },
        _ => Err(foreign(column, value, "text")),
    }
}

fn flag(column: &'static str, value: ValueRef<'_>) -> Result<bool, Foreign> {
    match value {
        ValueRef::Integer(0) => Ok(false),
        ValueRef::Integer(1) => Ok(true),
        _ => Err(foreign(column, value, "0 or 1")),
    }
}

fn count(column: &'static str, value: ValueRef<'_>) -> Result<u64, Foreign> {
    let number = integer(column, value)?;
    u64::try_from(number).map_err(|_| out_of_range(column, number, "a whole number of at least 0"))
}

fn integer(column: &'static str, value: ValueRef<'_>) -> Result<i64, Foreign> {
    match value {
        ValueRef::Integer(number) => Ok(number),
        _ => Err(foreign(column, value, "a whole number")),
    }
}

fn out_of_range(column: &'static str, number: i64, expected: &'static str) -> Foreign {
    let found = if number < 0 { "a negative number" } else { "zero" };
    Foreign { column, found: found.to_owned(), expected }
}

fn foreign(column: &'static str, value: ValueRef<'_>, expected: &'static str) -> Foreign {
    let found = match value {
        ValueRef::Null => "nothing".to_owned(),
        ValueRef::Integer(_) => "another whole number".to_owned(),
        ValueRef::Real(_) => "a number with a fraction or beyond 63 bits".to_owned(),
        ValueRef::Text(bytes) => format!("text of {} bytes", bytes.len()),
        ValueRef::Blob(bytes) => format!("a blob of {} bytes", bytes.len()),
    };
    Foreign { column, found, expected }
}

impl Foreign {
    fn because(self, reason: String) -> Self {
        Self { found: format!("{} ({reason})", self.found), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn held() -> Record {
        Record {
            version: FencingToken::try_from(7_u64).unwrap(),
            grant: Some(GrantRecord {
                nonce: Nonce::from_bytes(*b"0123456789abcdef"),
                attempt: AttemptId::from_record(u64::MAX - 5),
                holder: Holder::new("host:1").unwrap(),
                seq: 3,
                ttl: Duration::from_millis(30_001),
                since_ms: 1_000,
                until_ms: 31_001,
                expiry: Some(Expiry { timeline: Arc::from("boot"), at_ms: 99 }),
                break_requested: true,
            }),
            sealed: true,
        }
    }

    fn columns<'a>(printed: &'a [ToSqlOutput<'a>; COLUMNS.len()]) -> [ValueRef<'a>; COLUMNS.len()] {
        std::array::from_fn(|at| match &printed[at] {
            ToSqlOutput::Borrowed(value) => *value,
            ToSqlOutput::Owned(value) => value.into(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_is_printed_is_parsed() {
        let unwatched = GrantRecord { expiry: None, ..held().grant.unwrap() };
        for record in [
            held(),
            Record { grant: None, ..held() },
            Record { grant: None, sealed: false, ..held() },
            Record { grant: Some(unwatched), sealed: false, ..held() },
        ] {
            assert_eq!(parse(&columns(&print(&record))).unwrap(), record);
        }
    }

    #[test]
    fn foreign_data_is_named_by_column_and_type() {
        let blob = ValueRef::Blob(b"0123456789abcdeX9");
        let text = ValueRef::Text(b"forty-two");
        let odd = ValueRef::Text(b"\xff\xfe");
        for (column, value, found) in [
            ("version", text, "text of 9 bytes"),
            ("version", ValueRef::Integer(-1), "a negative number"),
            ("version", ValueRef::Integer(0), "zero"),
            ("version", ValueRef::Real(1e19), "beyond 63 bits"),
            ("version", ValueRef::Null, "nothing"),
            ("version", blob, "a blob of 17 bytes"),
            ("nonce", blob, "a blob of 17 bytes"),
            ("nonce", ValueRef::Text(b"0123456789abcdef"), "text of 16 bytes"),
            ("nonce", ValueRef::Integer(5), "another whole number"),
            ("attempt", ValueRef::Null, "nothing"),
            ("attempt", text, "text"),
            ("holder", ValueRef::Null, "nothing"),
            ("holder", odd, "text of 2 bytes instead of text in UTF-8"),
            ("seq", ValueRef::Integer(-1), "a negative number"),
            ("ttl_ms", ValueRef::Integer(-30_000), "a negative number"),
            ("ttl_ms", ValueRef::Real(0.5), "a number with a fraction"),
            ("since_ms", ValueRef::Null, "nothing"),
            ("until_ms", text, "text"),
            ("boot_id", ValueRef::Null, "nothing"),
            ("boot_id", odd, "text of 2 bytes"),
            ("expires_boot_ms", ValueRef::Null, "nothing"),
            ("expires_boot_ms", ValueRef::Integer(i64::MIN), "a negative number"),
            ("break_requested", ValueRef::Integer(2), "another whole number"),
            ("sealed", ValueRef::Null, "nothing"),
        ] {
            let record = held();
            let printed = print(&record);
            let mut row = columns(&printed);
            row[COLUMNS.iter().position(|name| *name == column).unwrap()] = value;
            let error = Failure::from(parse(&row).unwrap_err()).at(Path::new("/x"));
            let line = error.to_string();
            assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{line}");
            assert!(line.contains(&format!("`{column}`")) && line.contains(found), "{column}: {line}");
            assert!(!line.contains("0123456789abcde"), "a secret in {line}");
        }
    }

    #[test]
    fn absurd_numbers_neither_panic_nor_wrap() {
        let mut record = held();
        let grant = record.grant.as_mut().unwrap();
        grant.ttl = Duration::MAX;
        grant.expiry = Some(Expiry { timeline: Arc::from("boot"), at_ms: u64::MAX });
        let read = parse(&columns(&print(&record))).unwrap().grant.unwrap();
        assert_eq!(read.ttl, Duration::from_millis(i64::MAX as u64));
        assert_eq!(read.expiry.unwrap().at_ms, i64::MAX as u64);
    }

    #[test]
    fn a_foreign_key_is_no_lease_key() {
        assert_eq!(key(ValueRef::Text("é".as_bytes())).unwrap().as_str(), "é");
        for value in [ValueRef::Text(b""), ValueRef::Text(b"a\0b"), ValueRef::Blob(b"k"), ValueRef::Null] {
            assert_eq!(key(value).unwrap_err().column, "key");
        }
    }
}
