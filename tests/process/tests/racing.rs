//! Real processes, one store, and a counter that checks tokens.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_process_tests::Counter;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A store and a counter of one's own.
struct Scene {
    folder: TempDir,
    store: String,
    /// The shortest ttl of the store.
    ttl: Duration,
    /// How long after a holder's ttl its key is taken at the latest, by the store's rule.
    lag: Duration,
}

impl Scene {
    fn on_sqlite() -> Self {
        let folder = TempDir::new().unwrap();
        let store = format!("sqlite:{}", folder.path().join("leases.db").display());
        Self { folder, store, ttl: Duration::from_secs(1), lag: Duration::ZERO }
    }

    /// On an engine that answers as DynamoDB; `name` and `port` as `localstack/up` has them.
    fn on_dynamodb(name: &str, port: u16) -> Self {
        let said = |what: &str| std::env::var(format!("LEASEHOLD_{name}_{what}")).ok();
        let port = said("PORT").unwrap_or_else(|| port.to_string());
        let endpoint = said("ENDPOINT").unwrap_or_else(|| format!("http://127.0.0.1:{port}"));
        let folder = TempDir::new().unwrap();
        // The folder's name is nobody else's.
        let prefix = folder.path().file_name().unwrap().to_string_lossy().into_owned();
        let store = format!("dynamodb:{prefix}/@{endpoint}");
        // The spread of the service's clocks, and twice the resolution of its `Date` with a round trip.
        Self { folder, store, ttl: Duration::from_secs(5), lag: Duration::from_secs(5) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn counter(&self) -> Counter {
        Counter::open(&self.path("counter.db")).unwrap()
    }

    fn racer(&self, task: &str, limit: u32, ttl: Duration) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_racer"));
        command.arg(task).arg(&self.store).arg(self.path("counter.db"));
        command.arg(limit.to_string()).arg(ttl.as_millis().to_string());
        command
    }

    /// Counts to `limit` in a process of its own.
    fn count(&self, limit: u32) {
        let counted = self.racer("count", limit, Duration::from_secs(20)).status().unwrap();
        assert!(counted.success());
    }
}

/// A process that holds the lease and waits to be told to write.
struct Late {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    token: u64,
}

impl Late {
    fn start(scene: &Scene, ttl: Duration) -> Self {
        let mut command = scene.racer("late", 0, ttl);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut late = Self { process, stdin, stdout, token: 0 };
        let line = late.line();
        late.token = line.strip_prefix("held ").unwrap().parse().unwrap();
        late
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn write(&mut self) -> String {
        self.stdin.write_all(b"now\n").unwrap();
        self.line()
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn eight_processes_lose_no_update_and_their_tokens_only_grow(scene: &Scene) {
    const ROUNDS: u32 = 200;
    scene.counter();
    let racers: Vec<Child> =
        (0..8).map(|_| scene.racer("count", ROUNDS, Duration::from_secs(20)).spawn().unwrap()).collect();
    for mut racer in racers {
        assert!(racer.wait().unwrap().success());
    }
    let history = scene.counter().history().unwrap();
    let values: Vec<i64> = history.iter().map(|(value, _)| *value).collect();
    assert_eq!(values, (1..=i64::from(ROUNDS)).collect::<Vec<_>>(), "every update counts, and counts once");
    assert!(history.windows(2).all(|pair| pair[0].1 < pair[1].1), "{history:?}");
}

fn a_killed_holder_is_succeeded_within_its_ttl(scene: &Scene) {
    let late = Late::start(scene, scene.ttl);
    late.signal(Signal::KILL);
    let killed = now();
    scene.count(1);
    let most = scene.ttl + scene.lag + Duration::from_secs(3);
    assert!(killed.elapsed() < most, "{:?}", killed.elapsed());
    assert!(scene.counter().highest().unwrap().unwrap().get() > late.token);
}

fn a_stopped_holder_is_succeeded_knows_it_and_writes_nothing(scene: &Scene) {
    let mut late = Late::start(scene, scene.ttl);
    late.signal(Signal::STOP);
    scene.count(3);
    late.signal(Signal::CONT);
    assert_eq!(late.write(), "lost stale");
    assert_eq!(scene.counter().value().unwrap(), 3);
}

fn a_holder_that_is_left_alone_writes(scene: &Scene) {
    let mut late = Late::start(scene, Duration::from_secs(20));
    late.signal(Signal::STOP);
    late.signal(Signal::CONT);
    assert_eq!(late.write(), "held written");
    assert_eq!(scene.counter().value().unwrap(), 1);
}

/// The same tests on every store.
macro_rules! on_every_store {
    ($($test:ident)*) => {
        mod sqlite {
            $(#[test] fn $test() { super::$test(&super::Scene::on_sqlite()); })*
        }

        mod dynoxide {
            $(
                #[test]
                #[ignore = "needs dynoxide: localstack/up dynoxide"]
                fn $test() { super::$test(&super::Scene::on_dynamodb("DYNOXIDE", 8000)); }
            )*
        }

        mod localstack {
            $(
                #[test]
                #[ignore = "needs LocalStack: localstack/up localstack"]
                fn $test() { super::$test(&super::Scene::on_dynamodb("LOCALSTACK", 4566)); }
            )*
        }

        mod ministack {
            $(
                #[test]
                #[ignore = "needs ministack: localstack/up ministack"]
                fn $test() { super::$test(&super::Scene::on_dynamodb("MINISTACK", 4567)); }
            )*
        }
    };
}

on_every_store! {
    eight_processes_lose_no_update_and_their_tokens_only_grow
    a_killed_holder_is_succeeded_within_its_ttl
    a_stopped_holder_is_succeeded_knows_it_and_writes_nothing
    a_holder_that_is_left_alone_writes
}

#[expect(clippy::disallowed_methods, reason = "real processes take real time")]
fn now() -> Instant {
    Instant::now()
}
