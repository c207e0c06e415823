//! The service's failures as [`StoreError`]: by its error code, never by status alone, and never guessed to be contention.

use std::borrow::Cow;

use leasehold::{Effect, LeaseKey, StoreError, StoreErrorKind};

use crate::port::{CauseKind, Fault, Refusal};

impl Fault {
    /// The service's name for its refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => refusal.code.as_deref(),
            Self::NotSent(_) | Self::Unknown(_) => None,
        }
    }

    /// Whether the blob is not there.
    pub(crate) fn is_missing_blob(&self) -> bool {
        self.code() == Some("BlobNotFound")
    }

    /// Whether the blob is not there, by itself or with its container.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self.code(), Some("BlobNotFound" | "ContainerBeingDeleted" | "ContainerNotFound"))
    }
}

/// What a request that failed means, of which nothing has been done before.
pub(crate) fn of_fault(fault: Fault, key: Option<&LeaseKey>) -> StoreError {
    classified(fault, Effect::NotApplied, key)
}

/// The same for the later request of a step whose earlier one has landed: the step is half done, whatever became of this one.
pub(crate) fn of_later_fault(fault: Fault, key: &LeaseKey) -> StoreError {
    classified(fault, Effect::Unknown, Some(key))
}

/// Somebody else was faster, and more than once. Nothing was done.
pub(crate) fn overtaken(key: &LeaseKey) -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::Unavailable,
        "the blob changed while it was to be written: others contend for it; it is tried again",
    )
    .with_key(key)
}

/// Somebody has just leased the blob and has not numbered the grant yet.
pub(crate) fn being_taken(key: &LeaseKey) -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::Unavailable,
        "another client is taking the lease at this moment and has no token yet: it is tried again",
    )
    .with_key(key)
}

/// Our own lock ended before its token was issued.
pub(crate) fn ended_before_its_token(key: &LeaseKey, code: &str) -> StoreError {
    StoreError::unknown(
        StoreErrorKind::Unavailable,
        "the lease ended before its token was issued, by a break or for slowness: it is tried again",
    )
    .with_key(key)
    .with_code(code)
}

pub(crate) fn no_store_clock(key: &LeaseKey) -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::NoStoreClock,
        "the answers carry no Date of the service's own, so there is no time to go by: look for a proxy that strips or caches",
    )
    .with_key(key)
}

pub(crate) fn corrupt(key: &LeaseKey, what: &str) -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::Corrupt,
        format!("the blob's metadata is none that leasehold wrote ({what}): look at it, and use a container for leases alone"),
    )
    .with_key(key)
}

fn classified(fault: Fault, so_far: Effect, key: Option<&LeaseKey>) -> StoreError {
    let error = match fault {
        Fault::Refused(refusal) => of_refusal(refusal, so_far),
        Fault::NotSent(cause) => {
            let message = match cause.kind() {
                CauseKind::Credential => {
                    "no token for Azure Storage was to be had: check the identity and its endpoint"
                }
                _ => {
                    "nobody can be reached at the account's endpoint: check account and endpoint, or start the emulator"
                }
            };
            make(so_far, StoreErrorKind::Unavailable, message).with_source(cause)
        }
        Fault::Unknown(cause) => StoreError::unknown(
            StoreErrorKind::Unavailable,
            "the request to Azure Storage was not answered: look at the network in between",
        )
        .with_source(cause),
    };
    match key {
        Some(key) => error.with_key(key),
        None => error,
    }
}

fn make(effect: Effect, kind: StoreErrorKind, message: impl Into<Cow<'static, str>>) -> StoreError {
    match effect {
        Effect::NotApplied => StoreError::not_applied(kind, message),
        Effect::Unknown => StoreError::unknown(kind, message),
    }
}

fn of_refusal(refusal: Refusal, so_far: Effect) -> StoreError {
    let (kind, message) = meaning(&refusal);
    // The service may have written before it failed: a 5xx says nothing about the blob.
    let effect = if refusal.status >= 500 { Effect::Unknown } else { so_far };
    let code = refusal.code.clone().unwrap_or_else(|| refusal.status.to_string());
    let mut error = make(effect, kind, message).with_code(code);
    if let Some(wait) = refusal.retry_after {
        error = error.with_retry_after(wait);
    }
    error.with_source(refusal)
}

