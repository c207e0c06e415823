use std::future::Future;

use crate::clause::Clause;

/// Makes one `#[test]` per case for the harness that the expression gives, each named after its clause.
///
/// The expression is evaluated once per case, inside a Tokio runtime, so it may `.await`. Attributes before it are put on
/// every test. A store that is no [`LeaseAdmin`](leasehold::LeaseAdmin) says so with `, without admin`, and has the cases that
/// need none. Without these words it does not compile, so nothing is left out unsaid.
///
/// ```
/// mod local {
///     leasehold_conformance::suite!(MyHarness::new());
/// }
///
/// mod served {
///     leasehold_conformance::suite!(#[ignore = "needs a server: see README"] MyHarness::connect().await);
/// }
///
/// mod plain {
///     leasehold_conformance::suite!(MyHarness::new(), without admin);
/// }
/// ```
#[macro_export]
macro_rules! suite {
    ($($input:tt)+) => {
        $crate::__suite! { [] $($input)+ }
    };
}

// Takes the attributes off one by one: an expression may begin with one too, so no pattern can tell where they end.
#[doc(hidden)]
#[macro_export]
macro_rules! __suite {
    ([$($taken:tt)*] #[$($attribute:tt)*] $($rest:tt)+) => {
        $crate::__suite! { [$($taken)* #[$($attribute)*]] $($rest)+ }
    };
    ($attributes:tt $harness:expr, without admin $(,)?) => {
        $crate::__store_cases! { __tests! $attributes [$harness] }
    };
    ($attributes:tt $harness:expr $(,)?) => {
        $crate::__store_cases! { __tests! $attributes [$harness] }
        $crate::__admin_cases! { __tests! $attributes [$harness] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($attributes:tt $harness:tt $($case:ident)*) => {
        $( $crate::__test! { $attributes $harness $case } )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __test {
    ([$($attribute:tt)*] [$harness:expr] $case:ident) => {
        #[test]
        $($attribute)*
        fn $case() {
            $crate::run(async {
                let harness = $harness;
                $crate::cases::$case(&harness).await;
            });
        }
    };
}

/// Runs one case to its end on a Tokio runtime of its own, with two worker threads, so that races are races.
///
/// For those who do not want [`suite!`](crate::suite). The cases themselves run on any Tokio runtime.
pub fn run(case: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("this machine has no room for two more threads")
        .block_on(case);
}

/// One case of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Case {
    /// The name of its function in [`cases`](crate::cases), and of its test.
    pub name: &'static str,
    /// Whether it needs a store that is a [`LeaseAdmin`](leasehold::LeaseAdmin).
    pub needs_admin: bool,
}

impl Case {
    /// Every case of the suite: those that any store must pass, then those that need a
    /// [`LeaseAdmin`](leasehold::LeaseAdmin).
    pub fn all() -> impl Iterator<Item = Self> {
        STORE_CASES.iter().chain(ADMIN_CASES).copied()
    }

    /// The clause that it tests.
    pub fn clause(&self) -> Clause {
        Clause::of_case(self.name)
    }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __names {
    ([$needs_admin:literal] [] $($case:ident)*) => {
        &[$($crate::Case { name: stringify!($case), needs_admin: $needs_admin }),*]
    };
}

const STORE_CASES: &[Case] = crate::__store_cases! { __names! [false] [] };
const ADMIN_CASES: &[Case] = crate::__admin_cases! { __names! [true] [] };

/// An entry of [`StoreProfile`](leasehold::StoreProfile) and the cases that hold a store to it: what follows where it says
/// yes, and what follows where it says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfileEntry {
    /// The field's name.
    pub name: &'static str,
    /// The names of the cases, each of which asks the profile and then tests the side that it names.
    pub cases: &'static [&'static str],
}

const fn entry(name: &'static str, cases: &'static [&'static str]) -> ProfileEntry {
    ProfileEntry { name, cases }
}

/// Every entry of a profile, in its order.
///
/// Of `timing` and `scope` the kit tests what shows at one backend: the rule of expiry by the cases of clause 4, and that the
/// entries fit together. Of `requests_per_acquire` it tests that it is possible; requests are counted on the wire.
pub const PROFILE_ENTRIES: &[ProfileEntry] = &[
    entry("name", &["c11_the_profile_is_possible_and_one_for_all_clients"]),
    entry("min_ttl", &["c11_ttls_at_the_bounds_are_taken", "c11_a_ttl_beyond_the_bounds_does_no_harm"]),
    entry("max_ttl", &["c11_ttls_at_the_bounds_are_taken", "c11_a_ttl_beyond_the_bounds_does_no_harm"]),
    entry(
        "timing",
        &[
            "c04_a_grant_stands_until_its_ttl_has_passed",
            "c04_an_expired_grant_is_taken_over_in_one_call",
            "c11_scope_and_timing_fit_together",
        ],
    ),
    entry(
        "token_origin",
        &["c11_tokens_come_from_where_the_profile_says", "c02_tokens_grow_over_a_raised_floor"],
    ),
    entry(
        "scope",
        &["c11_scope_and_timing_fit_together", "c01_a_second_client_is_refused_while_the_key_is_held"],
    ),
    entry("token_survives_deletion", &["c02_tokens_over_a_deleted_record_are_as_the_profile_says"]),
    entry("floor_resolution", &["c02_tokens_over_a_deleted_record_are_as_the_profile_says"]),
    entry("durable", &["c11_records_outlive_their_processes_as_the_profile_says"]),
    entry(
        "detects_clones",
        &[
            "c05_a_renewal_one_behind_is_told_the_attempt_in_the_store",
            "c05_a_renewal_two_behind_is_as_the_profile_says",
        ],
    ),
    entry("max_batch", &["c05_a_batch_is_answered_one_by_one_and_in_order"]),
    entry("fifo", &["c11_waiters_queue_as_the_profile_says"]),
    entry("requests_per_acquire", &["c11_the_profile_is_possible_and_one_for_all_clients"]),
];
