//! The port on the vendor's crate.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::http::{ClientOptions, Etag, RequestContent, RetryOptions, Transport};
use azure_core::time::parse_rfc7231;
use azure_storage_blob::models::{
    BlobClientAcquireLeaseOptions, BlobClientBreakLeaseOptions, BlobClientRenewLeaseOptions,
    BlobClientSetMetadataOptions, BlobClientUploadOptions, BlobContainerClientListBlobsOptions, BlobItem,
    LeaseState as TheirState, ListBlobsIncludeItem, PageBlobClientCreateOptions,
    PageBlobClientSetSequenceNumberOptions, SequenceNumberActionType,
};
use azure_storage_blob::{BlobContainerClient, BlobContainerClientOptions};
use futures_util::StreamExt;
use leasehold::{Clock, StoreError, StoreErrorKind};

use crate::account::{Account, Credential, misconfigured};
use crate::answers::ServiceTime;
use crate::discreet::{Hide, Show};
use crate::port::{BlobPort, Call, Cause, CauseKind, Fault, LeaseState, Page, Refusal, Reply};
use crate::shared_key::SharedKey;

/// The longest that a connection may take, and a request. The caller's own timeouts are shorter.
const CONNECT: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_secs(5);

/// How long an idle connection is kept: the emulator closes one after 5 s, and a renewal on a closed one is lost.
const IDLE: Duration = Duration::from_secs(4);

/// A date that is further off than this may be why a signature is refused. The service's own limit is 15 minutes.
const DATE_LIMIT_MS: u64 = 10 * 60 * 1000;

/// A container by `azure_storage_blob`: without the vendor's retries and redirects, with timeouts of its own.
///
/// `Debug` shows host, account and container. Cheap to clone.
#[derive(Clone)]
pub struct AzureClient {
    container: Arc<BlobContainerClient>,
    name: String,
    host: String,
    signs: bool,
    time: ServiceTime,
}

