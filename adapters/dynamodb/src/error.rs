//! The service's failures as [`StoreError`]: by its error code, never by status alone, and never guessed to be contention.

use std::error::Error;
use std::io;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{BatchStatementError, BatchStatementErrorCodeEnum};
use leasehold::{LeaseKey, StoreError, StoreErrorKind};

/// The header that the service's own answers carry, and a proxy's page does not.
pub(crate) const REQUEST_ID: &str = "x-amzn-requestid";

/// What a call that failed means.
pub(crate) fn of_sdk<E>(error: SdkError<E, HttpResponse>, key: Option<&LeaseKey>) -> StoreError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let error = match error {
        SdkError::ServiceError(answer) => {
            let status = answer.raw().status().as_u16();
            let is_own = answer.raw().headers().get(REQUEST_ID).is_some();
            of_answer(status, is_own, answer.into_err())
        }
        SdkError::ConstructionFailure(_) => not_built(error),
        SdkError::DispatchFailure(_) => not_answered(error),
        SdkError::TimeoutError(_) => StoreError::unknown(
            StoreErrorKind::Unavailable,
            "DynamoDB gave no answer within the client's own timeout: look at the network in between",
        )
        .with_source(error),
        error => StoreError::unknown(
            StoreErrorKind::Unavailable,
            "DynamoDB's answer could not be read: look at what lies between this process and the endpoint",
        )
        .with_source(error),
    };
    match key {
        Some(key) => error.with_key(key),
        None => error,
    }
}

/// Somebody has answered, and said no: the service, or what lies in between (`is_own`: with the service's request id).
fn of_answer(
    status: u16,
    is_own: bool,
    error: impl ProvideErrorMetadata + Error + Send + Sync + 'static,
) -> StoreError {
    let said = error.message().unwrap_or_default();
    let classified = match error.code() {
        // The service may have written before it failed: a 5xx says nothing about the record.
        _ if status >= 500 => failed(),
        Some(code) if is_own => of_code(code, said),
        // Nor does what is not its own answer: the request may have gone through before.
        _ if status == 429 => StoreError::unknown(
            StoreErrorKind::Throttled,
            "something between this process and DynamoDB throttles: look at the network in between",
        ),
        _ => not_its_own(),
    };
    let code = error.code().map_or_else(|| format!("HTTP {status}"), str::to_owned);
    classified.with_code(code).with_source(error)
}

fn failed() -> StoreError {
    StoreError::unknown(StoreErrorKind::Unavailable, "DynamoDB failed to answer: it is asked again")
}

/// The answer lacks an error code or a request id of the service.
pub(crate) fn not_its_own() -> StoreError {
    StoreError::unknown(
        StoreErrorKind::Unavailable,
        "the answer is not DynamoDB's own: look at what lies between this process and the endpoint",
    )
}

/// One statement of a batch has failed, by a cause that is not its condition.
pub(crate) fn of_statement(error: &BatchStatementError) -> StoreError {
    use BatchStatementErrorCodeEnum as Code;
    let said = error.message().unwrap_or_default();
    let Some(code) = error.code() else { return not_its_own() };
    let classified = match code {
        Code::InternalServerError => failed(),
        Code::ThrottlingError => of_code("ThrottlingException", said),
        Code::ProvisionedThroughputExceeded => of_code("ProvisionedThroughputExceededException", said),
        Code::TransactionConflict => of_code("TransactionConflictException", said),
        Code::AccessDenied => StoreError::not_applied(
            StoreErrorKind::Denied,
            "these credentials may not renew in batches: grant dynamodb:PartiQLUpdate on the table, or turn batches off",
        ),
        Code::ResourceNotFound => of_code("ResourceNotFoundException", said),
        Code::ValidationError => of_code("ValidationException", said),
        _ => of_code(code.as_str(), said),
    };
    classified.with_code(code.as_str())
}

