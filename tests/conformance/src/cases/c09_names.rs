use std::collections::BTreeSet;

use leasehold::{Grant, LeaseAdmin, LeaseKey};

use crate::clause::{Clause, ensure};
use crate::harness::Harness;
use crate::scene::{Scene, unique};

/// What is put around a text that no other run uses, so that names begin and end as they must. `*` is that text.
const ALIKE: &[&str] = &[
    // Case, in ASCII and beyond; pairs that fold or lower to one another.
    "*job",
    "*Job",
    "*JOB",
    "*\u{131}",
    "*i",
    "*I",
    "*\u{130}",
    "*k",
    "*\u{212a}",
    "*ss",
    "*\u{df}",
    "*\u{1e9e}",
    // Separators and dots, at both ends.
    "*",
    "/*",
    "*/",
    "*//",
    "*/.",
    "*/..",
    "./*",
    "../*",
    "*/x/../y",
    "*/y",
    "*.",
    "*..",
    "*\\",
    "\\*",
    "*:",
    "*|",
    // White space, at both ends.
    " *",
    "* ",
    "*  ",
    "\t*",
    "*\t",
    "*\n",
    "*\r\n",
    "*\u{a0}",
    "*\u{3000}",
    "*\u{2028}",
    // What URLs, paths and shells read something into.
    "*%",
    "*%2F",
    "*%2f",
    "*%00",
    "*+",
    "*%20",
    "*?",
    "*?a=b&c",
    "*#",
    "*#frag",
    "~*",
    "-*",
    "--*",
    "$*",
    "*{}",
    "*[0]",
    // What SQL, JSON, Redis, etcd and LDAP read something into.
    "*'",
    "*''",
    "*\"",
    "*`",
    "*;--",
    "*_",
    "*\\u0000",
    "*\\x00",
    "*,",
    "*=",
    "*(*)",
    // Unicode: precomposed and combining, compatibility forms, invisible characters, direction, control characters.
    "*\u{e9}",
    "*e\u{301}",
    "*\u{fb01}",
    "*fi",
    "*\u{ff4a}ob",
    "*\u{200b}",
    "*\u{feff}",
    "\u{feff}*",
    "*\u{202e}",
    "*\u{1}",
    "*\u{7f}",
    "*\u{85}",
];

/// Names that are alike: none is another.
fn alike(id: &str) -> Vec<LeaseKey> {
    // `%` and `_` stand for anything in SQL's LIKE, `*` in Redis and in shells.
    let patterns = ["%", "_", "?", "[a-z]"].map(|wild| format!("{}{wild}", &id[..id.len() - 1]));
    let mut names: Vec<_> = ALIKE.iter().map(|around| around.replace('*', id)).chain(patterns).collect();
    // Each is the beginning of the next.
    names.extend((1..=4).map(|length| format!("{id}{}", "a".repeat(length))));
    keys(names)
}

/// A character of each plane that Unicode has, the private ones included, and the last of each.
fn planes(id: &str) -> Vec<LeaseKey> {
    let characters = (0..=16_u32).flat_map(|plane| {
        [0x0041, 0x0400, 0xf8ff, 0xfffd, 0xffff]
            .map(|low| char::from_u32(plane << 16 | low))
            .into_iter()
            .flatten()
    });
    keys(characters.map(|character| format!("{id}{character}")).collect())
}

/// Names of the greatest length, and of one byte less: they differ in their last byte, or in their first.
fn longest(id: &str) -> Vec<LeaseKey> {
    let room = LeaseKey::MAX_BYTES - id.len();
    let filled = |unit: &str, tail: &str| {
        let times = (room - tail.len()) / unit.len();
        format!("{id}{}{tail}", unit.repeat(times))
    };
    keys(vec![
        filled("a", ""),
        filled("a", "b"),
        filled("a", "B"),
        filled("a", " "),
        format!("{id}{}", "a".repeat(room - 1)),
        filled("\u{10fffd}", ""),
        filled("\u{10fffd}", "é"),
        filled("'", ""),
        filled("%", ""),
        format!("a{}", &filled("a", "")[..LeaseKey::MAX_BYTES - 1]),
        format!("b{}", &filled("a", "")[..LeaseKey::MAX_BYTES - 1]),
    ])
}

fn keys(names: Vec<String>) -> Vec<LeaseKey> {
    let keys: BTreeSet<_> =
        names.iter().map(|name| LeaseKey::new(name).expect("the kit's own keys are valid")).collect();
    assert_eq!(keys.len(), names.len(), "the kit's own keys are all different");
    keys.into_iter().collect()
}

