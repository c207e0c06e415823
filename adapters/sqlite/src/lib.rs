#![doc = include_str!("../README.md")]

mod boot;
mod check;
mod database;
mod error;
mod file;
mod judge;
mod options;
mod record;
mod room;
mod schema;
mod store;
mod worker;

pub use options::SqliteOptions;
pub use store::SqliteStore;
