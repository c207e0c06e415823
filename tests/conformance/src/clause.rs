use std::fmt;

/// A clause of the contract of [`LeaseStore`](leasehold::LeaseStore).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Clause {
    /// At most one grant of a key is current.
    Exclusion = 1,
    /// Every grant's token is greater than all earlier ones of that key.
    Growth = 2,
    /// Asking again with the same nonce yields the same grant while it is current.
    Repetition = 3,
    /// A current grant is not superseded before its ttl has passed, by the store's rule of expiry.
    Patience = 4,
    /// Renewal extends only the current grant, keeps its token, and never moves its expiry back.
    Renewal = 5,
    /// Release ends only the current grant, keeps the record, and may be repeated.
    Release = 6,
    /// `Ok` means known; an error says whether the step may have landed.
    Honesty = 7,
    /// A dropped future leaves a record from which the same nonce goes on or one ttl recovers.
    Cancellation = 8,
    /// Keys are byte-exact and never alias.
    Names = 9,
    /// One logical step: no retry, no background task, no clock but the one given.
    Modesty = 10,
    /// What a store cannot do, its profile says.
    Profile = 11,
    /// Not numbered: what [`LeaseAdmin`](leasehold::LeaseAdmin) says of its own methods.
    Administration = 12,
}

impl Clause {
    /// All of them, in order.
    pub const ALL: [Self; 12] = [
        Self::Exclusion,
        Self::Growth,
        Self::Repetition,
        Self::Patience,
        Self::Renewal,
        Self::Release,
        Self::Honesty,
        Self::Cancellation,
        Self::Names,
        Self::Modesty,
        Self::Profile,
        Self::Administration,
    ];

    /// What the names of its cases begin with: `c05_`, or `admin_` for what is not numbered.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Exclusion => "c01_",
            Self::Growth => "c02_",
            Self::Repetition => "c03_",
            Self::Patience => "c04_",
            Self::Renewal => "c05_",
            Self::Release => "c06_",
            Self::Honesty => "c07_",
            Self::Cancellation => "c08_",
            Self::Names => "c09_",
            Self::Modesty => "c10_",
            Self::Profile => "c11_",
            Self::Administration => "admin_",
        }
    }

    /// The clause that a case of this name tests.
    pub(crate) fn of_case(name: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|clause| name.starts_with(clause.prefix()))
            .expect("the name of a case begins with the prefix of its clause")
    }

    /// Ends the case: the store breaks this clause.
    #[track_caller]
    pub(crate) fn broken(self, how: fmt::Arguments<'_>) -> ! {
        panic!("{self} is broken: {how}")
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Administration => f.write_str("the contract of LeaseAdmin"),
            clause => write!(f, "clause {} ({clause:?})", *clause as u8),
        }
    }
}

/// Ends the case unless the condition holds. The text says what the store should do, and shows what it did.
macro_rules! ensure {
    ($scene:expr, $condition:expr, $($text:tt)+) => {
        if !$condition {
            $scene.clause.broken(format_args!($($text)+));
        }
    };
}

pub(crate) use ensure;
