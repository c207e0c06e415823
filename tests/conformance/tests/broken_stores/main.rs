//! The test of the tests: stores that are broken on purpose, each in one way, and the case that finds it.
//!
//! The same store without a fault passes the whole suite, twice: once with a profile that says all it can, once with one
//! that says the least. So every entry of a profile is seen from both sides, and every case has been seen to pass.

#![expect(clippy::unwrap_used, reason = "a harness is part of a test")]

mod tiny;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use leasehold_conformance::{Case, Clause, cases};

use crate::tiny::Tiny;

mod capable {
    leasehold_conformance::suite!(crate::Tiny::capable(None));
}

mod modest {
    leasehold_conformance::suite!(crate::Tiny::modest());
}

/// Makes the faults, a test for each that the named cases find it, and the table of them.
macro_rules! faults {
    ($( $fault:ident / $test:ident: $($case:ident),+; )+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault {
            $( $fault, )+
        }

        $(
            #[test]
            fn $test() {
                $( is_found(stringify!($case), async { cases::$case(&Tiny::capable(Some(Fault::$fault))).await }); )+
            }
        )+

        const FOUND_BY: &[&str] = &[$( $( stringify!($case), )+ )+];
    };
}

faults! {
    // 1 Exclusion
    GrantsWhatIsHeld / grant_what_is_held:
        c01_a_second_client_is_refused_while_the_key_is_held, c01_a_second_call_of_the_holder_is_refused,
        c01_a_race_for_a_new_key_has_one_winner, c03_a_nonce_that_was_superseded_is_refused,
        c04_a_grant_stands_until_its_ttl_has_passed;
    LooksAndThenWrites / look_and_then_write:
        c01_a_race_for_a_new_key_has_one_winner, c01_a_race_for_an_expired_grant_has_one_winner,
        c01_a_race_on_a_fenced_counter_loses_no_update;
    TakesTheLabelForTheHolder / take_the_label_for_the_holder: c01_the_same_label_on_two_clients_is_two_holders;
    // 2 Growth
    TokenStartsAgain / start_tokens_again:
        c02_tokens_grow_over_release, c02_tokens_grow_over_renewals, c02_tokens_grow_over_an_immediate_break,
        c03_a_nonce_asked_again_after_its_release_repeats_no_token,
        c03_an_acquire_that_arrives_twice_repeats_no_token, admin_a_seal_outlasts_the_grant;
    HandsOutAnotherToken / hand_out_another_token_than_is_stored:
        c02_a_hundred_tokens_grow_and_are_the_stored_ones;
    ClaimsThatTokensSurviveDeletion / claim_that_tokens_survive_deletion:
        c02_tokens_over_a_deleted_record_are_as_the_profile_says;
    ForgetsTheFloor / forget_the_floor: c02_tokens_grow_over_a_raised_floor;
    // 3 Repetition
    ForgetsItsNonce / take_the_own_write_for_contention:
        c03_the_same_nonce_again_is_the_same_grant, c03_one_nonce_asked_many_times_at_once_is_one_grant,
        c07_an_acquire_whose_answer_was_lost_is_recognised,
        c08_an_acquire_that_arrives_after_it_was_dropped_never_shares_the_key;
    ForgetsItsNonceAfterARenewal / take_the_own_renewed_grant_for_contention:
        c03_the_same_nonce_again_after_renewals_is_the_same_grant;
    NamesAnAttemptThatDoesNotCount / name_an_attempt_that_does_not_count:
        c03_repetition_names_the_attempt_that_counts;
    // 4 Patience
    HalvesTheTtl / halve_the_ttl:
        c04_a_grant_stands_until_its_ttl_has_passed, c04_the_holders_ttl_counts_and_not_the_contenders,
        c03_a_repetition_with_another_ttl_says_the_ttl_in_force;
    CountsTheContendersTtl / count_the_contenders_ttl: c04_the_holders_ttl_counts_and_not_the_contenders;
    NeverExpires / never_expire:
        c04_an_expired_grant_is_taken_over_in_one_call, c02_tokens_grow_over_expiry,
        c02_tokens_grow_over_a_takeover_from_outside, c02_tokens_grow_over_a_graceful_break;
    RenewsWithoutExtending / renew_without_extending: c04_a_renewal_postpones_the_expiry;
    ShowsEveryGrantAsOver / show_every_grant_as_over: c04_inspect_and_acquire_agree;
    // 5 Renewal
    RenewsWithoutSeq / renew_without_seq:
        c05_a_renewal_one_behind_is_told_the_attempt_in_the_store, c05_a_renewal_two_behind_is_as_the_profile_says,
        c05_a_renewal_that_arrives_late_changes_nothing;
    MovesTheExpiryBack / move_the_expiry_back: c05_a_renewal_never_moves_the_expiry_back;
    RenewsWithANewToken / renew_with_a_new_token: c05_a_renewal_keeps_the_token_and_counts;
    RenewsAnybody / renew_anybody:
        c05_a_wrong_nonce_renews_nothing, c05_a_renewal_after_a_takeover_from_outside_is_superseded,
        c05_a_renewal_after_expiry_and_takeover_is_superseded,
        c05_a_lapsed_grant_is_renewed_or_lost_and_never_both;
    RemembersTheClient / remember_the_client: c05_a_grant_is_renewed_by_whoever_was_given_it;
    RenewsAfterABreak / renew_after_a_break:
        c05_a_renewal_after_a_graceful_break_is_broken_and_the_key_is_still_held;
    BreaksAtOnce / break_at_once_when_asked_to_be_graceful:
        c05_a_renewal_after_a_graceful_break_is_broken_and_the_key_is_still_held,
        c06_a_release_after_a_graceful_break_frees_the_key, admin_a_break_may_become_immediate;
    RevivesDeletedRecords / revive_deleted_records: c05_a_renewal_of_a_deleted_record_says_that_it_is_gone;
    RevivesReleasedGrants / revive_released_grants:
        c05_a_released_grant_is_not_renewed, c05_a_renewal_after_an_immediate_break_is_broken;
    AnswersABatchBackwards / answer_a_batch_backwards: c05_a_batch_is_answered_one_by_one_and_in_order;
    StopsABatchAtALoss / stop_a_batch_at_a_loss: c05_a_batch_is_answered_one_by_one_and_in_order;
    // 6 Release
    DeletesOnRelease / delete_on_release:
        c06_a_release_frees_the_key_and_keeps_the_record, c06_a_release_of_a_lapsed_grant_leaves_the_key_free,
        c02_tokens_grow_over_release, c07_inspect_shows_what_is_there;
    ReleasesAnybody / release_anybody:
        c06_a_release_by_a_stale_grant_changes_nothing, c06_a_release_that_arrives_late_ends_no_other_grant,
        c06_a_release_after_a_takeover_from_outside_changes_nothing,
        c06_a_release_of_a_nonce_that_never_won_changes_nothing, c01_the_same_label_on_two_clients_is_two_holders;
    ReleasesOnce / release_once:
        c06_a_release_may_be_repeated, c06_a_release_of_a_deleted_record_makes_none,
        c06_a_release_after_an_immediate_break_has_ended_before, c08_after_a_dropped_release_the_key_comes_free;
    ReleasesByTokenOnly / release_by_token_only: c06_a_release_by_nonce_alone_ends_the_grant;
    ReleasesByState / release_by_state: c06_a_release_does_not_compare_seq;
    SaysReleasedWhateverItFound / say_released_whatever_was_found:
        c06_a_release_by_a_stale_grant_changes_nothing, c07_a_release_whose_answer_was_lost_is_recognised,
        c06_a_release_after_the_next_holder_has_gone_says_that_there_was_one;
    // 7 Honesty
    TakesItsOwnRenewalForAClones / take_the_own_renewal_for_a_clones:
        c07_a_renewal_whose_answer_was_lost_is_recognised;
    MakesContentionAnError / make_contention_an_error: c07_contention_is_an_answer_and_says_who_holds_the_key;
    ShowsSecondsAsMilliseconds / show_seconds_as_milliseconds: c07_times_for_people_make_sense;
    // 8 Cancellation
    LocksBeforeItWrites / lock_before_writing:
        c08_after_a_dropped_acquire_the_same_nonce_goes_on, c08_after_a_dropped_acquire_a_rival_never_shares_the_key;
    CountsTokensAfterwards / count_tokens_afterwards: c08_after_a_dropped_acquire_the_same_nonce_goes_on;
    RenewsByTakingAndGivingBack / renew_by_taking_and_giving_back: c08_after_a_dropped_renewal_the_grant_goes_on;
    // 9 Names
    FoldsCase / fold_case: c09_names_that_are_alike_are_different_keys, c09_a_list_shows_names_byte_by_byte;
    TrimsNames / trim_names: c09_names_that_are_alike_are_different_keys;
    NormalisesNames / normalise_names: c09_names_that_are_alike_are_different_keys;
    KnowsOnePlaneOfUnicode / know_one_plane_of_unicode: c09_every_plane_of_unicode_makes_names;
    CutsNames / cut_names: c09_the_longest_names_are_different_keys;
    ListsByPattern / list_by_pattern: c09_a_list_shows_names_byte_by_byte;
    // 10 Modesty
    WaitsForTheKey / wait_for_the_key: c10_an_acquire_does_not_wait_for_the_key;
    RenewsInTheBackground / renew_in_the_background: c10_nothing_renews_a_grant_by_itself;
    WritesWhenLookedAt / write_when_looked_at: c10_looking_writes_nothing;
    RefusalWrites / write_when_refusing: c10_a_refused_acquire_writes_nothing;
    // 11 Profile
    LosesRecordsWithItsProcess / lose_records_with_the_process:
        c11_records_outlive_their_processes_as_the_profile_says;
    HidesThatRecordsLast / hide_that_records_last: c11_records_outlive_their_processes_as_the_profile_says;
    CarriesNoRenewals / carry_no_renewals: c11_the_profile_is_possible_and_one_for_all_clients;
    ClaimsOneMachinesTime / claim_one_machines_time_for_many: c11_scope_and_timing_fit_together;
    ClaimsTokensOverAllKeys / claim_tokens_over_all_keys: c11_tokens_come_from_where_the_profile_says;
    ClaimsAQueue / claim_a_queue: c11_waiters_queue_as_the_profile_says;
    RefusesTheLongestTtl / refuse_the_longest_ttl: c11_ttls_at_the_bounds_are_taken;
    FailsAtAnOddTtl / fail_at_an_odd_ttl: c11_a_ttl_beyond_the_bounds_does_no_harm;
    FindsHealthWrong / find_health_wrong: c11_check_finds_nothing_wrong_with_a_healthy_store;
    // What an operator may do
    ListsOnlyWhatIsHeld / list_only_what_is_held: admin_a_list_shows_what_has_a_record_page_by_page;
    BreaksWhateverIsThere / break_whatever_is_there: admin_a_break_ends_only_the_grant_that_was_seen;
    LowersTheFloor / lower_the_floor: admin_a_raised_floor_lowers_nothing;
    RaisesTheFloorUnderAGrant / raise_the_floor_under_a_grant:
        admin_a_raised_floor_ends_the_grant_that_it_overtakes;
    EndsTheGrantBySealing / end_the_grant_by_sealing: admin_a_seal_refuses_new_grants_and_lets_the_holder_go_on;
    GrantsUnderASeal / grant_under_a_seal:
        admin_a_seal_refuses_new_grants_and_lets_the_holder_go_on, admin_a_seal_outlasts_the_grant;
    ForgetsTheSealOnRelease / forget_the_seal_on_release:
        admin_a_seal_refuses_new_grants_and_lets_the_holder_go_on;
    MakesARecordToOpen / make_a_record_to_open: admin_a_seal_that_was_not_there_is_taken_off_without_a_trace;
}