impl AzureClient {
    /// A client of `container`. Sends nothing yet.
    ///
    /// # Errors
    /// `Misconfigured` when the container's name cannot be one, or no client can be built.
    pub fn new(account: Account, container: &str, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        check_name(container)?;
        let time = ServiceTime::new(clock);
        let mut url = account.endpoint;
        url.path_segments_mut()
            .map_err(|()| misconfigured("the endpoint cannot have a path"))?
            .pop_if_empty()
            .push(container);
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .timeout(REQUEST)
            .pool_idle_timeout(IDLE)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| {
                misconfigured("no HTTPS client can be built: check this machine's certificates")
                    .with_source(Cause::new(CauseKind::Other, error.without_url().to_string()))
            })?;
        let mut options = ClientOptions {
            retry: RetryOptions::none(),
            transport: Some(Transport::new(Arc::new(Show(http)))),
            ..ClientOptions::default()
        };
        let signs = matches!(account.credential, Credential::SharedKey(_));
        let mut token = None;
        match account.credential {
            Credential::SharedKey(key) => {
                options.per_try_policies.push(Arc::new(SharedKey::new(account.name, key, time.clone())));
            }
            Credential::Sas(signature) => url.set_query(Some(signature.secret())),
            Credential::Token(credential) => token = Some(credential),
        }
        options.per_try_policies.push(Arc::new(Hide));
        let host = url.host_str().unwrap_or_default().to_owned();
        let options =
            BlobContainerClientOptions { client_options: options, ..BlobContainerClientOptions::default() };
        let client = BlobContainerClient::new(url, token, Some(options)).map_err(|error| {
            misconfigured("the vendor's client cannot be built: check endpoint and credential")
                .with_source(cause_of(&error))
        })?;
        Ok(Self { container: Arc::new(client), name: container.to_owned(), host, signs, time })
    }

    /// With a client of the caller's own. It must have its retries off (`RetryOptions::none()`: a repeated release reports a
    /// failure that was none), follow no redirects, and have a timeout of a few seconds, well under the ttl of the leases. It dates its
    /// own signatures. And it logs lease ids at debug level: keep that level off for `typespec_client_core`.
    pub fn from_client(container: BlobContainerClient, clock: Arc<dyn Clock>) -> Self {
        let url = container.url();
        let name = url.path().rsplit('/').next().unwrap_or_default().to_owned();
        let host = url.host_str().unwrap_or_default().to_owned();
        Self { container: Arc::new(container), name, host, signs: false, time: ServiceTime::new(clock) }
    }

    /// The container's name.
    pub fn container(&self) -> &str {
        &self.name
    }

    async fn request(&self, call: &Call) -> Result<Headers, azure_core::Error> {
        let of = |blob: &str| self.container.blob_client(blob);
        let headers = match call {
            Call::Account => self.container.get_account_info(None).await?.headers().clone(),
            Call::Container => self.container.get_properties(None).await?.headers().clone(),
            Call::CreateContainer => self.container.create(None).await?.headers().clone(),
            Call::Create { blob, sequence: None, metadata } => {
                let options = BlobClientUploadOptions {
                    metadata: Some(theirs(metadata)),
                    ..BlobClientUploadOptions::default().if_not_exists()
                };
                let nothing = RequestContent::from(Vec::new());
                of(blob).upload(nothing, Some(options)).await?.raw_response.headers().clone()
            }
            Call::Create { blob, sequence: Some(sequence), metadata } => {
                let options = PageBlobClientCreateOptions {
                    blob_sequence_number: Some(signed(*sequence)),
                    if_none_match: Some(Etag::from("*")),
                    metadata: Some(theirs(metadata)),
                    ..PageBlobClientCreateOptions::default()
                };
                of(blob).page_blob_client().create(0, Some(options)).await?.headers().clone()
            }
            Call::Head { blob } => of(blob).get_properties(None).await?.headers().clone(),
            Call::Acquire { blob, id, seconds, if_match } => {
                let options = BlobClientAcquireLeaseOptions {
                    if_match: Some(Etag::from(if_match.as_str())),
                    proposed_lease_id: Some(id.expose()),
                    ..BlobClientAcquireLeaseOptions::default()
                };
                let seconds = i32::try_from(*seconds).unwrap_or(i32::MAX);
                of(blob).acquire_lease(seconds, Some(options)).await?.headers().clone()
            }
            Call::Renew { blob, id, if_match } => {
                let options = BlobClientRenewLeaseOptions {
                    if_match: Some(Etag::from(if_match.as_str())),
                    ..BlobClientRenewLeaseOptions::default()
                };
                of(blob).renew_lease(id.expose(), Some(options)).await?.headers().clone()
            }
            Call::Release { blob, id } => of(blob).release_lease(id.expose(), None).await?.headers().clone(),
            Call::Break { blob, seconds, if_match } => {
                let options = BlobClientBreakLeaseOptions {
                    break_period: seconds.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)),
                    if_match: Some(Etag::from(if_match.as_str())),
                    ..BlobClientBreakLeaseOptions::default()
                };
                of(blob).break_lease(Some(options)).await?.headers().clone()
            }
            Call::SetMetadata { blob, metadata, id, if_match } => {
                let options = BlobClientSetMetadataOptions {
                    if_match: Some(Etag::from(if_match.as_str())),
                    lease_id: id.as_ref().map(|id| id.expose()),
                    ..BlobClientSetMetadataOptions::default()
                };
                of(blob).set_metadata(&theirs(metadata), Some(options)).await?.headers().clone()
            }
            Call::Sequence { blob, at_least, id, if_match } => {
                let options = PageBlobClientSetSequenceNumberOptions {
                    blob_sequence_number: at_least.map(signed),
                    if_match: Some(Etag::from(if_match.as_str())),
                    lease_id: id.as_ref().map(|id| id.expose()),
                    ..PageBlobClientSetSequenceNumberOptions::default()
                };
                let action = match at_least {
                    Some(_) => SequenceNumberActionType::Max,
                    None => SequenceNumberActionType::Increment,
                };
                let client = of(blob).page_blob_client();
                client.set_sequence_number(action, Some(options)).await?.headers().clone()
            }
        };
        Ok(headers)
    }

    async fn page(&self, prefix: &str, marker: Option<&str>) -> Result<Page, azure_core::Error> {
        let options = BlobContainerClientListBlobsOptions {
            include: Some(vec![ListBlobsIncludeItem::Metadata]),
            marker: marker.map(String::from),
            prefix: Some(prefix.to_owned()),
            ..BlobContainerClientListBlobsOptions::default()
        };
        let mut pages = self.container.list_blobs(Some(options))?.into_pages();
        let Some(page) = pages.next().await else {
            return Ok(Page::default());
        };
        let page = page?;
        let date_ms = date_of(page.headers());
        let listed = page.into_model()?;
        let blobs = listed.blob_items.into_iter().filter_map(named).collect();
        Ok(Page { blobs, next: listed.next_marker.filter(|marker| !marker.is_empty()), date_ms })
    }

    /// Whether this machine's date is so far off that it explains a refused signature.
    fn is_misdated(&self, dated_ms: u64, date_ms: Option<u64>) -> bool {
        self.signs && date_ms.is_some_and(|date_ms| date_ms.abs_diff(dated_ms) > DATE_LIMIT_MS)
    }

    fn fault_of(&self, error: azure_core::Error, dated_ms: u64) -> Fault {
        match error.kind() {
            ErrorKind::HttpResponse { status, error_code, raw_response } => {
                let headers = raw_response.as_ref().map(|answer| answer.headers());
                let date_ms = headers.and_then(date_of);
                let misdated = self.is_misdated(dated_ms, date_ms);
                let retry_after = headers
                    .and_then(|headers| headers.get_optional_str(&HeaderName::from_static("retry-after")))
                    .and_then(|seconds| seconds.parse().ok())
                    .map(Duration::from_secs);
                // Where there is no code the vendor's crate puts a text of its own in its place.
                let code = headers
                    .and_then(|headers| headers.get_optional_str(&HeaderName::from_static("x-ms-error-code")))
                    .map(String::from)
                    .or_else(|| {
                        error_code
                            .clone()
                            .filter(|code| code.bytes().all(|byte| byte.is_ascii_alphanumeric()))
                    });
                Fault::Refused(Refusal { status: u16::from(*status), code, date_ms, retry_after, misdated })
            }
            ErrorKind::Connection | ErrorKind::Credential => Fault::NotSent(cause_of(&error)),
            _ => Fault::Unknown(cause_of(&error)),
        }
    }
}

