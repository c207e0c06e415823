//! Keys are byte-exact and never alias.

use std::collections::BTreeSet;

use leasehold::{LeaseAdmin, LeaseStore};

use crate::rig::{Place, TTL, grant, key};

fn alphabet() -> Vec<String> {
    let mut keys: Vec<String> = [
        "Job",
        "job",
        "JOB",
        "job/",
        "job//",
        "/job",
        "job ",
        " job",
        "job\t",
        "job\n",
        "j%b",
        "j_b",
        "j*b",
        "'; DROP TABLE lease; --",
        // One letter composed, and in two ways decomposed; the Kelvin sign and K; sharp s and its capitals.
        "\u{e9}",
        "e\u{301}",
        "E\u{301}",
        "\u{212a}",
        "K",
        "k",
        "\u{df}",
        "ss",
        "SS",
        "\u{1e9e}",
        // Digits that a column of numbers would make one.
        "1",
        "01",
        "1.0",
        "1e0",
        "0x1",
        "+1",
        // Planes 0 to 16, their edges, and marks that some text functions drop.
        "\u{1}",
        "\u{7f}",
        "\u{80}",
        "\u{feff}",
        "\u{fffd}",
        "\u{ffff}",
        "\u{200b}",
        "a\u{200d}b",
        "ab",
    ]
    .map(String::from)
    .to_vec();
    keys.extend(
        (1..=16)
            .flat_map(|plane| [plane * 0x1_0000, plane * 0x1_0000 + 0xfffd])
            .map(|code| char::from_u32(code).unwrap().to_string()),
    );
    keys.push("k".repeat(512));
    keys.push(format!("{}K", "k".repeat(511)));
    keys.push("\u{10ffff}".repeat(128));
    keys
}

#[tokio::test]
async fn no_two_keys_alias_and_a_list_is_in_byte_order() {
    let place = Place::new();
    let store = place.open().await;
    let keys = alphabet();
    for text in &keys {
        grant(&store, text, 1).await;
    }
    for text in &keys {
        let seen = store.inspect(&key(text), TTL).await.unwrap();
        assert_eq!((seen.key.as_str(), seen.held.is_some()), (text.as_str(), true));
    }
    let listed: Vec<String> =
        store.list("", None, 1_000).await.unwrap().iter().map(|seen| seen.key.as_str().to_owned()).collect();
    assert_eq!(listed, keys.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_list_comes_in_pages_and_by_prefix() {
    let place = Place::new();
    let store = place.open().await;
    for text in ["a", "job", "job/1", "job/2", "job/3", "job0", "jobs", "z"] {
        grant(&store, text, 1).await;
    }
    let page = async |prefix: &str, after: Option<&str>, limit: usize| {
        let after = after.map(key);
        let page = store.list(prefix, after.as_ref(), limit).await.unwrap();
        page.into_iter().map(|seen| seen.key.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(page("job/", None, 2).await, ["job/1", "job/2"]);
    assert_eq!(page("job/", Some("job/2"), 2).await, ["job/3"]);
    assert_eq!(page("job/", Some("job/3"), 2).await, [""; 0]);
    assert_eq!(page("job", None, 9).await, ["job", "job/1", "job/2", "job/3", "job0", "jobs"]);
    assert_eq!(page("job/", Some("a"), 9).await, ["job/1", "job/2", "job/3"]);
    assert_eq!(page("job/", Some("z"), 9).await, [""; 0]);
    assert_eq!(page("job", None, 0).await, [""; 0]);
    assert_eq!(page("nothing", None, 9).await, [""; 0]);
}
