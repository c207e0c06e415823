use std::sync::Arc;
use std::time::Duration;

use leasehold::testing::{Fault, Verb};
use leasehold::{AcquireOutcome, AcquireRequest, Granted, LeaseStore, ReleaseRequest};

use crate::clause::{Clause, ensure};
use crate::harness::Harness;
use crate::race::all_at_once;
use crate::scene::{Scene, Tries, attempt};

/// The same nonce asked again, by another attempt and over another connection, is the grant that it already is.
pub async fn c03_the_same_nonce_again_is_the_same_grant<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Repetition);
    let (first, second) = scene.two().await;
    let ask = scene.ask();
    let granted = scene.granted(&first, &ask).await;
    for store in [&first, &second] {
        let again = again(&scene, store, &ask, &granted).await;
        ensure!(
            scene,
            again.grant.seq == granted.grant.seq,
            "asking again renews nothing, so seq should stay: {granted:?}, then {again:?}"
        );
    }
    scene.stored(granted.grant.token).await;
}

/// The answer names the attempt that the expiry counts from: the first, whose time goes on running; or the one just made,
/// and then the ttl runs anew.
pub async fn c03_repetition_names_the_attempt_that_counts<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Repetition);
    let (store, other) = scene.two().await;
    let ask = scene.ask();
    let granted = scene.granted(&store, &ask).await;
    ensure!(
        scene,
        granted.attempt == ask.attempt,
        "the answer to the first attempt {:?} should name it: {granted:?}",
        ask.attempt
    );
    harness.age(&scene.key, scene.most_of_ttl()).await;
    let again = again(&scene, &store, &ask, &granted).await;
    if again.attempt == granted.attempt {
        ensure!(
            scene,
            again.ttl == granted.ttl,
            "one attempt has one ttl, so it should stay {:?} and has become {:?}",
            granted.ttl,
            again.ttl
        );
    } else {
        // The holder now counts its deadline from the second attempt, so the store must keep others out as long.
        harness.age(&scene.key, scene.most_of_ttl()).await;
        scene.refused(&other, granted.grant.token).await;
    }
}

/// Also a grant that has been renewed since is recognised, and keeps its renewals.
pub async fn c03_the_same_nonce_again_after_renewals_is_the_same_grant<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Repetition);
    let store = harness.store().await;
    let ask = scene.ask();
    let mut granted = scene.granted(&store, &ask).await;
    let first = granted.attempt;
    for _ in 0..2 {
        granted = scene.renewed(&store, &scene.renewal(&granted.grant)).await;
    }
    let mut late = ask.clone();
    late.attempt = attempt();
    let again = scene.granted(&store, &late).await;
    ensure!(
        scene,
        again.grant.token == granted.grant.token,
        "the same nonce should be the same grant: {granted:?}, then {again:?}"
    );
    if store.profile().detects_clones {
        ensure!(
            scene,
            again.grant.seq == granted.grant.seq,
            "the grant should come back with its renewals: {granted:?}, then {again:?}"
        );
    }
    ensure!(
        scene,
        [first, granted.attempt, late.attempt].contains(&again.attempt),
        "the answer should name an attempt that was made under this nonce: {again:?}"
    );
    scene.renewed(&store, &scene.renewal(&again.grant)).await;
}

/// Duplicates of one request, all on the way at once, make one grant.
pub async fn c03_one_nonce_asked_many_times_at_once_is_one_grant<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Repetition);
    let clients = [Arc::new(harness.store().await), Arc::new(harness.store().await)];
    for _ in 0..harness.rounds().div_ceil(5) {
        let ask = scene.ask_for(&crate::scene::fresh_key());
        let runners: Vec<_> = (0..8)
            .map(|number| repeat_in_a_race(scene.clause, Arc::clone(&clients[number % 2]), ask.clone()))
            .collect();
        let mut tokens = Vec::new();
        for outcome in all_at_once(runners).await {
            match outcome {
                AcquireOutcome::Granted(granted) => tokens.push(granted.grant.token),
                other => scene.clause.broken(format_args!(
                    "a nonce that meets its own write should recognise it, and is answered {other:?}"
                )),
            }
        }
        tokens.dedup();
        ensure!(
            scene,
            tokens.len() == 1,
            "duplicates of one request should be one grant, and got {tokens:?}"
        );
    }
}

async fn repeat_in_a_race<S: LeaseStore>(
    clause: Clause,
    store: Arc<S>,
    mut ask: AcquireRequest,
) -> AcquireOutcome {
    let mut tries = Tries::new(clause);
    ask.attempt = attempt();
    loop {
        match store.acquire(&ask).await {
            Ok(outcome) => return outcome,
            Err(error) => tries.after_any("acquire", &error).await,
        }
    }
}

