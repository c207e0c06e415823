use leasehold::{
    AcquireOutcome, BreakHow, BreakOutcome, FencingToken, LeaseAdmin, LeaseKey, LeaseStore, RenewOutcome,
};

use super::c02_growth::above;
use crate::clause::{Clause, ensure};
use crate::harness::Harness;
use crate::scene::{Scene, attempt, unique};

/// A list has the keys that begin with the prefix and have a record, held or not, page by page in byte order.
pub async fn admin_a_list_shows_what_has_a_record_page_by_page<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Administration);
    let (store, operator) = scene.two().await;
    let (id, stranger) = (unique(), unique());
    let key = |name: &str| LeaseKey::new(name).expect("the kit's own keys are valid");
    scene.granted(&store, &scene.ask_for(&key(&format!("{stranger}/1")))).await;

    let mut expected = Vec::new();
    // Not in order, and some released.
    for number in [4, 1, 7, 3, 6, 2, 5] {
        let key = key(&format!("{id}/{number}"));
        let granted = scene.granted(&store, &scene.ask_for(&key)).await;
        if number % 3 == 0 {
            scene.released(&store, &granted.grant).await;
        }
        expected.push((key, Some(granted.grant.token), number % 3 != 0));
    }
    expected.sort();
    // Looked at and never granted: it has no record.
    scene.look_at(&store, &key(&format!("{id}/8"))).await;

    for limit in [1, 3, 7, 100] {
        let listed = scene.list_all(&operator, &format!("{id}/"), limit).await;
        let listed: Vec<_> =
            listed.into_iter().map(|seen| (seen.key, seen.token, seen.held.is_some())).collect();
        ensure!(
            scene,
            listed == expected,
            "in pages of {limit}, the list should show (key, token, whether held) {expected:?}, and shows {listed:?}"
        );
    }
    let page = scene.list(&operator, &format!("{id}/"), Some(&key(&format!("{id}/3"))), 2).await;
    let page: Vec<_> = page.into_iter().map(|seen| seen.key).collect();
    ensure!(
        scene,
        page == [key(&format!("{id}/4")), key(&format!("{id}/5"))],
        "two keys after the third are the fourth and the fifth, and not {page:?}"
    );
    let after_none = scene.list(&operator, &format!("{id}/"), Some(&key(&format!("{id}/44"))), 1).await;
    ensure!(
        scene,
        after_none.first().is_some_and(|seen| seen.key.as_str() == format!("{id}/5")),
        "`after` need not be a key that is there: after 44 comes 5, and not {after_none:?}"
    );
    let nothing = scene.list(&operator, &format!("{id}/x"), None, 10).await;
    ensure!(scene, nothing.is_empty(), "nothing begins with that, and the list shows {nothing:?}");
}

/// Who breaks a lease says which: one that has ended meanwhile is not current, and the one after it is left alone.
pub async fn admin_a_break_ends_only_the_grant_that_was_seen<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Administration);
    let (store, operator) = scene.two().await;
    for how in [BreakHow::Graceful, BreakHow::Immediate] {
        not_current(&scene, &operator, FencingToken::MIN, how).await;
    }
    ensure!(
        scene,
        harness.stored_token(&scene.key).await.is_none(),
        "a break of a key that was never granted should make no record of it"
    );

    let old = scene.fresh(&store).await.grant;
    scene.released(&store, &old).await;
    for how in [BreakHow::Graceful, BreakHow::Immediate] {
        not_current(&scene, &operator, old.token, how).await;
    }
    let new = scene.fresh(&store).await.grant;
    for seen in [old.token, above(new.token, 1)] {
        for how in [BreakHow::Graceful, BreakHow::Immediate] {
            not_current(&scene, &operator, seen, how).await;
        }
    }
    scene.refused(&operator, new.token).await;
    scene.renewed(&store, &scene.renewal(&new)).await;
}

async fn not_current<H: Harness<Store: LeaseAdmin>>(
    scene: &Scene<'_, H>,
    store: &H::Store,
    seen: FencingToken,
    how: BreakHow,
) {
    let outcome = scene.admin("break_lease", store.break_lease(&scene.key, seen, how).await);
    ensure!(
        scene,
        outcome == BreakOutcome::NotCurrent,
        "no grant with token {seen} is current, so a break ({how:?}) should answer NotCurrent, not {outcome:?}"
    );
}

/// An immediate break frees the key at once, a graceful one before it too, and both may be repeated.
pub async fn admin_a_break_may_become_immediate<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Administration);
    let (store, operator) = scene.two().await;
    let grant = scene.fresh(&store).await.grant;
    for _ in 0..2 {
        scene.broke(&operator, grant.token, BreakHow::Graceful).await;
    }
    scene.refused(&operator, grant.token).await;
    scene.broke(&operator, grant.token, BreakHow::Immediate).await;
    not_current(&scene, &operator, grant.token, BreakHow::Immediate).await;
    scene.stored(grant.token).await;
    scene.fresh(&operator).await;
}

