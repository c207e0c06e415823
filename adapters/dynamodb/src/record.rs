//! The stored form: a lease's item, and the expressions that read and write it. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::record::{Expiry, GrantRecord, Record};
use leasehold::{AttemptId, BreakHow, FencingToken, Holder, LeaseKey, Nonce, StoreError, StoreErrorKind};

pub(crate) type Item = HashMap<String, AttributeValue>;

/// The timeline of `expires_at`: Unix milliseconds by the service's clock.
pub(crate) const STORE_TIME: &str = "store";

/// The schema that this version writes and reads.
const SCHEMA: u64 = 1;

/// The greatest number that is read and written.
const GREATEST: u64 = i64::MAX.cast_unsigned();

/// The attributes of an item, with the alias that expressions use. Several of the names are reserved words.
const ATTRIBUTES: [(&str, &str); 11] = [
    ("#a", "attempt"),
    ("#b", "break_requested"),
    ("#d", "duration_ms"),
    ("#e", "expires_at"),
    ("#i", "acquired_at"),
    ("#n", "nonce"),
    ("#o", "holder"),
    ("#s", "seq"),
    ("#v", "version"),
    ("#x", "sealed"),
    ("#z", "schema"),
];

/// An expression pair of `UpdateItem`, with the values that it needs.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) update: String,
    pub(crate) condition: String,
    pub(crate) values: HashMap<String, AttributeValue>,
}

impl Write {
    fn new(update: impl Into<String>, condition: impl Into<String>) -> Self {
        // As many as the longest expressions take, so that it never grows.
        Self { update: update.into(), condition: condition.into(), values: HashMap::with_capacity(14) }
    }

    fn value(mut self, name: &str, value: AttributeValue) -> Self {
        self.values.insert(String::from(name), value);
        self
    }

    /// The aliases that the two expressions use. The service refuses one that is not used.
    pub(crate) fn names(&self, key_attribute: &str) -> HashMap<String, String> {
        aliases(&[&self.update, &self.condition], key_attribute)
    }
}

/// The aliases among `expressions`, with the attributes they stand for.
pub(crate) fn aliases(expressions: &[&str], key_attribute: &str) -> HashMap<String, String> {
    let mut used = HashMap::with_capacity(ATTRIBUTES.len() + 1);
    for alias in expressions.iter().flat_map(|expression| expression.split('#').skip(1)) {
        // One letter each.
        let letter = alias.as_bytes().first();
        let mut all = ATTRIBUTES.into_iter().chain([("#k", key_attribute)]);
        if let Some((alias, name)) = all.find(|(alias, _)| alias.as_bytes().get(1) == letter)
            && !used.contains_key(alias)
        {
            used.insert(String::from(alias), String::from(name));
        }
    }
    used
}

/// Takes a key whatever its record is, in one request: free, or its expiry at or before `cut_ms`, and its version below that of
/// `hopeful`. An item that is no lease is never written.
///
/// The version acts as a ballot: a delayed copy of this request finds a version that is not below its own, for ever.
///
/// A version that is no token is refused, so that the item comes back and is reported. One with a fraction passes, which no
/// condition can tell from a whole number: it is replaced by a token above it.
pub(crate) fn take(hopeful: &Record, cut_ms: Option<u64>) -> Write {
    let over = if cut_ms.is_some() { " OR #e <= :cut" } else { "" };
    let condition = format!(
        "attribute_not_exists(#k) OR (#z = :z AND #v >= :one AND #v < :v AND attribute_not_exists(#x) AND (attribute_not_exists(#n){over}))"
    );
    let write = Write { condition, ..replacement(hopeful) }.value(":one", number(1));
    match cut_ms {
        Some(cut_ms) => write.value(":cut", number(cut_ms)),
        None => write,
    }
}

/// The same for counted tokens: the service adds one to the version that it has, or to `seed`. One with a fraction keeps it,
/// which [`counted`] reports.
pub(crate) fn take_counting(hopeful: &Record, cut_ms: Option<u64>, seed: u64) -> Write {
    let mut write = take(hopeful, cut_ms);
    write.update = write.update.replacen("#v = :v", "#v = if_not_exists(#v, :seed) + :one", 1);
    write.condition = write.condition.replacen("#v < :v", "#v < :greatest", 1);
    write.values.remove(":v");
    write.value(":seed", number(seed)).value(":greatest", number(GREATEST))
}