/// Runs a case on a broken store, and expects it to say that its clause is broken.
fn is_found(name: &str, case: impl Future<Output = ()>) {
    let clause = Case::all().find(|case| case.name == name).expect("a case of the kit").clause();
    // One thread, so that this test's panics are its own; a timer that does not wait, so that a hang is found at once.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let found = quietly(|| catch_unwind(AssertUnwindSafe(|| runtime.block_on(case))));
    let panic = found.expect_err(&format!("{name} should find the fault"));
    let text = panic.downcast_ref::<String>().expect("a case panics with a formatted line");
    assert!(
        text.starts_with(&format!("{clause} is broken: ")),
        "{name} should name its clause, {clause}: {text}"
    );
}

/// Keeps the expected panics of this thread out of the output.
fn quietly<T>(step: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                loud(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = step();
    QUIET.set(false);
    result
}

/// A case that no fault fails may be one that cannot fail.
#[test]
fn every_case_finds_a_store_that_breaks_it() {
    // Its subject is this kit, which has to know every entry that there is.
    let of_the_kit = ["c11_every_entry_of_the_profile_has_its_cases"];
    let found: BTreeSet<_> = FOUND_BY.iter().chain(&of_the_kit).copied().collect();
    let all: BTreeSet<_> = Case::all().map(|case| case.name).collect();
    assert_eq!(all, found, "each case finds some store here that is broken");
    for clause in Clause::ALL {
        assert!(
            FOUND_BY.iter().any(|case| case.starts_with(clause.prefix())),
            "no store here breaks {clause}"
        );
    }
}

#[test]
fn every_case_is_in_the_suite() {
    let sources = [
        include_str!("../../src/cases/admin.rs"),
        include_str!("../../src/cases/c01_exclusion.rs"),
        include_str!("../../src/cases/c02_growth.rs"),
        include_str!("../../src/cases/c03_repetition.rs"),
        include_str!("../../src/cases/c04_patience.rs"),
        include_str!("../../src/cases/c05_renewal.rs"),
        include_str!("../../src/cases/c06_release.rs"),
        include_str!("../../src/cases/c07_honesty.rs"),
        include_str!("../../src/cases/c08_cancellation.rs"),
        include_str!("../../src/cases/c09_names.rs"),
        include_str!("../../src/cases/c10_modesty.rs"),
        include_str!("../../src/cases/c11_profile.rs"),
    ];
    let written: BTreeSet<_> = sources
        .iter()
        .flat_map(|source| source.split("\npub async fn ").skip(1))
        .filter_map(|function| function.split(['<', '(']).next())
        .collect();
    let listed: BTreeSet<_> = Case::all().map(|case| case.name).collect();
    assert_eq!(listed, written, "each case is listed once in cases/mod.rs");
    assert_eq!(listed.len(), Case::all().count(), "no case is listed twice");
}
