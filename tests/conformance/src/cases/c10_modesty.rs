use leasehold::{Held, LeaseStore};

use crate::clause::{Clause, ensure};
use crate::harness::Harness;
use crate::scene::{Scene, next_millisecond};

/// What holds a lease is its keeper. A store that nobody asks for anything renews nothing.
pub async fn c10_nothing_renews_a_grant_by_itself<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Modesty);
    let (holder, other) = scene.two().await;
    let granted = scene.fresh(&holder).await;
    for _ in 0..3 {
        harness.age(&scene.key, scene.ttl() / 4).await;
        next_millisecond().await;
        let seen = scene.standing(&other).await;
        ensure!(
            scene,
            seen.seq == 0 && seen.token == granted.grant.token && !seen.claimable,
            "nobody has renewed the grant, so it should stand as it was made: {seen:?}"
        );
    }
    harness.expire(&scene.key).await;
    next_millisecond().await;
    let seen = scene.look(&other).await;
    ensure!(
        scene,
        seen.is_claimable() && seen.held.as_ref().is_none_or(|held| held.seq == 0),
        "nobody has renewed the grant, so it should be over: {seen:?}"
    );
    scene.fresh(&other).await;
}

/// Waiting is the caller's. One acquire answers at once that the key is held.
pub async fn c10_an_acquire_does_not_wait_for_the_key<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Modesty);
    let (holder, other) = scene.two().await;
    let granted = scene.fresh(&holder).await;
    scene.in_time("acquire", scene.refused(&other, granted.grant.token)).await;
}

/// Looking changes nothing: neither the grant, nor its expiry, nor who may have the key.
pub async fn c10_looking_writes_nothing<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Modesty);
    let (holder, other) = scene.two().await;
    for _ in 0..2 {
        scene.look(&other).await;
    }
    ensure!(
        scene,
        harness.stored_token(&scene.key).await.is_none(),
        "inspect should not make a record of a key that has none"
    );
    let granted = scene.fresh(&holder).await;
    let before = scene.standing(&other).await;
    for _ in 0..5 {
        let seen = scene.standing(&other).await;
        ensure!(
            scene,
            is_as_before(&before, &seen),
            "inspect should not change what it shows: {before:?}, then {seen:?}"
        );
        if let Err(error) = other.check().await {
            scene.clause.broken(format_args!("check should succeed on a healthy store: {error}"));
        }
    }
    let ask = scene.renewal(&granted.grant);
    let renewed = scene.renewed(&holder, &ask).await;
    ensure!(
        scene,
        renewed.attempt == ask.attempt && renewed.grant.seq == 1,
        "neither inspect nor check should touch the record, and the holder finds {renewed:?}"
    );
    harness.expire(&scene.key).await;
    for _ in 0..2 {
        let seen = scene.look(&other).await;
        ensure!(scene, seen.is_claimable(), "looking at a grant that is over should not revive it: {seen:?}");
    }
    scene.fresh(&other).await;
}

/// An acquire that is refused leaves no trace: no later expiry, no higher token, no place in a queue that nobody promised.
pub async fn c10_a_refused_acquire_writes_nothing<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Modesty);
    let (holder, other) = scene.two().await;
    let granted = scene.fresh(&holder).await;
    let before = scene.standing(&holder).await;
    for _ in 0..5 {
        scene.refused(&other, granted.grant.token).await;
    }
    let after = scene.standing(&holder).await;
    ensure!(
        scene,
        is_as_before(&before, &after),
        "a refused acquire should change nothing: {before:?}, then {after:?}"
    );
    scene.stored(granted.grant.token).await;
    let ask = scene.renewal(&granted.grant);
    let renewed = scene.renewed(&holder, &ask).await;
    ensure!(scene, renewed.attempt == ask.attempt, "a refused acquire should touch no record: {renewed:?}");
}

/// Times for people may be reckoned anew at each look, so they are left out.
fn is_as_before(before: &Held, now: &Held) -> bool {
    let facts = |held: &Held| {
        (held.token, held.seq, held.ttl, held.holder.clone(), held.claimable, held.break_requested)
    };
    facts(before) == facts(now)
}
