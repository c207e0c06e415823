use crate::clause::{Clause, ensure};
use crate::harness::Harness;
use crate::scene::Scene;

/// Until its ttl has passed a grant stands, whoever asks.
pub async fn c04_a_grant_stands_until_its_ttl_has_passed<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Patience);
    let (holder, other) = scene.two().await;
    let granted = scene.fresh(&holder).await;
    harness.age(&scene.key, scene.most_of_ttl()).await;
    scene.refused(&other, granted.grant.token).await;
    // Nor does a client that has just come know better.
    scene.refused(&harness.store().await, granted.grant.token).await;
    scene.renewed(&holder, &scene.renewal(&granted.grant)).await;
}

/// The ttl that counts is the holder's. A contender that asks for a short one gets nothing sooner.
pub async fn c04_the_holders_ttl_counts_and_not_the_contenders<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Patience);
    let (holder, other) = scene.two().await;
    let mut long = scene.ask();
    long.ttl = scene.ttl() * 2;
    let granted = scene.granted(&holder, &long).await;
    harness.age(&scene.key, granted.ttl * 3 / 4).await;
    let held = scene.held(&other, &scene.ask()).await;
    ensure!(scene, held.token == granted.grant.token, "Held should name the holder's token: {held:?}");
}

/// When it is over, one call takes it. A client that has just come, and has watched nothing, needs no more.
pub async fn c04_an_expired_grant_is_taken_over_in_one_call<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Patience);
    let (holder, other) = scene.two().await;
    let old = scene.fresh(&holder).await;
    scene.refused(&other, old.grant.token).await;
    harness.expire(&scene.key).await;
    let cold = harness.store().await;
    let new = scene.fresh(&cold).await;
    // The new grant is a whole one.
    harness.age(&scene.key, scene.most_of_ttl()).await;
    scene.refused(&holder, new.grant.token).await;
}

/// A renewal counts from when it was made.
pub async fn c04_a_renewal_postpones_the_expiry<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Patience);
    let (holder, other) = scene.two().await;
    let mut granted = scene.fresh(&holder).await;
    for _ in 0..2 {
        harness.age(&scene.key, scene.most_of_ttl()).await;
        granted = scene.renewed(&holder, &scene.renewal(&granted.grant)).await;
    }
    harness.age(&scene.key, scene.most_of_ttl()).await;
    scene.refused(&other, granted.grant.token).await;
    // And a renewed grant is over when its time has come.
    harness.expire(&scene.key).await;
    scene.fresh(&other).await;
}

/// What inspect says of a key, acquire finds true.
pub async fn c04_inspect_and_acquire_agree<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Patience);
    let (holder, other) = scene.two().await;
    let seen = scene.look(&other).await;
    ensure!(scene, seen.is_claimable(), "a key that has no record is claimable: {seen:?}");

    let granted = scene.fresh(&holder).await;
    for _ in 0..2 {
        let seen = scene.standing(&other).await;
        ensure!(scene, !seen.claimable, "a current grant is not claimable: {seen:?}");
        scene.refused(&other, granted.grant.token).await;
        harness.age(&scene.key, scene.most_of_ttl()).await;
    }

    harness.expire(&scene.key).await;
    let seen = scene.look(&other).await;
    ensure!(scene, seen.is_claimable(), "a grant that is over is claimable: {seen:?}");
    let next = scene.fresh(&other).await;

    scene.released(&other, &next.grant).await;
    let seen = scene.look(&holder).await;
    ensure!(scene, seen.held.is_none() && seen.is_claimable(), "a released key is held by nobody: {seen:?}");
    scene.fresh(&holder).await;
}
