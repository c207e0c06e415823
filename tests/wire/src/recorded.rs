use std::fmt;

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use crate::fault::Fault;

/// A request as it came from the client, and what became of it so far.
///
/// `Debug` shows neither headers' values nor the body nor a signature in the query: they may be secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct Recorded {
    /// The method.
    pub method: Method,
    /// The path and the query, as on the wire.
    pub path_and_query: String,
    /// The headers. Their names have no case.
    pub headers: HeaderMap,
    /// The body; empty until all of it has been read.
    pub body: Bytes,
    /// The fault it met.
    pub fault: Fault,
    /// The statuses of the service's answers, one for each time it was forwarded so far: two for a duplicate, none for a
    /// request that was dropped. A refusal for its date is among them.
    pub served: Vec<StatusCode>,
    /// What the client got so far.
    pub outcome: Outcome,
}

/// What a client got for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Nothing yet.
    Pending,
    /// An answer of this status.
    Answered(StatusCode),
    /// No answer, and never will.
    Silence,
    /// A reset of its connection.
    Reset,
    /// It closed the connection before there was an answer.
    Left,
    /// A reset of its connection, because the server itself could not be reached or broke off: for this reason.
    NoServer(String),
}

impl Recorded {
    pub(crate) fn new(method: Method, path_and_query: String, headers: HeaderMap) -> Self {
        Self {
            method,
            path_and_query,
            headers,
            body: Bytes::new(),
            fault: Fault::None,
            served: Vec::new(),
            outcome: Outcome::Pending,
        }
    }

    pub(crate) fn of(head: &Parts) -> Self {
        let path_and_query = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Self::new(head.method.clone(), path_and_query, head.headers.clone())
    }

    /// The path, percent-encoded as on the wire.
    pub fn path(&self) -> &str {
        self.path_and_query.split('?').next().unwrap_or_default()
    }

    /// The query, percent-encoded as on the wire.
    pub fn query(&self) -> Option<&str> {
        self.path_and_query.split_once('?').map(|(_, query)| query)
    }

    /// The value of a header, if there is one and it is text. The case of `name` does not matter.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = self.query().map(|query| {
            let shown =
                |pair: &str| if pair.starts_with("sig=") { String::from("sig=…") } else { pair.to_owned() };
            query.split('&').map(shown).collect::<Vec<_>>().join("&")
        });
        f.debug_struct("Recorded")
            .field("method", &self.method)
            .field("path", &self.path())
            .field("query", &query)
            .field("target", &self.header("x-amz-target"))
            .field("headers", &self.headers.keys().map(|name| name.as_str()).collect::<Vec<_>>())
            .field("body", &format_args!("{} bytes", self.body.len()))
            .field("fault", &self.fault)
            .field("served", &self.served)
            .field("outcome", &self.outcome)
            .finish()
    }
}
