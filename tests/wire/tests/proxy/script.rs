//! Which request meets which fault, and what the service's clock does to all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Client, DATE, Seen, Server, scene, soon, still_scene};
use leasehold_wire::{Fault, Matcher, Method, Proxy, StatusCode, azure, dynamodb};
use tokio::task::JoinSet;

async fn update(client: &Client, operation: &str, body: &'static str) -> Seen {
    client.send(Method::POST, "/", &[("x-amz-target", &format!("DynamoDB_20120810.{operation}"))], body).await
}

#[tokio::test]
async fn a_fault_waits_for_its_request() {
    let (_server, proxy, client) = scene().await;
    proxy.script_for(&Matcher::target("UpdateItem"), [Fault::AnswerInstead(dynamodb::throttling())]);
    proxy.script_for(&Matcher::lease_action("renew"), [Fault::AnswerInstead(azure::server_busy())]);
    assert_eq!(update(&client, "GetItem", "").await.status(), 200);
    assert_eq!(
        client.send(Method::PUT, "/a?comp=lease", &[("x-ms-lease-action", "acquire")], "").await.status(),
        200
    );
    assert_eq!(proxy.unmet(), 2);
    assert_eq!(
        client.send(Method::PUT, "/a?comp=lease", &[("x-ms-lease-action", "renew")], "").await.status(),
        503
    );
    assert_eq!(update(&client, "UpdateItem", "").await.status(), 400);
    assert_eq!(update(&client, "UpdateItem", "").await.status(), 200);
    assert_eq!((proxy.unmet(), proxy.count(&Matcher::target("UpdateItem"))), (0, 2));
}

#[tokio::test]
async fn scripted_faults_come_in_order_and_before_standing_ones() {
    let (_server, proxy, client) = scene().await;
    let answer = |status| Fault::AnswerInstead(leasehold_wire::Answer::new(status));
    proxy.from_now_on(&Matcher::any(), answer(510));
    proxy.from_now_on(&Matcher::any().body("b"), answer(511));
    proxy.script([answer(501), Fault::None]);
    proxy.script_for(&Matcher::any().body("b"), [answer(502)]);
    proxy.script([answer(503)]);
    let mut seen = Vec::new();
    for body in ["b", "b", "b", "b", "b", "a"] {
        seen.push(client.post(body).await.status());
    }
    assert_eq!(seen, [501, 200, 502, 503, 511, 510]);
    proxy.heal();
    assert_eq!(client.post("b").await.status(), 200);
}

#[tokio::test]
async fn healing_forgets_what_no_request_has_met() {
    let (_server, proxy, client) = scene().await;
    proxy.script([Fault::ResetBefore]);
    proxy.shift_date(60);
    proxy.refuse_skew(Duration::ZERO);
    proxy.heal();
    assert_eq!(proxy.unmet(), 0);
    let old = [("x-amz-date", "20150830T123600Z")];
    assert_eq!(client.send(Method::POST, "/", &old, "").await.date().unwrap(), DATE);
}

// 64 clients at once over many connections: each key's request meets the fault scripted for that key, whatever the order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_at_once_meet_each_their_own_faults() {
    let (server, proxy, client) = scene().await;
    let key = |i: usize| format!("/key-{i:03}");
    for i in 0..64 {
        let fault = match i % 4 {
            0 => Fault::ResetBefore,
            1 => Fault::ForwardThenAnswer(dynamodb::internal_server_error()),
            2 => Fault::Duplicate,
            _ => Fault::ResetAfter,
        };
        proxy.script_for(&Matcher::any().path(&key(i)), [fault]);
    }
    let mut clients = JoinSet::new();
    for i in 0..64 {
        let client = client.clone();
        clients.spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..4 {
                seen.push(match client.send(Method::POST, &key(i), &[], format!("{i}")).await {
                    Seen::Answer { status, .. } => status.as_u16(),
                    Seen::Reset => 0,
                    other => panic!("{other:?}"),
                });
            }
            (i, seen)
        });
    }
    for (i, seen) in soon(clients.join_all()).await {
        let first = [0, 500, 200, 0][i % 4];
        assert_eq!(seen, [first, 200, 200, 200], "{i}");
    }
    assert_eq!((proxy.unmet(), proxy.count(&Matcher::any())), (0, 256));
    let mut applied = BTreeMap::new();
    for request in server.applied() {
        *applied.entry(request.path).or_insert(0) += 1;
    }
    for i in 0..64 {
        assert_eq!(applied[&key(i)], [3, 4, 5, 4][i % 4], "{i}");
    }
}

// A scripted fault without a matcher is met by exactly one of many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_scripted_fault_is_met_exactly_once() {
    let (server, proxy, client) = scene().await;
    proxy.script((0..10).map(|_| Fault::AnswerInstead(azure::server_busy())));
    let mut clients = JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        clients.spawn(async move { client.post("x").await.status() });
    }
    let statuses = soon(clients.join_all()).await;
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 10);
    assert_eq!((server.applied().len(), proxy.count(&Matcher::any()), proxy.unmet()), (90, 100, 0));
}

