use leasehold::testing::{Fault, Verb};
use leasehold::{BreakHow, Grant, LeaseAdmin, LeaseStore, RenewOutcome, RenewRequest};

use crate::clause::{Clause, ensure};
use crate::cut::give_up;
use crate::harness::Harness;
use crate::scene::{Scene, fresh_key, nonce};

/// A renewal counts up `seq` and keeps everything else. The store keeps one token all the while.
pub async fn c05_a_renewal_keeps_the_token_and_counts<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (store, other) = scene.two().await;
    let mut granted = scene.fresh(&store).await;
    ensure!(scene, granted.grant.seq == 0, "a new grant has not been renewed: {granted:?}");
    for _ in 0..5 {
        let ask = scene.renewal(&granted.grant);
        let renewed = scene.renewed(&store, &ask).await;
        ensure!(
            scene,
            renewed.grant.seq == granted.grant.seq + 1 && renewed.attempt == ask.attempt,
            "a renewal should raise seq by one and name its attempt {:?}: {granted:?}, then {renewed:?}",
            ask.attempt
        );
        let seen = scene.standing(&other).await;
        ensure!(
            scene,
            seen.token == renewed.grant.token && !seen.claimable,
            "others should see the grant with its token: {renewed:?}, seen as {seen:?}"
        );
        if store.profile().detects_clones {
            ensure!(
                scene,
                seen.seq == renewed.grant.seq,
                "the record should count renewals: {renewed:?}, {seen:?}"
            );
        }
        scene.stored(renewed.grant.token).await;
        granted = renewed;
    }
}

/// A grant is plain data: another process that has been given it renews and releases it.
pub async fn c05_a_grant_is_renewed_by_whoever_was_given_it<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (first, second) = scene.two().await;
    let granted = scene.fresh(&first).await;
    let renewed = scene.renewed(&second, &scene.renewal(&granted.grant)).await;
    scene.released(&first, &renewed.grant).await;
}

/// A renewal for less than is left does not bring the expiry forward: another may have read the later one.
pub async fn c05_a_renewal_never_moves_the_expiry_back<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (store, other) = scene.two().await;
    let mut long = scene.ask();
    long.ttl = scene.ttl() * 2;
    let granted = scene.granted(&store, &long).await;
    let short = scene.renewal(&granted.grant);
    let renewed = scene.renewed(&store, &short).await;
    harness.age(&scene.key, granted.ttl * 3 / 4).await;
    let seen = scene.standing(&other).await;
    ensure!(
        scene,
        !seen.claimable,
        "a grant for {:?}, renewed for {:?} at once, should still stand after three quarters of the longer: {seen:?}",
        granted.ttl,
        renewed.ttl
    );
    scene.refused(&other, granted.grant.token).await;
}

/// A renewal that is one behind meets a write under its own nonce. It is told which attempt counts, and moves nothing
/// unless it says that it has.
pub async fn c05_a_renewal_one_behind_is_told_the_attempt_in_the_store<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    let first = scene.renewal(&granted.grant);
    let renewed = scene.renewed(&store, &first).await;
    harness.age(&scene.key, scene.most_of_ttl()).await;

    let behind = scene.renewal(&granted.grant);
    let told = scene.renewed(&store, &behind).await;
    ensure!(
        scene,
        told.grant.seq == renewed.grant.seq,
        "the record is one renewal ahead of the request, and seq should say so: {renewed:?}, then {told:?}"
    );
    if told.attempt == behind.attempt {
        ensure!(
            scene,
            !store.profile().detects_clones,
            "a renewal with a stale seq should be refused and told the attempt in the store, {:?}. It was carried out: \
             compare seq, or say in the profile that clones are not detected",
            first.attempt
        );
        harness.age(&scene.key, scene.most_of_ttl()).await;
        scene.refused(&other, granted.grant.token).await;
    } else {
        ensure!(
            scene,
            told.attempt == first.attempt,
            "the attempt named should be the one in the store, {:?}, or the one just made: {told:?}",
            first.attempt
        );
    }
    scene.renewed(&store, &scene.renewal(&told.grant)).await;
}

/// A renewal that was held up on the way arrives when its holder has renewed by another attempt, or has given the key back.
/// It brings nothing back and leaves no trace, unless the profile says that renewals are not counted.
pub async fn c05_a_renewal_that_arrives_late_changes_nothing<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (faulty, other) = (scene.faulty().await, harness.store().await);
    let mut grant = scene.fresh(&faulty).await.grant;
    faulty.script(Verb::Renew, [Fault::Delayed]);
    give_up(faulty.renew(&[scene.renewal(&grant)])).await;
    for _ in 0..2 {
        grant = scene.renewed(&faulty, &scene.renewal(&grant)).await.grant;
    }
    faulty.deliver().await;
    let ask = scene.renewal(&grant);
    let renewed = scene.renewed(&faulty, &ask).await;
    ensure!(
        scene,
        renewed.attempt == ask.attempt && renewed.grant.seq == grant.seq + 1,
        "a renewal that arrives late should leave no trace, and the holder of {grant:?} finds {renewed:?}"
    );

    faulty.script(Verb::Renew, [Fault::Delayed]);
    give_up(faulty.renew(&[scene.renewal(&renewed.grant)])).await;
    scene.released(&faulty, &renewed.grant).await;
    faulty.deliver().await;
    let next = scene.fresh(&other).await;
    faulty.script(Verb::Renew, [Fault::Delayed]);
    give_up(faulty.renew(&[scene.renewal(&renewed.grant)])).await;
    faulty.deliver().await;
    scene.refused(&faulty, next.grant.token).await;
    scene.renewed(&other, &scene.renewal(&next.grant)).await;
}

