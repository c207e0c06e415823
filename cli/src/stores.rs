//! Where the leases are, and the one room that opens stores.

#[cfg(feature = "aws")]
mod dynamodb;
#[cfg(feature = "aws")]
mod query;

use std::path::Path;
#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;

use leasehold::LeaseStore;

use crate::exit::{self, Failure};

/// The store's URL as it was given. It may hold a password, so it is never printed whole.
pub(crate) struct Place(Option<String>);

/// A store that this build knows how to open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A table of DynamoDB.
    #[cfg(feature = "aws")]
    DynamoDb(Box<dynamodb::Table>),
    /// The file of the embedded store.
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
}

/// The schemes of stores: which one it is, and the feature to build it in with.
const SCHEMES: [(&str, &str, &str); 8] = [
    ("sqlite", "SQLite", "sqlite"),
    ("dynamodb", "DynamoDB", "aws"),
    ("azblob", "Azure Blob", "azure"),
    ("redis", "Redis", "redis"),
    ("etcd", "etcd", "etcd"),
    ("zookeeper", "ZooKeeper", "zookeeper"),
    ("postgres", "PostgreSQL", "postgres"),
    ("mysql", "MySQL", "mysql"),
];

impl Place {
    pub(crate) fn new(url: Option<String>) -> Self {
        Self(url)
    }

    /// The URL, if one was given. To be shown only after [`address`](Self::address) has taken it, which refuses secrets.
    pub(crate) fn url(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Which store it is.
    pub(crate) fn address(&self) -> Result<Address, Failure> {
        match &self.0 {
            None => default_address(),
            Some(url) => address(url),
        }
    }

    /// Opens the store; makes an embedded one that is not there yet.
    pub(crate) async fn open(&self) -> Result<Arc<dyn LeaseStore>, Failure> {
        self.address()?.open().await
    }
}

impl Address {
    pub(crate) async fn open(&self) -> Result<Arc<dyn LeaseStore>, Failure> {
        match *self {
            #[cfg(feature = "aws")]
            Self::DynamoDb(ref table) => table.open().await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(ref path) => Ok(Arc::new(leasehold_sqlite::SqliteStore::open(path).await?)),
        }
    }

    /// Makes the store if it is not there yet. Says whether it was.
    pub(crate) async fn make(&self) -> Result<bool, Failure> {
        match *self {
            #[cfg(feature = "aws")]
            Self::DynamoDb(ref table) => table.make().await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(ref path) => {
                let was_there = path.try_exists().unwrap_or(true);
                leasehold_sqlite::SqliteStore::open(path).await?;
                Ok(was_there)
            }
        }
    }

    /// The file, for a store that is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match *self {
            #[cfg(feature = "aws")]
            Self::DynamoDb(_) => None,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(ref path) => Some(path),
        }
    }
}

/// The features that this version has, built in or not.
const HERE: [&str; 2] = ["sqlite", "aws"];

fn address(url: &str) -> Result<Address, Failure> {
    let misconfigured = |line: String| Err(Failure::new(exit::MISCONFIGURED, line));
    let Some((scheme, rest)) = url.split_once(':') else {
        return misconfigured(format!(
            "the store's URL has no scheme: for a file write `sqlite:PATH`, for example `sqlite:/var/lib/leasehold/leases.db`; known are {}",
            known()
        ));
    };
    match SCHEMES.iter().find(|(known, ..)| *known == scheme) {
        #[cfg(feature = "sqlite")]
        Some(("sqlite", ..)) => sqlite_path(rest).map(Address::Sqlite),
        #[cfg(feature = "aws")]
        Some(("dynamodb", ..)) => {
            dynamodb::Table::parse(&parse(url)?).map(|table| Address::DynamoDb(Box::new(table)))
        }
        Some((_, name, feature)) if HERE.contains(feature) => misconfigured(format!(
            "this build of leasehold has no {name} store: build it with `--features {feature}`"
        )),
        Some((_, name, feature)) => misconfigured(format!(
            "this build of leasehold has no {name} store: it comes with the cargo feature `{feature}`, which version {} does not have yet; `sqlite:PATH` is there",
            env!("CARGO_PKG_VERSION")
        )),
        None => {
            let _ = rest;
            misconfigured(format!("`{scheme}:` is no store that leasehold knows: known are {}", known()))
        }
    }
}

/// The whole of a URL, for a store that is reached over a network.
#[cfg(feature = "aws")]
fn parse(url: &str) -> Result<url::Url, Failure> {
    let parsed = url::Url::parse(url).map_err(|error| {
        Failure::new(
            exit::MISCONFIGURED,
            "the store's URL cannot be read: write `SCHEME://NAME?OPTION=VALUE`",
        )
        .because(&error)
    })?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(Failure::new(
            exit::MISCONFIGURED,
            "the store's URL holds a user or a password: take it out, and give credentials by the environment",
        ));
    }
    Ok(parsed)
}

