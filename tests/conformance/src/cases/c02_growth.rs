use leasehold::{BreakHow, FencingToken, LeaseAdmin, LeaseStore};

use crate::clause::{Clause, ensure};
use crate::harness::Harness;
use crate::scene::{Scene, move_on};

/// The number of a grant does not start again when the grant is given back.
pub async fn c02_tokens_grow_over_release<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Growth);
    let (first, second) = scene.two().await;
    let last = scene.fresh(&first).await;
    scene.released(&first, &last.grant).await;
    greater(&scene, &second, last.grant.token).await;
}

/// Nor when its holder has gone away.
pub async fn c02_tokens_grow_over_expiry<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Growth);
    let (first, second) = scene.two().await;
    let last = scene.fresh(&first).await;
    harness.expire(&scene.key).await;
    greater(&scene, &second, last.grant.token).await;
}

/// Nor when it was renewed in between: renewals number nothing.
pub async fn c02_tokens_grow_over_renewals<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Growth);
    let store = harness.store().await;
    let mut last = scene.fresh(&store).await;
    for _ in 0..3 {
        last = scene.renewed(&store, &scene.renewal(&last.grant)).await;
    }
    scene.stored(last.grant.token).await;
    scene.released(&store, &last.grant).await;
    greater(&scene, &store, last.grant.token).await;
}

/// Nor when another has had the key for a while.
pub async fn c02_tokens_grow_over_a_takeover_from_outside<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Growth);
    let store = harness.store().await;
    let first = scene.fresh(&store).await.grant.token;
    harness.usurp(&scene.key).await;
    let usurper = harness.stored_token(&scene.key).await;
    let Some(usurper) = usurper.filter(|token| *token > first) else {
        panic!("Harness::usurp should leave a token above {first} in the store, and leaves {usurper:?}");
    };
    harness.expire(&scene.key).await;
    greater(&scene, &store, usurper).await;
}

/// A hundred holders, one after the other: a hundred tokens, each greater than the last and each in the store itself.
pub async fn c02_a_hundred_tokens_grow_and_are_the_stored_ones<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Growth);
    let (first, second) = scene.two().await;
    let mut last = None;
    for turn in 0..100 {
        let store = if turn % 2 == 0 { &first } else { &second };
        let granted = scene.fresh(store).await;
        let token = granted.grant.token;
        ensure!(
            scene,
            Some(token) > last,
            "token {token} should be greater than the one before it, {last:?}"
        );
        scene.stored(token).await;
        scene.released(store, &granted.grant).await;
        scene.stored(token).await;
        last = Some(token);
    }
}

/// Deleted records. Where the profile says that tokens survive it, they go on growing; where it says that they do not, they
/// start again, or the profile says less than is true.
pub async fn c02_tokens_over_a_deleted_record_are_as_the_profile_says<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Growth);
    let store = harness.store().await;
    let mut last = scene.fresh(&store).await.grant;
    for _ in 0..3 {
        scene.released(&store, &last).await;
        last = scene.fresh(&store).await.grant;
    }
    // Tokens that survive by a clock need it to have moved on since the last of them.
    harness.expire(&scene.key).await;
    move_on(store.profile().floor_resolution).await;
    if let Err(reason) = harness.delete_record(&scene.key).await {
        eprintln!("not tested, since no record can be deleted here: {reason}");
        return;
    }
    // Another client, which has not seen the tokens before.
    let next = scene.fresh(&harness.store().await).await.grant.token;
    if store.profile().token_survives_deletion {
        let last = last.token;
        ensure!(
            scene,
            next > last,
            "the profile says that tokens survive deletion, but {next} came after {last}"
        );
    } else {
        ensure!(
            scene,
            next <= last.token,
            "the profile says that tokens do not survive deletion, and they do ({next} came after {}): set \
             token_survives_deletion, or make the harness delete all that is kept",
            last.token
        );
    }
}

/// A graceful break: the next holder comes after the expiry.
pub async fn c02_tokens_grow_over_a_graceful_break<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Growth);
    let store = harness.store().await;
    let last = scene.fresh(&store).await.grant.token;
    scene.broke(&store, last, BreakHow::Graceful).await;
    harness.expire(&scene.key).await;
    greater(&scene, &store, last).await;
}

/// An immediate break: the next holder may come at once, while the last one still acts. Its token is what makes that
/// harmless.
pub async fn c02_tokens_grow_over_an_immediate_break<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Growth);
    let store = harness.store().await;
    let last = scene.fresh(&store).await.grant.token;
    scene.broke(&store, last, BreakHow::Immediate).await;
    scene.stored(last).await;
    greater(&scene, &store, last).await;
}

/// A raised floor: every later token is greater, on a key that has a record and on one that has none. A store whose tokens
/// are the server's own may say that it cannot; one that keeps them in its record can.
pub async fn c02_tokens_grow_over_a_raised_floor<H: Harness<Store: LeaseAdmin>>(harness: &H) {
    let scene = Scene::new(harness, Clause::Growth);
    let store = harness.store().await;
    let last = scene.fresh(&store).await.grant;
    scene.released(&store, &last).await;
    let floor = above(last.token, 1_000_000);
    if !scene.raised(&store, floor).await {
        return;
    }
    greater(&scene, &store, floor).await;

    let scene = Scene::new(harness, Clause::Growth);
    scene.raised(&store, floor).await;
    greater(&scene, &store, floor).await;
}

/// Acquires, and expects a token greater than `last`, which is then the one in the store.
async fn greater<H: Harness>(scene: &Scene<'_, H>, store: &impl LeaseStore, last: FencingToken) {
    let next = scene.fresh(store).await.grant.token;
    ensure!(scene, next > last, "the next token should be greater than {last}, and is {next}");
    scene.stored(next).await;
}

/// The token that lies so far above `token`.
pub(crate) fn above(token: FencingToken, by: u64) -> FencingToken {
    FencingToken::try_from(token.get() + by).expect("tests stay far below the greatest token")
}
