//! Each fault: what the client sees, what the server applied, what is counted.

use std::time::Duration;

use crate::common::{Client, DATE, Seen, Server, raw, scene, soon, still_scene};
use leasehold_wire::{Answer, Fault, Matcher, Method, Outcome, Proxy, StatusCode, azure, dynamodb};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn only(proxy: &Proxy) -> leasehold_wire::Recorded {
    let mut requests = proxy.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}

const OK: StatusCode = StatusCode::OK;
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn without_a_fault_request_and_answer_go_through_as_they_are() {
    let (server, proxy, client) = scene().await;
    let path = "/account/leases/a%2Fb/%E2%82%AC/..//x%20y?comp=lease&x=%23%3F&sig=a%2Bb%3D";
    let headers =
        [("x-ms-lease-action", "renew"), ("X-Case", "ÄÖ value"), ("connection", "x-hop"), ("x-hop", "1")];
    let (status, answered, body) = client.send(Method::PUT, path, &headers[..1], "hello").await.answer();
    assert_eq!((status, &body[..]), (200, &b"hello"[..]));
    assert_eq!((&answered["x-amzn-requestid"], &answered["date"]), ("R", DATE));

    let applied = server.applied().remove(0);
    assert_eq!(
        (applied.method, applied.path.as_str(), &applied.body[..]),
        (Method::PUT, path, &b"hello"[..])
    );
    assert_eq!(applied.headers["x-ms-lease-action"], "renew");
    assert_eq!(applied.headers["host"], server.address.to_string().as_str());

    let recorded = only(&proxy);
    assert_eq!((recorded.method.clone(), recorded.path_and_query.as_str()), (Method::PUT, path));
    assert_eq!((recorded.header("X-MS-Lease-Action"), &recorded.body[..]), (Some("renew"), &b"hello"[..]));
    assert_eq!(recorded.header("host"), Some(proxy.address().to_string().as_str()), "the client's own");
    assert_eq!((recorded.fault.clone(), &recorded.served[..]), (Fault::None, &[OK][..]));
    assert_eq!(recorded.outcome, Outcome::Answered(OK));
    let shown = format!("{recorded:?}");
    assert!(!shown.contains("a%2Bb") && !shown.contains("hello") && shown.contains("comp=lease"), "{shown}");
}

#[tokio::test]
async fn what_is_said_to_the_next_hop_is_not_passed_on() {
    let (server, _proxy, client) = scene().await;
    let headers = [("connection", "x-hop"), ("x-hop", "1"), ("x-end", "2")];
    client.send(Method::POST, "/", &headers, "").await.status();
    let applied = server.applied().remove(0);
    assert!(!applied.headers.contains_key("x-hop") && !applied.headers.contains_key("connection"));
    assert_eq!(applied.headers["x-end"], "2");
}

#[tokio::test]
async fn a_status_of_the_server_goes_through() {
    let (_server, proxy, client) = scene().await;
    assert_eq!(client.send(Method::POST, "/?status=409", &[], "").await.status(), 409);
    assert_eq!(only(&proxy).served, [StatusCode::CONFLICT]);
}

#[tokio::test]
async fn a_head_has_the_length_of_what_there_would_be() {
    let (_server, _proxy, client) = scene().await;
    let (_, headers, body) = client.send(Method::HEAD, "/", &[], "").await.answer();
    assert_eq!((&headers["content-length"], body.len()), ("4711", 0));
}

#[tokio::test]
async fn a_body_of_a_megabyte_goes_through_both_ways() {
    let (server, proxy, client) = scene().await;
    let body: Vec<u8> = (0..1_u32 << 20).map(|i| (i % 251) as u8).collect();
    assert_eq!(client.post(body.clone()).await.answer().2, body);
    assert_eq!((server.applied()[0].body.len(), only(&proxy).body.len()), (body.len(), body.len()));
}