/// Replaces a record that is still as `seen`.
pub(crate) fn replace(seen: Option<&Record>, record: &Record) -> Write {
    let mut write = replacement(record);
    let Some(seen) = seen else {
        write.condition = String::from("attribute_not_exists(#k)");
        return write;
    };
    let sealed = if seen.sealed { "attribute_exists(#x)" } else { "attribute_not_exists(#x)" };
    let standing = match &seen.grant {
        None => "attribute_not_exists(#n)",
        Some(grant) if grant.break_requested => "#n = :seen_n AND #s = :seen_s AND attribute_exists(#b)",
        Some(_) => "#n = :seen_n AND #s = :seen_s AND attribute_not_exists(#b)",
    };
    write.condition = format!("#z = :z AND #v = :seen_v AND {sealed} AND {standing}");
    write = write.value(":seen_v", number(seen.version.get()));
    match &seen.grant {
        Some(grant) => {
            write.value(":seen_n", text(grant.nonce.expose_hex())).value(":seen_s", number(grant.seq))
        }
        None => write,
    }
}

/// What a renewal makes of a grant's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension {
    /// When it is over for others by the service's clock; nothing where only observation can tell.
    pub(crate) expires_ms: Option<u64>,
    /// How long they watch it. No less than what is left until the expiry.
    pub(crate) duration_ms: u64,
}

/// Renews a grant: a compare-and-set on `seq`.
pub(crate) fn renew(ask: &leasehold::RenewRequest, extension: Extension) -> Write {
    let grant = &ask.grant;
    let expiry = if extension.expires_ms.is_some() { ", #e = :e" } else { " REMOVE #e" };
    let write = Write::new(
        format!("SET #a = :a, #s = :s, #d = :d{expiry}"),
        "#z = :z AND #n = :n AND #v = :v AND #s = :seen_s AND attribute_not_exists(#b)",
    )
    .value(":a", number(ask.attempt.get()))
    .value(":s", number(grant.seq.saturating_add(1)))
    .value(":d", number(extension.duration_ms))
    .value(":z", number(SCHEMA))
    .value(":n", text(grant.nonce.expose_hex()))
    .value(":v", number(grant.token.get()))
    .value(":seen_s", number(grant.seq));
    match extension.expires_ms {
        Some(expires_ms) => write.value(":e", number(expires_ms)),
        None => write,
    }
}

/// The same as a PartiQL statement, for a batch: the text with a `?` for each of the parameters.
pub(crate) fn renewal_statement(
    table: &str,
    item_key: &[(String, AttributeValue)],
    ask: &leasehold::RenewRequest,
    extension: Extension,
) -> (String, Vec<AttributeValue>) {
    let grant = &ask.grant;
    let mut statement = format!(
        "UPDATE {} SET \"attempt\" = ? SET \"seq\" = ? SET \"duration_ms\" = ?{} WHERE ",
        quoted(table),
        if extension.expires_ms.is_some() { " SET \"expires_at\" = ?" } else { " REMOVE \"expires_at\"" },
    );
    let mut parameters =
        vec![number(ask.attempt.get()), number(grant.seq.saturating_add(1)), number(extension.duration_ms)];
    parameters.extend(extension.expires_ms.map(number));
    for (name, value) in item_key {
        statement.push_str(&quoted(name));
        statement.push_str(" = ? AND ");
        parameters.push(value.clone());
    }
    statement.push_str(
        "\"schema\" = ? AND \"nonce\" = ? AND \"version\" = ? AND \"seq\" = ? AND \"break_requested\" IS MISSING",
    );
    parameters.extend([
        number(SCHEMA),
        text(grant.nonce.expose_hex()),
        number(grant.token.get()),
        number(grant.seq),
    ]);
    (statement, parameters)
}

