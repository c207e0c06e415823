//! Keeps lease ids out of the vendor's logs, which show their headers at debug level.
//!
//! The logging stands between the last policy and the transport. There the headers have names that it does not know, and hides.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{AsyncRawResponse, Context, HttpClient, Request};

const NAMES: [(&str, &str); 2] =
    [("x-ms-lease-id", "x-leasehold-lease-id"), ("x-ms-proposed-lease-id", "x-leasehold-proposed-lease-id")];

/// Before the logging: hides in requests, shows in answers. The last of the policies.
#[derive(Debug)]
pub(crate) struct Hide;

/// After the logging: shows in requests, hides in answers.
#[derive(Debug)]
pub(crate) struct Show<C>(pub(crate) C);

#[expect(
    elided_lifetimes_in_paths,
    reason = "the vendor's trait is written so, and another form does not match it"
)]
#[async_trait]
impl Policy for Hide {
    async fn send(&self, ctx: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        hide(request.headers_mut());
        let answer = next[0].send(ctx, request, &next[1..]).await?;
        Ok(with_headers(answer, show))
    }
}

#[async_trait]
impl<C: HttpClient> HttpClient for Show<C> {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let mut request = request.clone();
        show(request.headers_mut());
        let answer = self.0.execute_request(&request).await?;
        Ok(with_headers(answer, hide))
    }
}

fn hide(headers: &mut Headers) {
    NAMES.into_iter().for_each(|(theirs, ours)| rename(headers, theirs, ours));
}

fn show(headers: &mut Headers) {
    NAMES.into_iter().for_each(|(theirs, ours)| rename(headers, ours, theirs));
}

fn rename(headers: &mut Headers, from: &'static str, to: &'static str) {
    if let Some(value) = headers.remove(HeaderName::from_static(from)) {
        headers.insert(HeaderName::from_static(to), value);
    }
}

fn with_headers(answer: AsyncRawResponse, change: impl Fn(&mut Headers)) -> AsyncRawResponse {
    let (status, mut headers, body) = answer.deconstruct();
    change(&mut headers);
    AsyncRawResponse::new(status, headers, Box::pin(body))
}