/// A floor below the newest token, or at it, changes nothing: not the token, not the grant.
pub async fn admin_a_raised_floor_lowers_nothing<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Administration);
    let (store, operator) = scene.two().await;
    // Where tokens are counted from 1, the first of them leaves no room below.
    let first = scene.fresh(&store).await.grant;
    scene.released(&store, &first).await;
    let grant = scene.fresh(&store).await.grant;
    for floor in [FencingToken::MIN, first.token, grant.token] {
        if !scene.raised(&operator, floor).await {
            return;
        }
        scene.stored(grant.token).await;
        scene.refused(&operator, grant.token).await;
    }
    let renewed = scene.renewed(&store, &scene.renewal(&grant)).await;
    scene.released(&store, &renewed.grant).await;
    scene.raised(&operator, FencingToken::MIN).await;
    scene.stored(grant.token).await;
    let next = scene.fresh(&store).await;
    ensure!(
        scene,
        next.grant.token > grant.token,
        "tokens should grow from {}, and {next:?} came",
        grant.token
    );
}

/// A floor above the current grant's token ends the grant: that token is too low now.
pub async fn admin_a_raised_floor_ends_the_grant_that_it_overtakes<H: Harness<Store: LeaseAdmin>>(
    harness: &H,
) {
    let scene = Scene::new(harness, Clause::Administration);
    let (store, operator) = scene.two().await;
    let grant = scene.fresh(&store).await.grant;
    let floor = above(grant.token, 1_000);
    if !scene.raised(&operator, floor).await {
        return;
    }
    scene.stored(floor).await;
    let outcome = scene.renew(&store, &scene.renewal(&grant)).await;
    ensure!(
        scene,
        matches!(outcome, RenewOutcome::Superseded { .. } | RenewOutcome::Broken),
        "a grant whose token lies below the floor should be lost, and a renewal is told {outcome:?}"
    );
    let next = scene.fresh(&operator).await;
    ensure!(scene, next.grant.token > floor, "the next token should be greater than {floor}: {next:?}");
}

/// A sealed key is granted to nobody new. Its holder renews, asks again, releases as before.
pub async fn admin_a_seal_refuses_new_grants_and_lets_the_holder_go_on<H: Harness<Store: LeaseAdmin>>(
    harness: &H,
) {
    let scene = Scene::new(harness, Clause::Administration);
    let (store, operator) = scene.two().await;
    let ask = scene.ask();
    let granted = scene.granted(&store, &ask).await;
    for _ in 0..2 {
        scene.admin("seal", operator.seal(&scene.key, true).await);
    }
    sealed(&scene, &operator).await;

    let mut again = ask.clone();
    again.attempt = attempt();
    let told = scene.granted(&store, &again).await;
    ensure!(
        scene,
        told.grant.token == granted.grant.token,
        "a holder that asks again under a seal has the grant that it had: {granted:?}, then {told:?}"
    );
    let renewed = scene.renewed(&store, &scene.renewal(&told.grant)).await;
    sealed(&scene, &operator).await;
    scene.released(&store, &renewed.grant).await;
    sealed(&scene, &store).await;
    scene.stored(granted.grant.token).await;

    for _ in 0..2 {
        scene.admin("seal", operator.seal(&scene.key, false).await);
    }
    let seen = scene.look(&operator).await;
    ensure!(scene, !seen.sealed && seen.is_claimable(), "an opened key is free again: {seen:?}");
    let next = scene.fresh(&store).await;
    ensure!(
        scene,
        next.grant.token > granted.grant.token,
        "tokens should grow over a seal: {granted:?}, {next:?}"
    );
}

/// A seal stands on a key that was never granted, and over the expiry of a grant.
pub async fn admin_a_seal_outlasts_the_grant<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Administration);
    let (store, operator) = scene.two().await;
    scene.admin("seal", operator.seal(&scene.key, true).await);
    sealed(&scene, &store).await;
    scene.admin("seal", operator.seal(&scene.key, false).await);
    let granted = scene.fresh(&store).await;

    scene.admin("seal", operator.seal(&scene.key, true).await);
    harness.expire(&scene.key).await;
    sealed(&scene, &store).await;
    scene.admin("seal", operator.seal(&scene.key, false).await);
    let next = scene.fresh(&store).await;
    ensure!(
        scene,
        next.grant.token > granted.grant.token,
        "tokens should grow over a seal: {granted:?}, {next:?}"
    );
}

/// Opening a key that was never sealed changes nothing.
pub async fn admin_a_seal_that_was_not_there_is_taken_off_without_a_trace<H: Harness<Store: LeaseAdmin>>(
    harness: &H,
) {
    let scene = Scene::new(harness, Clause::Administration);
    let (store, operator) = scene.two().await;
    scene.admin("seal", operator.seal(&scene.key, false).await);
    ensure!(
        scene,
        harness.stored_token(&scene.key).await.is_none(),
        "opening a key that has no record should make none"
    );
    let granted = scene.fresh(&store).await;
    scene.admin("seal", operator.seal(&scene.key, false).await);
    scene.renewed(&store, &scene.renewal(&granted.grant)).await;
}

async fn sealed<H: Harness>(scene: &Scene<'_, H>, store: &impl LeaseStore) {
    let outcome = scene.acquire(store, &scene.ask()).await;
    ensure!(
        scene,
        matches!(outcome, AcquireOutcome::Sealed),
        "a sealed key is granted to nobody new, so acquire should answer Sealed, not {outcome:?}"
    );
    let seen = scene.look(store).await;
    ensure!(scene, seen.sealed && !seen.is_claimable(), "inspect should show the seal: {seen:?}");
}