/// A name in PartiQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Ends the grant with this nonce and keeps the version.
pub(crate) fn release(nonce: &Nonce) -> Write {
    Write::new("REMOVE #a, #b, #d, #e, #i, #n, #o, #s", "#z = :z AND #n = :n")
        .value(":z", number(SCHEMA))
        .value(":n", text(nonce.expose_hex()))
}

/// Ends the grant with the token `seen`, or asks its holder to stop.
pub(crate) fn break_grant(seen: FencingToken, how: BreakHow) -> Write {
    const CONDITION: &str = "#z = :z AND #v = :seen_v AND attribute_exists(#n)";
    let write = match how {
        BreakHow::Immediate => Write::new("REMOVE #a, #b, #d, #e, #i, #n, #o, #s", CONDITION),
        _ => Write::new("SET #b = :b", CONDITION).value(":b", AttributeValue::Bool(true)),
    };
    write.value(":z", number(SCHEMA)).value(":seen_v", number(seen.get()))
}

/// `SET` and `REMOVE` that make the item say what `record` says. Without a condition yet.
fn replacement(record: &Record) -> Write {
    let mut set = vec!["#z = :z", "#v = :v"];
    let mut remove = Vec::new();
    let mut values = vec![(":z", number(SCHEMA)), (":v", number(record.version.get()))];
    if record.sealed {
        set.push("#x = :x");
        values.push((":x", AttributeValue::Bool(true)));
    } else {
        remove.push("#x");
    }
    if let Some(grant) = &record.grant {
        set.extend(["#n = :n", "#a = :a", "#o = :o", "#s = :s", "#d = :d", "#i = :i"]);
        values.extend([
            (":n", text(grant.nonce.expose_hex())),
            (":a", number(grant.attempt.get())),
            (":o", text(grant.holder.as_str())),
            (":s", number(grant.seq)),
            (":d", number(milliseconds(grant.ttl))),
            (":i", number(grant.since_ms)),
        ]);
        match &grant.expiry {
            Some(expiry) => {
                set.push("#e = :e");
                values.push((":e", number(expiry.at_ms)));
            }
            None => remove.push("#e"),
        }
        if grant.break_requested {
            set.push("#b = :b");
            values.push((":b", AttributeValue::Bool(true)));
        } else {
            remove.push("#b");
        }
    } else {
        remove.extend(["#a", "#b", "#d", "#e", "#i", "#n", "#o", "#s"]);
    }
    let mut update = format!("SET {}", set.join(", "));
    if !remove.is_empty() {
        update.push_str(" REMOVE ");
        update.push_str(&remove.join(", "));
    }
    let mut write = Write::new(update, "");
    for (name, value) in values {
        write = write.value(name, value);
    }
    write
}

/// The record that an item spells.
///
/// # Errors
/// `Corrupt` when it is no lease, or a lease that cannot be: names the attribute and the kind of thing found in it.
pub(crate) fn parse(key: &LeaseKey, item: &Item) -> Result<Record, StoreError> {
    let fields = Fields { key, item };
    match fields.number("schema") {
        Ok(Some(SCHEMA)) => {}
        Ok(Some(newer)) if newer > SCHEMA => {
            return Err(StoreError::not_applied(
                StoreErrorKind::Misconfigured,
                format!("the item has schema {newer} and this version of leasehold knows 1: upgrade leasehold here"),
            )
            .with_key(key));
        }
        Ok(_) | Err(_) => {
            return Err(StoreError::not_applied(
                StoreErrorKind::Corrupt,
                "the item under this key is no lease: give leases a key prefix of their own, or another table",
            )
            .with_key(key));
        }
    }
    let version = fields.token("version")?;
    let grant = if item.contains_key("nonce") { Some(fields.grant()?) } else { None };
    Ok(Record { version, grant, sealed: item.contains_key("sealed") })
}

/// The token that the service has counted, from what it returns of a write that landed.
///
/// # Errors
/// `Corrupt`, and it is not known what to do with the grant: the write has landed.
pub(crate) fn counted(key: &LeaseKey, item: &Item) -> Result<FencingToken, StoreError> {
    Fields { key, item }.token("version").map_err(|error| {
        StoreError::unknown(StoreErrorKind::Corrupt, "the version that the service counted is no token")
            .with_key(key)
            .with_source(error)
    })
}

