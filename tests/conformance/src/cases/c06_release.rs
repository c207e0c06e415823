use leasehold::testing::{Fault, Verb};
use leasehold::{BreakHow, FencingToken, LeaseAdmin, LeaseStore, ReleaseOutcome, ReleaseRequest};

use crate::clause::{Clause, ensure};
use crate::cut::give_up;
use crate::harness::Harness;
use crate::scene::{Scene, nonce};

/// A release frees the key at once. The record stays, and with it the token.
pub async fn c06_a_release_frees_the_key_and_keeps_the_record<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    scene.released(&store, &granted.grant).await;
    scene.stored(granted.grant.token).await;
    let seen = scene.look(&other).await;
    ensure!(
        scene,
        seen.held.is_none() && seen.token == Some(granted.grant.token),
        "a released key should be held by nobody and keep its token {}: {seen:?}",
        granted.grant.token
    );
    scene.fresh(&other).await;
}

/// The second release, and the third, find that it has been done.
pub async fn c06_a_release_may_be_repeated<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    scene.released(&store, &granted.grant).await;
    for store in [&store, &other] {
        ended(&scene, store, &ReleaseRequest::of(&granted.grant)).await;
    }
    scene.stored(granted.grant.token).await;
}

/// The holder of an old grant cannot end the new one, and is told which that is.
pub async fn c06_a_release_by_a_stale_grant_changes_nothing<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, other) = scene.two().await;
    let old = scene.fresh(&store).await;
    harness.expire(&scene.key).await;
    let new = scene.fresh(&other).await;
    held_by(&scene, &store, &ReleaseRequest::of(&old.grant), new.grant.token).await;
    held_by(
        &scene,
        &store,
        &ReleaseRequest::of_nonce(scene.key.clone(), old.grant.nonce.clone()),
        new.grant.token,
    )
    .await;
    scene.refused(&store, new.grant.token).await;
    let ask = scene.renewal(&new.grant);
    let renewed = scene.renewed(&other, &ask).await;
    ensure!(scene, renewed.attempt == ask.attempt, "a stale release should leave no trace: {renewed:?}");
}

/// The same when the grant was taken from outside.
pub async fn c06_a_release_after_a_takeover_from_outside_changes_nothing<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    harness.usurp(&scene.key).await;
    let usurper = scene.standing(&other).await.token;
    held_by(&scene, &store, &ReleaseRequest::of(&granted.grant), usurper).await;
    scene.refused(&other, usurper).await;
}

/// Also when the next holder has gone again, a release can tell that there was one.
pub async fn c06_a_release_after_the_next_holder_has_gone_says_that_there_was_one<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, other) = scene.two().await;
    let old = scene.fresh(&store).await;
    harness.expire(&scene.key).await;
    let new = scene.fresh(&other).await;
    scene.released(&other, &new.grant).await;
    held_by(&scene, &store, &ReleaseRequest::of(&old.grant), new.grant.token).await;
    scene.stored(new.grant.token).await;
}

/// A release that was held up on the way and arrives when the key is another's ends nothing.
pub async fn c06_a_release_that_arrives_late_ends_no_other_grant<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (faulty, other) = (scene.faulty().await, harness.store().await);
    let old = scene.fresh(&faulty).await;
    faulty.script(Verb::Release, [Fault::Delayed]);
    give_up(faulty.release(&ReleaseRequest::of(&old.grant))).await;
    harness.expire(&scene.key).await;
    let new = scene.fresh(&other).await;
    faulty.deliver().await;
    scene.refused(&faulty, new.grant.token).await;
    let ask = scene.renewal(&new.grant);
    let renewed = scene.renewed(&other, &ask).await;
    ensure!(
        scene,
        renewed.attempt == ask.attempt,
        "a release that arrives late should leave no trace: {renewed:?}"
    );
}

/// An acquire whose answer never came knows no token, and is given back by its nonce.
pub async fn c06_a_release_by_nonce_alone_ends_the_grant<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, other) = scene.two().await;
    let ask = scene.ask();
    let granted = scene.granted(&store, &ask).await;
    let release = ReleaseRequest::of_nonce(scene.key.clone(), ask.nonce.clone());
    let outcome = scene.release(&store, &release).await;
    ensure!(
        scene,
        outcome == ReleaseOutcome::Released,
        "the nonce alone identifies the grant, so a release by it should end it, not answer {outcome:?}"
    );
    ended(&scene, &store, &release).await;
    scene.stored(granted.grant.token).await;
    scene.fresh(&other).await;
}

