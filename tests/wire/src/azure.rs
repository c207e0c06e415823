//! Answers of Azure Blob Storage, as the vendor gives them.
//!
//! The form of the body: <https://learn.microsoft.com/en-us/rest/api/storageservices/status-and-error-codes2>; the byte-order
//! mark before it, as real answers have it: <https://github.com/tikv/tikv/issues/11812>. The headers are those of a real
//! answer kept in <https://github.com/Azure/azure-storage-azcopy/issues/701>. Statuses and messages:
//! <https://learn.microsoft.com/en-us/rest/api/storageservices/common-rest-api-error-codes>. The identifier and the time within
//! a body are made up and always the same.

use crate::answer::Answer;

const REQUEST: &str = "1ea5e401-001e-0000-0000-000000000000";
const TIME: &str = "2026-11-30T12:00:00.0000000Z";

/// An error with this code, such as `LeaseIdMismatchWithLeaseOperation`.
///
/// # Panics
/// When `status` is not between 100 and 999, or `code` is not text of a header.
#[track_caller]
pub fn error(status: u16, code: &str, message: &str) -> Answer {
    detailed(status, code, message, "")
}

/// 503: the partition is throttled.
///
/// Source: the answer kept in <https://github.com/tikv/tikv/issues/11812>
pub fn server_busy() -> Answer {
    error(503, "ServerBusy", "The server is busy.")
}

/// 503: the account is throttled.
///
/// Source: the answer kept in <https://github.com/Azure/azure-sdk-for-go/issues/22139>
pub fn account_busy() -> Answer {
    error(503, "ServerBusy", "Operations per second is over the account limit.")
}

/// 429, which Azure Storage does not document for blobs and which clients report all the same. Without an error code.
///
/// Source: <https://github.com/Azure/azure-sdk-for-rust/issues/2812>; `Retry-After` with this value, from a vendor's engineer,
/// <https://github.com/MicrosoftDocs/azure-docs/issues/76932>
pub fn too_many_requests() -> Answer {
    Answer::new(429).header("retry-after", "17").header("x-ms-request-id", REQUEST)
}

/// 500: the request may or may not have been applied.
///
/// Source: <https://learn.microsoft.com/en-us/rest/api/storageservices/common-rest-api-error-codes>
pub fn internal_error() -> Answer {
    error(500, "InternalError", "The server encountered an internal error. Please retry the request.")
}

/// 500: the request may or may not have been applied; also how a throttled partition answers.
///
/// Source: the answer kept in <https://github.com/Azure/azure-storage-azcopy/issues/701>
pub fn operation_timed_out() -> Answer {
    error(500, "OperationTimedOut", "Operation could not be completed within the specified time.")
}

/// 403, the refusal of a request dated more than 15 minutes ago.
///
/// Source: the answer kept in <https://github.com/Azure/azure-content/issues/5317>; a unit test compares our bytes with its
/// length. The limit: <https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key>. Nothing is said
/// there of dates in the future.
pub(crate) fn date_too_old(sent: &str) -> Answer {
    let detail = format!(
        "<AuthenticationErrorDetail>Request date header too old: '{}'</AuthenticationErrorDetail>",
        escaped(sent)
    );
    let message = "Server failed to authenticate the request. Make sure the value of Authorization header is formed \
                   correctly including the signature.";
    detailed(403, "AuthenticationFailed", message, &detail)
}

#[track_caller]
fn detailed(status: u16, code: &str, message: &str, detail: &str) -> Answer {
    let body = format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{}</Code><Message>{}\nRequestId:{REQUEST}\nTime:{TIME}\
         </Message>{detail}</Error>",
        escaped(code),
        escaped(message)
    );
    Answer::new(status)
        .header("server", "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0")
        .header("content-type", "application/xml")
        .header("x-ms-error-code", code)
        .header("x-ms-request-id", REQUEST)
        .header("x-ms-version", "2026-04-06")
        .body(body)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_of_an_old_date_is_as_long_as_the_vendors() {
        // Content-Length of the answer in Azure/azure-content#5317.
        assert_eq!(date_too_old("Thu, 31 Dec 2015 19:41:27 GMT").body.len(), 435);
    }

    #[test]
    fn a_code_stands_in_the_header_and_in_the_body() {
        let answer = error(409, "LeaseLost", "a < b & c");
        assert_eq!(answer.headers["x-ms-error-code"], "LeaseLost");
        let body = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(body.contains("<Code>LeaseLost</Code><Message>a &lt; b &amp; c\nRequestId:"), "{body}");
        assert!(!too_many_requests().headers.contains_key("x-ms-error-code"));
    }
}