/// A renewal that is two behind is another process's copy of the grant. Where the profile says that clones are detected it
/// is told so, and nothing changes; where it says that they are not, it is renewed like any other.
pub async fn c05_a_renewal_two_behind_is_as_the_profile_says<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let store = harness.store().await;
    let copy = scene.fresh(&store).await.grant;
    let mut original = copy.clone();
    for _ in 0..2 {
        original = scene.renewed(&store, &scene.renewal(&original)).await.grant;
    }
    let outcome = scene.renew(&store, &scene.renewal(&copy)).await;
    if store.profile().detects_clones {
        ensure!(
            scene,
            matches!(outcome, RenewOutcome::Cloned),
            "the profile says that clones are detected, so a renewal that is two behind should answer Cloned, not {outcome:?}"
        );
        let ask = scene.renewal(&original);
        let renewed = scene.renewed(&store, &ask).await;
        ensure!(
            scene,
            renewed.attempt == ask.attempt && renewed.grant.seq == original.seq + 1,
            "the clone's request should have changed nothing: {original:?}, then {renewed:?}"
        );
    } else {
        ensure!(
            scene,
            matches!(&outcome, RenewOutcome::Renewed(granted) if granted.grant.token == original.token),
            "the profile says that clones are not detected, so a renewal of the current grant should be renewed, not \
             answered {outcome:?}: set detects_clones if they are"
        );
    }
}

/// After a takeover from outside the holder is told, and the new grant stays as it is.
pub async fn c05_a_renewal_after_a_takeover_from_outside_is_superseded<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    harness.usurp(&scene.key).await;
    superseded(&scene, &store, &granted.grant).await;
    let seen = scene.standing(&other).await;
    ensure!(
        scene,
        seen.token > granted.grant.token && !seen.claimable,
        "the usurper's grant should stand as it was: {seen:?}"
    );
}

/// After expiry and takeover too, also when the new holder has given the key back.
pub async fn c05_a_renewal_after_expiry_and_takeover_is_superseded<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (store, other) = scene.two().await;
    let old = scene.fresh(&store).await;
    harness.expire(&scene.key).await;
    let new = scene.fresh(&other).await;
    superseded(&scene, &store, &old.grant).await;
    let renewed = scene.renewed(&other, &scene.renewal(&new.grant)).await;
    scene.released(&other, &renewed.grant).await;
    superseded(&scene, &store, &old.grant).await;
    scene.fresh(&other).await;
}

async fn superseded<H: Harness>(scene: &Scene<'_, H>, store: &impl LeaseStore, grant: &Grant) {
    let newest = scene.harness.stored_token(&scene.key).await;
    let outcome = scene.renew(store, &scene.renewal(grant)).await;
    ensure!(
        scene,
        matches!(outcome, RenewOutcome::Superseded { by } if by.is_none() || by == newest),
        "a renewal of a grant that another has superseded should answer Superseded by {newest:?}, or by nobody known, not \
         {outcome:?}"
    );
    scene.stored(newest.expect("a key that was granted has a token")).await;
}

/// A grant that has been given back is not renewed, and the key stays free.
pub async fn c05_a_released_grant_is_not_renewed<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let store = harness.store().await;
    let granted = scene.fresh(&store).await;
    scene.released(&store, &granted.grant).await;
    not_renewed(&scene, &store, &scene.renewal(&granted.grant)).await;
    scene.fresh(&store).await;
}

/// Key, token and seq are no secrets. Without the nonce they renew nothing.
pub async fn c05_a_wrong_nonce_renews_nothing<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    let mut forged = granted.grant.clone();
    forged.nonce = nonce();
    not_renewed(&scene, &other, &scene.renewal(&forged)).await;
    let ask = scene.renewal(&granted.grant);
    let renewed = scene.renewed(&store, &ask).await;
    ensure!(
        scene,
        renewed.attempt == ask.attempt,
        "a renewal with a wrong nonce should leave no trace, and the holder finds {renewed:?}"
    );
}

async fn not_renewed<H: Harness>(scene: &Scene<'_, H>, store: &impl LeaseStore, ask: &RenewRequest) {
    let outcome = scene.renew(store, ask).await;
    ensure!(
        scene,
        !matches!(outcome, RenewOutcome::Renewed(_)),
        "only the current grant is renewed, and this is not it: {ask:?} is answered {outcome:?}"
    );
}