fn meaning(refusal: &Refusal) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind as Kind;
    match (refusal.status, refusal.code.as_deref().unwrap_or_default()) {
        (429, _) | (_, "ServerBusy") => (
            Kind::Throttled,
            "Azure Storage throttles: too many requests to this blob or account; let fewer contenders wait",
        ),
        (500.., _) => (Kind::Unavailable, "Azure Storage failed to answer: it is asked again"),
        (_, "AuthenticationFailed") if refusal.misdated => (
            Kind::ClockSkew,
            "this machine's clock is too far off for Azure Storage to accept its signature: set the clock",
        ),
        (_, "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation") => {
            (Kind::Denied, "Azure Storage does not accept this credential: renew it, or give another")
        }
        (_, "KeyBasedAuthenticationNotPermitted") => (
            Kind::Denied,
            "this account takes no shared keys: use a managed or workload identity, or a signature that it takes",
        ),
        (
            _,
            "AccountIsDisabled"
            | "AuthorizationFailure"
            | "AuthorizationPermissionMismatch"
            | "AuthorizationProtocolMismatch"
            | "AuthorizationResourceTypeMismatch"
            | "AuthorizationServiceMismatch"
            | "AuthorizationSourceIPMismatch"
            | "InsufficientAccountPermissions",
        ) => (
            Kind::Denied,
            "this credential may not do this: grant blobs/read, blobs/write and blobs/add/action on the container (SAS: racwl)",
        ),
        (_, "ContainerNotFound" | "ResourceNotFound") => (
            Kind::Misconfigured,
            "there is no such container in this account: make it (`AzureBlobStore::create_container`), or correct account, container or endpoint",
        ),
        (_, "ContainerDisabled") => {
            (Kind::Misconfigured, "the container is disabled: enable it in the account")
        }
        (_, "AccountBeingCreated" | "ContainerBeingDeleted") => {
            (Kind::Unavailable, "account or container are being made or deleted: try again later")
        }
        (_, "BlobImmutableDueToPolicy") => (
            Kind::Misconfigured,
            "an immutability policy or a legal hold forbids writes: use a container for leases without one",
        ),
        (_, "BlobArchived" | "BlobBeingRehydrated") => (
            Kind::Misconfigured,
            "the blob has been archived: exclude the container of leases from lifecycle rules",
        ),
        (
            _,
            "BlobTypeNotSupported"
            | "FeatureNotSupportedForAccount"
            | "FeatureVersionMismatch"
            | "InvalidBlobType",
        ) => (
            Kind::Misconfigured,
            "this account or blob cannot do that: take the token from metadata, or another container",
        ),
        (_, "ConditionNotMet" | "OperationTimedOut") => {
            (Kind::Unavailable, "the blob changed in between: it is asked again")
        }
        (_, "LeaseIdMissing" | "LeaseIdMismatchWithBlobOperation") => (
            Kind::Misconfigured,
            "somebody has a native lease on this blob, which this mode does not take: use one mode, and a container for leases alone",
        ),
        (
            _,
            "InvalidHeaderValue"
            | "InvalidMetadata"
            | "InvalidResourceName"
            | "MetadataTooLarge"
            | "OutOfRangeInput",
        ) => (
            Kind::Other,
            "Azure Storage does not understand the request: report this to the authors of leasehold",
        ),
        (300..=399, _) => (
            Kind::Misconfigured,
            "the endpoint redirects, and leases follow no redirect: give the address of the account itself",
        ),
        _ => (
            Kind::Other,
            "Azure Storage refused with a code that is not known to leasehold: nothing was changed by this request",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, code: &str) -> Fault {
        Fault::Refused(Refusal { status, code: Some(code.to_owned()), ..Refusal::default() })
    }

    #[test]
    fn the_code_decides_and_what_is_unknown_is_never_contention() {
        use StoreErrorKind as Kind;
        for (status, code, kind, effect) in [
            (503, "ServerBusy", Kind::Throttled, Effect::Unknown),
            (500, "OperationTimedOut", Kind::Unavailable, Effect::Unknown),
            (403, "AuthenticationFailed", Kind::Denied, Effect::NotApplied),
            (403, "AuthorizationPermissionMismatch", Kind::Denied, Effect::NotApplied),
            (404, "ContainerNotFound", Kind::Misconfigured, Effect::NotApplied),
            (409, "BlobImmutableDueToPolicy", Kind::Misconfigured, Effect::NotApplied),
            (409, "SomethingNew", Kind::Other, Effect::NotApplied),
            (412, "SomethingNew", Kind::Other, Effect::NotApplied),
        ] {
            let error = of_fault(refusal(status, code), None);
            assert_eq!((error.kind(), error.effect(), error.code()), (kind, effect, Some(code)));
        }
    }

    #[test]
    fn a_step_that_is_half_done_is_never_called_not_applied() {
        let key = LeaseKey::new("k").unwrap();
        let error = of_later_fault(refusal(403, "AuthorizationFailure"), &key);
        assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Denied, Effect::Unknown));
    }
}
