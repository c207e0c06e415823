//! Answers of DynamoDB, as the vendor gives them.
//!
//! The headers and the form of the body are those of a real answer kept in
//! <https://github.com/brendanhay/amazonka/issues/849>; a unit test compares our bytes with its length and its checksum.
//! Which error has which status and meaning:
//! <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html>. The identifier of the request
//! is made up, in the vendor's form.

use crate::answer::Answer;
use crate::date;

const MODEL: &str = "com.amazonaws.dynamodb.v20120810";
/// Types of the front door that all JSON services of AWS share.
const SERVICE: &str = "com.amazon.coral.service";
const AVAILABILITY: &str = "com.amazon.coral.availability";

const CAPACITY: &str = "The level of configured provisioned throughput for the table was exceeded. Consider increasing your \
                        provisioning level with the UpdateTable API.";

/// An error of this type in DynamoDB's own model, such as `ConditionalCheckFailedException`.
///
/// # Panics
/// When `status` is not between 100 and 999.
#[track_caller]
pub fn error(status: u16, name: &str, message: &str) -> Answer {
    typed(status, MODEL, name, message, "")
}

/// 400: a table with provisioned capacity has none left.
///
/// Source: the answer kept in <https://github.com/brendanhay/amazonka/issues/849>.
pub fn provisioned_throughput_exceeded() -> Answer {
    error(400, "ProvisionedThroughputExceededException", CAPACITY)
}

/// 400: the same, with the reason that the vendor gives since 2025.
///
/// `reason` is of the form resource, operation, limit, such as `TableWriteKeyRangeThroughputExceeded` for a hot partition;
/// `resource` is the ARN of the table or index.
///
/// Source: <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ThrottlingReason.html>
pub fn throttled_because(reason: &str, resource: &str) -> Answer {
    let reasons =
        format!(r#","ThrottlingReasons":[{{"reason":{},"resource":{}}}]"#, quoted(reason), quoted(resource));
    typed(400, MODEL, "ProvisionedThroughputExceededException", CAPACITY, &reasons)
}

/// 400: a table on demand grows, but not as fast as it is used.
///
/// Sources: message <https://github.com/aws/aws-sdk-java/issues/2222>; type as dynalite's tests meet it on the real service
/// (`test/helpers.js` in <https://github.com/architect/dynalite>).
pub fn throttling() -> Answer {
    let message = "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your \
                   table or index so please try again shortly. If exceptions persist, check if you have a hot key: \
                   https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html";
    typed(400, AVAILABILITY, "ThrottlingException", message, "")
}

/// 400: the account's quota of throughput is used up.
///
/// Source: the description of the exception in
/// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateItem.html>; no real answer was found.
pub fn request_limit_exceeded() -> Answer {
    let message = "Throughput exceeds the current throughput limit for your account. Please contact AWS Support at \
                   https://aws.amazon.com/support to request a limit increase.";
    error(400, "RequestLimitExceeded", message)
}

/// 400: a transaction on the same item is under way.
///
/// Source:
/// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateItem.html>; no real answer was found.
pub fn transaction_conflict() -> Answer {
    error(400, "TransactionConflictException", "Transaction is ongoing for the item")
}

/// 400: on a global table with strong consistency, another region writes the same item.
///
/// Source:
/// <https://docs.aws.amazon.com/botocore/latest/reference/services/dynamodb/client/exceptions/ReplicatedWriteConflictException.html>
pub fn replicated_write_conflict() -> Answer {
    let message = "The request was rejected because one or more items in the request are being modified by a request in \
                   another Region.";
    error(400, "ReplicatedWriteConflictException", message)
}

/// 500: the request may or may not have been applied.
///
/// Source: <https://github.com/akka/alpakka/issues/1682> and <https://github.com/Sleavely/dynamo-plus/issues/16>
pub fn internal_server_error() -> Answer {
    error(500, "InternalServerError", "Internal server error")
}

/// 503: the request may or may not have been applied.
///
/// Source: «`ServiceUnavailable` (HTTP 503)» in
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html>; no real answer was found.
pub fn service_unavailable() -> Answer {
    error(503, "ServiceUnavailable", "DynamoDB is currently unavailable.")
}

/// 400, the refusal of a request signed at `sent`, if that is more than `max` seconds off `now`.
///
/// Sources: type, status and the wording of both <https://github.com/aws/aws-sdk-js/issues/254>,
/// <https://github.com/s12v/awsbeats/issues/48>; the type with its prefix, on DynamoDB,
/// <https://github.com/boto/boto/issues/1552>. The wording is documented in
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/signature-v4-troubleshooting.html>.
pub(crate) fn skewed(amz_date: &str, sent: i64, now: i64, max: i64) -> Option<Answer> {
    let (earliest, latest) = (now.saturating_sub(max), now.saturating_add(max));
    let write = |time| date::amz(time).unwrap_or_default();
    let minutes = max / 60;
    let message = if sent < earliest {
        let (earliest, now) = (write(earliest), write(now));
        format!("Signature expired: {amz_date} is now earlier than {earliest} ({now} - {minutes} min.)")
    } else if sent > latest {
        let (latest, now) = (write(latest), write(now));
        format!("Signature not yet current: {amz_date} is still later than {latest} ({now} + {minutes} min.)")
    } else {
        return None;
    };
    Some(typed(400, SERVICE, "InvalidSignatureException", &message, ""))
}

#[track_caller]
fn typed(status: u16, namespace: &str, name: &str, message: &str, more: &str) -> Answer {
    let body = format!(
        r#"{{"__type":{},"message":{}{more}}}"#,
        quoted(&format!("{namespace}#{name}")),
        quoted(message)
    );
    Answer::new(status)
        .header("server", "Server")
        .header("content-type", "application/x-amz-json-1.0")
        .header("x-amzn-requestid", "LEASEHOLDWIREPROXY0000000000VV4KQNSO5AEMVJF66Q9ASUAAJG")
        .header("x-amz-crc32", &crc32(body.as_bytes()).to_string())
        .body(body)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// CRC-32 of ISO 3309, bit by bit: these bodies are short.
fn crc32(bytes: &[u8]) -> u32 {
    let fold = |crc: u32, byte: &u8| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 },
        )
    };
    !bytes.iter().fold(u32::MAX, fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_the_vendors_to_the_byte() {
        // Content-Length and x-amz-crc32 of the answer in brendanhay/amazonka#849.
        let answer = provisioned_throughput_exceeded();
        assert_eq!(answer.body.len(), 241);
        assert_eq!(answer.headers["x-amz-crc32"], "1545824508");
    }

    #[test]
    fn every_body_is_json() {
        for answer in [
            provisioned_throughput_exceeded(),
            throttled_because(
                "TableWriteKeyRangeThroughputExceeded",
                "arn:aws:dynamodb:eu-west-1:1:table/\"leases\"",
            ),
            throttling(),
            request_limit_exceeded(),
            transaction_conflict(),
            replicated_write_conflict(),
            internal_server_error(),
            service_unavailable(),
            error(400, "X", "a \"quoted\" \\ line\n"),
        ] {
            let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert!(body["__type"].as_str().unwrap().contains('#'), "{body}");
            assert!(body["message"].is_string(), "{body}");
        }
    }
}
