//! The cases: one plain function per fact, named after the clause that it tests.
//!
//! Each takes a [`Harness`](crate::Harness) and panics with a line that names the clause when the store breaks it. They run
//! on any Tokio runtime, all at once if you like: each uses keys of its own. [`suite!`](crate::suite) makes a test of each.

mod admin;
mod c01_exclusion;
mod c02_growth;
mod c03_repetition;
mod c04_patience;
mod c05_renewal;
mod c06_release;
mod c07_honesty;
mod c08_cancellation;
mod c09_names;
mod c10_modesty;
mod c11_profile;

pub use admin::*;
pub use c01_exclusion::*;
pub use c02_growth::*;
pub use c03_repetition::*;
pub use c04_patience::*;
pub use c05_renewal::*;
pub use c06_release::*;
pub use c07_honesty::*;
pub use c08_cancellation::*;
pub use c09_names::*;
pub use c10_modesty::*;
pub use c11_profile::*;

#[doc(hidden)]
#[macro_export]
macro_rules! __store_cases {
    ($callback:ident! $first:tt $second:tt) => {
        $crate::$callback! {
            $first $second
            c01_a_second_client_is_refused_while_the_key_is_held
            c01_a_second_call_of_the_holder_is_refused
            c01_the_same_label_on_two_clients_is_two_holders
            c01_a_race_for_a_new_key_has_one_winner
            c01_a_race_for_an_expired_grant_has_one_winner
            c01_a_race_on_a_fenced_counter_loses_no_update
            c02_tokens_grow_over_release
            c02_tokens_grow_over_expiry
            c02_tokens_grow_over_renewals
            c02_tokens_grow_over_a_takeover_from_outside
            c02_a_hundred_tokens_grow_and_are_the_stored_ones
            c02_tokens_over_a_deleted_record_are_as_the_profile_says
            c03_the_same_nonce_again_is_the_same_grant
            c03_repetition_names_the_attempt_that_counts
            c03_the_same_nonce_again_after_renewals_is_the_same_grant
            c03_one_nonce_asked_many_times_at_once_is_one_grant
            c03_an_acquire_that_arrives_twice_repeats_no_token
            c03_a_nonce_asked_again_after_its_release_repeats_no_token
            c03_a_nonce_that_was_superseded_is_refused
            c03_a_repetition_with_another_ttl_says_the_ttl_in_force
            c04_a_grant_stands_until_its_ttl_has_passed
            c04_the_holders_ttl_counts_and_not_the_contenders
            c04_an_expired_grant_is_taken_over_in_one_call
            c04_a_renewal_postpones_the_expiry
            c04_inspect_and_acquire_agree
            c05_a_renewal_keeps_the_token_and_counts
            c05_a_grant_is_renewed_by_whoever_was_given_it
            c05_a_renewal_never_moves_the_expiry_back
            c05_a_renewal_one_behind_is_told_the_attempt_in_the_store
            c05_a_renewal_that_arrives_late_changes_nothing
            c05_a_renewal_two_behind_is_as_the_profile_says
            c05_a_renewal_after_a_takeover_from_outside_is_superseded
            c05_a_renewal_after_expiry_and_takeover_is_superseded
            c05_a_released_grant_is_not_renewed
            c05_a_wrong_nonce_renews_nothing
            c05_a_renewal_of_a_deleted_record_says_that_it_is_gone
            c05_a_lapsed_grant_is_renewed_or_lost_and_never_both
            c05_a_batch_is_answered_one_by_one_and_in_order
            c06_a_release_frees_the_key_and_keeps_the_record
            c06_a_release_may_be_repeated
            c06_a_release_by_a_stale_grant_changes_nothing
            c06_a_release_after_a_takeover_from_outside_changes_nothing
            c06_a_release_after_the_next_holder_has_gone_says_that_there_was_one
            c06_a_release_that_arrives_late_ends_no_other_grant
            c06_a_release_by_nonce_alone_ends_the_grant
            c06_a_release_of_a_nonce_that_never_won_changes_nothing
            c06_a_release_does_not_compare_seq
            c06_a_release_of_a_lapsed_grant_leaves_the_key_free
            c06_a_release_of_a_deleted_record_makes_none
            c07_an_acquire_whose_answer_was_lost_is_recognised
            c07_a_renewal_whose_answer_was_lost_is_recognised
            c07_a_release_whose_answer_was_lost_is_recognised
            c07_contention_is_an_answer_and_says_who_holds_the_key
            c07_inspect_shows_what_is_there
            c07_times_for_people_make_sense
            c08_after_a_dropped_acquire_the_same_nonce_goes_on
            c08_after_a_dropped_acquire_a_rival_never_shares_the_key
            c08_an_acquire_that_arrives_after_it_was_dropped_never_shares_the_key
            c08_after_a_dropped_renewal_the_grant_goes_on
            c08_after_a_dropped_release_the_key_comes_free
            c09_names_that_are_alike_are_different_keys
            c09_every_plane_of_unicode_makes_names
            c09_the_longest_names_are_different_keys
            c10_nothing_renews_a_grant_by_itself
            c10_an_acquire_does_not_wait_for_the_key
            c10_looking_writes_nothing
            c10_a_refused_acquire_writes_nothing
            c11_the_profile_is_possible_and_one_for_all_clients
            c11_every_entry_of_the_profile_has_its_cases
            c11_records_outlive_their_processes_as_the_profile_says
            c11_scope_and_timing_fit_together
            c11_tokens_come_from_where_the_profile_says
            c11_waiters_queue_as_the_profile_says
            c11_ttls_at_the_bounds_are_taken
            c11_a_ttl_beyond_the_bounds_does_no_harm
            c11_check_finds_nothing_wrong_with_a_healthy_store
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __admin_cases {
    ($callback:ident! $first:tt $second:tt) => {
        $crate::$callback! {
            $first $second
            c02_tokens_grow_over_a_graceful_break
            c02_tokens_grow_over_an_immediate_break
            c02_tokens_grow_over_a_raised_floor
            c05_a_renewal_after_an_immediate_break_is_broken
            c05_a_renewal_after_a_graceful_break_is_broken_and_the_key_is_still_held
            c06_a_release_after_a_graceful_break_frees_the_key
            c06_a_release_after_an_immediate_break_has_ended_before
            c09_a_list_shows_names_byte_by_byte
            admin_a_list_shows_what_has_a_record_page_by_page
            admin_a_break_ends_only_the_grant_that_was_seen
            admin_a_break_may_become_immediate
            admin_a_raised_floor_lowers_nothing
            admin_a_raised_floor_ends_the_grant_that_it_overtakes
            admin_a_seal_refuses_new_grants_and_lets_the_holder_go_on
            admin_a_seal_outlasts_the_grant
            admin_a_seal_that_was_not_there_is_taken_off_without_a_trace
        }
    };
}
