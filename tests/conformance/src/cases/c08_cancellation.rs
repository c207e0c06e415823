use leasehold::testing::{Fault, Verb};
use leasehold::{AcquireOutcome, FencingToken, Grant, LeaseStore, ReleaseOutcome, ReleaseRequest};

use crate::clause::{Clause, ensure};
use crate::cut::{Cut, MOST_POLLS, cut, give_up};
use crate::harness::Harness;
use crate::scene::{Scene, attempt};

const CUTS: [Cut; 2] = [Cut::InFlight, Cut::Answered];

/// An acquire dropped at each of its awaits: the same nonce asked again goes on, or one ttl frees the key.
pub async fn c08_after_a_dropped_acquire_the_same_nonce_goes_on<H: Harness>(harness: &H) {
    for how in CUTS {
        for polls in 0..=MOST_POLLS {
            let scene = Scene::new(harness, Clause::Cancellation);
            let (store, other) = scene.two().await;
            let ask = scene.ask();
            let done = cut(store.acquire(&ask), polls, how).await;
            let mut again = ask.clone();
            again.attempt = attempt();
            let token = match scene.acquire(&store, &again).await {
                AcquireOutcome::Granted(granted) => {
                    scene.refused(&other, granted.grant.token).await;
                    let renewed = scene.renewed(&store, &scene.renewal(&granted.grant)).await;
                    scene.released(&store, &renewed.grant).await;
                    Some(granted.grant.token)
                }
                _ => {
                    harness.expire(&scene.key).await;
                    None
                }
            };
            free(&scene, &other, token).await;
            if done.is_some() {
                break;
            }
            ensure!(
                scene,
                polls < MOST_POLLS,
                "acquire should come to an end, and has been polled {polls} times"
            );
        }
    }
}

/// The same when a rival comes first: whoever of the two has the key, the other has not.
pub async fn c08_after_a_dropped_acquire_a_rival_never_shares_the_key<H: Harness>(harness: &H) {
    for how in CUTS {
        for polls in 0..=MOST_POLLS {
            let scene = Scene::new(harness, Clause::Cancellation);
            let (store, other) = scene.two().await;
            let (ask, rival) = (scene.ask(), scene.ask());
            let done = cut(store.acquire(&ask), polls, how).await;
            let mut again = ask.clone();
            again.attempt = attempt();
            let token = match scene.acquire(&other, &rival).await {
                AcquireOutcome::Granted(granted) => {
                    let held = scene.held(&store, &again).await;
                    ensure!(
                        scene,
                        held.token == granted.grant.token,
                        "the rival was granted {granted:?}, and the dropped one sees {held:?}"
                    );
                    scene.released(&other, &granted.grant).await;
                    Some(granted.grant.token)
                }
                _ => match scene.acquire(&store, &again).await {
                    AcquireOutcome::Granted(granted) => {
                        scene.refused(&other, granted.grant.token).await;
                        scene.released(&store, &granted.grant).await;
                        Some(granted.grant.token)
                    }
                    _ => {
                        harness.expire(&scene.key).await;
                        None
                    }
                },
            };
            free(&scene, &other, token).await;
            if done.is_some() {
                break;
            }
            ensure!(
                scene,
                polls < MOST_POLLS,
                "acquire should come to an end, and has been polled {polls} times"
            );
        }
    }
}

/// An acquire that its caller has given up and that arrives later: on a key that another holds it does nothing; on a free one
/// it makes a grant that nobody knows of, which the same nonce goes on with, and which one ttl ends.
pub async fn c08_an_acquire_that_arrives_after_it_was_dropped_never_shares_the_key<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Cancellation);
    let (faulty, other) = (scene.faulty().await, harness.store().await);
    faulty.script(Verb::Acquire, [Fault::Delayed; 3]);

    let ask = scene.ask();
    give_up(faulty.acquire(&ask)).await;
    let rival = scene.fresh(&other).await;
    faulty.deliver().await;
    let held = scene.held(&other, &ask).await;
    ensure!(
        scene,
        held.token == rival.grant.token,
        "the key is the rival's, {rival:?}, and Held shows {held:?}"
    );
    let renewed = scene.renewed(&other, &scene.renewal(&rival.grant)).await;
    scene.released(&other, &renewed.grant).await;

    let ask = scene.ask();
    give_up(faulty.acquire(&ask)).await;
    faulty.deliver().await;
    let mut again = ask.clone();
    again.attempt = attempt();
    let granted = scene.granted(&other, &again).await;
    ensure!(
        scene,
        granted.grant.token > rival.grant.token,
        "no token is handed out twice: {rival:?}, then {granted:?}"
    );
    scene.released(&other, &granted.grant).await;

    give_up(faulty.acquire(&scene.ask())).await;
    faulty.deliver().await;
    scene.held(&other, &scene.ask()).await;
    harness.expire(&scene.key).await;
    free(&scene, &other, Some(granted.grant.token)).await;
}

