//! What a store needs of a client of Azure Blob Storage, and no more: a port that any client can be fitted to.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Nonce;

/// One container of Azure Blob Storage.
///
/// # Contract
/// Each call is one request on the wire. It is not repeated, no redirect is followed, and it ends by itself within some seconds.
/// An answer is handed on as it is; what is not known of a request's fate is [`Fault::Unknown`]. Nothing that a port returns,
/// says or shows contains a key, a signature or the query of a URL. Dropping the future may leave the request under way.
#[async_trait]
pub trait BlobPort: fmt::Debug + Send + Sync + 'static {
    /// Sends one request.
    ///
    /// # Errors
    /// [`Fault`] when the service said no, or did not say yes.
    async fn send(&self, call: &Call) -> Result<Reply, Fault>;

    /// A page of blobs whose names begin with `prefix`, with their metadata, from `marker` on.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    async fn list(&self, prefix: &str, marker: Option<&str>) -> Result<Page, Fault>;
}

/// One request to a container.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Call {
    /// Get Account Information.
    Account,
    /// Get Container Properties.
    Container,
    /// Create Container.
    CreateContainer,
    /// Put Blob without content, if there is none of that name (`If-None-Match: *`).
    Create {
        /// The blob's name.
        blob: String,
        /// The sequence number to begin with, for a page blob; nothing for a block blob.
        sequence: Option<u64>,
        /// Its metadata.
        metadata: BTreeMap<String, String>,
    },
    /// Get Blob Properties.
    Head {
        /// The blob's name.
        blob: String,
    },
    /// Lease Blob: acquire.
    Acquire {
        /// The blob's name.
        blob: String,
        /// The proposed lease id.
        id: LeaseId,
        /// 15 to 60.
        seconds: u32,
        /// `If-Match`.
        if_match: String,
    },
    /// Lease Blob: renew.
    Renew {
        /// The blob's name.
        blob: String,
        /// The lease.
        id: LeaseId,
        /// `If-Match`.
        if_match: String,
    },
    /// Lease Blob: release.
    Release {
        /// The blob's name.
        blob: String,
        /// The lease.
        id: LeaseId,
    },
    /// Lease Blob: break.
    Break {
        /// The blob's name.
        blob: String,
        /// After how many seconds at most; nothing for when the lease ends.
        seconds: Option<u32>,
        /// `If-Match`.
        if_match: String,
    },
    /// Set Blob Metadata, all of it.
    SetMetadata {
        /// The blob's name.
        blob: String,
        /// The metadata.
        metadata: BTreeMap<String, String>,
        /// The lease under which it is done.
        id: Option<LeaseId>,
        /// `If-Match`.
        if_match: String,
    },
    /// Set Blob Properties of a page blob: its sequence number.
    Sequence {
        /// The blob's name.
        blob: String,
        /// At least this; nothing for one more than it was.
        at_least: Option<u64>,
        /// The lease under which it is done.
        id: Option<LeaseId>,
        /// `If-Match`.
        if_match: String,
    },
}

/// A lease id: who knows it can renew and release. A UUID in lower case. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseId(Nonce);

impl LeaseId {
    pub(crate) fn of(nonce: &Nonce) -> Self {
        Self(nonce.clone())
    }

    /// The id for the request. Keep it out of logs and errors.
    pub fn expose(&self) -> String {
        let hex = self.0.expose_hex();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseId(secret)")
    }
}

/// A yes of the service: what its headers said, as far as a store reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a port fills in what it has read and leaves the rest at its default"
)]
pub struct Reply {
    /// `ETag`, quotes and all.
    pub etag: Option<String>,
    /// `Last-Modified`, Unix time in milliseconds.
    pub last_modified_ms: Option<u64>,
    /// `Date`, Unix time in milliseconds. Nothing if the answer lacks `x-ms-request-id` or has `Age`: then it is not the
    /// service's own.
    pub date_ms: Option<u64>,
    /// `x-ms-lease-state`.
    pub lease: Option<LeaseState>,
    /// Whether `x-ms-lease-id` is the id of the call. Nothing if there is none.
    pub lease_is_ours: Option<bool>,
    /// `x-ms-meta-*`, names in lower case.
    pub metadata: BTreeMap<String, String>,
    /// `x-ms-blob-sequence-number`.
    pub sequence: Option<u64>,
    /// Whether the write made a version of the blob (`x-ms-version-id`).
    pub made_version: bool,
    /// `x-ms-is-hns-enabled`, of an account.
    pub hierarchical: Option<bool>,
    /// Whether a container has an immutability policy or a legal hold.
    pub immutable: Option<bool>,
}