/// A record that somebody deleted is reported and not made again.
pub async fn c05_a_renewal_of_a_deleted_record_says_that_it_is_gone<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let store = harness.store().await;
    let granted = scene.fresh(&store).await;
    if let Err(reason) = harness.delete_record(&scene.key).await {
        eprintln!("not tested, since no record can be deleted here: {reason}");
        return;
    }
    for _ in 0..2 {
        let outcome = scene.renew(&store, &scene.renewal(&granted.grant)).await;
        ensure!(
            scene,
            matches!(outcome, RenewOutcome::RecordGone),
            "a renewal whose record has been deleted should answer RecordGone, and make none. It answered {outcome:?}"
        );
    }
    scene.fresh(&store).await;
}

/// A grant that is over and that nobody took: renewed, it stands again; told that it is lost, it stays lost. Never both.
pub async fn c05_a_lapsed_grant_is_renewed_or_lost_and_never_both<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (store, other) = scene.two().await;
    let granted = scene.fresh(&store).await;
    harness.expire(&scene.key).await;
    if let RenewOutcome::Renewed(renewed) = scene.renew(&store, &scene.renewal(&granted.grant)).await {
        scene.refused(&other, renewed.grant.token).await;
        scene.released(&store, &renewed.grant).await;
    }
    let next = scene.fresh(&other).await;
    not_renewed(&scene, &store, &scene.renewal(&granted.grant)).await;
    scene.refused(&store, next.grant.token).await;
}

/// As many renewals as one request carries: one answer each, in their order, and a lost one among them disturbs no other.
pub async fn c05_a_batch_is_answered_one_by_one_and_in_order<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let store = harness.store().await;
    ensure!(scene, store.renew(&[]).await.is_empty(), "no asks have no answers");

    let size = store.profile().max_batch.min(64);
    ensure!(scene, size >= 1, "a request carries at least one renewal, and the profile says none");
    let mut asks = Vec::with_capacity(size);
    for _ in 0..size {
        let granted = scene.granted(&store, &scene.ask_for(&fresh_key())).await;
        asks.push(scene.renewal(&granted.grant));
    }
    let lost = size / 2;
    harness.usurp(&asks[lost].grant.key).await;

    let answers = store.renew(&asks).await;
    ensure!(scene, answers.len() == size, "{size} asks should have as many answers, not {}", answers.len());
    for (number, (ask, answer)) in asks.iter().zip(answers).enumerate() {
        match answer {
            Ok(RenewOutcome::Superseded { .. }) if number == lost => {}
            Ok(RenewOutcome::Renewed(granted)) if number != lost => {
                let (asked, got) = (&ask.grant, &granted.grant);
                ensure!(
                    scene,
                    got.key == asked.key
                        && got.token == asked.token
                        && got.seq == asked.seq + 1
                        && granted.attempt == ask.attempt,
                    "answer {number} should be the one to ask {number}: asked {ask:?}, answered {granted:?}"
                );
            }
            other => scene.clause.broken(format_args!(
                "of {size} renewals number {lost} is lost and the others go on. Number {number} is answered {other:?}"
            )),
        }
    }
}

/// An immediate break: the holder is told at its next renewal.
pub async fn c05_a_renewal_after_an_immediate_break_is_broken<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (store, operator) = scene.two().await;
    let granted = scene.fresh(&store).await;
    scene.broke(&operator, granted.grant.token, BreakHow::Immediate).await;
    broken(&scene, &store, &granted.grant).await;
    let seen = scene.look(&operator).await;
    ensure!(
        scene,
        seen.is_claimable(),
        "a key broken at once is free, and a renewal does not change that: {seen:?}"
    );
    scene.fresh(&operator).await;
}

/// A graceful break: the holder is told at its next renewal, and the key stays its own until the expiry, which no renewal
/// postpones any more.
pub async fn c05_a_renewal_after_a_graceful_break_is_broken_and_the_key_is_still_held<
    H: Harness<Store: LeaseAdmin>,
>(
    harness: &H,
) {
    let scene = Scene::new(harness, Clause::Renewal);
    let (store, operator) = scene.two().await;
    let granted = scene.fresh(&store).await;
    scene.broke(&operator, granted.grant.token, BreakHow::Graceful).await;
    let seen = scene.standing(&operator).await;
    ensure!(
        scene,
        seen.break_requested && !seen.claimable,
        "a graceful break is seen and ends nothing: {seen:?}"
    );
    for _ in 0..2 {
        broken(&scene, &store, &granted.grant).await;
    }
    harness.age(&scene.key, scene.most_of_ttl()).await;
    scene.refused(&operator, granted.grant.token).await;
    harness.expire(&scene.key).await;
    let next = scene.fresh(&operator).await;
    let seen = scene.standing(&operator).await;
    ensure!(scene, !seen.break_requested, "a break is of one grant and not of the next: {seen:?}");
    scene.renewed(&operator, &scene.renewal(&next.grant)).await;
}

async fn broken<H: Harness>(scene: &Scene<'_, H>, store: &impl LeaseStore, grant: &Grant) {
    let outcome = scene.renew(store, &scene.renewal(grant)).await;
    ensure!(
        scene,
        matches!(outcome, RenewOutcome::Broken),
        "a renewal of a grant that an operator has broken should answer Broken, not {outcome:?}"
    );
}