#[tokio::test]
async fn a_chunked_body_goes_through() {
    let (server, proxy, _client) = scene().await;
    let mut stream = raw(&proxy).await;
    let request = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
                   3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("abcde"), "{answer}");
    assert_eq!(server.bodies(), ["abcde"]);
}

#[tokio::test]
async fn a_dropped_request_is_not_applied_and_has_no_answer() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::DropRequest]);
    assert!(matches!(client.give_up(&proxy, "a").await, Seen::Silence));
    proxy.settled().await;
    assert_eq!(server.bodies(), [""; 0]);
    let recorded = only(&proxy);
    assert_eq!(
        (recorded.outcome, recorded.served.len(), recorded.fault),
        (Outcome::Silence, 0, Fault::DropRequest)
    );
    assert_eq!(client.post("b").await.status(), 200, "one request, one fault");
}

#[tokio::test]
async fn a_dropped_response_is_applied_and_has_no_answer() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::DropResponse]);
    assert!(matches!(client.give_up(&proxy, "a").await, Seen::Silence));
    proxy.settled().await;
    assert_eq!(server.bodies(), ["a"]);
    assert_eq!((only(&proxy).outcome, only(&proxy).served), (Outcome::Silence, vec![OK]));
}

#[tokio::test]
async fn a_reset_before_is_not_applied() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::ResetBefore]);
    let seen = client.post("a").await;
    assert!(matches!(seen, Seen::Reset), "{seen:?}");
    proxy.settled().await;
    assert_eq!((server.applied().len(), only(&proxy).outcome), (0, Outcome::Reset));
}

#[tokio::test]
async fn a_reset_after_is_applied() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::ResetAfter]);
    let seen = client.post("a").await;
    assert!(matches!(seen, Seen::Reset), "{seen:?}");
    assert_eq!(server.bodies(), ["a"]);
    assert_eq!((only(&proxy).outcome, only(&proxy).served), (Outcome::Reset, vec![OK]));
}

#[tokio::test]
async fn a_reset_is_a_true_one_without_a_byte() {
    let (_server, proxy, _client) = scene().await;
    for fault in [Fault::ResetBefore, Fault::ResetAfter] {
        proxy.script([fault]);
        let mut stream = raw(&proxy).await;
        stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        let error = soon(stream.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn a_reset_mid_body_shows_the_head_and_the_full_length() {
    let (server, proxy, client) = scene().await;
    for length in [2, 1000, 1 << 20] {
        proxy.script([Fault::ResetMidBody]);
        let seen = client.post(vec![b'x'; length]).await;
        assert!(matches!(seen, Seen::Broken { status: OK, promised } if promised == length), "{seen:?}");
    }
    assert_eq!(server.applied().len(), 3);
}

#[tokio::test]
async fn where_there_is_no_body_a_reset_mid_body_breaks_the_head() {
    let (server, proxy, _client) = scene().await;
    proxy.script([Fault::ResetMidBody]);
    let mut stream = raw(&proxy).await;
    stream.write_all(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let mut part = Vec::new();
    let error = soon(stream.read_to_end(&mut part)).await.unwrap_err();
    assert_eq!((error.kind(), server.applied().len()), (std::io::ErrorKind::ConnectionReset, 1));
    assert!(part.starts_with(b"HTTP/1.1 200 OK\r\n") && !part.windows(4).any(|four| four == b"\r\n\r\n"));
}

#[tokio::test]
async fn an_answer_instead_is_given_without_the_server() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::AnswerInstead(dynamodb::throttling()), Fault::AnswerInstead(azure::server_busy())]);
    let (status, headers, body) = client.post("a").await.answer();
    assert_eq!((status, &headers["content-type"]), (400, "application/x-amz-json-1.0"));
    assert!(headers.has("x-amzn-requestid") && headers.has("date"), "{headers:?}");
    assert!(
        body.starts_with(br#"{"__type":"com.amazon.coral.availability#ThrottlingException","#),
        "{body:?}"
    );
    let (status, headers, _) = client.post("b").await.answer();
    assert_eq!((status, &headers["x-ms-error-code"]), (503, "ServerBusy"));
    assert_eq!(server.applied().len(), 0);
    assert_eq!(proxy.requests()[1].outcome, Outcome::Answered(StatusCode::SERVICE_UNAVAILABLE));
}

#[tokio::test]
async fn a_request_is_applied_and_answered_by_an_error() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::ForwardThenAnswer(dynamodb::internal_server_error())]);
    assert_eq!(client.post("a").await.status(), 500);
    assert_eq!((server.bodies(), only(&proxy).served), (vec![String::from("a")], vec![OK]));
}

