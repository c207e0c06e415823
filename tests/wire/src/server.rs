//! The way to the server behind: a connection of its own for each request, so that none is resent and none is refused because
//! a pooled connection had ended.

use std::error::Error;
use std::io;
use std::pin::pin;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::answer::Answer;

#[derive(Clone, Debug)]
pub(crate) struct Server {
    authority: String,
    host: HeaderValue,
}

/// A request that can be sent, and sent again.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Server {
    /// The server at `http://host:port`.
    pub(crate) fn new(url: &str) -> io::Result<Self> {
        let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{url}: {what}")));
        let Ok(uri) = url.parse::<Uri>() else { return refuse("is no URL") };
        if uri.scheme_str() != Some("http") {
            return refuse("begins with http:// where a fault proxy can stand in front");
        }
        if uri.path() != "/" || uri.query().is_some() {
            return refuse("ends after the port: append path and query to the URL of the proxy");
        }
        let authority = match (uri.host(), uri.port_u16()) {
            (Some(host), port) if !url.contains('@') => format!("{host}:{}", port.unwrap_or(80)),
            _ => return refuse("names a host and a port, and no user"),
        };
        let Ok(host) = HeaderValue::try_from(&authority) else { return refuse("names no host") };
        Ok(Self { authority, host })
    }

    /// Sends `message` and reads the answer to its end.
    pub(crate) async fn send(&self, message: &Message) -> io::Result<Answer> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) =
            http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.map_err(other)?;
        let exchange = async {
            let response = sender.send_request(self.request(message)).await.map_err(other)?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(other)?.to_bytes();
            let mut headers = head.headers;
            remove_hop_by_hop(&mut headers);
            // Of a HEAD it says what there would be; of all else it is counted when it is sent.
            if message.method != Method::HEAD {
                headers.remove(CONTENT_LENGTH);
            }
            Ok(Answer { status: head.status, headers, body })
        };
        let mut exchange = pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // Closed by the server, with what there was to be read.
            _ = connection => exchange.await,
        }
    }

    fn request(&self, message: &Message) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(message.body.clone()));
        *request.method_mut() = message.method.clone();
        *request.uri_mut() = message.uri.clone();
        *request.headers_mut() = message.headers.clone();
        remove_hop_by_hop(request.headers_mut());
        request.headers_mut().insert(HOST, self.host.clone());
        request
    }
}

/// What is said to the next hop alone (RFC 9110 §7.6.1).
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let always = [CONNECTION, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    let known = [HeaderName::from_static("keep-alive"), HeaderName::from_static("proxy-connection")];
    for name in always.into_iter().chain(known).chain(named) {
        headers.remove(name);
    }
}

/// Hyper says in the source what went wrong.
fn other(error: hyper::Error) -> io::Error {
    let reason = error.source().map(ToString::to_string).unwrap_or_default();
    io::Error::other(format!("{error}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        for (url, authority) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000"),
            ("http://localhost:4566/", "localhost:4566"),
            ("http://[::1]:8000", "[::1]:8000"),
            ("http://example", "example:80"),
        ] {
            assert_eq!(Server::new(url).unwrap().authority, authority);
        }
        for url in [
            "",
            "127.0.0.1:8000",
            "https://127.0.0.1:8000",
            "http://a:1/account",
            "http://a:1?b",
            "http://u:p@a:1",
        ] {
            assert_eq!(Server::new(url).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{url}");
        }
    }
}