/// A nonce that never won anything ends nothing: not on a key that was never granted, not on one that is held.
pub async fn c06_a_release_of_a_nonce_that_never_won_changes_nothing<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, other) = scene.two().await;
    let release = ReleaseRequest::of_nonce(scene.key.clone(), nonce());
    ended(&scene, &store, &release).await;
    let granted = scene.fresh(&other).await;
    held_by(&scene, &store, &release, granted.grant.token).await;
    scene.refused(&store, granted.grant.token).await;
}

/// A copy of the grant from before its renewals gives it back all the same: the nonce counts, not seq.
pub async fn c06_a_release_does_not_compare_seq<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    let renewed = scene.renewed(&store, &scene.renewal(&granted.grant)).await;
    scene.renewed(&store, &scene.renewal(&renewed.grant)).await;
    scene.released(&store, &granted.grant).await;
    scene.fresh(&other).await;
}

/// A grant that is over and that nobody took ends for good, by this release or before it.
pub async fn c06_a_release_of_a_lapsed_grant_leaves_the_key_free<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    harness.expire(&scene.key).await;
    let outcome = scene.release(&store, &ReleaseRequest::of(&granted.grant)).await;
    ensure!(
        scene,
        matches!(outcome, ReleaseOutcome::Released | ReleaseOutcome::AlreadyEnded),
        "nobody else has had the key, so a release should answer Released or AlreadyEnded, not {outcome:?}"
    );
    scene.stored(granted.grant.token).await;
    scene.fresh(&other).await;
}

/// A record that somebody deleted: there is nothing to end, and nothing is made.
pub async fn c06_a_release_of_a_deleted_record_makes_none<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let store = harness.store().await;
    let granted = scene.fresh(&store).await;
    if let Err(reason) = harness.delete_record(&scene.key).await {
        eprintln!("not tested, since no record can be deleted here: {reason}");
        return;
    }
    ended(&scene, &store, &ReleaseRequest::of(&granted.grant)).await;
    let seen = scene.look(&store).await;
    ensure!(scene, seen.held.is_none(), "a release makes no grant: {seen:?}");
}

/// A holder that was asked to stop, and stops, frees the key before the expiry.
pub async fn c06_a_release_after_a_graceful_break_frees_the_key<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, operator) = scene.two().await;
    let granted = scene.fresh(&store).await;
    scene.broke(&operator, granted.grant.token, BreakHow::Graceful).await;
    scene.released(&store, &granted.grant).await;
    scene.fresh(&operator).await;
}

/// After an immediate break there is nothing to release.
pub async fn c06_a_release_after_an_immediate_break_has_ended_before<H: Harness<Store: LeaseAdmin>>(
    harness: &H,
) {
    let scene = Scene::new(harness, Clause::Release);
    let (store, operator) = scene.two().await;
    let granted = scene.fresh(&store).await;
    scene.broke(&operator, granted.grant.token, BreakHow::Immediate).await;
    ended(&scene, &store, &ReleaseRequest::of(&granted.grant)).await;
    scene.stored(granted.grant.token).await;
}

async fn ended<H: Harness>(scene: &Scene<'_, H>, store: &impl LeaseStore, ask: &ReleaseRequest) {
    let outcome = scene.release(store, ask).await;
    ensure!(
        scene,
        outcome == ReleaseOutcome::AlreadyEnded,
        "there is no grant of this nonce, and nobody has had the key since: a release should answer AlreadyEnded, not \
         {outcome:?}"
    );
}

async fn held_by<H: Harness>(
    scene: &Scene<'_, H>,
    store: &impl LeaseStore,
    ask: &ReleaseRequest,
    newest: FencingToken,
) {
    let outcome = scene.release(store, ask).await;
    ensure!(
        scene,
        outcome == ReleaseOutcome::HeldByOther { by: newest },
        "another has been granted the key since: a release should change nothing and answer HeldByOther by {newest}, not \
         {outcome:?}"
    );
}
