use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};

use crate::answer::{Answer, header_name, header_value};

/// What goes wrong with one request.
///
/// *Forwarded* means sent to the server and answered by it: the request has been applied or refused there. Once received,
/// a request is forwarded even if the client has given up meanwhile, as on a real network. The client is left *without an
/// answer* by keeping the connection open and silent until the client closes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing.
    None,
    /// Not forwarded, and without an answer.
    DropRequest,
    /// Forwarded, and without an answer.
    DropResponse,
    /// Not forwarded; the connection is reset (TCP `RST`).
    ResetBefore,
    /// Forwarded; the connection is reset before the first byte of the answer.
    ResetAfter,
    /// Forwarded; the connection is reset after the head, with the full `Content-Length`, and a part of the body. Where
    /// there is no body, in the middle of the head.
    ResetMidBody,
    /// Not forwarded; the client gets this answer.
    AnswerInstead(Answer),
    /// Forwarded; the client gets this answer in place of the server's.
    ForwardThenAnswer(Answer),
    /// Forwarded this much later.
    Delay(Duration),
    /// Forwarded at once, and answered this much later.
    DelayAnswer(Duration),
    /// Forwarded, forwarded again, and then answered with the first answer. The second is heard by nobody.
    Duplicate,
    /// Forwarded and answered, and a copy kept for [`Proxy::deliver`](crate::Proxy::deliver).
    DuplicateLater,
    /// Kept for [`Proxy::deliver`](crate::Proxy::deliver), and without an answer.
    HoldBack,
    /// The answer's `Date` is off by this many seconds.
    ShiftDate(i64),
    /// The answer has no `Date`.
    NoDate,
    /// The answer has this `Date`; see [`Fault::date`].
    Date(HeaderValue),
    /// The answer has this header; see [`Fault::with_header`].
    WithHeader(HeaderName, HeaderValue),
    /// The answer lacks this header; see [`Fault::without_header`].
    WithoutHeader(HeaderName),
    /// All of these; see [`Fault::and`].
    Several(Vec<Self>),
}

impl Fault {
    /// The answer has this `Date`, whatever it may mean.
    ///
    /// # Panics
    /// When HTTP does not allow the value.
    #[track_caller]
    pub fn date(date: &str) -> Self {
        Self::Date(header_value(date))
    }

    /// The answer has this header, in place of one of that name.
    ///
    /// # Panics
    /// When HTTP does not allow the name or the value.
    #[track_caller]
    pub fn with_header(name: &str, value: &str) -> Self {
        Self::WithHeader(header_name(name), header_value(value))
    }

    /// The answer lacks this header.
    ///
    /// # Panics
    /// When HTTP does not allow the name.
    #[track_caller]
    pub fn without_header(name: &str) -> Self {
        Self::WithoutHeader(header_name(name))
    }

    /// This one and `other`, on the same request.
    ///
    /// Delays and copies add up and changes of the answer follow each other. Of two that say what the client gets, the
    /// second counts. A request that is held back by one of them is held back; one that is not forwarded by one of them is
    /// not. So `HoldBack.and(AnswerInstead(answer))` is a refusal that is applied all the same, later.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::Several(mut faults) => {
                faults.push(other);
                Self::Several(faults)
            }
            first => Self::Several(vec![first, other]),
        }
    }
}