struct Fields<'a> {
    key: &'a LeaseKey,
    item: &'a Item,
}

impl Fields<'_> {
    fn grant(&self) -> Result<GrantRecord, StoreError> {
        let expires_at = self.number("expires_at")?;
        let holder = match self.item.get("holder") {
            Some(AttributeValue::S(label)) => Holder::from_record(label),
            _ => Holder::from_record(""),
        };
        Ok(GrantRecord {
            nonce: self.nonce()?,
            attempt: AttemptId::from_record(self.required("attempt")?),
            holder,
            seq: self.required("seq")?,
            ttl: Duration::from_millis(self.required("duration_ms")?),
            since_ms: self.number("acquired_at")?.unwrap_or(0),
            until_ms: expires_at.unwrap_or(0),
            expiry: expires_at.map(|at_ms| Expiry { timeline: Arc::from(STORE_TIME), at_ms }),
            break_requested: self.item.contains_key("break_requested"),
        })
    }

    fn token(&self, name: &str) -> Result<FencingToken, StoreError> {
        FencingToken::try_from(self.required(name)?)
            .map_err(|error| self.odd(name, "a number that is no token").with_source(error))
    }

    fn nonce(&self) -> Result<Nonce, StoreError> {
        match self.item.get("nonce") {
            Some(AttributeValue::S(digits)) => {
                Nonce::from_hex(digits).ok_or_else(|| self.odd("nonce", "a string that is no nonce"))
            }
            other => Err(self.odd("nonce", kind(other))),
        }
    }

    fn required(&self, name: &str) -> Result<u64, StoreError> {
        self.number(name)?.ok_or_else(|| self.odd(name, kind(None)))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, StoreError> {
        match self.item.get(name) {
            None => Ok(None),
            Some(AttributeValue::N(digits)) => {
                let number = digits.parse::<u64>().ok().filter(|number| *number <= GREATEST);
                number
                    .map(Some)
                    .ok_or_else(|| self.odd(name, "a number that is negative, broken or above 63 bits"))
            }
            other => Err(self.odd(name, kind(other))),
        }
    }

    fn odd(&self, name: &str, found: &str) -> StoreError {
        StoreError::not_applied(
            StoreErrorKind::Corrupt,
            format!(
                "attribute `{name}` of the lease's item holds {found}: nothing was changed; find out who wrote it, and repair \
                 the item with a version that is above every token given out"
            ),
        )
        .with_key(self.key)
    }
}

fn kind(value: Option<&AttributeValue>) -> &'static str {
    match value {
        None => "nothing",
        Some(AttributeValue::B(_)) => "binary data",
        Some(AttributeValue::Bool(_)) => "a boolean",
        Some(AttributeValue::L(_)) => "a list",
        Some(AttributeValue::M(_)) => "a map",
        Some(AttributeValue::N(_)) => "a number",
        Some(AttributeValue::Null(_)) => "null",
        Some(AttributeValue::S(_)) => "a string",
        Some(_) => "a set",
    }
}

/// A number attribute, of the 63 bits that the reader takes. Only an absurd ttl needs more, and for ever is the same.
pub(crate) fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.min(GREATEST).to_string())
}

