//! What time it is for the service that the client sees, and what it makes of the time of a request.

use std::time::Duration;

use hyper::header::{DATE, HeaderMap, HeaderValue};

use crate::answer::Answer;
use crate::plan::{date_header, shift_date};
use crate::{azure, date, dynamodb};

/// The scripted clock of the service.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceClock {
    /// How many seconds it is ahead.
    pub(crate) shift: i64,
    pub(crate) shown: Shown,
    /// How far the date of a request may be off.
    pub(crate) max_skew: Option<Duration>,
}

/// What `Date` shows of it.
#[derive(Clone, Debug, Default)]
pub(crate) enum Shown {
    #[default]
    Time,
    Nothing,
    Frozen(HeaderValue),
}

impl ServiceClock {
    /// Dates an answer of the server, as far as it is dated.
    pub(crate) fn date_server(&self, headers: &mut HeaderMap) {
        if self.shift != 0 {
            shift_date(headers, self.shift);
        }
        self.show(headers);
    }

    /// Dates an answer given in the server's place, if it has no date of its own.
    pub(crate) fn date_instead(&self, headers: &mut HeaderMap, wall: Duration) {
        if !headers.contains_key(DATE) {
            if let Some(value) = date_header(self.now(wall)) {
                headers.insert(DATE, value);
            }
            self.show(headers);
        }
    }

    /// The answer to a request whose date is too far off.
    pub(crate) fn refuse(&self, request: &HeaderMap, wall: Duration) -> Option<Answer> {
        let max = i64::try_from(self.max_skew?.as_secs()).unwrap_or(i64::MAX);
        let now = self.now(wall);
        let text = |name: &str| request.get(name).and_then(|value| value.to_str().ok());
        if let Some(amz) = text("x-amz-date") {
            return dynamodb::skewed(amz, date::parse_amz(amz)?, now, max);
        }
        let sent =
            text("x-ms-date").or_else(|| text("date").filter(|_| request.contains_key("x-ms-version")))?;
        let age = now.saturating_sub(date::parse_http(sent)?);
        (age > max).then(|| azure::date_too_old(sent))
    }

    fn now(&self, wall: Duration) -> i64 {
        i64::try_from(wall.as_secs()).unwrap_or(i64::MAX).saturating_add(self.shift)
    }

    fn show(&self, headers: &mut HeaderMap) {
        match &self.shown {
            Shown::Time => {}
            Shown::Nothing => drop(headers.remove(DATE)),
            Shown::Frozen(value) => drop(headers.insert(DATE, value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{header_name, header_value};

    /// 2015-08-30 12:36:00
    const NOW: Duration = Duration::from_secs(1_440_938_160);

    fn refusal(shift: i64, max: u64, name: &str, value: &str) -> Option<Answer> {
        let clock =
            ServiceClock { shift, max_skew: Some(Duration::from_secs(max)), ..ServiceClock::default() };
        let mut headers = HeaderMap::new();
        headers.insert(header_name(name), header_value(value));
        clock.refuse(&headers, NOW)
    }

    fn text(answer: Option<Answer>) -> String {
        String::from_utf8(answer.unwrap().body.to_vec()).unwrap()
    }

    #[test]
    fn aws_refuses_a_date_more_than_the_limit_off_either_way() {
        for within in ["20150830T123100Z", "20150830T123600Z", "20150830T124100Z"] {
            assert_eq!(refusal(0, 300, "x-amz-date", within), None, "{within}");
        }
        let late = text(refusal(0, 300, "x-amz-date", "20150830T123059Z"));
        assert!(
            late.contains(
                "Signature expired: 20150830T123059Z is now earlier than 20150830T123100Z (20150830T123600Z - 5 min.)"
            ),
            "{late}"
        );
        let early = text(refusal(0, 300, "x-amz-date", "20150830T124101Z"));
        assert!(
            early.contains(
                "Signature not yet current: 20150830T124101Z is still later than 20150830T124100Z (20150830T123600Z + 5 min.)"
            ),
            "{early}"
        );
    }

    #[test]
    fn the_limit_is_counted_from_the_services_own_clock() {
        assert!(refusal(3600, 300, "x-amz-date", "20150830T123600Z").is_some());
        assert_eq!(refusal(3600, 300, "x-amz-date", "20150830T133600Z"), None);
    }

    #[test]
    fn azure_refuses_an_old_date_only() {
        assert_eq!(refusal(0, 900, "x-ms-date", "Sun, 30 Aug 2015 12:21:00 GMT"), None);
        assert_eq!(refusal(0, 900, "x-ms-date", "Sun, 30 Aug 2015 23:00:00 GMT"), None);
        let old = text(refusal(0, 900, "x-ms-date", "Sun, 30 Aug 2015 12:20:59 GMT"));
        assert!(old.contains("Request date header too old: 'Sun, 30 Aug 2015 12:20:59 GMT'"), "{old}");
    }

    #[test]
    fn what_has_no_date_is_not_refused() {
        assert_eq!(refusal(0, 300, "x-other", "20150830T123059Z"), None);
        assert_eq!(refusal(0, 300, "x-amz-date", "yesterday"), None);
        assert_eq!(refusal(0, 300, "date", "Sun, 30 Aug 2015 12:20:59 GMT"), None, "not signed by anyone");
    }
}