#[async_trait]
impl BlobPort for AzureClient {
    async fn send(&self, call: &Call) -> Result<Reply, Fault> {
        let (sent, dated_ms) = (self.time.now().boot, self.time.about_ms());
        let answer = self.request(call).await;
        let answer = match answer {
            Ok(headers) => Ok(reply_of(call, &headers)),
            Err(error) => Err(self.fault_of(error, dated_ms)),
        };
        self.time.note(date_in(&answer), sent);
        answer
    }

    async fn list(&self, prefix: &str, marker: Option<&str>) -> Result<Page, Fault> {
        let dated_ms = self.time.about_ms();
        self.page(prefix, marker).await.map_err(|error| self.fault_of(error, dated_ms))
    }
}

impl fmt::Debug for AzureClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AzureClient")
            .field("host", &self.host)
            .field("container", &self.name)
            .finish_non_exhaustive()
    }
}

fn check_name(container: &str) -> Result<(), StoreError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let bytes = container.as_bytes();
    let fits = (3..=63).contains(&bytes.len()) && bytes.iter().all(|byte| plain(*byte));
    let ends = bytes.first().zip(bytes.last()).is_some_and(|(first, last)| *first != b'-' && *last != b'-');
    if fits && ends && !container.contains("--") {
        return Ok(());
    }
    Err(StoreError::not_applied(
        StoreErrorKind::Misconfigured,
        "a container's name has 3 to 63 lower-case letters, digits and single hyphens: choose another",
    ))
}

