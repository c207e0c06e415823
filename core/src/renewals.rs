//! The room through which all renewals of a store go.

use std::sync::Arc;

use crate::error::{StoreError, StoreErrorKind};
use crate::store::{LeaseStore, RenewOutcome, RenewRequest};

/// Hands renewals to a store, singly. Keepers know only this door, so that a store that takes batches can be given some
/// without their knowing.
#[derive(Clone, Debug)]
pub(crate) struct Renewals {
    store: Arc<dyn LeaseStore>,
}

impl Renewals {
    pub(crate) const fn new(store: Arc<dyn LeaseStore>) -> Self {
        Self { store }
    }

    pub(crate) async fn renew(&self, ask: RenewRequest) -> Result<RenewOutcome, StoreError> {
        let mut answers = self.store.renew(std::slice::from_ref(&ask)).await;
        match (answers.pop(), answers.is_empty()) {
            (Some(answer), true) => answer,
            _ => Err(StoreError::unknown(
                StoreErrorKind::Other,
                "the store did not give one answer for one renewal: report this to the author of its adapter",
            )
            .with_key(&ask.grant.key)),
        }
    }
}
