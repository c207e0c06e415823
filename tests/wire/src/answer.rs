use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::Full;
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

/// The largest part of a body that is sent before a reset: what surely fits into the socket at once.
const PART: usize = 16 * 1024;

/// An answer to a request, whole: a server's own, or one to give in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers, without those of the connection and, but for `HEAD`, without `Content-Length`.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// An answer with this status and nothing else. When given in a server's place it gets the service's `Date`, unless it
    /// has one.
    ///
    /// # Panics
    /// When `status` is not between 100 and 999.
    #[track_caller]
    pub fn new(status: u16) -> Self {
        let status = StatusCode::from_u16(status).expect("a status is a number between 100 and 999");
        Self { status, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// The same with this header, in place of one of that name.
    ///
    /// # Panics
    /// When HTTP does not allow the name or the value.
    #[track_caller]
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(header_name(name), header_value(value));
        self
    }

    /// The same with this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }

    /// What is sent of it before it breaks off: the head and half of the body; of an answer without a body, half of the head.
    pub(crate) fn broken_off(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_slice(format!("HTTP/1.1 {}\r\n", self.status).as_bytes());
        for (name, value) in self.headers.iter().filter(|(name, _)| *name != CONTENT_LENGTH) {
            bytes.put_slice(name.as_str().as_bytes());
            bytes.put_slice(b": ");
            bytes.put_slice(value.as_bytes());
            bytes.put_slice(b"\r\n");
        }
        bytes.put_slice(format!("content-length: {}\r\n\r\n", self.body.len()).as_bytes());
        if self.body.is_empty() {
            bytes.truncate(bytes.len() / 2);
        }
        bytes.put_slice(&self.body[..(self.body.len() / 2).min(PART)]);
        bytes.freeze()
    }
}

#[track_caller]
pub(crate) fn header_name(name: &str) -> HeaderName {
    HeaderName::from_bytes(name.as_bytes()).unwrap_or_else(|_| panic!("{name:?} is not the name of a header"))
}

#[track_caller]
pub(crate) fn header_value(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or_else(|_| panic!("{value:?} is not the value of a header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_breaks_off_in_its_middle_and_promises_all_of_itself() {
        let answer = Answer::new(200).header("x-a", "b").body("12345678");
        assert_eq!(answer.broken_off(), "HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 8\r\n\r\n1234");
        let long = Answer::new(200).body(vec![b'x'; 1 << 20]).broken_off();
        assert!(
            long.len() < PART + 100
                && long.starts_with(b"HTTP/1.1 200 OK\r\ncontent-length: 1048576\r\n\r\nxx")
        );
    }

    #[test]
    fn an_answer_without_a_body_breaks_off_in_its_head() {
        let part = Answer::new(201).header("etag", "1").broken_off();
        assert!(part.starts_with(b"HTTP/1.1 201 Created\r\n") && !part.ends_with(b"\r\n\r\n"), "{part:?}");
    }
}
