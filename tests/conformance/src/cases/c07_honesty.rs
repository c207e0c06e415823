use std::time::Duration;

use leasehold::{Holder, ReleaseOutcome, ReleaseRequest};

use crate::clause::{Clause, ensure};
use crate::harness::Harness;
use crate::scene::{Scene, attempt};

/// An acquire that landed and whose answer was lost: asked again it is granted, and the answer says which attempt landed,
/// so that the holder counts its deadline from that one. Nobody else is told that the key is free.
pub async fn c07_an_acquire_whose_answer_was_lost_is_recognised<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Honesty);
    let (store, other) = scene.two().await;
    let ask = scene.ask();
    let lost = scene.granted(&store, &ask).await;
    scene.refused(&other, lost.grant.token).await;
    let mut again = ask.clone();
    again.attempt = attempt();
    let told = scene.granted(&store, &again).await;
    ensure!(
        scene,
        told.grant.token == lost.grant.token && told.grant.seq == lost.grant.seq,
        "its own write should be recognised: {:?} is in the store, and it is told {told:?}",
        lost.grant
    );
    ensure!(
        scene,
        [ask.attempt, again.attempt].contains(&told.attempt),
        "an answer names an attempt that was made, {:?} or {:?}: {told:?}",
        ask.attempt,
        again.attempt
    );
    scene.renewed(&store, &scene.renewal(&told.grant)).await;
}

/// A renewal that landed and whose answer was lost is the holder's own write, and neither a clone's nor a takeover.
pub async fn c07_a_renewal_whose_answer_was_lost_is_recognised<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Honesty);
    let store = harness.store().await;
    let mut grant = scene.fresh(&store).await.grant;
    for _ in 0..3 {
        let ask = scene.renewal(&grant);
        let lost = scene.renewed(&store, &ask).await;
        let again = scene.renewal(&grant);
        let told = scene.renewed(&store, &again).await;
        ensure!(
            scene,
            [ask.attempt, again.attempt].contains(&told.attempt) && told.grant.seq == lost.grant.seq,
            "its own renewal should be recognised, by {:?} or {:?}: {lost:?} is in the store, and it is told {told:?}",
            ask.attempt,
            again.attempt
        );
        grant = told.grant;
    }
    scene.released(&store, &grant).await;
}

/// A release that landed and whose answer was lost: asked again it says that the grant has ended, or who came after.
pub async fn c07_a_release_whose_answer_was_lost_is_recognised<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Honesty);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    let release = ReleaseRequest::of(&granted.grant);
    scene.released(&store, &granted.grant).await;
    let told = scene.release(&store, &release).await;
    ensure!(
        scene,
        told == ReleaseOutcome::AlreadyEnded,
        "a release that was done before should answer AlreadyEnded, not {told:?}"
    );
    let next = scene.fresh(&other).await;
    let told = scene.release(&store, &release).await;
    ensure!(
        scene,
        told == ReleaseOutcome::HeldByOther { by: next.grant.token },
        "the key has been granted to another since, and a release should say to whom, not {told:?}"
    );
}

/// Contention is an answer and no error, and says who holds the key, as inspect does.
pub async fn c07_contention_is_an_answer_and_says_who_holds_the_key<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Honesty);
    let (store, other) = scene.two().await;
    let mut ask = scene.ask();
    ask.holder = Holder::new("worker-7 – the one in Zürich").expect("the label is valid");
    let granted = scene.granted(&store, &ask).await;
    let told = scene.held(&other, &scene.ask()).await;
    let seen = scene.standing(&other).await;
    for held in [&told, &seen] {
        ensure!(
            scene,
            held.holder == ask.holder && held.token == granted.grant.token && held.ttl == granted.ttl,
            "others should see the holder's label, token and ttl: {granted:?} of {}, seen as {held:?}",
            ask.holder
        );
    }
    let secret = ask.nonce.expose_hex();
    for text in [format!("{told:?}"), format!("{seen:?}"), format!("{granted:?}")] {
        ensure!(scene, !text.to_lowercase().contains(&secret), "the nonce is a secret, and is shown: {text}");
    }
}

/// Inspect shows what is there: nothing, a grant, a token without a grant.
pub async fn c07_inspect_shows_what_is_there<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Honesty);
    let (store, other) = scene.two().await;
    let seen = scene.look(&other).await;
    ensure!(
        scene,
        seen.key == scene.key && seen.token.is_none() && seen.held.is_none() && !seen.sealed,
        "a key that was never granted has no record, and inspect makes none: {seen:?}"
    );
    ensure!(
        scene,
        harness.stored_token(&scene.key).await.is_none(),
        "a key that was never granted has no token in the store either"
    );

    let granted = scene.fresh(&store).await;
    let seen = scene.look(&other).await;
    let newest = Some(granted.grant.token);
    ensure!(
        scene,
        seen.token == newest && seen.held.as_ref().map(|held| held.token) == newest,
        "inspect should show the token that was granted, {newest:?}: {seen:?}"
    );

    scene.released(&store, &granted.grant).await;
    let seen = scene.look(&other).await;
    ensure!(scene, seen.token == newest && seen.held.is_none(), "after a release the token stays: {seen:?}");
}

/// Times for people are near those for machines: a grant that stands began in the past and ends in the future, by a wall
/// clock that may be the harness's own.
pub async fn c07_times_for_people_make_sense<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Honesty);
    let store = harness.store().await;
    scene.fresh(&store).await;
    let held = scene.standing(&store).await;
    if let (Some(since), Some(until)) = (held.since_ms, held.until_ms) {
        let length = Duration::from_millis(until.saturating_sub(since));
        ensure!(
            scene,
            length + Duration::from_secs(2) >= held.ttl && length <= held.ttl * 2,
            "a grant for {:?} should be shown to last about as long, not {length:?}: {held:?}",
            held.ttl
        );
    }
}