/// A request that the network delivers twice makes one grant. The second delivery may come when the grant has been given
/// back: what it makes then has a token of its own, and the same nonce ends it.
pub async fn c03_an_acquire_that_arrives_twice_repeats_no_token<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Repetition);
    let (faulty, other) = (scene.faulty().await, harness.store().await);
    faulty.script(Verb::Acquire, [Fault::Twice]);
    let ask = scene.ask();
    let granted = scene.granted(&faulty, &ask).await;
    faulty.deliver().await;
    scene.stored(granted.grant.token).await;
    scene.refused(&other, granted.grant.token).await;
    scene.released(&faulty, &granted.grant).await;

    faulty.script(Verb::Acquire, [Fault::Twice]);
    let ask = scene.ask();
    let granted = scene.granted(&faulty, &ask).await;
    scene.released(&faulty, &granted.grant).await;
    faulty.deliver().await;
    let stray = scene.look(&other).await;
    ensure!(
        scene,
        stray.held.as_ref().is_none_or(|held| held.token > granted.grant.token),
        "a request that arrives again after the release of its grant {granted:?} may make a new one, not the old: {stray:?}"
    );
    scene.release(&faulty, &ReleaseRequest::of_nonce(scene.key.clone(), ask.nonce.clone())).await;
    let next = scene.fresh(&other).await;
    ensure!(
        scene,
        Some(next.grant.token) > stray.token,
        "tokens should grow from {:?}: {next:?}",
        stray.token
    );
}

/// A grant that has been given back is not the same grant any more: its nonce may win the key again, with a new token.
pub async fn c03_a_nonce_asked_again_after_its_release_repeats_no_token<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Repetition);
    let store = harness.store().await;
    let ask = scene.ask();
    let granted = scene.granted(&store, &ask).await;
    scene.released(&store, &granted.grant).await;
    let mut late = ask.clone();
    late.attempt = attempt();
    match scene.acquire(&store, &late).await {
        AcquireOutcome::Granted(next) => {
            ensure!(
                scene,
                next.grant.token > granted.grant.token,
                "a grant after a release is a new one, with a new token: {granted:?}, then {next:?}"
            );
            scene.stored(next.grant.token).await;
        }
        other => scene.clause.broken(format_args!("nobody holds the key, and a nonce is told {other:?}")),
    }
}

/// A nonce whose grant another has taken over is contention like any other, and wins again only when the key is free.
pub async fn c03_a_nonce_that_was_superseded_is_refused<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Repetition);
    let (first, second) = scene.two().await;
    let ask = scene.ask();
    let old = scene.granted(&first, &ask).await;
    harness.expire(&scene.key).await;
    let new = scene.fresh(&second).await;
    let mut late = ask.clone();
    late.attempt = attempt();
    let held = scene.held(&first, &late).await;
    ensure!(scene, held.token == new.grant.token, "Held should name the current grant {new:?}: {held:?}");
    scene.released(&second, &new.grant).await;
    let next = scene.granted(&first, &late).await;
    ensure!(
        scene,
        next.grant.token > new.grant.token && next.grant.token > old.grant.token,
        "a grant after a takeover is a new one, with a new token: {old:?}, {new:?}, then {next:?}"
    );
}

/// Repetition does not make a grant longer or shorter than the answer says, whatever ttl the repetition asks for.
pub async fn c03_a_repetition_with_another_ttl_says_the_ttl_in_force<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Repetition);
    let (store, other) = scene.two().await;
    let mut ask = scene.ask();
    let granted = scene.granted(&store, &ask).await;
    ask.attempt = attempt();
    ask.ttl = scene.ttl() * 2;
    let again = scene.granted(&store, &ask).await;
    ensure!(
        scene,
        again.attempt == ask.attempt || again.ttl == granted.ttl,
        "the ttl in force is that of the attempt named: {granted:?}, then {again:?}"
    );
    harness.age(&scene.key, part(again.ttl)).await;
    scene.refused(&other, granted.grant.token).await;
}

fn part(ttl: Duration) -> Duration {
    ttl * 3 / 4
}

/// Asks again as a new attempt, and expects the same token and an honest attempt.
async fn again<H: Harness>(
    scene: &Scene<'_, H>,
    store: &impl LeaseStore,
    ask: &AcquireRequest,
    granted: &Granted,
) -> Granted {
    let mut ask = ask.clone();
    ask.attempt = attempt();
    let again = scene.granted(store, &ask).await;
    ensure!(
        scene,
        again.grant.token == granted.grant.token,
        "the same nonce should be the same grant: {granted:?}, then {again:?}"
    );
    ensure!(
        scene,
        again.attempt == granted.attempt || again.attempt == ask.attempt,
        "the answer should name the attempt that is in the store, {:?}, or the one just made, {:?}: {again:?}",
        granted.attempt,
        ask.attempt
    );
    again
}