fn of_code(code: &str, said: &str) -> StoreError {
    use StoreErrorKind as Kind;
    let no = StoreError::not_applied;
    match code {
        "LimitExceededException"
        | "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException" => no(
            Kind::Throttled,
            "DynamoDB throttles: too many requests on this key or table; raise its capacity, or let fewer contenders wait",
        ),
        "ReplicatedWriteConflictException"
        | "TransactionConflictException"
        | "TransactionInProgressException" => {
            no(Kind::Unavailable, "the item is being written by another request: it is tried again")
        }
        "RequestExpired" | "RequestInTheFuture" | "RequestTimeTooSkewed" => skewed(),
        "InvalidSignatureException" | "SignatureDoesNotMatch" if is_about_time(said) => skewed(),
        "AccessDeniedException" | "AccessDenied" => no(
            Kind::Denied,
            "these credentials may not do this: grant dynamodb:UpdateItem, GetItem and DescribeTable on the table",
        ),
        "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "OptInRequired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => {
            no(Kind::Denied, "DynamoDB does not accept these credentials: renew them, or configure others")
        }
        "ResourceNotFoundException" => no(
            Kind::Misconfigured,
            "there is no such table in this region and account: create it (`leasehold init`), or correct its name, the region or the endpoint",
        ),
        "ResourceInUseException" => {
            no(Kind::Unavailable, "the table is being changed: try again when it is active")
        }
        "ItemCollectionSizeLimitExceededException" | "ValidationException" => no(
            Kind::Misconfigured,
            "DynamoDB refuses the request as the table is: compare its key with the options of the store",
        ),
        _ => no(
            Kind::Other,
            "DynamoDB refused with a code that is not known to leasehold: nothing was changed",
        ),
    }
}

fn is_about_time(said: &str) -> bool {
    said.contains("Signature expired") || said.contains("Signature not yet current")
}

fn skewed() -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::ClockSkew,
        "this machine's clock is too far off for DynamoDB to accept its signature: set the clock",
    )
}

/// The request could not be built: region, endpoint, credentials.
fn not_built<E, R>(error: SdkError<E, R>) -> StoreError
where
    SdkError<E, R>: Error + Send + Sync + 'static,
{
    let classified = of_credentials(&error).unwrap_or_else(|| {
        StoreError::not_applied(
            StoreErrorKind::Misconfigured,
            "the request to DynamoDB could not be built: check region and endpoint of the client",
        )
    });
    classified.with_source(error)
}

/// The request left, or should have, and no answer came.
fn not_answered<E, R>(error: SdkError<E, R>) -> StoreError
where
    SdkError<E, R>: Error + Send + Sync + 'static,
{
    let classified = of_credentials(&error).unwrap_or_else(|| {
        if was_refused(&error) {
            StoreError::not_applied(
                StoreErrorKind::Unavailable,
                "nobody listens at DynamoDB's endpoint: check region and endpoint, or start the emulator",
            )
        } else {
            StoreError::unknown(
                StoreErrorKind::Unavailable,
                "the connection to DynamoDB failed: look at the network in between",
            )
        }
    });
    classified.with_source(error)
}

/// Credentials come before the request: where they are what is missing, nothing was sent.
fn of_credentials(error: &(dyn Error + 'static)) -> Option<StoreError> {
    let failed = chain(error).find_map(|error| error.downcast_ref::<CredentialsError>());
    match failed {
        Some(CredentialsError::ProviderError(_) | CredentialsError::ProviderTimedOut(_)) => {
            Some(StoreError::not_applied(
                StoreErrorKind::Unavailable,
                "the source of AWS credentials did not answer: look at the profile, the role or the metadata service",
            ))
        }
        Some(_) => Some(no_credentials()),
        // Of a client without any provider the SDK says only this.
        None => mentions(error, "auth scheme").then(no_credentials),
    }
}

fn no_credentials() -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::Denied,
        "no AWS credentials were found: set a profile, a role, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

fn mentions(error: &(dyn Error + 'static), words: &str) -> bool {
    chain(error).any(|error| error.to_string().contains(words))
}

/// Whether the connection was refused, so that no byte was sent.
fn was_refused(error: &(dyn Error + 'static)) -> bool {
    chain(error).any(|error| {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        kind == Some(io::ErrorKind::ConnectionRefused)
    })
}