#[tokio::test]
async fn a_delayed_request_is_applied_after_the_client_has_given_up() {
    let (server, proxy, client, clock) = still_scene().await;
    proxy.script([Fault::Delay(HOUR)]);
    assert!(matches!(client.give_up(&proxy, "late").await, Seen::Silence));
    assert_eq!(client.post("early").await.status(), 200);
    assert_eq!(server.bodies(), ["early"]);
    soon(proxy.until(|requests| requests[0].outcome == Outcome::Left)).await;
    clock.wake_all();
    soon(proxy.settled()).await;
    assert_eq!(server.bodies(), ["early", "late"]);
    assert_eq!((&proxy.requests()[0].outcome, &proxy.requests()[0].served[..]), (&Outcome::Left, &[OK][..]));
}

#[tokio::test]
async fn a_delayed_request_is_answered_to_a_client_that_waits() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::Delay(Duration::from_millis(20)), Fault::DelayAnswer(Duration::from_millis(20))]);
    assert_eq!(client.post("a").await.status(), 200);
    assert_eq!(client.post("b").await.status(), 200);
    assert_eq!(server.bodies(), ["a", "b"]);
}

#[tokio::test]
async fn a_delayed_answer_is_of_a_request_applied_at_once() {
    let (server, proxy, client, _clock) = still_scene().await;
    proxy.script([Fault::DelayAnswer(HOUR)]);
    assert!(matches!(client.give_up(&proxy, "a").await, Seen::Silence));
    soon(proxy.settled()).await;
    assert_eq!(server.bodies(), ["a"]);
    soon(proxy.until(|requests| requests[0].outcome == Outcome::Left)).await;
}

#[tokio::test]
async fn a_duplicate_is_applied_twice_before_the_first_answer() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::Duplicate]);
    assert_eq!(&client.post("a").await.answer().1["x-number"], "1");
    assert_eq!((server.bodies(), proxy.count(&Matcher::any())), (vec![String::from("a"); 2], 1));
    assert_eq!(only(&proxy).served, [OK, OK]);
}

