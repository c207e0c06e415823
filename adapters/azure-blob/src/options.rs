use std::sync::Arc;
use std::time::Duration;

use leasehold::record::TokenPolicy;
use leasehold::{Clock, SystemClock};

/// How a lease is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// A lease of the service's own: 15 to 60 seconds, timed by the service. Nobody else can write to the blob meanwhile.
    #[default]
    Native,
    /// A record in the blob's metadata, for 15 seconds to 24 hours: for functions that cannot renew in the background. Timed by the
    /// service's `Last-Modified` and `Date`.
    Record,
}

/// Where the fencing tokens of [`Mode::Native`] come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenSource {
    /// A counter in the blob's metadata, raised under the lease and tied to what was read by the blob's ETag.
    #[default]
    Metadata,
    /// The sequence number of a page blob, which the service itself increments. One request more; not on a hierarchical namespace and
    /// not in premium block blob accounts.
    PageBlob,
}

/// How leases lie in the container, and how their times and tokens are made.
///
/// All processes that share a container must agree on mode and token source; a blob of another kind is refused.
///
/// ```
/// use leasehold_azure_blob::{AzureBlobOptions, Mode};
///
/// let options = AzureBlobOptions::new().with_mode(Mode::Record);
/// ```
#[derive(Clone, Debug)]
#[must_use = "give the options to the store"]
pub struct AzureBlobOptions {
    pub(crate) mode: Mode,
    pub(crate) token_source: TokenSource,
    pub(crate) tokens: TokenPolicy,
    pub(crate) max_skew: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for AzureBlobOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl AzureBlobOptions {
    /// Native leases, the token in metadata with a clock floor, a spread of the service's clocks of 2 s.
    pub fn new() -> Self {
        Self {
            mode: Mode::default(),
            token_source: TokenSource::default(),
            tokens: TokenPolicy::default(),
            max_skew: Duration::from_secs(2),
            clock: Arc::new(SystemClock),
        }
    }

    /// How a lease is held. Default [`Mode::Native`].
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Where tokens come from. Default [`TokenSource::Metadata`].
    pub fn with_token_source(mut self, token_source: TokenSource) -> Self {
        self.token_source = token_source;
        self
    }

    /// How tokens are made. Default [`TokenPolicy::ClockFloor`]. Of a page blob's it decides the first alone.
    pub fn with_tokens(mut self, tokens: TokenPolicy) -> Self {
        self.tokens = tokens;
        self
    }

    /// The spread of the service's own clocks, for [`Mode::Record`]. Default 2 s. Smaller is faster after a crash, and unsafe below
    /// the true spread.
    pub fn with_max_skew(mut self, max_skew: Duration) -> Self {
        self.max_skew = max_skew;
        self
    }

    /// The clock that answers are timed by. For tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}
