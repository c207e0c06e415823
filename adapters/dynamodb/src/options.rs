use std::sync::Arc;
use std::time::Duration;

use leasehold::record::TokenPolicy;
use leasehold::{Clock, SystemClock};

/// How leases lie in the table, and how their times and tokens are made.
///
/// ```
/// use leasehold_dynamodb::DynamoDbOptions;
///
/// let options = DynamoDbOptions::new().with_key_prefix("billing/").with_sort_key("sk", "lease");
/// ```
#[derive(Clone, Debug)]
#[must_use = "give the options to DynamoDbStore::open_with"]
pub struct DynamoDbOptions {
    pub(crate) key_attribute: String,
    pub(crate) sort_key: Option<(String, String)>,
    pub(crate) key_prefix: String,
    pub(crate) tokens: TokenPolicy,
    pub(crate) expiry: ExpiryPolicy,
    pub(crate) max_skew: Duration,
    pub(crate) home_region: Option<String>,
    pub(crate) batches: bool,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for DynamoDbOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl DynamoDbOptions {
    /// The partition key `pk`, no sort key, no prefix, tokens with a clock floor, a spread of the service's clocks of 2 s.
    pub fn new() -> Self {
        Self {
            key_attribute: String::from("pk"),
            sort_key: None,
            key_prefix: String::new(),
            tokens: TokenPolicy::default(),
            expiry: ExpiryPolicy::default(),
            max_skew: Duration::from_secs(2),
            home_region: None,
            batches: false,
            clock: Arc::new(SystemClock),
        }
    }

    /// The name of the table's partition key, which must be a string. Default `pk`.
    pub fn with_key_attribute(mut self, name: impl Into<String>) -> Self {
        self.key_attribute = name.into();
        self
    }

    /// For a table with a sort key: its name, and the one value that all leases have there.
    pub fn with_sort_key(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.sort_key = Some((name.into(), value.into()));
        self
    }

    /// What stands before every lease's key in the table, so that several applications share one.
    pub fn with_key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// How tokens are made. Default [`TokenPolicy::ClockFloor`].
    pub fn with_tokens(mut self, tokens: TokenPolicy) -> Self {
        self.tokens = tokens;
        self
    }

    /// By which rule somebody else's grant is over. Default [`ExpiryPolicy::StoreTime`]. The same for all who share keys.
    pub fn with_expiry(mut self, expiry: ExpiryPolicy) -> Self {
        self.expiry = expiry;
        self
    }

    /// The spread of the service's own clocks. Default 2 s. Smaller is faster after a crash, and unsafe below the true spread.
    pub fn with_max_skew(mut self, max_skew: Duration) -> Self {
        self.max_skew = max_skew;
        self
    }

    /// For a global table with eventual consistency: the one region in which every holder takes its leases. Without it such a
    /// table is refused, since each region would grant the same key.
    pub fn with_home_region(mut self, region: impl Into<String>) -> Self {
        self.home_region = Some(region.into());
        self
    }

    /// Whether renewals that are due together go in one request (`BatchExecuteStatement`, 25 at the most, each with an answer of its
    /// own). Default no: it costs the same write units, and needs the right `dynamodb:PartiQLUpdate`. For processes that hold
    /// hundreds of leases.
    pub fn with_batches(mut self, batches: bool) -> Self {
        self.batches = batches;
        self
    }

    /// The clock that answers are timed by. For tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}

/// By which rule somebody else's grant is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpiryPolicy {
    /// When the service's clock has passed its `expires_at`, or when it has been watched for its whole ttl. A contender that has
    /// just started takes an expired lease within one call.
    #[default]
    StoreTime,
    /// When it has been watched for its whole ttl, and not else: trusts no clock but this machine's own. A holder writes no
    /// `expires_at`, so that others must watch too. A contender that does not live for a whole ttl never takes a dead one's key.
    Observed,
    /// When both say so. For those who distrust the service's time and their own, and have contenders that live long.
    Both,
}