fn known() -> String {
    SCHEMES.map(|(scheme, ..)| format!("`{scheme}:`")).join(", ")
}

/// `sqlite:PATH` or `sqlite:///PATH`. The path is taken as it is written: nothing is decoded, nothing cut off.
#[cfg(feature = "sqlite")]
fn sqlite_path(rest: &str) -> Result<PathBuf, Failure> {
    let path = match rest.strip_prefix("//") {
        Some(absolute) if absolute.starts_with('/') => absolute,
        Some(_) => {
            return Err(Failure::new(
                exit::MISCONFIGURED,
                "the store's URL names a host, and a SQLite store is a file of this machine: write `sqlite:PATH`, or `sqlite:///PATH` from the root",
            ));
        }
        None => rest,
    };
    if path.is_empty() || path.ends_with('/') {
        return Err(Failure::new(
            exit::MISCONFIGURED,
            "the store's URL names no file: write `sqlite:PATH`, for example `sqlite:/var/lib/leasehold/leases.db`",
        ));
    }
    if path.starts_with(":memory:") || path.starts_with("file:") {
        return Err(Failure::new(
            exit::MISCONFIGURED,
            "the store's URL must name a plain file: a database in memory keeps nobody else away, and SQLite's own URIs are not read",
        ));
    }
    Ok(PathBuf::from(path))
}

#[cfg(feature = "sqlite")]
fn default_address() -> Result<Address, Failure> {
    use etcetera::BaseStrategy as _;

    let folders = etcetera::choose_base_strategy().map_err(|error| {
        Failure::new(
            exit::MISCONFIGURED,
            "there is no home directory to keep the leases in: give --store sqlite:PATH",
        )
        .because(&error)
    })?;
    // Windows has no folder for state; its data is the next best.
    let state = folders.state_dir().unwrap_or_else(|| folders.data_dir());
    Ok(Address::Sqlite(state.join("leasehold").join("leases.db")))
}

#[cfg(not(feature = "sqlite"))]
fn default_address() -> Result<Address, Failure> {
    Err(Failure::new(
        exit::MISCONFIGURED,
        "this build has no embedded store: say with --store where the leases are",
    ))
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_as_it_is_written() {
        for (url, path) in [
            ("sqlite:leases.db", "leases.db"),
            ("sqlite:/var/lib/leases.db", "/var/lib/leases.db"),
            ("sqlite:///var/lib/leases.db", "/var/lib/leases.db"),
            ("sqlite:100%25?mode=ro#x", "100%25?mode=ro#x"),
        ] {
            assert_eq!(address(url).unwrap(), Address::Sqlite(PathBuf::from(path)));
        }
    }

    #[test]
    fn what_is_no_store_says_what_to_do_and_no_secret() {
        for (url, expected) in [
            ("leases.db", "`sqlite:PATH`"),
            ("hunter2", "`sqlite:PATH`"),
            ("sqlite:", "names no file"),
            ("sqlite:folder/", "names no file"),
            ("sqlite://server/leases.db", "names a host"),
            ("sqlite::memory:", "keeps nobody else away"),
            ("sqlite:file:x?mode=memory", "keeps nobody else away"),
            ("azblob://user:hunter2@account/leases", "feature `azure`"),
            ("redis://:hunter2@localhost", "feature `redis`"),
            ("postgres://app:hunter2@db/leases", "feature `postgres`"),
            ("consul://hunter2", "known are `sqlite:`, `dynamodb:`"),
        ] {
            let failure = address(url).unwrap_err();
            let line = failure.to_string();
            assert!(line.contains(expected), "{url}: {line}");
            assert!(!line.contains("hunter2") && !line.contains('\n'), "{url}: {line}");
            assert_eq!(failure.code(), exit::MISCONFIGURED, "{url}");
        }
    }
    #[cfg(not(feature = "aws"))]
    #[test]
    fn a_store_that_is_not_built_in_names_the_feature() {
        let line = address("dynamodb://leases").unwrap_err().to_string();
        assert!(line.contains("--features aws"), "{line}");
    }

    #[cfg(feature = "aws")]
    #[test]
    fn a_table_has_an_address_and_a_secret_has_no_place_in_it() {
        assert!(matches!(address("dynamodb://leases?region=eu-west-1"), Ok(Address::DynamoDb(_))));
        for url in [
            "dynamodb://me:hunter2@leases",
            "dynamodb://hunter2@leases",
            "dynamodb:leases",
            "dynamodb://leases?key=hunter2&x=hunter2",
        ] {
            let line = address(url).unwrap_err().to_string();
            assert!(!line.contains("hunter2"), "{url}: {line}");
        }
    }
}
