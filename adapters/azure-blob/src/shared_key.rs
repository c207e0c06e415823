//! Signs requests with the account's key, which the vendor's crate does not.
//!
//! <https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key>

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request, Url};
use azure_core::time::{OffsetDateTime, to_rfc7231};

use crate::answers::ServiceTime;

/// Signs each request, dated in the service's time: a machine whose clock is off is refused once and then heard.
#[derive(Debug)]
pub(crate) struct SharedKey {
    account: String,
    key: Secret,
    time: ServiceTime,
}

impl SharedKey {
    pub(crate) fn new(account: String, key: Secret, time: ServiceTime) -> Self {
        Self { account, key, time }
    }
}

#[async_trait]
#[expect(
    elided_lifetimes_in_paths,
    reason = "the vendor's trait is written so, and another form does not match it"
)]
impl Policy for SharedKey {
    async fn send(&self, ctx: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        if let Some(length) = request.body().len().filter(|length| *length > 0) {
            request.insert_header("content-length", length.to_string());
        }
        request.insert_header("x-ms-date", http_date(self.time.about_ms()));
        let text = text_to_sign(request.method().as_str(), request.headers(), request.url(), &self.account);
        let signature = hmac_sha256(&text, &self.key)?;
        request.insert_header("authorization", format!("SharedKey {}:{signature}", self.account));
        next[0].send(ctx, request, &next[1..]).await
    }
}

fn http_date(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    to_rfc7231(&OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH))
}

fn text_to_sign(method: &str, headers: &Headers, url: &Url, account: &str) -> String {
    let mut text = format!("{method}\n");
    for name in [
        "content-encoding",
        "content-language",
        "content-length",
        "content-md5",
        "content-type",
        "date",
        "if-modified-since",
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "range",
    ] {
        let value = headers.get_optional_str(&HeaderName::from_static(name)).unwrap_or_default();
        // No length is written for an empty body.
        let value = if name == "content-length" && value == "0" { "" } else { value };
        text.push_str(value);
        text.push('\n');
    }
    let own: BTreeMap<_, _> = headers
        .iter()
        .map(|(name, value)| (name.as_str().to_ascii_lowercase(), value.as_str().trim()))
        .filter(|(name, _)| name.starts_with("x-ms-"))
        .collect();
    for (name, value) in own {
        text.push_str(&format!("{name}:{value}\n"));
    }
    text.push_str(&format!("/{account}{}", url.path()));
    let mut query: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        query.entry(name.to_ascii_lowercase()).or_default().push(value.into_owned());
    }
    for (name, mut values) in query {
        values.sort();
        text.push_str(&format!("\n{name}:{}", values.join(",")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use azure_core::http::Method;

    #[test]
    fn what_is_signed_is_what_the_reference_says() {
        let url = Url::parse(
            "https://myaccount.blob.core.windows.net/mycontainer?restype=container&timeout=20&comp=list",
        )
        .unwrap();
        let mut request = Request::new(url, Method::Get);
        request.insert_header("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT");
        request.insert_header("x-ms-version", "2015-02-21");
        request.insert_header("if-match", "\"0x8\"");
        assert_eq!(
            text_to_sign("GET", request.headers(), request.url(), "myaccount"),
            "GET\n\n\n\n\n\n\n\n\"0x8\"\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n\
             /myaccount/mycontainer\ncomp:list\nrestype:container\ntimeout:20"
        );
    }

    #[test]
    fn dates_are_written_as_http_does() {
        assert_eq!(http_date(1_796_056_775_999), "Mon, 30 Nov 2026 16:39:35 GMT");
    }
}
