//! A real server that knows what was applied, and a real client.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Index;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use leasehold::{Clock, Reading, Sleep, SystemClock};
use leasehold_wire::{Bytes, HeaderMap, Matcher, Method, Proxy, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Longer than anything here takes: only a defect waits for it.
pub(crate) const ENOUGH: Duration = Duration::from_secs(20);
/// How long a client waits for an answer that never comes.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// 2026-11-30 12:00:00
pub(crate) const DATE: &str = "Mon, 30 Nov 2026 12:00:00 GMT";

/// A request that the server has applied.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Counts what it applies, and answers with the number and the body.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    applied: Arc<Mutex<Vec<Applied>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(Some(DATE)).await
    }

    pub(crate) async fn start_with(date: Option<&'static str>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let applied = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::clone(&applied), date));
        Self { address, applied, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn applied(&self) -> Vec<Applied> {
        self.applied.lock().unwrap().clone()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.applied().iter().map(|applied| String::from_utf8_lossy(&applied.body).into_owned()).collect()
    }
}

async fn serve(listener: TcpListener, applied: Arc<Mutex<Vec<Applied>>>, date: Option<&'static str>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let applied = Arc::clone(&applied);
        connections.spawn(async move {
            let service = service_fn(|request| apply(&applied, date, request));
            let connection =
                http1::Builder::new().auto_date_header(false).serve_connection(TokioIo::new(stream), service);
            let _ = connection.await;
        });
    }
}

async fn apply(
    applied: &Mutex<Vec<Applied>>,
    date: Option<&'static str>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return std::future::pending().await };
    let body = body.to_bytes();
    let path = head.uri.to_string();
    let number = {
        let mut applied = applied.lock().unwrap();
        let (method, headers) = (head.method.clone(), head.headers);
        applied.push(Applied { method, path: path.clone(), headers, body: body.clone() });
        applied.len()
    };
    let mut response =
        Response::builder().header("x-amzn-requestid", "R").header("x-number", number.to_string());
    if let Some(date) = date {
        response = response.header("date", date);
    }
    if path.contains("status=409") {
        response = response.status(409);
    }
    if head.method == Method::HEAD {
        response = response.header("content-length", "4711");
    }
    Ok(response.body(Full::new(body)).unwrap())
}

/// A clock that stands at 2015-08-30 12:36:00, and on which all sleep until they are told.
#[derive(Debug, Default)]
pub(crate) struct Standing(watch::Sender<bool>);

impl Standing {
    pub(crate) fn wake_all(&self) {
        self.0.send_replace(true);
    }
}

impl Clock for Standing {
    fn read(&self) -> Reading {
        Reading { wall: Duration::from_secs(1_440_938_160), ..Reading::default() }
    }

    fn sleep(&self, _: Duration) -> Sleep {
        let mut told = self.0.subscribe();
        Box::pin(async move {
            // Ends also when there is no clock any more.
            let _ = told.wait_for(|told| *told).await;
        })
    }
}

/// A server, a proxy in front of it, and a client of the proxy.
pub(crate) async fn scene() -> (Server, Proxy, Client) {
    let server = Server::start().await;
    let proxy = Proxy::start(&server.url()).await.unwrap();
    let client = Client::new(&proxy);
    (server, proxy, client)
}

/// The same, where time stands still.
pub(crate) async fn still_scene() -> (Server, Proxy, Client, Arc<Standing>) {
    let server = Server::start().await;
    let clock = Arc::new(Standing::default());
    let proxy = Proxy::start_with_clock(&server.url(), clock.clone()).await.unwrap();
    let client = Client::new(&proxy);
    (server, proxy, client, clock)
}

/// What a client gets.
#[derive(Debug)]
pub(crate) enum Seen {
    Answer {
        status: StatusCode,
        headers: HeaderMap,
        body: Bytes,
    },
    Reset,
    Refused,
    Silence,
    /// A head and a part of the body, then a reset.
    Broken {
        status: StatusCode,
        promised: usize,
    },
    Other(#[expect(dead_code, reason = "for Debug")] String),
}

/// A client that pools its connections and retries nothing.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    hyper: HyperClient<HttpConnector, Full<Bytes>>,
    url: String,
}

impl Client {
    pub(crate) fn new(proxy: &Proxy) -> Self {
        let hyper = HyperClient::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http();
        Self { hyper, url: proxy.url() }
    }

    /// Sends a request with this body and waits for the answer.
    pub(crate) async fn post(&self, body: impl Into<Bytes>) -> Seen {
        self.send(Method::POST, "/", &[], body).await
    }

    /// Sends a request with this body, and gives up when it has come in and [`PATIENCE`] has passed.
    pub(crate) async fn give_up(&self, proxy: &Proxy, body: &'static str) -> Seen {
        let mine = Matcher::any().body(body);
        let before = proxy.count(&mine);
        tokio::select! {
            biased;
            seen = self.post(body) => seen,
            () = async {
                soon(proxy.arrived(&mine, before + 1)).await;
                SystemClock.sleep(PATIENCE).await;
            } => Seen::Silence,
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Seen {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        match self.hyper.request(request).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let promised =
                    head.headers.get("content-length").map(|value| value.to_str().unwrap().parse().unwrap());
                match body.collect().await {
                    Ok(body) => {
                        Seen::Answer { status: head.status, headers: head.headers, body: body.to_bytes() }
                    }
                    Err(_) => Seen::Broken { status: head.status, promised: promised.unwrap() },
                }
            }
            Err(error) => match io_kind(&error) {
                Some(io::ErrorKind::ConnectionReset) => Seen::Reset,
                Some(io::ErrorKind::ConnectionRefused) => Seen::Refused,
                _ => Seen::Other(format!("{error:?}")),
            },
        }
    }
}

/// Headers, by name, as text.
#[derive(Debug)]
pub(crate) struct Headers(HeaderMap);

impl Headers {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl Index<&str> for Headers {
    type Output = str;

    fn index(&self, name: &str) -> &str {
        self.0[name].to_str().unwrap()
    }
}

impl Seen {
    #[track_caller]
    pub(crate) fn answer(self) -> (u16, Headers, Bytes) {
        match self {
            Self::Answer { status, headers, body } => (status.as_u16(), Headers(headers), body),
            other => panic!("no answer: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn status(self) -> u16 {
        self.answer().0
    }

    #[track_caller]
    pub(crate) fn date(self) -> Option<String> {
        let headers = self.answer().1;
        headers.has("date").then(|| headers["date"].to_owned())
    }
}

/// What `future` gives, if that is within `limit`.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        result = future => Some(result),
        () = SystemClock.sleep(limit) => None,
    }
}

/// Fails when a test hangs.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    within(ENOUGH, future).await.expect("this takes no time")
}

/// A connection without a client in between.
pub(crate) async fn raw(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        next = error.source();
    }
    None
}