#[tokio::test]
async fn a_late_duplicate_is_applied_when_told() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::DuplicateLater]);
    client.post("a").await.status();
    client.post("b").await.status();
    assert_eq!((server.bodies().len(), proxy.held()), (2, 1));
    let answers = proxy.deliver().await.unwrap();
    assert_eq!((answers.len(), answers[0].status, &answers[0].body[..]), (1, OK, &b"a"[..]));
    assert_eq!((server.bodies().join(""), proxy.held()), (String::from("aba"), 0));
    assert_eq!(proxy.requests()[0].served, [OK, OK]);
    assert!(proxy.deliver().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_held_back_is_applied_out_of_order_when_told() {
    let (server, proxy, client) = scene().await;
    proxy.script([Fault::HoldBack, Fault::HoldBack]);
    assert!(matches!(client.give_up(&proxy, "a").await, Seen::Silence));
    assert!(matches!(client.give_up(&proxy, "b").await, Seen::Silence));
    client.post("c").await.status();
    assert_eq!((server.bodies().join(""), proxy.held()), (String::from("c"), 2));
    proxy.deliver().await.unwrap();
    assert_eq!(server.bodies().join(""), "cab");
    assert_eq!((&proxy.requests()[0].outcome, proxy.requests()[0].served.len()), (&Outcome::Silence, 1));
}

#[tokio::test]
async fn faults_add_up_in_either_order() {
    let busy = || Fault::AnswerInstead(azure::server_busy());
    for both in [Fault::HoldBack.and(busy()), busy().and(Fault::HoldBack)] {
        let (server, proxy, client) = scene().await;
        proxy.script([both, Fault::Duplicate.and(Fault::DuplicateLater).and(Fault::ResetAfter)]);
        assert_eq!(client.post("a").await.status(), 503, "refused, and applied all the same");
        assert_eq!(server.applied().len(), 0);
        assert!(matches!(client.post("b").await, Seen::Reset));
        proxy.deliver().await.unwrap();
        assert_eq!(server.bodies().join(""), "bbab");
    }
}

#[tokio::test]
async fn one_answer_is_changed_and_the_next_is_not() {
    let (_server, proxy, client) = scene().await;
    proxy.script([
        Fault::ShiftDate(-3600),
        Fault::NoDate,
        Fault::date("yesterday"),
        Fault::without_header("x-amzn-requestid").and(Fault::with_header("Age", "10")),
    ]);
    assert_eq!(client.post("").await.date().unwrap(), "Mon, 30 Nov 2026 11:00:00 GMT");
    assert_eq!(client.post("").await.date(), None);
    assert_eq!(client.post("").await.date().unwrap(), "yesterday");
    let (_, headers, _) = client.post("").await.answer();
    assert_eq!((headers.has("x-amzn-requestid"), &headers["age"]), (false, "10"));
    let (_, headers, _) = client.post("").await.answer();
    assert_eq!((&headers["date"], headers.has("x-amzn-requestid")), (DATE, true));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_reset_and_said_so() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server.url()).await.unwrap();
    let client = Client::new(&proxy);
    drop(server);
    assert!(matches!(soon(client.post("a")).await, Seen::Reset));
    let recorded = only(&proxy);
    assert!(matches!(&recorded.outcome, Outcome::NoServer(reason) if !reason.is_empty()), "{recorded:?}");
    proxy.script([Fault::HoldBack]);
    client.give_up(&proxy, "b").await;
    assert!(proxy.deliver().await.is_err());
}

#[tokio::test]
async fn a_request_counts_when_its_head_has_been_read() {
    let (server, proxy, _client) = scene().await;
    proxy.script([Fault::ResetBefore]);
    let mut stream = raw(&proxy).await;
    stream.write_all(b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
    soon(proxy.arrived(&Matcher::any().path("/x"), 1)).await;
    drop(stream);
    soon(proxy.settled()).await;
    let recorded = only(&proxy);
    assert_eq!((recorded.outcome, recorded.body.len(), server.applied().len()), (Outcome::Left, 0, 0));
    assert_eq!(proxy.unmet(), 1, "a request that was never whole meets no fault");
    proxy.clear();
    assert_eq!((proxy.count(&Matcher::any()), proxy.requests().len()), (0, 0));
}

#[tokio::test]
async fn a_client_that_gives_up_frees_its_connection() {
    let (_server, proxy, client) = scene().await;
    proxy.from_now_on(&Matcher::any(), Fault::DropResponse);
    for _ in 0..3 {
        client.give_up(&proxy, "a").await;
    }
    proxy.heal();
    // Returns when no connection is idle or is left over.
    soon(proxy.hang_up()).await;
    assert_eq!(client.post("b").await.status(), 200);
}

#[tokio::test]
async fn answers_can_be_built() {
    let (_server, proxy, client) = scene().await;
    let answer = Answer::new(429).header("Retry-After", "3").header("date", "never").body("{}");
    proxy.script([Fault::AnswerInstead(answer)]);
    let (status, headers, body) = client.post("").await.answer();
    assert_eq!(
        (status, &headers["retry-after"], &headers["date"], &body[..]),
        (429, "3", "never", &b"{}"[..])
    );
}
