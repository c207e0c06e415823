use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Clock, SystemClock};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::answer::{Answer, header_value};
use crate::connection;
use crate::fault::Fault;
use crate::matcher::Matcher;
use crate::recorded::Recorded;
use crate::server::Server;
use crate::service_clock::{ServiceClock, Shown};
use crate::state::{Close, Open, Rule, Shared};

/// How many connections may wait to be accepted: more than any test opens at once.
const BACKLOG: u32 = 1024;

/// A proxy on a loopback port of its own, in front of an HTTP server.
///
/// Nothing goes wrong until it is scripted. Dropping the proxy ends it: at their next await its tasks end, the port is free
/// and its connections are closed. [`Proxy::stop`] returns when that has come about.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    line: Mutex<Line>,
    /// Holds the port while nobody listens on it.
    _port: Option<TcpSocket>,
}

/// Where connections come in.
#[derive(Debug, Default)]
struct Line {
    /// The task that accepts, if there is one. It may be about to end when the line is cut.
    acceptor: JoinSet<()>,
    cut: bool,
}

impl Proxy {
    /// Starts a proxy in front of the server at `http://host:port`. Times are the machine's.
    ///
    /// The server need not run yet: as long as it does not, clients meet connections that are reset.
    ///
    /// # Errors
    /// When `server` is not of that form, and when no port can be opened.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn start(server: &str) -> io::Result<Self> {
        Self::start_with_clock(server, Arc::new(SystemClock)).await
    }

    /// The same, with the delays and the service's time of this clock.
    ///
    /// # Errors
    /// As [`Proxy::start`].
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn start_with_clock(server: &str, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(Server::new(server)?, clock));
        let (port, listener) = open_port()?;
        let address = listener.local_addr()?;
        let mut line = Line::default();
        line.acceptor.spawn(accept(Arc::clone(&shared), listener));
        Ok(Self { address, shared, line: Mutex::new(line), _port: port })
    }

    /// `http://127.0.0.1:PORT`, the endpoint for a client. The path goes through as it is, and `Host` is the server's.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next requests meet these faults, one each, in the order in which they have been read.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.script_for(&Matcher::any(), faults);
    }

    /// The next requests that match meet these faults, one each, in the order in which they have been read.
    ///
    /// A request that matches several scripts meets a fault of the one that was scripted first.
    pub fn script_for(&self, matcher: &Matcher, faults: impl IntoIterator<Item = Fault>) {
        let rule = Rule { matcher: matcher.clone(), faults: faults.into_iter().collect() };
        self.shared.change(|state| state.rules.push(rule));
    }

    /// Every request that matches meets `fault`, once the scripted ones are used up. The latest that matches counts.
    pub fn from_now_on(&self, matcher: &Matcher, fault: Fault) {
        self.shared.change(|state| state.standing.push((matcher.clone(), fault)));
    }

    /// How many scripted faults no request has met yet: 0 at the end of a test that means what it says.
    pub fn unmet(&self) -> usize {
        self.shared.lock().rules.iter().map(|rule| rule.faults.len()).sum()
    }

    /// Requests that are read from now on meet no fault, the service's clock is right, and it does not look at the date of a
    /// request. What is held back stays held back, and a line that is cut stays cut.
    pub fn heal(&self) {
        self.shared.change(|state| {
            state.rules.clear();
            state.standing.clear();
            state.service_clock = ServiceClock::default();
        });
    }

    /// The requests so far, in the order in which their heads were read.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.lock().requests.all().to_vec()
    }

    /// How many requests have matched so far. A request counts when its head has been read.
    pub fn count(&self, matcher: &Matcher) -> usize {
        self.shared.lock().requests.all().iter().filter(|request| matcher.matches(request)).count()
    }

    /// Forgets the requests so far, for [`Proxy::requests`] and [`Proxy::count`].
    pub fn clear(&self) {
        self.shared.change(|state| state.requests.clear());
    }

    /// Returns when `count` requests have matched.
    pub async fn arrived(&self, matcher: &Matcher, count: usize) {
        self.until(|requests| requests.iter().filter(|request| matcher.matches(request)).count() >= count)
            .await;
    }

    /// Returns when this holds of the requests so far.
    pub async fn until(&self, holds: impl Fn(&[Recorded]) -> bool + Send + Sync) {
        self.shared.until(|state| holds(state.requests.all())).await;
    }

    /// Returns when no request is under way: each that was read is dropped, held back, or applied by the server, be it after
    /// a delay.
    pub async fn settled(&self) {
        self.shared.until(|state| state.under_way == 0).await;
    }

    /// How many requests and copies are held back.
    pub fn held(&self) -> usize {
        self.shared.lock().held.len()
    }

    /// Forwards what is held back, in the order in which it was sent, and returns the answers. No client hears them.
    ///
    /// # Errors
    /// When the server cannot be reached or breaks off. What comes after stays held back.
    ///
    /// # Cancellation
    /// What has been forwarded so far has been; the one under way may have been.
    pub async fn deliver(&self) -> io::Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for _ in 0..self.held() {
            let Some((id, message)) = self.shared.change(|state| state.held.pop_front()) else { break };
            answers.push(self.shared.serve(id, &message).await?);
        }
        Ok(answers)
    }

    /// Cuts the line between the clients and the proxy: when it returns, connections are refused, and those that there were
    /// have been reset.
    ///
    /// A request that was read before goes on to the server. The port stays the proxy's.
    pub async fn cut(&self) {
        let mut line = self.line.lock().await;
        line.cut = true;
        line.acceptor.shutdown().await;
        self.shared.close(Close::Reset).await;
    }

    /// Mends the line: when it returns, connections are accepted again.
    ///
    /// # Errors
    /// When the port cannot be opened again. On Linux it is kept; elsewhere another process may have taken it.
    pub async fn mend(&self) -> io::Result<()> {
        let mut line = self.line.lock().await;
        if line.cut {
            line.acceptor.shutdown().await;
            let listener = socket(self.address)?.listen(BACKLOG)?;
            line.acceptor.spawn(accept(Arc::clone(&self.shared), listener));
            line.cut = false;
        }
        Ok(())
    }

    /// Closes the connections that are idle, as a server does at the end of its keep-alive, and returns when they are closed.
    /// Those with a request are closed after its answer.
    pub async fn hang_up(&self) {
        self.shared.close(Close::WhenIdle).await;
    }

    /// The service's clock is off by this many seconds: `Date` in every answer, and what [`Proxy::refuse_skew`] goes by.
    ///
    /// A server's answer without a `Date` stays without.
    pub fn shift_date(&self, seconds: i64) {
        self.shared.change(|state| state.service_clock.shift = seconds);
    }

    /// No answer has a `Date`.
    pub fn remove_date(&self) {
        self.shared.change(|state| state.service_clock.shown = Shown::Nothing);
    }

    /// Every answer has this `Date`, whatever it may mean. The clock of [`Proxy::refuse_skew`] goes on.
    ///
    /// # Panics
    /// When HTTP does not allow the value.
    #[track_caller]
    pub fn freeze_date(&self, date: &str) {
        let date = header_value(date);
        self.shared.change(|state| state.service_clock.shown = Shown::Frozen(date));
    }

    /// The service's clock is right, and `Date` shows it.
    pub fn restore_date(&self) {
        self.shared.change(|state| {
            state.service_clock.shift = 0;
            state.service_clock.shown = Shown::Time;
        });
    }

    /// The service refuses requests whose date is more than `max` off its clock when they are forwarded, as no emulator does.
    ///
    /// By `x-amz-date` as AWS, either way, whose limit is 5 minutes for DynamoDB; by `x-ms-date` (or, with `x-ms-version`,
    /// `Date`) as Azure Storage, if it is too old, whose limit is 15 minutes. Requests without a date that can be read are
    /// not refused. The refusals are the vendor's and carry the service's `Date`.
    pub fn refuse_skew(&self, max: Duration) {
        self.shared.change(|state| state.service_clock.max_skew = Some(max));
    }

    /// The service no longer looks at the date of a request.
    pub fn accept_skew(&self) {
        self.shared.change(|state| state.service_clock.max_skew = None);
    }

    /// Ends the proxy: when it returns, nothing of it runs, the port is free and every connection is closed.
    pub async fn stop(self) {
        self.line.lock().await.acceptor.shutdown().await;
        self.shared.tasks.stop().await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The tasks hold what holds them. The acceptor is dropped with its set.
        self.shared.tasks.abort();
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (open, signals) = Open::new(&shared);
                shared.tasks.spawn(connection::serve(open, signals, stream));
            }
            // Most often there are no more file descriptors: some will be closed.
            Err(_) => shared.clock.sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Opens a port that the system chooses, and holds it by a second socket that never listens, so that it can be closed and
/// opened again.
#[cfg(target_os = "linux")]
fn open_port() -> io::Result<(Option<TcpSocket>, TcpListener)> {
    let port = socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let listener = socket(port.local_addr()?)?.listen(BACKLOG)?;
    Ok((Some(port), listener))
}

/// Elsewhere two sockets cannot share a port that one of them listens on.
#[cfg(not(target_os = "linux"))]
fn open_port() -> io::Result<(Option<TcpSocket>, TcpListener)> {
    Ok((None, socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?.listen(BACKLOG)?))
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
