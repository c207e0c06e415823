use std::path::Path;
use std::sync::Arc;

use leasehold::record::TokenPolicy;
use leasehold::{Clock, StoreError, SystemClock};

use crate::store::SqliteStore;

/// How a [`SqliteStore`] is opened.
///
/// ```no_run
/// # async fn example() -> Result<(), leasehold::StoreError> {
/// use leasehold::record::TokenPolicy;
/// use leasehold_sqlite::SqliteOptions;
///
/// let small_tokens = SqliteOptions::new().with_tokens(TokenPolicy::Sequential { seed: 0 });
/// let store = small_tokens.open("/var/lib/my-service/leases.db").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tokens: TokenPolicy,
    pub(crate) boot_id: Option<Arc<str>>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl SqliteOptions {
    /// The clocks of this machine, and tokens that survive the deletion of the file.
    pub fn new() -> Self {
        Self { clock: Arc::new(SystemClock), tokens: TokenPolicy::default(), boot_id: None }
    }

    /// Timed by `clock`, which must be the same for all processes that use the file.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// With tokens made by this policy, which must be the same for all processes that use the file.
    #[must_use]
    pub fn with_tokens(self, tokens: TokenPolicy) -> Self {
        Self { tokens, ..self }
    }

    /// As if the machine had been booted under this id. For tests of what comes after a reboot.
    #[doc(hidden)]
    #[must_use]
    pub fn with_boot_id(self, id: impl Into<Arc<str>>) -> Self {
        Self { boot_id: Some(id.into()), ..self }
    }

    /// Opens the store in the file at `path`. See [`SqliteStore::open`].
    ///
    /// # Errors
    /// Those of [`SqliteStore::open`].
    pub async fn open(self, path: impl AsRef<Path> + Send) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_with(self, path.as_ref().to_owned()).await
    }
}
