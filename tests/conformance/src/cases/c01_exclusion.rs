use std::sync::Arc;

use leasehold::{
    AcquireOutcome, AcquireRequest, Grant, Holder, LeaseKey, LeaseStore, ReleaseOutcome, ReleaseRequest,
};

use crate::clause::{Clause, ensure};
use crate::harness::Harness;
use crate::race::all_at_once;
use crate::register::FencedRegister;
use crate::scene::{Scene, Tries, attempt, fresh_key, nonce};

/// How many clients take part in a race, each with a connection of its own, and how many tasks each of them has.
const CLIENTS: usize = 4;
const TASKS_PER_CLIENT: usize = 8;

/// A key that is held is granted to no second client, however often it asks, until it is released.
pub async fn c01_a_second_client_is_refused_while_the_key_is_held<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Exclusion);
    let (holder, other) = scene.two().await;
    let granted = scene.fresh(&holder).await;
    for _ in 0..3 {
        scene.refused(&other, granted.grant.token).await;
    }
    scene.released(&holder, &granted.grant).await;
    scene.fresh(&other).await;
}

/// Leases are not re-entrant: a second call, with a nonce of its own, is contention also when the first was ours.
pub async fn c01_a_second_call_of_the_holder_is_refused<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Exclusion);
    let store = harness.store().await;
    let granted = scene.fresh(&store).await;
    scene.refused(&store, granted.grant.token).await;
    scene.renewed(&store, &scene.renewal(&granted.grant)).await;
    scene.refused(&store, granted.grant.token).await;
}

/// The holder is a label for people, and never part of a condition.
pub async fn c01_the_same_label_on_two_clients_is_two_holders<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Exclusion);
    let (holder, other) = scene.two().await;
    let label = Holder::new("the same").expect("the label is valid");
    let labelled = || {
        let mut ask = scene.ask();
        ask.holder = label.clone();
        ask
    };
    let granted = scene.granted(&holder, &labelled()).await;
    let held = scene.held(&other, &labelled()).await;
    ensure!(scene, held.holder == label, "Held should show the holder's label {label}: {held:?}");

    let stranger = labelled();
    let release = ReleaseRequest::of_nonce(scene.key.clone(), stranger.nonce.clone());
    let outcome = scene.release(&other, &release).await;
    ensure!(
        scene,
        outcome != ReleaseOutcome::Released,
        "a release with another nonce must not end the grant, whatever the label. It answered {outcome:?}"
    );
    scene.refused(&other, granted.grant.token).await;
}

/// Many tasks of several clients ask for a key that has never been: one wins, and the store keeps its token.
pub async fn c01_a_race_for_a_new_key_has_one_winner<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Exclusion);
    let clients = clients(harness).await;
    for _ in 0..harness.rounds() {
        one_winner(&scene, &clients, &fresh_key()).await;
    }
}

/// Many tasks of several clients find the same grant over: one of them takes it.
pub async fn c01_a_race_for_an_expired_grant_has_one_winner<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Exclusion);
    let clients = clients(harness).await;
    for _ in 0..harness.rounds().div_ceil(5) {
        let key = fresh_key();
        let last = scene.granted(&*clients[0], &scene.ask_for(&key)).await;
        harness.expire(&key).await;
        let next = one_winner(&scene, &clients, &key).await;
        ensure!(
            scene,
            next.token > last.grant.token,
            "the winner's token should be new: {next:?} after {last:?}"
        );
    }
}

async fn clients<H: Harness>(harness: &H) -> Vec<Arc<H::Store>> {
    let mut clients = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        clients.push(Arc::new(harness.store().await));
    }
    clients
}

