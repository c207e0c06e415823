//! The line itself: pooled connections, cuts, and the end of the proxy.

use std::io;
use std::time::Duration;

use crate::common::{PATIENCE, Seen, raw, scene, soon, still_scene, within};
use leasehold_wire::{Fault, Matcher, Outcome, Proxy};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_url_that_is_no_server_is_refused() {
    for url in ["https://127.0.0.1:1", "http://127.0.0.1:1/account", "nonsense"] {
        assert_eq!(Proxy::start(url).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_line_refuses_and_a_mended_one_serves() {
    let (server, proxy, client) = scene().await;
    // Pooled connections, one for each request at a time.
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let client = client.clone();
        clients.spawn(async move { client.post("a").await.status() });
    }
    soon(clients.join_all()).await;
    let mut idle = raw(&proxy).await;

    for round in 0..5 {
        soon(proxy.cut()).await;
        let error = soon(idle.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "round {round}");
        let error = TcpStream::connect(proxy.address()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "round {round}");
        let applied = server.applied().len();
        // The first may go out on a pooled connection of which the client has not yet noticed the reset.
        for _ in 0..10 {
            let seen = soon(client.post("b")).await;
            assert!(!matches!(seen, Seen::Answer { .. }), "{seen:?}");
        }
        assert!(matches!(soon(client.post("b")).await, Seen::Refused));
        assert_eq!(server.applied().len(), applied);

        proxy.mend().await.unwrap();
        assert_eq!(soon(client.post("c")).await.status(), 200, "round {round}");
        idle = raw(&proxy).await;
    }
}

#[tokio::test]
async fn cutting_and_mending_may_be_repeated() {
    let (_server, proxy, client) = scene().await;
    proxy.mend().await.unwrap();
    soon(proxy.cut()).await;
    soon(proxy.cut()).await;
    proxy.mend().await.unwrap();
    proxy.mend().await.unwrap();
    assert_eq!(client.post("a").await.status(), 200);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_port_of_a_cut_line_is_given_to_nobody() {
    let (_server, proxy, _client) = scene().await;
    soon(proxy.cut()).await;
    let error = TcpSocket::new_v4().unwrap().bind(proxy.address()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_request_under_way_is_reset_by_a_cut_and_applied_all_the_same() {
    let (server, proxy, client, clock) = still_scene().await;
    proxy.script([Fault::Delay(HOUR)]);
    let (seen, ()) = tokio::join!(client.post("a"), async {
        proxy.arrived(&Matcher::any(), 1).await;
        proxy.cut().await;
    });
    assert!(matches!(seen, Seen::Reset), "{seen:?}");
    assert_eq!(server.applied().len(), 0);
    clock.wake_all();
    soon(proxy.settled()).await;
    assert_eq!((server.bodies(), &proxy.requests()[0].outcome), (vec![String::from("a")], &Outcome::Left));
}

#[tokio::test]
async fn a_silent_connection_is_reset_by_a_cut() {
    let (_server, proxy, client) = scene().await;
    proxy.script([Fault::DropRequest]);
    let (seen, ()) = tokio::join!(soon(client.post("a")), async {
        proxy.arrived(&Matcher::any(), 1).await;
        proxy.cut().await;
    });
    assert!(matches!(seen, Seen::Reset), "{seen:?}");
}

// As the keep-alive of a server ends between two renewals.
#[tokio::test]
async fn idle_connections_are_hung_up_and_busy_ones_are_not() {
    let (_server, proxy, client, clock) = still_scene().await;
    let mut idle = raw(&proxy).await;
    client.post("a").await.status();
    proxy.script([Fault::Delay(HOUR)]);
    let (seen, rest) = tokio::join!(client.post("b"), async {
        proxy.arrived(&Matcher::any(), 2).await;
        soon(proxy.hang_up()).await;
        let rest = soon(idle.read_u8()).await.unwrap_err().kind();
        clock.wake_all();
        rest
    });
    assert_eq!((seen.status(), rest), (200, io::ErrorKind::UnexpectedEof), "an orderly end");
    assert_eq!(soon(client.post("c")).await.status(), 200);
}

#[tokio::test]
async fn connections_are_kept_alive() {
    let (_server, proxy, client) = scene().await;
    for _ in 0..20 {
        client.post("a").await.status();
    }
    // All on one connection: hanging it up is all there is to do.
    soon(proxy.hang_up()).await;
    assert_eq!(proxy.count(&Matcher::any()), 20);
}

#[tokio::test]
async fn a_stopped_proxy_leaves_nothing_behind() {
    let (server, proxy, client, clock) = still_scene().await;
    client.post("a").await.status();
    proxy.script([Fault::Delay(HOUR)]);
    client.give_up(&proxy, "never").await;
    let (address, mut idle) = (proxy.address(), raw(&proxy).await);
    soon(proxy.stop()).await;
    assert!(soon(idle.read_u8()).await.is_err(), "closed");
    std::net::TcpListener::bind(address).unwrap();
    clock.wake_all();
    assert_eq!(server.bodies(), ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_proxy_frees_its_port_and_ends_its_tasks() {
    let (server, proxy, client, clock) = still_scene().await;
    client.post("a").await.status();
    proxy.script([Fault::Delay(HOUR)]);
    client.give_up(&proxy, "never").await;
    let (address, mut idle) = (proxy.address(), raw(&proxy).await);
    drop(proxy);
    assert!(soon(idle.read_u8()).await.is_err(), "closed");
    soon(async {
        while std::net::TcpListener::bind(address).is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The delayed request has nobody to carry it any more.
    clock.wake_all();
    assert!(within(PATIENCE, std::future::pending::<()>()).await.is_none());
    assert_eq!(server.bodies(), ["a"]);
}
