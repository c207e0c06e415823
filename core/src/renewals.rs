//! The room through which all renewals of a store go.

use std::sync::{Arc, Mutex, PoisonError};
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
    waiting: Mutex<Vec<(RenewRequest, oneshot::Sender<Answer>)>>,
}

impl Renewals {
    /// One request each, in the caller's own future.
    pub(crate) const fn singly(store: Arc<dyn LeaseStore>) -> Self {
        Self { store, gathering: None }
    }

    /// In batches, if the store takes them.
    pub(crate) fn gathered(store: Arc<dyn LeaseStore>, clock: Arc<dyn Clock>, tasks: Tasks) -> Self {
        let takes_batches = store.profile().max_batch > 1;
        let gathering =
            takes_batches.then(|| Arc::new(Gathering { clock, tasks, waiting: Mutex::default() }));
        Self { store, gathering }
    }

    /// # Cancellation
    /// The renewal may be made all the same.
    pub(crate) async fn renew(&self, ask: RenewRequest) -> Answer {
        let Some(gathering) = &self.gathering else {
            return one_answer(self.store.renew(std::slice::from_ref(&ask)).await, &ask);
        };
        let (answer, answered) = oneshot::channel();
        let first = {
            // Pushing and taking leave nothing half done.
            let mut waiting = gathering.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push((ask.clone(), answer));
            waiting.len() == 1
        };
        if first {
            // Not in this future, which may be dropped and would take the others' renewals along.
            gathering.tasks.spawn(gather(Arc::clone(gathering), Arc::clone(&self.store)));
        }
        answered.await.unwrap_or_else(|_| Err(miscounted(&ask)))
    }
}

/// Waits for more, then sends what there is, in batches that wait for one another no longer.
async fn gather(gathering: Arc<Gathering>, store: Arc<dyn LeaseStore>) {
    gathering.clock.sleep(GATHER).await;
    let mut due = std::mem::take(&mut *gathering.waiting.lock().unwrap_or_else(PoisonError::into_inner));
    // Who has stopped waiting has been released, or has been lost.
    due.retain(|(_, answer)| !answer.is_closed());
    let most = store.profile().max_batch;
    while !due.is_empty() {
        let rest = due.split_off(due.len().min(most));
        let batch = std::mem::replace(&mut due, rest);
        gathering.tasks.spawn(send(batch, Arc::clone(&store)));
    }
}

async fn send(batch: Vec<(RenewRequest, oneshot::Sender<Answer>)>, store: Arc<dyn LeaseStore>) {
    let (asks, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let outcomes = store.renew(&asks).await;
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
