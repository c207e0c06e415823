//! Blob names: every key has one of its own, and none that the service would normalise.
//!
//! A name is made of letters, digits, `-`, `_`, and `.` between two letters or digits; every other byte of the key is `~` and
//! two hexadecimal digits. So there is no slash in it (on a hierarchical namespace `a` and `a/b` could not both be), no dot
//! segment, no final dot, no backslash, nothing that a URL escapes. A key whose name would be too long that way is `~~` and its
//! bytes in URL-safe Base64. Both forms are read back exactly, so no two keys share a name.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use leasehold::LeaseKey;

/// The longest name that the service takes.
const MAX_CHARS: usize = 1024;

/// What names of the second form begin with. In the first form a digit follows `~`.
pub(crate) const LONG: &str = "~~";

/// The name of the blob of `key`.
pub(crate) fn of_key(key: &LeaseKey) -> String {
    let name = escaped(key.as_str().as_bytes());
    if name.len() <= MAX_CHARS {
        return name;
    }
    format!("{LONG}{}", URL_SAFE_NO_PAD.encode(key.as_str()))
}

/// The key whose blob has this name; nothing if it is no name of ours.
pub(crate) fn to_key(name: &str) -> Option<LeaseKey> {
    let bytes = match name.strip_prefix(LONG) {
        Some(long) => URL_SAFE_NO_PAD.decode(long).ok()?,
        None => unescaped(name)?,
    };
    let key = LeaseKey::new(String::from_utf8(bytes).ok()?).ok()?;
    (of_key(&key) == name).then_some(key)
}

/// What the names of the first form begin with, of all keys that begin with `prefix`.
pub(crate) fn of_prefix(prefix: &str) -> String {
    // A dot at the end is written in one way or another, depending on what follows.
    escaped(prefix.trim_end_matches('.').as_bytes())
}

fn escaped(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let is_word = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric);
    let mut name = String::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let plain = match byte {
            b'-' | b'_' => true,
            b'.' => is_word(at.checked_sub(1)) && is_word(Some(at + 1)),
            byte => byte.is_ascii_alphanumeric(),
        };
        if plain {
            name.push(char::from(*byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(name, "~{byte:02X}");
        }
    }
    name
}

fn unescaped(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'~' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after.get(2..)?;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(key: &str) -> String {
        of_key(&LeaseKey::new(key).unwrap())
    }

    #[test]
    fn names_are_readable_where_keys_are() {
        for (key, expected) in [
            ("nightly-report", "nightly-report"),
            ("billing/nightly.v2", "billing~2Fnightly.v2"),
            ("a.", "a~2E"),
            ("..", "~2E~2E"),
            ("a..b", "a~2E~2Eb"),
            ("~2F", "~7E2F"),
            ("~~", "~7E~7E"),
            ("ü \\%", "~C3~BC~20~5C~25"),
        ] {
            assert_eq!(name(key), expected, "{key:?}");
        }
    }

    #[test]
    fn the_longest_keys_fit() {
        for unit in ["%", "\u{10fffd}", "é", "a", "/"] {
            let name = name(&unit.repeat(LeaseKey::MAX_BYTES / unit.len()));
            assert!(name.len() <= MAX_CHARS, "{unit:?}: {}", name.len());
        }
    }

    #[test]
    fn what_we_never_write_is_no_name_of_ours() {
        for foreign in ["", "a/b", "~2f", "~2", "~", "~61", "~~YQ", "a.", "ü", "~00", "~~"] {
            assert_eq!(to_key(foreign), None, "{foreign:?}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back_exactly(key in "[^\0]{1,500}") {
            if let Ok(key) = LeaseKey::new(&key) {
                let name = of_key(&key);
                prop_assert!(name.len() <= MAX_CHARS);
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)));
                prop_assert!(!name.starts_with('.') && !name.ends_with('.') && !name.contains(".."));
                prop_assert_eq!(to_key(&name), Some(key));
            }
        }

        #[test]
        fn no_two_keys_share_a_name(a in "[a.~/2EF %\u{e9}]{1,6}", b in "[a.~/2EF %\u{e9}]{1,6}") {
            prop_assert_eq!(a == b, name(&a) == name(&b));
        }

        #[test]
        fn a_prefix_finds_all_its_keys(prefix in "[a./~]{0,5}", rest in "[a./~]{1,5}") {
            let key = name(&format!("{prefix}{rest}"));
            prop_assert!(key.starts_with(&of_prefix(&prefix)), "{} {}", key, of_prefix(&prefix));
        }
    }
}
