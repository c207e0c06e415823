use std::time::Duration;

use leasehold::{
    AcquireOutcome, Effect, LeaseStore, ReleaseRequest, Scope, Severity, StoreProfile, Timing, TokenOrigin,
};

use crate::clause::{Clause, ensure};
use crate::harness::Harness;
use crate::scene::{Scene, fresh_key};
use crate::suite::{Case, PROFILE_ENTRIES};

/// A profile is possible, the same for every client, and fits the harness.
pub async fn c11_the_profile_is_possible_and_one_for_all_clients<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Profile);
    let (store, other) = scene.two().await;
    let profile = store.profile().clone();
    let StoreProfile { name, min_ttl, max_ttl, .. } = profile;
    ensure!(
        scene,
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
        "the name should be short and fit for a URL (a-z, 0-9, -), and is {name:?}"
    );
    ensure!(
        scene,
        !min_ttl.is_zero() && min_ttl <= max_ttl,
        "the shortest ttl, {min_ttl:?}, should be more than nothing and no more than the longest, {max_ttl:?}"
    );
    ensure!(
        scene,
        profile.max_batch >= 1,
        "a request carries at least one renewal, and the profile says none"
    );
    ensure!(
        scene,
        profile.requests_per_acquire >= 1,
        "an acquire takes at least one request, and the profile says none"
    );
    let ttl = scene.ttl();
    assert!(
        min_ttl <= ttl && ttl * 2 <= max_ttl,
        "Harness::ttl should lie, with its double, between {min_ttl:?} and {max_ttl:?}, and is {ttl:?}"
    );

    let granted = scene.fresh(&store).await;
    scene.released(&store, &granted.grant).await;
    for now in [store.profile(), other.profile()] {
        ensure!(
            scene,
            *now == profile,
            "a profile is one for all clients and does not change: {profile:?}, {now:?}"
        );
    }
}

/// Every entry of the profile has its cases, and they exist.
pub async fn c11_every_entry_of_the_profile_has_its_cases<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Profile);
    let profile = format!("{:#?}", harness.store().await.profile());
    // The profile may gain entries and cannot be taken apart here; its Debug form names them all.
    let entries =
        profile.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| !line.starts_with(' '));
    let entries: Vec<_> = entries.filter_map(|line| line.split_once(": ")).map(|(entry, _)| entry).collect();
    let known: Vec<_> = PROFILE_ENTRIES.iter().map(|entry| entry.name).collect();
    ensure!(
        scene,
        entries == known,
        "the kit has cases for the entries {known:?}, and the profile has {entries:?}: use the kit of the same version"
    );
    for entry in PROFILE_ENTRIES {
        for case in entry.cases {
            let exists = Case::all().any(|known| known.name == *case);
            ensure!(scene, exists, "{case}, named for the entry {}, is no case of the kit", entry.name);
        }
    }
}

/// Records outlive the last process that has the store open, or do not, as the profile says.
pub async fn c11_records_outlive_their_processes_as_the_profile_says<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Profile);
    let store = harness.store().await;
    let durable = store.profile().durable;
    let granted = scene.fresh(&store).await;
    drop(store);
    let reopened = harness.after_restart().await;
    let seen = scene.look(&reopened).await;
    if durable {
        let token = granted.grant.token;
        ensure!(
            scene,
            seen.token == Some(token) && !seen.is_claimable(),
            "the profile says that records are durable, so the grant with token {token} should still stand: {seen:?}"
        );
        let renewed = scene.renewed(&reopened, &scene.renewal(&granted.grant)).await;
        scene.released(&reopened, &renewed.grant).await;
    } else {
        ensure!(
            scene,
            seen.token.is_none() && seen.held.is_none(),
            "the profile says that records are not durable, and this one is still there: set durable, or let \
             Harness::after_restart end what keeps it. {seen:?}"
        );
    }
}

/// Whom a store serves fits with how it is timed and how long it lasts.
pub async fn c11_scope_and_timing_fit_together<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Profile);
    let store = harness.store().await;
    let profile = store.profile();
    let shared = !matches!(profile.scope, Scope::Process | Scope::Machine);
    ensure!(
        scene,
        !(shared && profile.timing == Timing::Machine),
        "a machine's boot clock means nothing to other machines, so timing Machine needs scope Machine or Process: {profile:?}"
    );
    ensure!(
        scene,
        !(profile.scope == Scope::Process && profile.durable),
        "what outlives its process can be seen by the next, so scope Process cannot be durable: {profile:?}"
    );
    ensure!(
        scene,
        !(profile.token_origin == TokenOrigin::Constructed && shared && profile.scope != Scope::BestEffort),
        "tokens constructed from parts that may forget promise no more than BestEffort: {profile:?}"
    );
}