/// Names that are alike are held by different holders, all at once.
pub async fn c09_names_that_are_alike_are_different_keys<H: Harness>(harness: &H) {
    all_held_at_once(harness, &alike(&unique())).await;
}

/// So are names that differ in one character, of whichever plane of Unicode.
pub async fn c09_every_plane_of_unicode_makes_names<H: Harness>(harness: &H) {
    all_held_at_once(harness, &planes(&unique())).await;
}

/// So are the longest names, which differ in one byte.
pub async fn c09_the_longest_names_are_different_keys<H: Harness>(harness: &H) {
    all_held_at_once(harness, &longest(&unique())).await;
}

/// Holds all keys, each by a nonce of its own, and renews and releases them: nothing that is done to one is seen at
/// another.
async fn all_held_at_once<H: Harness>(harness: &H, keys: &[LeaseKey]) {
    let scene = Scene::new(harness, Clause::Names);
    let (store, other) = scene.two().await;
    let mut grants: Vec<Grant> = Vec::with_capacity(keys.len());
    for key in keys {
        let seen = scene.look_at(&other, key).await;
        ensure!(
            scene,
            seen.token.is_none(),
            "{key:?} has not been granted yet, and shows another's record: {seen:?}"
        );
        grants.push(scene.granted(&store, &scene.ask_for(key)).await.grant);
    }
    for (number, grant) in grants.iter_mut().enumerate() {
        let seen = scene.look_at(&other, &grant.key).await;
        ensure!(
            scene,
            seen.key == grant.key && seen.held.as_ref().is_some_and(|held| held.token == grant.token),
            "{:?} should be seen under its own name with its own token {}: {seen:?}",
            grant.key,
            grant.token
        );
        let held = scene.held(&other, &scene.ask_for(&grant.key)).await;
        ensure!(
            scene,
            held.token == grant.token,
            "{:?} should be held with {}: {held:?}",
            grant.key,
            grant.token
        );
        let ask = scene.renewal(grant);
        let renewed = scene.renewed(&store, &ask).await;
        ensure!(
            scene,
            renewed.attempt == ask.attempt && renewed.grant.seq == 1,
            "{:?} has been renewed by nobody else: {renewed:?}",
            grant.key
        );
        *grant = renewed.grant;
        let stored = harness.stored_token(&grant.key).await;
        ensure!(
            scene,
            stored == Some(grant.token),
            "the store should keep {} for {:?}, and keeps {stored:?}",
            grant.token,
            grant.key
        );
        // Every second one is given back, and its neighbours stay held.
        if number % 2 == 0 {
            scene.released(&store, grant).await;
        }
    }
    for (number, grant) in grants.iter().enumerate() {
        let seen = scene.look_at(&other, &grant.key).await;
        ensure!(
            scene,
            seen.token == Some(grant.token) && seen.held.is_some() == (number % 2 == 1),
            "{:?} should be as its own holder left it: {seen:?}",
            grant.key
        );
    }
}

/// A list shows names byte by byte as they were given, in byte order; and what it is asked for is a beginning and no
/// pattern.
pub async fn c09_a_list_shows_names_byte_by_byte<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Names);
    let store = harness.store().await;
    let id = unique();
    let names: BTreeSet<_> = [alike(&id), planes(&id), longest(&id)].into_iter().flatten().collect();
    for key in &names {
        scene.granted(&store, &scene.ask_for(key)).await;
    }
    let stem = &id[..id.len() - 1];
    let wild = ["%", "_", "?", "[a-z]"].map(|wild| format!("{stem}{wild}"));
    let beginnings =
        ["", "/", "/.", "j", "J", "%", "%2F", "_", "'", "\\", " ", "a", "aaa", "\u{10ffff}", "e\u{301}"];
    for prefix in beginnings.map(|end| format!("{id}{end}")).iter().chain(&wild) {
        let expected: Vec<_> = names.iter().filter(|key| key.as_str().starts_with(prefix)).cloned().collect();
        let listed: Vec<_> =
            scene.list_all(&store, prefix, 40).await.into_iter().map(|seen| seen.key).collect();
        ensure!(
            scene,
            listed == expected,
            "a list of what begins with {prefix:?} should show, in byte order, {expected:?}, and shows {listed:?}"
        );
    }
}
