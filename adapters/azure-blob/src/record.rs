//! The metadata of a lease blob: one format for all modes.
//!
//! The nonce is written as a hash of it: who can read metadata can then still neither renew nor release. Values are ASCII.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold::record::{Expiry, GrantRecord, Record};
use leasehold::{AttemptId, FencingToken, GrantState, Holder, LeaseKey, Nonce, StoreError, StoreErrorKind};
use sha2::{Digest, Sha256};

use crate::error::corrupt;
use crate::options::{AzureBlobOptions, Mode, TokenSource};

pub(crate) type Metadata = BTreeMap<String, String>;

const SCHEMA: &str = "1";

/// Of a write that has not renewed the grant: when that was written, by the service's clock.
pub(crate) const COUNTS_FROM: &str = "fromms";

/// The service's time, as a timeline of [`Expiry`].
pub(crate) const SERVICE: &str = "azure";

/// How a blob is leased: written into it, so that no two ways are mixed on one.
pub(crate) fn kind(options: &AzureBlobOptions) -> &'static str {
    match (options.mode, options.token_source) {
        (Mode::Native, TokenSource::Metadata) => "lease",
        (Mode::Native, TokenSource::PageBlob) => "page",
        (Mode::Record, _) => "record",
    }
}

/// What others may know of a nonce.
pub(crate) fn public(nonce: &Nonce) -> Nonce {
    let hash = Sha256::new().chain_update(b"leasehold nonce").chain_update(nonce.expose()).finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    Nonce::from_bytes(half)
}

/// The metadata of a blob with this record; of one that was made and never granted, where there is none.
pub(crate) fn render(kind: &str, record: Option<&Record>) -> Metadata {
    let mut fields = vec![("schema", String::from(SCHEMA)), ("kind", kind.to_owned())];
    if let Some(record) = record {
        fields.push(("token", record.version.to_string()));
        if record.sealed {
            fields.push(("sealed", String::from("1")));
        }
        if let Some(grant) = &record.grant {
            fields.extend([
                ("nonce", grant.nonce.expose_hex()),
                ("attempt", grant.attempt.get().to_string()),
                ("holder", to_ascii(grant.holder.as_str())),
                ("seq", grant.seq.to_string()),
                ("ttlms", milliseconds(grant.ttl).to_string()),
                ("sincems", grant.since_ms.to_string()),
                ("untilms", grant.until_ms.to_string()),
            ]);
            if grant.break_requested {
                fields.push(("breakrequested", String::from("1")));
            }
        }
    }
    fields.into_iter().map(|(name, value)| (String::from(name), value)).collect()
}

/// What the metadata of a blob of this kind says; its grant runs from `modified_ms`, where that counts.
///
/// # Errors
/// `Corrupt` when it is none of ours, `Misconfigured` when it is of another kind.
pub(crate) fn parse(
    key: &LeaseKey,
    expected: &str,
    metadata: &Metadata,
    modified_ms: Option<u64>,
) -> Result<Option<Record>, StoreError> {
    let field = |name: &str| metadata.get(name).map(String::as_str);
    let number = |name: &'static str| match field(name) {
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| corrupt(key, name)),
        None => Ok(None),
    };
    match field("schema") {
        Some(SCHEMA) => {}
        Some(_) => return Err(corrupt(key, "a schema of another version")),
        None => return Err(corrupt(key, "no schema")),
    }
    if field("kind") != Some(expected) {
        return Err(StoreError::not_applied(
            StoreErrorKind::Misconfigured,
            "this blob is leased in another mode or with another token source: use the same everywhere, or another container",
        )
        .with_key(key)
        .with_code(field("kind").unwrap_or("none").to_owned()));
    }
    let sealed = field("sealed") == Some("1");
    let Some(version) = number("token")? else {
        return Ok(None);
    };
    let version = FencingToken::try_from(version).map_err(|_| corrupt(key, "token"))?;
    let Some(nonce) = field("nonce") else {
        return Ok(Some(Record { version, grant: None, sealed }));
    };
    let needed = |name: &'static str| number(name)?.ok_or_else(|| corrupt(key, name));
    let ttl_ms = needed("ttlms")?;
    let expiry = modified_ms
        .map(|modified| Expiry { timeline: Arc::from(SERVICE), at_ms: modified.saturating_add(ttl_ms) });
    let grant = GrantRecord {
        nonce: Nonce::from_hex(nonce).ok_or_else(|| corrupt(key, "nonce"))?,
        attempt: AttemptId::from_record(needed("attempt")?),
        holder: Holder::from_record(&from_ascii(field("holder").unwrap_or_default())),
        seq: needed("seq")?,
        ttl: Duration::from_millis(ttl_ms),
        since_ms: needed("sincems")?,
        until_ms: needed("untilms")?,
        expiry,
        break_requested: field("breakrequested") == Some("1"),
    };
    Ok(Some(Record { version, grant: Some(grant), sealed }))
}

