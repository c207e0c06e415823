//! What the proxy knows: the script, what came, and what is held back.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hyper::http::request::Parts;
use leasehold::Clock;
use tokio::sync::watch;

use crate::answer::Answer;
use crate::fault::Fault;
use crate::matcher::Matcher;
use crate::recorded::{Outcome, Recorded};
use crate::server::{Message, Server};
use crate::service_clock::ServiceClock;
use crate::tasks::Tasks;

/// Shared by the proxy, its connections and the requests under way.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) server: Server,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tasks: Tasks,
    pub(crate) signals: watch::Sender<Signal>,
    state: Mutex<State>,
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) rules: Vec<Rule>,
    pub(crate) standing: Vec<(Matcher, Fault)>,
    pub(crate) service_clock: ServiceClock,
    pub(crate) requests: Requests,
    pub(crate) held: VecDeque<(RequestId, Message)>,
    /// Requests that have come in and may still reach the server by themselves.
    pub(crate) under_way: usize,
    connections: HashMap<u64, Connection>,
    next_connection: u64,
}

/// Faults that are scripted for the next requests that match.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) matcher: Matcher,
    pub(crate) faults: VecDeque<Fault>,
}

/// The requests since the last time that they were cleared.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    first: u64,
    recorded: Vec<Recorded>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestId(u64);

#[derive(Debug)]
struct Connection {
    generation: u64,
    /// It has a request without an answer.
    busy: bool,
}

/// What the connections are told, all at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signal {
    generation: u64,
    pub(crate) close: Close,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Close {
    #[default]
    Reset,
    WhenIdle,
}

impl Requests {
    fn push(&mut self, request: Recorded) -> RequestId {
        self.recorded.push(request);
        RequestId(self.first + self.recorded.len() as u64 - 1)
    }

    fn find(&mut self, RequestId(id): RequestId) -> Option<&mut Recorded> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.recorded.get_mut(index)
    }

    pub(crate) fn all(&self) -> &[Recorded] {
        &self.recorded
    }

    pub(crate) fn clear(&mut self) {
        self.first += self.recorded.len() as u64;
        self.recorded.clear();
    }
}

impl State {
    /// The fault for a request that has been read: the first scripted one, else the latest standing one.
    fn choose(&mut self, request: &Recorded) -> Fault {
        let mut rules = self.rules.iter_mut().filter(|rule| rule.matcher.matches(request));
        let scripted = rules.find_map(|rule| rule.faults.pop_front());
        self.rules.retain(|rule| !rule.faults.is_empty());
        let standing = || self.standing.iter().rev().find(|(matcher, _)| matcher.matches(request));
        scripted.or_else(|| standing().map(|(_, fault)| fault.clone())).unwrap_or(Fault::None)
    }
}

