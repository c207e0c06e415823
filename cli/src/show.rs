//! `leasehold show`.

use std::fmt::Write as _;
use std::time::Duration;

use leasehold::{Held, LeaseKey, Observation};
use serde::Serialize;

use crate::args::Show;
use crate::exit::Failure;
use crate::print::{self, utc};
use crate::stores::Place;

/// How long one look at the store may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Says who holds a key. Looks only: it makes no store where there is none.
pub(crate) async fn show(place: &Place, task: &Show) -> Result<u8, Failure> {
    let address = place.address()?;
    let seen = match address.file().map(std::path::Path::try_exists) {
        Some(Ok(false)) => Observation::absent(task.key.clone()),
        _ => address.open().await?.inspect(&task.key, TIMEOUT).await?,
    };
    print::answer(&if task.json { json(&seen) } else { text(&seen) })
}

/// What `--json` prints. Names and meanings stay; fields may be added.
#[derive(Serialize)]
struct Report<'a> {
    key: &'a str,
    state: State,
    /// The token of the newest grant, or the floor.
    token: Option<u64>,
    sealed: bool,
    /// The grant that stands in the record, also when it is over.
    grant: Option<Grant<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Never granted.
    New,
    /// Released.
    Free,
    Held,
    /// Not renewed in time: the next to ask gets it.
    Over,
}

#[derive(Serialize)]
struct Grant<'a> {
    holder: &'a str,
    token: u64,
    since: Option<String>,
    since_ms: Option<u64>,
    until: Option<String>,
    until_ms: Option<u64>,
    ttl_ms: u64,
    renewals: u64,
    break_requested: bool,
}

fn state(seen: &Observation) -> State {
    match &seen.held {
        Some(held) if held.claimable => State::Over,
        Some(_) => State::Held,
        None if seen.token.is_some() => State::Free,
        None => State::New,
    }
}

fn json(seen: &Observation) -> String {
    let grant = seen.held.as_ref().map(|held| Grant {
        holder: held.holder.as_str(),
        token: held.token.get(),
        since: held.since_ms.and_then(utc),
        since_ms: held.since_ms,
        until: held.until_ms.and_then(utc),
        until_ms: held.until_ms,
        ttl_ms: u64::try_from(held.ttl.as_millis()).unwrap_or(u64::MAX),
        renewals: held.seq,
        break_requested: held.break_requested,
    });
    let report = Report {
        key: seen.key.as_str(),
        state: state(seen),
        token: seen.token.map(leasehold::FencingToken::get),
        sealed: seen.sealed,
        grant,
    };
    // Plain strings and numbers: there is nothing in it that JSON cannot say.
    let mut line = serde_json::to_string(&report).unwrap_or_default();
    line.push('\n');
    line
}

fn text(seen: &Observation) -> String {
    let key = &seen.key;
    let mut text = match (state(seen), &seen.held, seen.token) {
        (State::Held, Some(held), _) => {
            let asked = if held.break_requested { "; an operator has asked the holder to stop" } else { "" };
            format!("{}: held{asked}\n{}", key, details(held))
        }
        (_, Some(held), _) => {
            format!("{key}: over (its holder did not renew it; the next to ask gets it)\n{}", details(held))
        }
        (_, None, Some(token)) => format!("{key}: free\n  last token  {token}\n"),
        (_, None, None) => never(key),
    };
    if seen.sealed {
        text.push_str("  sealed      closed to new grants by an operator\n");
    }
    text
}

fn never(key: &LeaseKey) -> String {
    format!("{key}: free (it has never been held here)\n")
}

fn details(held: &Held) -> String {
    let time = |unix_ms: Option<u64>| unix_ms.and_then(utc).unwrap_or_else(|| String::from("not known"));
    let (since, until) = (time(held.since_ms), time(held.until_ms));
    let until_what = if held.claimable { "until" } else { "until, unless renewed" };
    let mut text = String::new();
    for (name, value) in [
        ("holder", held.holder.to_string()),
        ("token", held.token.to_string()),
        ("since", since),
        (until_what, until),
        ("ttl", humantime::format_duration(held.ttl).to_string()),
        ("renewals", held.seq.to_string()),
    ] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<21}  {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    use leasehold::{FencingToken, Holder};

    fn held() -> Observation {
        let token = FencingToken::try_from(1_764_504_000_123_u64).unwrap();
        let mut held = Held::new(Holder::new("web-1:42").unwrap(), token, Duration::from_secs(30));
        held.since_ms = Some(1_764_504_000_123);
        held.until_ms = Some(1_764_504_050_123);
        held.seq = 2;
        let mut seen = Observation::absent(LeaseKey::new("nightly").unwrap());
        (seen.token, seen.held) = (Some(token), Some(held));
        seen
    }

    #[test]
    fn the_json_fields_are_those_of_the_documentation() {
        assert_eq!(
            json(&held()),
            concat!(
                r#"{"key":"nightly","state":"held","token":1764504000123,"sealed":false,"grant":{"holder":"web-1:42","#,
                r#""token":1764504000123,"since":"2025-11-30T12:00:00Z","since_ms":1764504000123,"#,
                r#""until":"2025-11-30T12:00:50Z","until_ms":1764504050123,"ttl_ms":30000,"renewals":2,"#,
                r#""break_requested":false}}"#,
                "\n"
            )
        );
        let absent = Observation::absent(LeaseKey::new("nightly").unwrap());
        let expected =
            "{\"key\":\"nightly\",\"state\":\"new\",\"token\":null,\"sealed\":false,\"grant\":null}\n";
        assert_eq!(json(&absent), expected);
    }

    #[test]
    fn the_text_tells_held_over_free_and_new_apart() {
        let mut seen = held();
        assert!(
            text(&seen).starts_with("nightly: held\n  holder                 web-1:42\n"),
            "{}",
            text(&seen)
        );
        if let Some(held) = &mut seen.held {
            held.claimable = true;
        }
        assert!(text(&seen).starts_with("nightly: over ("), "{}", text(&seen));
        seen.held = None;
        assert_eq!(text(&seen), "nightly: free\n  last token  1764504000123\n");
        seen.token = None;
        assert_eq!(text(&seen), "nightly: free (it has never been held here)\n");
    }
}
