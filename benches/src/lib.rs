//! What the programs share: clocks, figures, a client of the engine.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use leasehold::{AttemptId, LeaseKey, LeaseStore, MemoryStore, OsChance};
use leasehold_dynamodb::{DynamoDbOptions, DynamoDbStore};
use leasehold_sqlite::SqliteStore;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The error of a program that prints it and ends.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The table on the engine.
pub const TABLE: &str = "leasehold-benches";

/// The instant.
#[expect(clippy::disallowed_methods, reason = "the one room that measures")]
pub fn now() -> Instant {
    Instant::now()
}

/// Sleeps.
#[expect(clippy::disallowed_methods, reason = "the one room that measures")]
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Spawns a task.
#[expect(clippy::disallowed_methods, reason = "the one room that measures")]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// The processor time that this process has used, all threads together.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A number in [0, 1).
pub fn chance() -> f64 {
    let drawn = AttemptId::draw(&OsChance).map_or(0, AttemptId::get);
    f64::from(u16::try_from(drawn % 65_536).unwrap_or(0)) / 65_536.0
}

/// What was measured several times.
#[derive(Clone, Debug)]
pub struct Figures(Vec<f64>);

impl Figures {
    /// Of plain numbers.
    pub fn new(mut numbers: Vec<f64>) -> Self {
        numbers.sort_unstable_by(f64::total_cmp);
        Self(numbers)
    }

    /// Of durations, in milliseconds.
    pub fn ms(durations: &[Duration]) -> Self {
        Self::new(durations.iter().map(|duration| duration.as_secs_f64() * 1e3).collect())
    }

    /// The number below which `percent` of them lie.
    pub fn at(&self, percent: usize) -> f64 {
        self.0.get((self.0.len().saturating_sub(1)) * percent / 100).copied().unwrap_or(f64::NAN)
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.at(50)
    }

    /// For the file that the plot reads.
    pub fn json(&self) -> Value {
        json!({ "min": self.at(0), "median": self.median(), "max": self.at(100), "runs": self.0.len() })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, median, max) = (self.at(0), self.median(), self.at(100));
        write!(f, "min {min:.3}  median {median:.3}  max {max:.3}  ({} runs)", self.0.len())
    }
}

/// `--name value`, `--flag` and words, as they were given.
#[derive(Clone, Debug)]
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Those of this process. With `--help`, prints the text at the top of `source` and ends.
    pub fn read(source: &str) -> Self {
        let given: Vec<_> = std::env::args().skip(1).collect();
        if given.iter().any(|argument| argument == "--help" || argument == "-h") {
            for line in source.lines().map_while(|line| line.strip_prefix("//!")) {
                println!("{}", line.strip_prefix(' ').unwrap_or(line));
            }
            std::process::exit(0);
        }
        Self(given)
    }

    /// The word at `place`, where words come first.
    pub fn word(&self, place: usize) -> Option<&str> {
        self.0.get(place).map(String::as_str)
    }

    /// Whether a flag is there.
    pub fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|argument| argument == name)
    }

    /// What follows `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        let place = self.0.iter().position(|argument| argument == name)?;
        self.word(place + 1)
    }

    /// The number that follows `name`, or `default`.
    ///
    /// # Errors
    /// When it is no number.
    pub fn number(&self, name: &str, default: usize) -> Result<usize, Failure> {
        match self.text(name) {
            Some(text) => text.parse().map_err(|_| format!("{name} takes a number and not `{text}`").into()),
            None => Ok(default),
        }
    }
}

/// The machine and what it does beside this, in a line.
pub fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim()).to_owned()
    };
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    format!(
        "{cores} cores, {} (family {}, model {}), Linux {}, load {load}",
        field("model name"),
        field("cpu family"),
        field("model\t"),
        kernel.trim(),
    )
}

/// Keeps the figures in `results/NAME.json` beside this package.
///
/// # Errors
/// When the file cannot be written.
pub fn keep(name: &str, mut figures: Value) -> Result<(), Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    std::fs::create_dir_all(&folder)?;
    if let Some(figures) = figures.as_object_mut() {
        figures.insert(String::from("machine"), Value::from(machine()));
    }
    std::fs::write(folder.join(format!("{name}.json")), format!("{figures:#}\n"))?;
    Ok(())
}

/// Where the engine is: `LEASEHOLD_DYNOXIDE_ENDPOINT`, as `localstack/up dynoxide` prints it.
pub fn endpoint() -> String {
    std::env::var("LEASEHOLD_DYNOXIDE_ENDPOINT").unwrap_or_else(|_| String::from("http://127.0.0.1:8000"))
}

/// A client as a user would configure it.
pub fn client(endpoint: &str) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "benches"))
        .endpoint_url(endpoint)
        .build();
    Client::from_conf(config)
}

/// A DynamoDB store in the table of the benches, which is made if it is not there.
///
/// # Errors
/// When there is no engine.
pub async fn dynamodb(endpoint: &str, batches: bool) -> Result<DynamoDbStore, Failure> {
    let (client, options) = (client(endpoint), DynamoDbOptions::new().with_batches(batches));
    if let Err(error) = DynamoDbStore::create_table(&client, TABLE, &options).await {
        return Err(format!("nothing at {endpoint}: start it with `localstack/up dynoxide` ({error})").into());
    }
    Ok(DynamoDbStore::open_with(client, TABLE, options).await?)
}

/// Opens `memory`, `sqlite:PATH` or `dynamodb:ENDPOINT`.
///
/// # Errors
/// When the store cannot be opened.
pub async fn open(url: &str) -> Result<Arc<dyn LeaseStore>, Failure> {
    match url.split_once(':') {
        None if url == "memory" => Ok(Arc::new(MemoryStore::new())),
        Some(("sqlite", path)) => Ok(Arc::new(SqliteStore::open(path).await?)),
        Some(("dynamodb", endpoint)) => Ok(Arc::new(dynamodb(endpoint, false).await?)),
        _ => Err(format!("no such store: {url}").into()),
    }
}

/// A key that no run before had.
///
/// # Errors
/// When the system gives no random bits.
pub fn fresh_key(name: &str) -> Result<LeaseKey, Failure> {
    let salt = AttemptId::draw(&OsChance)?.get();
    Ok(LeaseKey::new(format!("{name}/{salt:x}"))?)
}
