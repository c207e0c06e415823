//! The three ways in which a time is written on the wire, all in whole seconds since 1970.

use chrono::{DateTime, NaiveDateTime};

const HTTP: &str = "%a, %d %b %Y %H:%M:%S GMT";
const AMZ: &str = "%Y%m%dT%H%M%SZ";

/// `Sun, 06 Nov 1994 08:49:37 GMT`: RFC 9110 §5.6.7, in `Date` and `x-ms-date`.
pub(crate) fn parse_http(text: &str) -> Option<i64> {
    DateTime::parse_from_rfc2822(text).ok().map(|time| time.timestamp())
}

/// As [`parse_http`] reads it; `None` for years that it cannot write.
pub(crate) fn http(seconds: i64) -> Option<String> {
    format(seconds, HTTP)
}

/// `20260830T123600Z`: in `x-amz-date`.
pub(crate) fn parse_amz(text: &str) -> Option<i64> {
    NaiveDateTime::parse_from_str(text, AMZ).ok().map(|time| time.and_utc().timestamp())
}

/// As [`parse_amz`] reads it; `None` for years that it cannot write.
pub(crate) fn amz(seconds: i64) -> Option<String> {
    format(seconds, AMZ)
}

fn format(seconds: i64, pattern: &str) -> Option<String> {
    let years = 0..253_402_300_800; // 1970 to 9999
    let time = years.contains(&seconds).then(|| DateTime::from_timestamp(seconds, 0))??;
    Some(time.format(pattern).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_the_wire() {
        assert_eq!(http(784_111_777).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(amz(1_440_938_160).unwrap(), "20150830T123600Z");
        for seconds in [0, 1, 784_111_777, 1_893_456_000, 253_402_300_799] {
            assert_eq!(parse_http(&http(seconds).unwrap()), Some(seconds));
            assert_eq!(parse_amz(&amz(seconds).unwrap()), Some(seconds));
        }
    }

    #[test]
    fn nonsense_is_no_time() {
        for text in ["", "yesterday", "20150830T123600", "Sun, 06 Nov 1994"] {
            assert_eq!((parse_http(text), parse_amz(text)), (None, None), "{text}");
        }
        for seconds in [-1, 253_402_300_800, i64::MAX, i64::MIN] {
            assert_eq!((http(seconds), amz(seconds)), (None, None), "{seconds}");
        }
    }
}
