//! What is special about this store; what all stores have in common is in `conformance.rs`.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod admin;
mod contention;
mod disk;
mod foreign_rows;
mod keys;
mod opening;
mod reboot;
mod replaced_file;
mod rig;