/// Lets all clients race for `key`, and expects one of them to win and the others to see it.
async fn one_winner<H: Harness>(scene: &Scene<'_, H>, clients: &[Arc<H::Store>], key: &LeaseKey) -> Grant {
    let runners = (0..CLIENTS * TASKS_PER_CLIENT).map(|task| {
        acquire_in_a_race(scene.clause, Arc::clone(&clients[task % CLIENTS]), scene.ask_for(key))
    });
    let outcomes = all_at_once(runners.collect::<Vec<_>>()).await;
    let mut winner = None;
    for outcome in &outcomes {
        match outcome {
            AcquireOutcome::Granted(granted) => {
                ensure!(
                    scene,
                    winner.is_none(),
                    "a race should have one winner. It has two: {winner:?} and {:?}",
                    granted.grant
                );
                winner = Some(granted.grant.clone());
            }
            AcquireOutcome::Held(_) => {}
            other => {
                scene.clause.broken(format_args!("the loser of a race should be told Held, not {other:?}"))
            }
        }
    }
    let Some(winner) = winner else {
        scene
            .clause
            .broken(format_args!("a race for a key that nobody holds should have a winner: {outcomes:?}"));
    };
    for outcome in &outcomes {
        if let AcquireOutcome::Held(held) = outcome {
            ensure!(
                scene,
                held.token == winner.token,
                "the loser should see the winner {winner:?}, not {held:?}"
            );
        }
    }
    let stored = scene.harness.stored_token(key).await;
    ensure!(
        scene,
        stored == Some(winner.token),
        "the store should keep the winner's token: {winner:?}, {stored:?}"
    );
    winner
}

async fn acquire_in_a_race<S: LeaseStore>(
    clause: Clause,
    store: Arc<S>,
    ask: AcquireRequest,
) -> AcquireOutcome {
    let mut tries = Tries::new(clause);
    loop {
        match store.acquire(&ask).await {
            Ok(outcome) => return outcome,
            Err(error) => tries.after_any("acquire", &error).await,
        }
    }
}

/// Clients take turns on a counter that only a fence guards: every turn counts, no token is turned away, and the tokens of
/// the turns grow strictly.
pub async fn c01_a_race_on_a_fenced_counter_loses_no_update<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Exclusion);
    let register = Arc::new(FencedRegister::default());
    let turns = u64::from(harness.rounds().div_ceil(CLIENTS as u32));
    let mut runners = Vec::new();
    for client in clients(harness).await {
        let (asks, register) = (scene.ask(), Arc::clone(&register));
        runners.push(take_turns(scene.clause, client, asks, register, turns));
    }
    all_at_once(runners).await;

    let (expected, counted) = (turns * CLIENTS as u64, register.value());
    ensure!(
        scene,
        counted == expected,
        "each of {expected} turns under the lease should count, and {counted} do"
    );
    let stale = register.stale_rejections();
    ensure!(scene, stale == 0, "no holder of a current grant should be found stale, and {stale} are");
    let history = register.history();
    for pair in history.windows(2) {
        ensure!(scene, pair[0].token < pair[1].token, "tokens should grow from turn to turn: {pair:?}");
    }
}

async fn take_turns<S: LeaseStore>(
    clause: Clause,
    store: Arc<S>,
    pattern: AcquireRequest,
    register: Arc<FencedRegister>,
    turns: u64,
) {
    for _ in 0..turns {
        let mut ask = pattern.clone();
        (ask.nonce, ask.attempt) = (nonce(), attempt());
        let granted = loop {
            match acquire_in_a_race(clause, Arc::clone(&store), ask.clone()).await {
                AcquireOutcome::Granted(granted) => break granted,
                _ => tokio::task::yield_now().await,
            }
        };
        let token = granted.grant.token;
        if let Ok(value) = register.claim(token) {
            // What another does meanwhile is what the lease must prevent.
            tokio::task::yield_now().await;
            // A stale token is counted by the register and judged at the end.
            let _ = register.write(token, value + 1);
        }
        let mut tries = Tries::new(clause);
        while let Err(error) = store.release(&ReleaseRequest::of(&granted.grant)).await {
            tries.after_any("release", &error).await;
        }
    }
}