pub(crate) fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> LeaseKey {
        LeaseKey::new("k").unwrap()
    }

    fn record() -> Record {
        Record {
            version: FencingToken::try_from(7_u64).unwrap(),
            grant: Some(GrantRecord {
                nonce: Nonce::from_bytes([0xab; 16]),
                attempt: AttemptId::from_record(5),
                holder: Holder::new("host:1").unwrap(),
                seq: 3,
                ttl: Duration::from_secs(30),
                since_ms: 1_000,
                until_ms: 31_000,
                expiry: Some(Expiry { timeline: Arc::from(STORE_TIME), at_ms: 31_000 }),
                break_requested: true,
            }),
            sealed: true,
        }
    }

    /// What the service would make of a `SET` of plain values.
    fn item_of(write: &Write) -> Item {
        let names = write.names("pk");
        let set = write.update.strip_prefix("SET ").unwrap().split(" REMOVE ").next().unwrap();
        set.split(", ")
            .map(|part| {
                let (alias, value) = part.split_once(" = ").unwrap();
                (names[alias].clone(), write.values[value].clone())
            })
            .collect()
    }

    #[test]
    fn d33_every_attribute_is_read_back_as_it_was_written() {
        for record in [
            record(),
            Record { sealed: false, ..record() },
            Record { grant: None, ..record() },
            Record {
                grant: record().grant.map(|grant| GrantRecord { expiry: None, until_ms: 0, ..grant }),
                ..record()
            },
        ] {
            assert_eq!(parse(&key(), &item_of(&replace(None, &record))).unwrap(), record);
        }
    }

    #[test]
    fn every_alias_and_every_value_is_used() {
        let ask = leasehold::RenewRequest::new(
            leasehold::Grant::new(key(), Nonce::from_bytes([1; 16]), FencingToken::MIN, 0),
            AttemptId::from_record(1),
            Duration::from_secs(30),
        );
        let free = Record { grant: None, sealed: false, ..record() };
        for write in [
            take(&record(), None),
            take(&record(), Some(5)),
            take_counting(&record(), Some(5), 9),
            replace(None, &record()),
            replace(Some(&record()), &free),
            replace(Some(&free), &record()),
            renew(&ask, Extension { expires_ms: Some(9), duration_ms: 5 }),
            renew(&ask, Extension { expires_ms: None, duration_ms: 5 }),
            release(&Nonce::from_bytes([1; 16])),
            break_grant(FencingToken::MIN, BreakHow::Graceful),
            break_grant(FencingToken::MIN, BreakHow::Immediate),
        ] {
            let expressions = format!("{} {}", write.update, write.condition);
            for value in write.values.keys() {
                assert!(expressions.contains(value.as_str()), "{value} is not in {expressions}");
            }
            let used = expressions.split(|c: char| !(c.is_alphanumeric() || "#:_".contains(c)));
            for word in used.filter(|word| word.starts_with(['#', ':'])) {
                let known = write.names("pk").contains_key(word) || write.values.contains_key(word);
                assert!(known, "{word} of {expressions} stands for nothing");
            }
        }
    }

    #[test]
    fn foreign_data_is_an_error_that_names_the_attribute_and_never_the_nonce() {
        let good = item_of(&replace(None, &record()));
        let cases = [
            ("version", text("7"), "a string"),
            ("version", number(0), "no token"),
            ("version", AttributeValue::N(String::from("-1")), "negative"),
            ("version", AttributeValue::N("9".repeat(38)), "63 bits"),
            ("version", AttributeValue::N(String::from("1.5")), "negative, broken"),
            ("nonce", text("secret"), "no nonce"),
            ("nonce", number(5), "a number"),
            ("seq", AttributeValue::Null(true), "null"),
            ("duration_ms", AttributeValue::M(HashMap::new()), "a map"),
            ("expires_at", AttributeValue::Ss(Vec::new()), "a set"),
            ("attempt", AttributeValue::Bool(true), "a boolean"),
        ];
        for (name, value, expected) in cases {
            let mut item = good.clone();
            item.insert(String::from(name), value);
            let error = parse(&key(), &item).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            let line = error.to_string();
            assert!(line.contains(&format!("`{name}`")) && line.contains(expected), "{line}");
            assert!(!line.contains("secret") && !line.contains("abab"), "{line}");
        }
        for missing in ["version", "seq", "attempt", "duration_ms"] {
            let mut item = good.clone();
            item.remove(missing);
            let line = parse(&key(), &item).unwrap_err().to_string();
            assert!(line.contains(missing) && line.contains("nothing"), "{line}");
        }
        let mut item = good.clone();
        item.remove("schema");
        assert!(parse(&key(), &item).unwrap_err().to_string().contains("is no lease"));
        item.insert(String::from("schema"), number(2));
        assert_eq!(parse(&key(), &item).unwrap_err().kind(), StoreErrorKind::Misconfigured);
    }
}
