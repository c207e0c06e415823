//! The room through which all renewals of a store go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{LeaseStore, RenewOutcome, RenewRequest};
use crate::tasks::Tasks;

/// How long a renewal waits for others that are due. Short beside any ttl; the deadline counts from before it.
const GATHER: Duration = Duration::from_millis(10);

type Answer = Result<RenewOutcome, StoreError>;

/// Hands renewals to a store: singly, or where the store takes batches those that are due at about the same time together.
///
/// A batch waits for nobody but those few milliseconds: one that is slow delays none that comes after it.
#[derive(Clone, Debug)]
pub(crate) struct Renewals {
    store: Arc<dyn LeaseStore>,
    gathering: Option<Arc<Gathering>>,
}

#[derive(Debug)]
struct Gathering {
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    due: Mutex<Due>,
}

#[derive(Debug, Default)]
struct Due {
    waiting: Vec<Waiting>,
    /// Whether a task is about to send them.
    gathered: bool,
}

type Waiting = (RenewRequest, oneshot::Sender<Answer>);

impl Renewals {
    /// One request each, in the caller's own future.
    pub(crate) const fn singly(store: Arc<dyn LeaseStore>) -> Self {
        Self { store, gathering: None }
    }

    /// In batches, if the store takes them.
    pub(crate) fn gathered(store: Arc<dyn LeaseStore>, clock: Arc<dyn Clock>, tasks: Tasks) -> Self {
        let takes_batches = store.profile().max_batch > 1;
        let gathering = takes_batches.then(|| Arc::new(Gathering { clock, tasks, due: Mutex::default() }));
        Self { store, gathering }
    }

    /// # Cancellation
    /// The renewal may be made all the same.
    pub(crate) async fn renew(&self, ask: RenewRequest) -> Answer {
        let Some(gathering) = &self.gathering else {
            return one_answer(self.store.renew(std::slice::from_ref(&ask)).await, &ask);
        };
        let (answer, answered) = oneshot::channel();
        let gathered = {
            let mut due = gathering.lock();
            due.waiting.push((ask.clone(), answer));
            std::mem::replace(&mut due.gathered, true)
        };
        if !gathered {
            // Not in this future, which may be dropped and would take the others' renewals along.
            let turn = Turn(Arc::clone(gathering));
            gathering.tasks.spawn(gather(turn, Arc::clone(&self.store)));
        }
        answered.await.unwrap_or_else(|_| Err(miscounted(&ask)))
    }
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, Due> {
        // Pushing and taking leave nothing half done.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duty to send what is due. Given back however its task ends, also with its runtime; the next renewal takes it up.
struct Turn(Arc<Gathering>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().gathered = false;
    }
}

/// Waits for more, then sends what there is, in batches that wait for one another no longer.
async fn gather(turn: Turn, store: Arc<dyn LeaseStore>) {
    let gathering = Arc::clone(&turn.0);
    gathering.clock.sleep(GATHER).await;
    // From here on the next one begins a batch of its own.
    drop(turn);
    let mut due = std::mem::take(&mut gathering.lock().waiting);
    // Who has stopped waiting has been released, or has been lost.
    due.retain(|(_, answer)| !answer.is_closed());
    let most = store.profile().max_batch;
    while !due.is_empty() {
        let rest = due.split_off(due.len().min(most));
        let batch = std::mem::replace(&mut due, rest);
        gathering.tasks.spawn(send(batch, Arc::clone(&store), Arc::clone(&gathering.clock)));
    }
}

async fn send(batch: Vec<Waiting>, store: Arc<dyn LeaseStore>, clock: Arc<dyn Clock>) {
    let (asks, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    // Longer than that nobody waits.
    let longest = asks.iter().map(|ask| ask.timeout).max().unwrap_or_default();
    let outcomes = tokio::select! {
        biased;
        outcomes = store.renew(&asks) => outcomes,
        () = clock.sleep(longest) => return,
    };
    if outcomes.len() != answers.len() {
        // Nobody knows whose answer is whose. Dropping the senders tells everybody.
        return;
    }
    for (outcome, answer) in outcomes.into_iter().zip(answers) {
        // One that does not wait any more does not want it.
        let _ = answer.send(outcome);
    }
}

fn one_answer(mut answers: Vec<Answer>, ask: &RenewRequest) -> Answer {
    match (answers.pop(), answers.is_empty()) {
        (Some(answer), true) => answer,
        _ => Err(miscounted(ask)),
    }
}

/// The adapter gave another number of answers than it was asked for, or panicked.
fn miscounted(ask: &RenewRequest) -> StoreError {
    StoreError::unknown(
        StoreErrorKind::Other,
        "the store did not give one answer for each renewal: report this to the author of its adapter",
    )
    .with_key(&ask.grant.key)
}
