use bytes::Bytes;
use hyper::Method;
use hyper::header::HeaderName;

use crate::answer::header_name;
use crate::recorded::Recorded;

/// Which requests a fault is for, or a count of.
///
/// All that is said of a request must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher(Vec<Condition>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Method(Method),
    Path(String),
    Query(String),
    Target(String),
    Header(HeaderName, String),
    WithHeader(HeaderName),
    WithoutHeader(HeaderName),
    Body(Bytes),
    WithoutBody(Bytes),
}

impl Matcher {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests to AWS for this operation: `x-amz-target` ends with it, after the dot. `UpdateItem` is not
    /// `TransactUpdateItem`.
    pub fn target(operation: &str) -> Self {
        Self::any().with(Condition::Target(operation.to_owned()))
    }

    /// Requests to Azure for this action on a lease: `acquire`, `renew`, `change`, `release`, `break`.
    pub fn lease_action(action: &str) -> Self {
        Self::any().query("comp=lease").header("x-ms-lease-action", action)
    }

    /// With this method.
    ///
    /// # Panics
    /// When it is not the name of a method.
    #[track_caller]
    #[must_use]
    pub fn method(self, method: &str) -> Self {
        match method.parse() {
            Ok(method) => self.with(Condition::Method(method)),
            Err(_) => panic!("{method:?} is not a method"),
        }
    }

    /// With this somewhere in the path, percent-encoded as on the wire.
    #[must_use]
    pub fn path(self, part: &str) -> Self {
        self.with(Condition::Path(part.to_owned()))
    }

    /// With this among the `&`-separated parts of the query, such as `comp=lease`.
    #[must_use]
    pub fn query(self, pair: &str) -> Self {
        self.with(Condition::Query(pair.to_owned()))
    }

    /// With this header of this value, letter by letter.
    ///
    /// # Panics
    /// When HTTP does not allow the name.
    #[track_caller]
    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Self {
        self.with(Condition::Header(header_name(name), value.to_owned()))
    }

    /// With a header of this name.
    ///
    /// # Panics
    /// When HTTP does not allow the name.
    #[track_caller]
    #[must_use]
    pub fn with_header(self, name: &str) -> Self {
        self.with(Condition::WithHeader(header_name(name)))
    }

    /// Without a header of this name.
    ///
    /// # Panics
    /// When HTTP does not allow the name.
    #[track_caller]
    #[must_use]
    pub fn without_header(self, name: &str) -> Self {
        self.with(Condition::WithoutHeader(header_name(name)))
    }

    /// With this somewhere in the body.
    #[must_use]
    pub fn body(self, part: impl Into<Bytes>) -> Self {
        self.with(Condition::Body(part.into()))
    }

    /// With this nowhere in the body.
    #[must_use]
    pub fn without_body(self, part: impl Into<Bytes>) -> Self {
        self.with(Condition::WithoutBody(part.into()))
    }

    /// Whether all that was said holds for `request`.
    pub fn matches(&self, request: &Recorded) -> bool {
        self.0.iter().all(|condition| condition.holds(request))
    }

    fn with(mut self, condition: Condition) -> Self {
        self.0.push(condition);
        self
    }
}

impl Condition {
    fn holds(&self, request: &Recorded) -> bool {
        let header = |name: &HeaderName| request.headers.get(name);
        match self {
            Self::Method(method) => request.method == *method,
            Self::Path(part) => request.path().contains(part),
            Self::Query(pair) => {
                request.query().is_some_and(|query| query.split('&').any(|each| each == pair))
            }
            Self::Target(operation) => {
                let target = request.headers.get("x-amz-target").and_then(|target| target.to_str().ok());
                target.and_then(|target| target.rsplit('.').next()) == Some(operation)
            }
            Self::Header(name, value) => {
                header(name).is_some_and(|found| found.as_bytes() == value.as_bytes())
            }
            Self::WithHeader(name) => header(name).is_some(),
            Self::WithoutHeader(name) => header(name).is_none(),
            Self::Body(part) => contains(&request.body, part),
            Self::WithoutBody(part) => !contains(&request.body, part),
        }
    }
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    part.is_empty() || body.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::Recorded;
    use hyper::header::HeaderMap;

    fn request(
        method: Method,
        path_and_query: &str,
        headers: &[(&str, &str)],
        body: &'static str,
    ) -> Recorded {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(header_name(name), value.parse().unwrap());
        }
        let mut request = Recorded::new(method, path_and_query.to_owned(), map);
        request.body = Bytes::from_static(body.as_bytes());
        request
    }

    #[test]
    fn an_operation_of_aws_is_told_by_its_whole_name() {
        let get = request(Method::POST, "/", &[("X-Amz-Target", "DynamoDB_20120810.GetItem")], "{}");
        let batch = request(Method::POST, "/", &[("X-Amz-Target", "DynamoDB_20120810.BatchGetItem")], "{}");
        assert!(Matcher::target("GetItem").matches(&get));
        assert!(!Matcher::target("GetItem").matches(&batch));
        assert!(!Matcher::target("GetItem").method("GET").matches(&get), "all must hold");
    }

    #[test]
    fn an_action_on_an_azure_lease_is_told_by_query_and_header() {
        let renew = request(
            Method::PUT,
            "/account/leases/a%2Fb?timeout=2&comp=lease",
            &[("x-ms-lease-action", "renew")],
            "",
        );
        assert!(Matcher::lease_action("renew").path("/leases/a%2Fb").matches(&renew));
        assert!(!Matcher::lease_action("release").matches(&renew));
        assert!(!Matcher::any().query("comp=leas").matches(&renew));
        assert!(!Matcher::any().path("comp").matches(&renew), "the query is no part of the path");
        assert!(Matcher::any().without_header("if-match").matches(&renew));
        assert!(!Matcher::any().with_header("if-match").matches(&renew));
    }

    #[test]
    fn two_updates_are_told_apart_by_their_bodies() {
        let acquire = request(Method::POST, "/", &[], r#"{"a": "attribute_not_exists(pk)"}"#);
        assert!(Matcher::any().body("attribute_not_exists").matches(&acquire));
        assert!(!Matcher::any().without_body("attribute_not_exists").matches(&acquire));
        assert!(!Matcher::any().body("seq").matches(&acquire));
        assert!(Matcher::any().body("").matches(&acquire));
    }
}