#[tokio::test]
async fn the_services_date_is_shifted_removed_frozen_and_restored() {
    let (_server, proxy, client) = scene().await;
    proxy.shift_date(3600);
    assert_eq!(client.post("").await.date().unwrap(), "Mon, 30 Nov 2026 13:00:00 GMT");
    proxy.script([Fault::ShiftDate(-60)]);
    assert_eq!(
        client.post("").await.date().unwrap(),
        "Mon, 30 Nov 2026 12:59:00 GMT",
        "an outlier of a shifted clock"
    );
    proxy.freeze_date("Mon, 30 Nov 2026 12:00:01 GMT");
    assert_eq!(client.post("").await.date().unwrap(), "Mon, 30 Nov 2026 12:00:01 GMT");
    proxy.remove_date();
    assert_eq!(client.post("").await.date(), None);
    proxy.restore_date();
    assert_eq!(client.post("").await.date().unwrap(), DATE);
}

#[tokio::test]
async fn a_server_without_a_date_stays_without() {
    let server = Server::start_with(None).await;
    let proxy = Proxy::start(&server.url()).await.unwrap();
    let client = Client::new(&proxy);
    proxy.shift_date(60);
    assert_eq!(client.post("").await.date(), None);
}

#[tokio::test]
async fn a_canned_answer_shows_the_services_time() {
    let (_server, proxy, client, _clock) = still_scene().await;
    let busy = || Fault::AnswerInstead(azure::server_busy());
    proxy.from_now_on(&Matcher::any(), busy());
    assert_eq!(client.post("").await.date().unwrap(), "Sun, 30 Aug 2015 12:36:00 GMT");
    proxy.shift_date(-60);
    assert_eq!(client.post("").await.date().unwrap(), "Sun, 30 Aug 2015 12:35:00 GMT");
    proxy.script([busy().and(Fault::ShiftDate(1)), busy().and(Fault::NoDate)]);
    assert_eq!(client.post("").await.date().unwrap(), "Sun, 30 Aug 2015 12:35:01 GMT");
    assert_eq!(client.post("").await.date(), None);
    proxy.remove_date();
    assert_eq!(client.post("").await.date(), None);
}

#[tokio::test]
async fn a_request_signed_too_far_off_is_refused_with_the_services_time() {
    let (server, proxy, client, _clock) = still_scene().await;
    proxy.refuse_skew(Duration::from_secs(300));
    let send = |date: &'static str| {
        let client = client.clone();
        async move { client.send(Method::POST, "/", &[("x-amz-date", date)], "a").await.answer() }
    };
    let (status, headers, body) = send("20150830T113600Z").await;
    assert_eq!((status, &headers["date"]), (400, "Sun, 30 Aug 2015 12:36:00 GMT"));
    assert!(headers.has("x-amzn-requestid"));
    let message = r#"{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"Signature expired: 20150830T113600Z is now earlier than 20150830T123100Z (20150830T123600Z - 5 min.)"}"#;
    assert_eq!(body, message);
    assert_eq!(send("20150830T123500Z").await.0, 200);
    assert_eq!(
        (server.applied().len(), &proxy.requests()[0].served[..]),
        (1, &[StatusCode::BAD_REQUEST][..])
    );

    // The service's own clock is an hour behind: now it is the other one that is refused.
    proxy.shift_date(-3600);
    assert_eq!(send("20150830T113600Z").await.0, 200);
    let (status, headers, body) = send("20150830T123500Z").await;
    assert_eq!((status, &headers["date"]), (400, "Sun, 30 Aug 2015 11:36:00 GMT"));
    assert!(body.starts_with(
        br#"{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"Signature not yet"#
    ));
    proxy.accept_skew();
    assert_eq!(send("20150830T123500Z").await.0, 200);
}

#[tokio::test]
async fn a_request_to_azure_dated_long_ago_is_refused() {
    let (server, proxy, client, _clock) = still_scene().await;
    proxy.refuse_skew(Duration::from_secs(900));
    let old = [("x-ms-date", "Sun, 30 Aug 2015 12:20:00 GMT"), ("x-ms-version", "2026-04-06")];
    let (status, headers, _) = client.send(Method::PUT, "/", &old, "").await.answer();
    assert_eq!((status, &headers["x-ms-error-code"]), (403, "AuthenticationFailed"));
    assert_eq!((&headers["date"], server.applied().len()), ("Sun, 30 Aug 2015 12:36:00 GMT", 0));
}

// The signature is looked at when the request reaches the service, not when it was sent.
#[tokio::test]
async fn a_duplicate_that_comes_too_late_is_refused() {
    let (server, proxy, client, _clock) = still_scene().await;
    proxy.refuse_skew(Duration::from_secs(300));
    proxy.script([Fault::DuplicateLater]);
    let now = [("x-amz-date", "20150830T123600Z")];
    assert_eq!(client.send(Method::POST, "/", &now, "a").await.status(), 200);
    proxy.shift_date(301);
    assert_eq!(proxy.deliver().await.unwrap()[0].status, StatusCode::BAD_REQUEST);
    assert_eq!(server.applied().len(), 1);
}
