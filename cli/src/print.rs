//! What people read: one line at a time, on stderr what is wrong and on stdout what was asked for.

use std::fmt::{Display, Write as _};
use std::io::Write as _;

use chrono::{DateTime, SecondsFormat};
use leasehold::{Held, LeaseKey};

use crate::exit::{self, Failure};

/// Says on stderr why it ends here.
pub(crate) fn complain(failure: &Failure) {
    note(failure);
}

/// One line on stderr, whatever `text` holds. Nobody may be reading; that is no reason to stop.
pub(crate) fn note(text: impl Display) {
    let mut line = String::from("leasehold: ");
    for character in text.to_string().chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line.push('\n');
    // In one write, so that lines of several processes do not mix.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// `text` on stdout. A reader that has gone (`| head`) has had enough and is no failure.
pub(crate) fn answer(text: &str) -> Result<u8, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(exit::INTERNAL, "the answer could not be written to stdout").because(&error))
        }
        _ => Ok(exit::OK),
    }
}

/// Unix time in milliseconds as UTC, to the second; nothing for a number that no calendar has.
pub(crate) fn utc(unix_ms: u64) -> Option<String> {
    let time = DateTime::from_timestamp_millis(i64::try_from(unix_ms).ok()?)?;
    Some(time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// Who holds a key, since when, with which token and until when, as one clause.
pub(crate) fn held_by(held: &Held) -> String {
    let mut text = format!("held by {}", held.holder);
    // Writing to a String cannot fail.
    if let Some(since) = held.since_ms.and_then(utc) {
        let _ = write!(text, " since {since}");
    }
    let _ = write!(text, " with token {}", held.token);
    if let Some(until) = held.until_ms.and_then(utc) {
        let _ = write!(text, ", until {until} unless it is renewed");
    }
    text
}

/// How to look at `key`, as a shell takes it. `store`: the URL, if it was given.
pub(crate) fn show_command(store: Option<&str>, key: &LeaseKey) -> String {
    let store = store.map(|url| format!("--store {} ", shell_word(url))).unwrap_or_default();
    format!("leasehold {store}show {}", shell_word(key.as_str()))
}

fn shell_word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if text.bytes().all(plain) && !text.starts_with('-') {
        text.to_owned()
    } else {
        let dash = if text.starts_with('-') { "-- " } else { "" };
        format!("{dash}'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use leasehold::{FencingToken, Holder};

    #[test]
    fn the_clause_says_who_since_when_with_which_token_until_when() {
        let token = FencingToken::try_from(7_u64).unwrap();
        let mut held = Held::new(Holder::new("web-1:42").unwrap(), token, Duration::from_secs(30));
        assert_eq!(held_by(&held), "held by web-1:42 with token 7");
        held.since_ms = Some(1_764_504_000_123);
        held.until_ms = Some(1_764_504_030_999);
        assert_eq!(
            held_by(&held),
            "held by web-1:42 since 2025-11-30T12:00:00Z with token 7, until 2025-11-30T12:00:30Z unless it is renewed"
        );
        held.until_ms = Some(u64::MAX);
        assert_eq!(held_by(&held), "held by web-1:42 since 2025-11-30T12:00:00Z with token 7");
    }

    #[test]
    fn a_key_is_quoted_for_a_shell() {
        let words =
            [("a/b:c", "a/b:c"), ("two words", "'two words'"), ("it's", r"'it'\''s'"), ("-k", "-- '-k'")];
        for (key, word) in words {
            assert_eq!(shell_word(key), word);
        }
    }
}