impl Shared {
    pub(crate) fn new(server: Server, clock: Arc<dyn Clock>) -> Self {
        Self {
            server,
            clock,
            tasks: Tasks::new(),
            signals: watch::Sender::default(),
            state: Mutex::default(),
            changes: watch::Sender::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changes.send_replace(());
        result
    }

    /// Returns when `holds`.
    pub(crate) async fn until(&self, holds: impl Fn(&State) -> bool + Send + Sync) {
        let mut changes = self.changes.subscribe();
        while !holds(&self.lock()) {
            // The sender is in `self`.
            let _ = changes.changed().await;
        }
    }

    /// Sends a message to the service: to the server behind, unless the service refuses it for its date.
    pub(crate) async fn serve(&self, id: RequestId, message: &Message) -> io::Result<Answer> {
        let wall = self.clock.read().wall;
        let refusal = self.lock().service_clock.refuse(&message.headers, wall);
        let (mut answer, refused) = match refusal {
            Some(refusal) => (refusal, true),
            None => (self.server.send(message).await?, false),
        };
        self.change(|state| {
            if refused {
                state.service_clock.date_instead(&mut answer.headers, wall);
            } else {
                state.service_clock.date_server(&mut answer.headers);
            }
            if let Some(request) = state.requests.find(id) {
                request.served.push(answer.status);
            }
        });
        Ok(answer)
    }

    /// Has all connections of now closed, and returns when those that are to close have.
    pub(crate) async fn close(&self, close: Close) {
        let mut generation = 0;
        self.signals.send_modify(|signal| {
            *signal = Signal { generation: signal.generation + 1, close };
            generation = signal.generation;
        });
        let stays = |connection: &Connection| match close {
            Close::Reset => false,
            Close::WhenIdle => connection.busy,
        };
        self.until(|state| {
            state
                .connections
                .values()
                .all(|connection| connection.generation >= generation || stays(connection))
        })
        .await;
    }
}

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct Open {
    shared: Arc<Shared>,
    id: u64,
}

impl Open {
    pub(crate) fn new(shared: &Arc<Shared>) -> (Self, watch::Receiver<Signal>) {
        let signals = shared.signals.subscribe();
        let generation = signals.borrow().generation;
        let id = shared.change(|state| {
            let id = state.next_connection;
            state.next_connection += 1;
            state.connections.insert(id, Connection { generation, busy: false });
            id
        });
        (Self { shared: Arc::clone(shared), id }, signals)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.change(|state| state.connections.remove(&self.id));
    }
}

/// A request on its connection, until the client has what it gets.
#[derive(Debug)]
pub(crate) struct Call {
    open: Arc<Open>,
    id: RequestId,
}

impl Call {
    /// Counts a request whose head has been read.
    pub(crate) fn new(open: &Arc<Open>, head: &Parts) -> (UnderWay, Self) {
        let request = Recorded::of(head);
        let shared = open.shared();
        let id = shared.change(|state| {
            state.under_way += 1;
            if let Some(connection) = state.connections.get_mut(&open.id) {
                connection.busy = true;
            }
            state.requests.push(request)
        });
        (UnderWay { shared: Arc::clone(shared), id }, Self { open: Arc::clone(open), id })
    }

    /// Finds the fault for a request that has been read to its end.
    pub(crate) fn choose(&self, head: Parts, body: Bytes) -> (Fault, Message) {
        let fault = self.shared().change(|state| {
            // One that was cleared away before it was complete still meets its fault.
            let mut request =
                state.requests.find(self.id).map_or_else(|| Recorded::of(&head), |request| request.clone());
            request.body = body.clone();
            request.fault = state.choose(&request);
            let fault = request.fault.clone();
            if let Some(recorded) = state.requests.find(self.id) {
                *recorded = request;
            }
            fault
        });
        (fault, Message { method: head.method, uri: head.uri, headers: head.headers, body })
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        self.shared().change(|state| {
            if let Some(request) = state.requests.find(self.id) {
                request.outcome = outcome;
            }
        });
    }

    fn shared(&self) -> &Arc<Shared> {
        self.open.shared()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.shared().change(|state| {
            if let Some(connection) = state.connections.get_mut(&self.open.id) {
                connection.busy = false;
            }
            if let Some(request) = state.requests.find(self.id)
                && request.outcome == Outcome::Pending
            {
                request.outcome = Outcome::Left;
            }
        });
    }
}

/// A request that may still reach the server by itself.
#[derive(Debug)]
pub(crate) struct UnderWay {
    shared: Arc<Shared>,
    id: RequestId,
}

impl UnderWay {
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    pub(crate) async fn forward(&self, message: &Message) -> io::Result<Answer> {
        self.shared.serve(self.id, message).await
    }

    pub(crate) fn hold_back(&self, message: &Message, copies: usize) {
        self.shared.change(|state| {
            state.held.extend(std::iter::repeat_n((self.id, message.clone()), copies));
        });
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.change(|state| state.under_way -= 1);
    }
}