/// Tokens come from where the profile says: a server's number that grows over all keys does so.
pub async fn c11_tokens_come_from_where_the_profile_says<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Profile);
    let (store, other) = scene.two().await;
    let mut last = None;
    for turn in 0..6 {
        let client = if turn % 2 == 0 { &store } else { &other };
        let granted = scene.granted(client, &scene.ask_for(&fresh_key())).await;
        let token = Some(granted.grant.token);
        if store.profile().token_origin == TokenOrigin::NativeGlobal {
            ensure!(
                scene,
                token > last,
                "the profile says that tokens are one number that grows over all keys, and {token:?} came after {last:?}"
            );
        }
        last = token;
    }
}

/// Who asks first after a release gets the key; or, where the profile says that waiters queue, who asked first of all.
pub async fn c11_waiters_queue_as_the_profile_says<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Profile);
    let (holder, first) = scene.two().await;
    let second = harness.store().await;
    let granted = scene.fresh(&holder).await;
    let (early, late) = (scene.ask(), scene.ask());
    scene.held(&first, &early).await;
    scene.held(&second, &late).await;
    scene.released(&holder, &granted.grant).await;
    if holder.profile().fifo {
        scene.held(&second, &late).await;
        scene.granted(&first, &early).await;
    } else {
        scene.granted(&second, &late).await;
        scene.held(&first, &early).await;
    }
}

/// The shortest and the longest ttl that the profile names are taken, and the answer says which is in force.
pub async fn c11_ttls_at_the_bounds_are_taken<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Profile);
    let (store, other) = scene.two().await;
    let (shortest, longest) = (store.profile().min_ttl, store.profile().max_ttl);
    for ttl in [shortest, longest] {
        let mut ask = scene.ask_for(&fresh_key());
        ask.ttl = ttl;
        let granted = scene.granted(&store, &ask).await;
        ensure!(
            scene,
            granted.ttl >= shortest && granted.ttl <= longest,
            "asked for {ttl:?}, between {shortest:?} and {longest:?}, the store says that {:?} is in force",
            granted.ttl
        );
        if ttl == longest {
            scene.held(&other, &scene.ask_for(&ask.key)).await;
            let mut renewal = scene.renewal(&granted.grant);
            renewal.ttl = ttl;
            scene.renewed(&store, &renewal).await;
        }
        // The shorter one may be over by now.
        scene.release(&store, &ReleaseRequest::of(&granted.grant)).await;
    }
}

/// A ttl beyond the bounds is refused and changes nothing, or is granted, and the key comes free again. It is never
/// unknown, and never a panic. Users do not get here: their options cannot be invalid.
pub async fn c11_a_ttl_beyond_the_bounds_does_no_harm<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Profile);
    let store = harness.store().await;
    let (shortest, longest) = (store.profile().min_ttl, store.profile().max_ttl);
    let ten_years = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    for ttl in
        [Duration::ZERO, shortest / 2, longest.saturating_mul(2), longest.max(ten_years), Duration::MAX]
    {
        let key = fresh_key();
        let mut ask = scene.ask_for(&key);
        ask.ttl = ttl;
        match store.acquire(&ask).await {
            Ok(AcquireOutcome::Granted(granted)) => {
                // One of no length may be over by now.
                scene.release(&store, &ReleaseRequest::of(&granted.grant)).await;
            }
            Ok(other) => scene
                .clause
                .broken(format_args!("nobody holds the key, and a ttl of {ttl:?} is told {other:?}")),
            Err(error) => {
                ensure!(
                    scene,
                    error.effect() == Effect::NotApplied && !error.is_transient(),
                    "a ttl of {ttl:?} that is not taken should be refused for good, with nothing done: {error} ({error:?})"
                );
                let stored = harness.stored_token(&key).await;
                ensure!(
                    scene,
                    stored.is_none(),
                    "a refused ttl of {ttl:?} should change nothing, and left {stored:?}"
                );
            }
        }
        scene.granted(&store, &scene.ask_for(&key)).await;
    }
}

/// A healthy store is found healthy, and a finding says what to do.
pub async fn c11_check_finds_nothing_wrong_with_a_healthy_store<H: Harness>(harness: &H) {
    let scene = Scene::new(harness, Clause::Profile);
    let store = harness.store().await;
    let findings = match store.check().await {
        Ok(findings) => findings,
        Err(error) => scene.clause.broken(format_args!("check should succeed on a healthy store: {error}")),
    };
    for finding in &findings {
        ensure!(
            scene,
            finding.severity < Severity::Error && !finding.what.is_empty() && !finding.remedy.is_empty(),
            "nothing is wrong here, and a finding says what was found and what to do: {finding:?}"
        );
    }
}
