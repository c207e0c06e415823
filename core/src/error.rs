use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::LeaseKey;

/// A step at a store that did not give an answer: what the caller can do about it, and whether the step may have landed.
///
/// `Display` is one line in lower case that says what to do; the vendor's own error is the [`source`](Error::source) and
/// not part of the line. It never holds a nonce, a lease id or a credential. Clones share the source.
#[derive(Clone)]
pub struct StoreError {
    // On the heap, so that a `Result` with it stays small.
    parts: Box<Parts>,
}

#[derive(Clone)]
struct Parts {
    kind: StoreErrorKind,
    effect: Effect,
    message: Cow<'static, str>,
    key: Option<LeaseKey>,
    code: Option<String>,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Whether a step that failed may have changed the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an adapter must choose one of the two")]
pub enum Effect {
    /// The store has not done it and will not do it later.
    NotApplied,
    /// It may have been done, or may be done later. Ask again with the same nonce; the record tells.
    Unknown,
}

/// What the caller can do about a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The record holds what no lease library wrote. A person must look at it.
    Corrupt,
    /// The store turned the request away because this machine's clock is off. Sent once more, after a look at its clock.
    ClockSkew,
    /// A person must grant the right, or give valid credentials.
    Denied,
    /// A person must set something up: a missing table, a wrong schema, an unusable path.
    Misconfigured,
    /// The store's answers carry no time to judge an expiry by.
    NoStoreClock,
    /// Something the adapter does not know. Not tried again.
    Other,
    /// Too many requests. Tried again, later.
    Throttled,
    /// Not reached, or no answer. Tried again.
    Unavailable,
    /// This store cannot do what was asked; its profile says so.
    Unsupported,
}

impl StoreErrorKind {
    /// Whether the same request may succeed if it is sent again without anybody's doing.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::ClockSkew | Self::Throttled | Self::Unavailable)
    }
}

impl StoreError {
    /// The store has not done the step and will not do it later.
    pub fn not_applied(kind: StoreErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(kind, Effect::NotApplied, message.into())
    }

    /// The step may have been done, or may be done later.
    pub fn unknown(kind: StoreErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(kind, Effect::Unknown, message.into())
    }

    fn new(kind: StoreErrorKind, effect: Effect, message: Cow<'static, str>) -> Self {
        let parts = Parts { kind, effect, message, key: None, code: None, retry_after: None, source: None };
        Self { parts: Box::new(parts) }
    }

    /// With the key that the step was about.
    #[must_use]
    pub fn with_key(mut self, key: &LeaseKey) -> Self {
        self.parts.key = Some(key.clone());
        self
    }

    /// With the backend's own name or number for the failure.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.parts.code = Some(code.into());
        self
    }

    /// With the time that the backend asked to wait.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.parts.retry_after = Some(wait);
        self
    }

    /// With the vendor's own error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.parts.source = Some(Arc::from(source.into()));
        self
    }

    /// What the caller can do.
    pub fn kind(&self) -> StoreErrorKind {
        self.parts.kind
    }

    /// Whether the step may have landed.
    pub fn effect(&self) -> Effect {
        self.parts.effect
    }

    /// The key that the step was about, where it was about one.
    pub fn key(&self) -> Option<&LeaseKey> {
        self.parts.key.as_ref()
    }

    /// The backend's own name or number for the failure.
    pub fn code(&self) -> Option<&str> {
        self.parts.code.as_deref()
    }

    /// How long the backend asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.parts.retry_after
    }

    /// Whether the same request may succeed if it is sent again without anybody's doing.
    pub fn is_transient(&self) -> bool {
        self.parts.kind.is_transient()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.parts.key {
            write!(f, "lease `{key}`: ")?;
        }
        f.write_str(&self.parts.message)?;
        if let Some(code) = &self.parts.code {
            write!(f, " [{code}]")?;
        }
        if self.parts.effect == Effect::Unknown {
            f.write_str(" (it is not known whether the step was done)")?;
        }
        Ok(())
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("kind", &self.parts.kind)
            .field("effect", &self.parts.effect)
            .field("message", &self.parts.message)
            .field("key", &self.parts.key)
            .field("code", &self.parts.code)
            .field("retry_after", &self.parts.retry_after)
            .field("source", &self.parts.source)
            .finish()
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.parts.source.as_ref().map(|source| source.as_ref() as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_to_do_and_keeps_the_source_apart() {
        let key = LeaseKey::new("nightly").unwrap();
        let error =
            StoreError::unknown(StoreErrorKind::Unavailable, "no answer within 2 s; it is tried again")
                .with_key(&key)
                .with_code("503")
                .with_source("connection reset by peer");
        assert_eq!(
            error.to_string(),
            "lease `nightly`: no answer within 2 s; it is tried again [503] (it is not known whether the step was done)"
        );
        assert_eq!(error.source().unwrap().to_string(), "connection reset by peer");
        assert_eq!((error.code(), error.effect()), (Some("503"), Effect::Unknown));
    }
}