/// A renewal dropped at each of its awaits leaves the grant current, with the old expiry or the new, and the same request
/// made again is renewed.
pub async fn c08_after_a_dropped_renewal_the_grant_goes_on<H: Harness>(harness: &H) {
    for how in CUTS {
        for polls in 0..=MOST_POLLS {
            let scene = Scene::new(harness, Clause::Cancellation);
            let (store, other) = scene.two().await;
            let grant = scene.fresh(&store).await.grant;
            let asks = [scene.renewal(&grant)];
            let done = cut(store.renew(&asks), polls, how).await;
            scene.refused(&other, grant.token).await;
            let again = scene.renewal(&grant);
            let renewed = scene.renewed(&store, &again).await;
            ensure!(
                scene,
                [asks[0].attempt, again.attempt].contains(&renewed.attempt) && renewed.grant.seq == 1,
                "the grant was renewed once, by {:?} or {:?}, and is told {renewed:?}",
                asks[0].attempt,
                again.attempt
            );
            scene.released(&store, &renewed.grant).await;
            free(&scene, &other, Some(grant.token)).await;
            if done.is_some() {
                break;
            }
            ensure!(
                scene,
                polls < MOST_POLLS,
                "renew should come to an end, and has been polled {polls} times"
            );
        }
    }
}

/// A release dropped at each of its awaits has ended the grant, or ends it when it is made again, or one ttl does.
pub async fn c08_after_a_dropped_release_the_key_comes_free<H: Harness>(harness: &H) {
    for how in CUTS {
        for repeat in [true, false] {
            for polls in 0..=MOST_POLLS {
                let scene = Scene::new(harness, Clause::Cancellation);
                let (store, other) = scene.two().await;
                let grant = scene.fresh(&store).await.grant;
                let release = ReleaseRequest::of(&grant);
                let done = cut(store.release(&release), polls, how).await;
                if repeat {
                    let outcome = scene.release(&store, &release).await;
                    ensure!(
                        scene,
                        matches!(outcome, ReleaseOutcome::Released | ReleaseOutcome::AlreadyEnded),
                        "nobody else has had the key, so a release made again should end the grant, not answer {outcome:?}"
                    );
                } else {
                    released_or_held(&scene, &other, &grant).await;
                }
                free(&scene, &other, Some(grant.token)).await;
                if done.is_some() {
                    break;
                }
                ensure!(
                    scene,
                    polls < MOST_POLLS,
                    "release should come to an end, and has been polled {polls} times"
                );
            }
        }
    }
}

async fn released_or_held<H: Harness>(scene: &Scene<'_, H>, other: &H::Store, grant: &Grant) {
    match scene.acquire(other, &scene.ask()).await {
        AcquireOutcome::Granted(next) => {
            ensure!(
                scene,
                next.grant.token > grant.token,
                "{grant:?} has ended, and its token is given again: {next:?}"
            );
            scene.released(other, &next.grant).await;
        }
        AcquireOutcome::Held(held) => {
            ensure!(scene, held.token == grant.token, "only {grant:?} can hold the key: {held:?}");
            scene.harness.expire(&scene.key).await;
        }
        outcome => scene.clause.broken(format_args!("a dropped release should seal no key: {outcome:?}")),
    }
}

/// Expects the key to be free, and its next token to be a new one.
async fn free<H: Harness>(scene: &Scene<'_, H>, store: &H::Store, last: Option<FencingToken>) {
    let next = match scene.acquire(store, &scene.ask()).await {
        AcquireOutcome::Granted(granted) => granted.grant,
        other => scene.clause.broken(format_args!(
            "after a dropped future the same nonce goes on or one ttl recovers, so the key should be free now. It is {other:?}"
        )),
    };
    ensure!(scene, Some(next.token) > last, "no token is handed out twice: {last:?}, and now {next:?}");
    scene.stored(next.token).await;
    scene.released(store, &next).await;
}
