use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::LeaseKey;
use crate::profile::StoreProfile;
use crate::store::{
    AcquireOutcome, AcquireRequest, Finding, LeaseStore, Observation, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest,
};

/// A store between a caller and a real one, that fails as scripted and counts what it is asked.
///
/// Clones share script and counts.
#[derive(Clone, Debug)]
pub struct FaultyStore<S> {
    store: Arc<S>,
    clock: Arc<dyn Clock>,
    script: Arc<Mutex<Script>>,
}

/// A verb of [`LeaseStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "complete by nature: the verbs of the trait")]
pub enum Verb {
    /// [`LeaseStore::acquire`]
    Acquire,
    /// [`LeaseStore::inspect`]
    Inspect,
    /// [`LeaseStore::release`]
    Release,
    /// [`LeaseStore::renew`]
    Renew,
}

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing.
    None,
    /// Refused with this kind of error, and not applied.
    FailBefore(StoreErrorKind),
    /// Applied, and answered with an error that says so little.
    FailAfter,
    /// Neither applied nor ever answered.
    Hang,
    /// Applied, and never answered.
    HangAfter,
    /// Applied at once, and answered this much later.
    LateAnswer(Duration),
    /// Applied this much later, and then answered.
    LateArrival(Duration),
    /// Applied and answered; and applied a second time when [`FaultyStore::deliver`] says so.
    Twice,
    /// Never answered, and applied when [`FaultyStore::deliver`] says so: out of order with what comes in between.
    Delayed,
    /// The adapter panics, before the request is sent.
    Panic,
}

type Delivery = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

#[derive(Default)]
struct Script {
    faults: HashMap<Verb, VecDeque<Fault>>,
    from_now_on: HashMap<Verb, Fault>,
    requests: HashMap<Verb, usize>,
    deliveries: Vec<Delivery>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("faults", &self.faults)
            .field("from_now_on", &self.from_now_on)
            .field("requests", &self.requests)
            .field("deliveries", &self.deliveries.len())
            .finish()
    }
}

impl<S: LeaseStore> FaultyStore<S> {
    /// Nothing goes wrong yet. Late answers are timed by `clock`.
    pub fn new(store: S, clock: Arc<dyn Clock>) -> Self {
        Self { store: Arc::new(store), clock, script: Arc::default() }
    }

    /// The next requests of `verb` meet these faults, one each, in order.
    pub fn script(&self, verb: Verb, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.entry(verb).or_default().extend(faults);
    }

    /// Every request of `verb` meets `fault`, once the scripted ones are used up.
    pub fn from_now_on(&self, verb: Verb, fault: Fault) {
        self.lock().from_now_on.insert(verb, fault);
    }

    /// How many requests of `verb` have been made.
    pub fn requests(&self, verb: Verb) -> usize {
        self.lock().requests.get(&verb).copied().unwrap_or(0)
    }

    /// Applies what was held back or is to be applied twice, in the order in which it was sent. Nobody hears the answers.
    pub async fn deliver(&self) {
        let deliveries = std::mem::take(&mut self.lock().deliveries);
        for delivery in deliveries {
            delivery().await;
        }
    }

    /// The store behind.
    pub fn store(&self) -> &S {
        &self.store
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        // Nothing in here leaves the script half changed.
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_fault(&self, verb: Verb) -> Fault {
        let mut script = self.lock();
        *script.requests.entry(verb).or_default() += 1;
        let scripted = script.faults.get_mut(&verb).and_then(VecDeque::pop_front);
        scripted.or_else(|| script.from_now_on.get(&verb).copied()).unwrap_or(Fault::None)
    }

    /// Sends one request as its fault wants it. `request` sends it.
    async fn meet<T, F>(
        &self,
        verb: Verb,
        request: impl Fn(Arc<S>) -> F + Send + Sync + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = T> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        match self.next_fault(verb) {
            Fault::None => Ok(request(store).await),
            Fault::FailBefore(kind) => {
                Err(StoreError::not_applied(kind, "refused on purpose").with_code("scripted"))
            }
            Fault::FailAfter => {
                request(store).await;
                Err(StoreError::unknown(StoreErrorKind::Unavailable, "failed on purpose")
                    .with_code("scripted"))
            }
            Fault::Hang => std::future::pending().await,
            Fault::HangAfter => {
                request(store).await;
                std::future::pending().await
            }
            Fault::LateAnswer(by) => {
                let answer = request(store).await;
                self.clock.sleep(by).await;
                Ok(answer)
            }
            Fault::LateArrival(by) => {
                self.clock.sleep(by).await;
                Ok(request(store).await)
            }
            Fault::Twice => {
                let answer = request(Arc::clone(&store)).await;
                self.hold_back(store, request);
                Ok(answer)
            }
            Fault::Delayed => {
                self.hold_back(store, request);
                std::future::pending().await
            }
            Fault::Panic => panic!("the adapter panics on purpose"),
        }
    }

    fn hold_back<T, F>(&self, store: Arc<S>, request: impl Fn(Arc<S>) -> F + Send + 'static)
    where
        T: Send,
        F: Future<Output = T> + Send + 'static,
    {
        self.lock().deliveries.push(Box::new(move || {
            let delivery = request(store);
            Box::pin(async move {
                delivery.await;
            })
        }));
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: LeaseStore> LeaseStore for FaultyStore<S> {
    fn profile(&self) -> &StoreProfile {
        self.store.profile()
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        self.store.check().await
    }

    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let ask = ask.clone();
        let send = move |store: Arc<S>| {
            let ask = ask.clone();
            async move { store.acquire(&ask).await }
        };
        self.meet(Verb::Acquire, send).await?
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let (count, asks) = (asks.len(), asks.to_vec());
        let send = move |store: Arc<S>| {
            let asks = asks.clone();
            async move { store.renew(&asks).await }
        };
        let answers = self.meet(Verb::Renew, send).await;
        answers.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let ask = ask.clone();
        let send = move |store: Arc<S>| {
            let ask = ask.clone();
            async move { store.release(&ask).await }
        };
        self.meet(Verb::Release, send).await?
    }

    async fn inspect(&self, key: &LeaseKey, timeout: Duration) -> Result<Observation, StoreError> {
        let key = key.clone();
        let send = move |store: Arc<S>| {
            let key = key.clone();
            async move { store.inspect(&key, timeout).await }
        };
        self.meet(Verb::Inspect, send).await?
    }
}