fn theirs(metadata: &BTreeMap<String, String>) -> HashMap<String, String> {
    metadata.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn date_in(answer: &Result<Reply, Fault>) -> Option<u64> {
    match answer {
        Ok(reply) => reply.date_ms,
        Err(fault) => crate::answers::date_of(fault),
    }
}

fn text<'a>(headers: &'a Headers, name: &'static str) -> Option<&'a str> {
    headers.get_optional_str(&HeaderName::from_static(name))
}

fn reply_of(call: &Call, headers: &Headers) -> Reply {
    let own = match call {
        Call::Acquire { id, .. } | Call::Renew { id, .. } => Some(id.expose()),
        _ => None,
    };
    let metadata = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().to_ascii_lowercase();
        Some((name.strip_prefix("x-ms-meta-")?.to_owned(), value.as_str().to_owned()))
    });
    let is = |name: &'static str| text(headers, name).map(|value| value.eq_ignore_ascii_case("true"));
    let [policy, hold] = ["x-ms-has-immutability-policy", "x-ms-has-legal-hold"].map(is);
    Reply {
        etag: text(headers, "etag").map(String::from),
        last_modified_ms: text(headers, "last-modified").and_then(unix_ms),
        date_ms: date_of(headers),
        lease: text(headers, "x-ms-lease-state").and_then(state_of),
        lease_is_ours: own
            .zip(text(headers, "x-ms-lease-id"))
            .map(|(own, theirs)| theirs.eq_ignore_ascii_case(&own)),
        metadata: metadata.collect(),
        sequence: text(headers, "x-ms-blob-sequence-number").and_then(|number| number.parse().ok()),
        made_version: text(headers, "x-ms-version-id").is_some(),
        hierarchical: is("x-ms-is-hns-enabled"),
        immutable: policy.zip(hold).map(|(policy, hold)| policy || hold),
    }
}

/// What a list shows of a blob.
fn named(item: BlobItem) -> Option<(String, Reply)> {
    let name = item.name?;
    let properties = item.properties.unwrap_or_default();
    let metadata = item.metadata.and_then(|metadata| metadata.values).unwrap_or_default();
    let reply = Reply {
        etag: properties.etag.map(|etag| etag.to_string()),
        last_modified_ms: properties
            .last_modified
            .and_then(|time| u64::try_from(time.unix_timestamp()).ok()?.checked_mul(1000)),
        lease: properties.lease_state.and_then(|state| state_of(state.as_ref())),
        metadata: metadata.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect(),
        sequence: properties.blob_sequence_number.and_then(|number| u64::try_from(number).ok()),
        ..Reply::default()
    };
    Some((name, reply))
}

fn state_of(text: &str) -> Option<LeaseState> {
    let all = [
        (TheirState::Available, LeaseState::Available),
        (TheirState::Leased, LeaseState::Leased),
        (TheirState::Breaking, LeaseState::Breaking),
        (TheirState::Broken, LeaseState::Broken),
        (TheirState::Expired, LeaseState::Expired),
    ];
    all.into_iter().find(|(theirs, _)| theirs.as_ref() == text).map(|(_, ours)| ours)
}

/// Only the service itself tells its time: not a proxy's error page, not a cache.
fn date_of(headers: &Headers) -> Option<u64> {
    let from_service = text(headers, "x-ms-request-id").is_some() && text(headers, "age").is_none();
    text(headers, "date").filter(|_| from_service).and_then(unix_ms)
}

fn unix_ms(date: &str) -> Option<u64> {
    u64::try_from(parse_rfc7231(date).ok()?.unix_timestamp()).ok()?.checked_mul(1000)
}

/// The chain of an error in words. The HTTP client's own words hold the URL, and with it the signature: they are left out.
fn cause_of(error: &azure_core::Error) -> Cause {
    let kind = match error.kind() {
        ErrorKind::Connection | ErrorKind::Io => CauseKind::Network,
        ErrorKind::Credential => CauseKind::Credential,
        _ => CauseKind::Other,
    };
    let mut words = Vec::new();
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        words.push(match error.downcast_ref::<reqwest::Error>() {
            Some(http) => String::from(phase(http)),
            None => error.to_string(),
        });
        next = error.source();
    }
    words.dedup();
    Cause::new(kind, words.join(": "))
}

fn phase(error: &reqwest::Error) -> &'static str {
    if error.is_connect() {
        "no connection"
    } else if error.is_timeout() {
        "no answer in time"
    } else if error.is_body() || error.is_decode() {
        "the answer broke off"
    } else {
        "the request failed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_counts_only_from_the_service_itself() {
        let mut headers = Headers::new();
        headers.insert("date", "Mon, 30 Nov 2026 16:39:35 GMT");
        assert_eq!(date_of(&headers), None, "no request id");
        headers.insert("x-ms-request-id", "1");
        assert_eq!(date_of(&headers), Some(1_796_056_775_000));
        headers.insert("age", "0");
        assert_eq!(date_of(&headers), None, "a cache");
    }

    #[test]
    fn names_of_containers_are_checked() {
        for good in ["leases", "a-b", "123", &"a".repeat(63)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "ab", "Leases", "a--b", "-ab", "ab-", "a/b", "$root", &"a".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
