//! Serves the crate `dynoxide-rs`, a DynamoDB engine on SQLite, on one loopback address.
//!
//! ```text
//! leasehold-dynoxide --listen 127.0.0.1:8000 [--db-path FILE]
//! ```
//!
//! Without `--db-path` the data lives in memory and ends with the process. Nothing is printed while
//! all is well. SIGTERM and SIGINT stop it once running requests have been answered. It removes no
//! item whose time-to-live has passed: AWS may take days, and no lease may depend on it.

use std::net::SocketAddr;
use std::process::ExitCode;

use dynoxide::Database;
use dynoxide::server::{ServerOptions, start_with_options};

const USAGE: &str = "usage: leasehold-dynoxide --listen 127.0.0.1:PORT [--db-path FILE]";

fn main() -> ExitCode {
    match Options::from_args(std::env::args().skip(1)).and_then(|options| serve(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("leasehold-dynoxide: {message}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> Result<(), String> {
    let database = match &options.db_path {
        Some(path) => Database::new(path).map_err(|e| format!("cannot open {path}: {e}"))?,
        None => Database::memory().map_err(|e| format!("cannot open a database in memory: {e}"))?,
    };
    // Two workers: the engine answers one request at a time anyway, and threads cost memory.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start: {e}"))?;
    runtime.block_on(start_with_options(
        &options.listen.ip().to_string(),
        options.listen.port(),
        database,
        ServerOptions::quiet(),
    ))
}

struct Options {
    listen: SocketAddr,
    db_path: Option<String>,
}

impl Options {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut listen, mut db_path) = (None, None);
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| USAGE.to_owned())?;
            match flag.as_str() {
                "--listen" => listen = Some(loopback(&value)?),
                "--db-path" => db_path = Some(value),
                _ => return Err(USAGE.to_owned()),
            }
        }
        let listen = listen.ok_or_else(|| USAGE.to_owned())?;
        Ok(Self { listen, db_path })
    }
}

/// It checks no signature, so it is not to be reached from another machine. In a container the
/// container's own network is that border, and the image sets LEASEHOLD_IN_CONTAINER.
fn loopback(value: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        value.parse().map_err(|_| format!("'{value}' is not an address such as 127.0.0.1:8000"))?;
    if !address.ip().is_loopback() && std::env::var_os("LEASEHOLD_IN_CONTAINER").is_none() {
        return Err(format!("{address} is not a loopback address; use 127.0.0.1"));
    }
    Ok(address)
}