/// The state of a blob's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by nature: the states that the service has")]
pub enum LeaseState {
    /// Nobody's.
    Available,
    /// Somebody's.
    Leased,
    /// Somebody's until it ends, and not to be renewed.
    Breaking,
    /// Ended by a break.
    Broken,
    /// Ended by its time.
    Expired,
}

impl LeaseState {
    /// Whether nobody else can lease the blob.
    pub(crate) fn is_locked(self) -> bool {
        matches!(self, Self::Leased | Self::Breaking)
    }
}

/// Some blobs.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::exhaustive_structs,
    reason = "complete by nature: what is on the page, and where the next begins"
)]
pub struct Page {
    /// Name and properties of each.
    pub blobs: Vec<(String, Reply)>,
    /// Where the next page begins; nothing on the last.
    pub next: Option<String>,
    /// As in [`Reply::date_ms`].
    pub date_ms: Option<u64>,
}

/// A request that the service did not say yes to.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a port must choose one of the three")]
pub enum Fault {
    /// The service has answered, and said no.
    Refused(Refusal),
    /// No byte of the request left.
    NotSent(Cause),
    /// The request may have been carried out, or may be later.
    Unknown(Cause),
}

/// A no of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a port fills in what it has read and leaves the rest at its default"
)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// `x-ms-error-code`.
    pub code: Option<String>,
    /// As in [`Reply::date_ms`].
    pub date_ms: Option<u64>,
    /// `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Whether the request was dated so far from `Date` that this explains a refused signature.
    pub misdated: bool,
}

/// Why there was no answer: the client's own words, without the URL.
#[derive(Clone)]
pub struct Cause {
    kind: CauseKind,
    text: Arc<str>,
}

/// What a person can do about a request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CauseKind {
    /// Look at the network.
    Network,
    /// Look at the credential: no token was to be had.
    Credential,
    /// Look at the request: it could not be built, or its answer not be read.
    Other,
}

impl Cause {
    /// In these words, which must not hold a secret. As a last resort what looks like a signed URL is taken out.
    pub fn new<'a>(kind: CauseKind, text: impl Into<Cow<'a, str>>) -> Self {
        Self { kind, text: without_queries(&text.into()).into() }
    }

    /// What a person can do.
    pub const fn kind(&self) -> CauseKind {
        self.kind
    }
}

/// Cuts every word after its `?`, if it has one and says `sig`.
fn without_queries(text: &str) -> String {
    let cut = |word: &str| match word.split_once('?') {
        Some((before, query)) if query.to_ascii_lowercase().contains("sig") => format!("{before}?…"),
        _ => String::from(word),
    };
    text.split(' ').map(cut).collect::<Vec<_>>().join(" ")
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cause({:?}: {})", self.kind, self.text)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Cause {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}, {}", self.status, self.code.as_deref().unwrap_or("no error code"))
    }
}

impl Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_id_is_a_uuid_in_lower_case_and_a_secret() {
        let id = LeaseId::of(&Nonce::from_bytes(*b"\xab\xcd0123456789abcd"));
        assert_eq!(id.expose(), "abcd3031-3233-3435-3637-383961626364");
        assert_eq!(format!("{id:?}"), "LeaseId(secret)");
    }

    #[test]
    fn a_cause_does_not_show_a_signature() {
        let cause =
            Cause::new(CauseKind::Network, "error for url (http://h/c/b?comp=lease&sig=S3CRET%3D) refused");
        assert_eq!(cause.to_string(), "error for url (http://h/c/b?… refused");
        assert!(!format!("{cause:?}").contains("S3CRET"));
    }
}