/// What the grant's time runs from: the last write, or an earlier one where the last has not renewed it.
pub(crate) fn counts_from(metadata: &Metadata, modified_ms: Option<u64>) -> Option<u64> {
    let earlier = metadata.get(COUNTS_FROM).and_then(|earlier| earlier.parse().ok());
    modified_ms.map(|modified| earlier.map_or(modified, |earlier: u64| earlier.min(modified)))
}

/// What is kept with a grant, so that a renewal is one request: the blob as it was left.
pub(crate) struct Left {
    pub(crate) etag: String,
    pub(crate) modified_ms: Option<u64>,
    pub(crate) metadata: Metadata,
}

impl Left {
    pub(crate) fn state(&self) -> GrantState {
        let modified = self.modified_ms.map(|modified| modified.to_string()).unwrap_or_default();
        let fields = self.metadata.iter().map(|(name, value)| format!("{name}={value}"));
        let lines: Vec<_> = [self.etag.clone(), modified].into_iter().chain(fields).collect();
        GrantState::new(lines.join("\n"))
    }

    pub(crate) fn of_state(state: &GrantState) -> Option<Self> {
        let mut lines = state.expose()?.split('\n');
        let etag = lines.next()?.to_owned();
        let modified_ms = lines.next()?.parse().ok();
        let fields = lines.map(|line| line.split_once('='));
        let metadata = fields.map(|field| field.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Some(Self { etag, modified_ms, metadata: metadata.collect::<Option<_>>()? })
    }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A label in the characters that a header takes, `%` and spaces escaped.
fn to_ascii(label: &str) -> String {
    use std::fmt::Write as _;
    let mut ascii = String::with_capacity(label.len());
    for byte in label.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            ascii.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(ascii, "%{byte:02X}");
        }
    }
    ascii
}

/// The label again. A label decides nothing, so an odd one is read as well as can be.
fn from_ascii(ascii: &str) -> String {
    let mut bytes = Vec::with_capacity(ascii.len());
    let mut rest = ascii.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%')
            .then(|| {
                std::str::from_utf8(after.get(..2)?)
                    .ok()
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            })
            .flatten();
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> LeaseKey {
        LeaseKey::new("k").unwrap()
    }

    fn record(holder: &str, sealed: bool) -> Record {
        let grant = GrantRecord {
            nonce: public(&Nonce::from_bytes([7; 16])),
            attempt: AttemptId::from_record(5),
            holder: Holder::from_record(holder),
            seq: 3,
            ttl: Duration::from_secs(30),
            since_ms: 1,
            until_ms: 2,
            expiry: Some(Expiry { timeline: Arc::from(SERVICE), at_ms: 31_000 }),
            break_requested: sealed,
        };
        Record { version: FencingToken::MIN, grant: Some(grant), sealed }
    }

    #[test]
    fn the_nonce_is_not_in_the_metadata() {
        let nonce = Nonce::from_bytes([7; 16]);
        let shown = format!("{:?}", render("lease", Some(&record("h", false))));
        assert!(!shown.contains(&nonce.expose_hex()), "{shown}");
        assert!(shown.contains(&public(&nonce).expose_hex()), "{shown}");
    }

    #[test]
    fn foreign_metadata_is_an_error_and_never_a_panic() {
        let good = render("lease", Some(&record("h", false)));
        for (name, value) in [
            ("schema", "2"),
            ("kind", "record"),
            ("token", "0"),
            ("token", "-1"),
            ("token", "9223372036854775808"),
            ("nonce", "x"),
            ("ttlms", "1e3"),
            ("seq", ""),
            ("attempt", "18446744073709551616"),
        ] {
            let mut bad = good.clone();
            bad.insert(String::from(name), String::from(value));
            assert!(parse(&key(), "lease", &bad, None).is_err(), "{name}={value}");
        }
        for name in ["schema", "kind", "ttlms", "seq", "attempt"] {
            let mut bad = good.clone();
            bad.remove(name);
            assert!(parse(&key(), "lease", &bad, None).is_err(), "without {name}");
        }
        assert_eq!(parse(&key(), "lease", &render("lease", None), None).unwrap(), None);
    }

    proptest! {
        #[test]
        fn a_record_is_read_back(holder in "\\PC{1,60}", sealed in any::<bool>()) {
            let record = record(&holder, sealed);
            let metadata = render("record", Some(&record));
            prop_assert!(metadata.values().all(|value| value.bytes().all(|byte| byte.is_ascii_graphic())));
            prop_assert_eq!(parse(&key(), "record", &metadata, Some(1_000)).unwrap(), Some(record));
            let left = Left { etag: String::from("\"0x1\""), modified_ms: Some(1_000), metadata: metadata.clone() };
            let again = Left::of_state(&left.state()).unwrap();
            prop_assert_eq!((again.etag, again.modified_ms, again.metadata), (left.etag, Some(1_000), metadata));
        }

        #[test]
        fn any_state_is_read_or_not_and_never_panics(text in "\\PC{0,80}") {
            let _ = Left::of_state(&GrantState::new(text));
        }
    }
}
