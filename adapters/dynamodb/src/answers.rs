//! Learns the service's time from its answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use aws_smithy_types::date_time::Format;
use leasehold::Clock;
use leasehold::record::{StoreAnswer, StoreTime};

use crate::error::REQUEST_ID;

/// The service's time, shared by the store and the interceptor of its client.
#[derive(Clone, Debug)]
pub(crate) struct ServiceTime {
    clock: Arc<dyn Clock>,
    time: Arc<Mutex<StoreTime>>,
}

impl ServiceTime {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, time: Arc::default() }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, StoreTime> {
        // Noting an answer leaves nothing half done.
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a request was begun, on the boot clock.
#[derive(Clone, Copy, Debug)]
struct Sent(Duration);

impl Storable for Sent {
    type Storer = StoreReplace<Self>;
}

impl Intercept for ServiceTime {
    fn name(&self) -> &'static str {
        "leasehold: the service's time"
    }

    fn read_before_execution(
        &self,
        _context: &BeforeSerializationInterceptorContextRef<'_>,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        cfg.interceptor_state().store_put(Sent(self.clock.read().boot));
        Ok(())
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _runtime_components: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let arrived = self.clock.read().boot;
        let headers = context.response().headers();
        // Only the service itself tells its time: not a proxy's error page, not a cache.
        let from_service = headers.get(REQUEST_ID).is_some() && headers.get("age").is_none();
        let date = headers.get("date").filter(|_| from_service).and_then(unix_ms);
        if let (Some(date_ms), Some(Sent(sent))) = (date, cfg.load::<Sent>().copied()) {
            self.lock().note(StoreAnswer { date_ms, sent, arrived });
        }
        Ok(())
    }
}

fn unix_ms(date: &str) -> Option<u64> {
    let date = DateTime::from_str(date, Format::HttpDate).ok()?;
    u64::try_from(date.secs()).ok()?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_and_what_is_none_is_not() {
        assert_eq!(unix_ms("Mon, 30 Nov 2026 16:39:35 GMT"), Some(1_796_056_775_000));
        for odd in ["", "now", "Mon, 30 Nov 1926 16:39:35 GMT", "2026-11-30T16:39:35Z"] {
            assert_eq!(unix_ms(odd), None, "{odd:?}");
        }
    }
}
