//! One watcher that notices when time has leapt: suspend, a stopped process, a set clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::tasks::Tasks;

/// How often the clocks are compared.
const PERIOD: Duration = Duration::from_secs(1);

/// Timers sleep during suspend, and a keeper that sleeps until its deadline sleeps too long. This compares the clocks every
/// second and tells the keepers when more than two seconds have passed in one by any clock.
#[derive(Clone, Debug)]
pub(crate) struct Gaps {
    watch: Arc<Watch>,
}

#[derive(Debug)]
struct Watch {
    clock: Arc<dyn Clock>,
    count: watch::Sender<u64>,
    running: AtomicBool,
}

impl Gaps {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            watch: Arc::new(Watch { clock, count: watch::Sender::new(0), running: AtomicBool::new(false) }),
        }
    }

    /// A receiver that changes with every gap.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.watch.count.subscribe()
    }

    /// Sees to it that the watcher runs. Called with every renewal, so that it comes back
    /// when the runtime that carried it has gone.
    pub(crate) fn ensure_watched(&self, tasks: &Tasks) {
        if !self.watch.running.swap(true, Ordering::AcqRel) {
            let running = Running(Arc::clone(&self.watch));
            tasks.spawn(async move { running.compare_clocks().await });
        }
    }
}

/// The watcher's right to run. Given back however its task ends.
struct Running(Arc<Watch>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}

impl Running {
    /// Runs as long as anybody listens.
    async fn compare_clocks(self) {
        let watch = &self.0;
        let mut last = watch.clock.read();
        while watch.count.receiver_count() > 0 {
            watch.clock.sleep(PERIOD).await;
            let now = watch.clock.read();
            let passed = now.elapsed_since(&last);
            if passed > 2 * PERIOD {
                tracing::debug!(?passed, "time has leapt: checking every lease");
                watch.count.send_modify(|count| *count += 1);
            }
            last = now;
        }
    }
}
