//! The proxy between a real client and a real server, each knowing what it saw.

#[expect(clippy::unwrap_used, reason = "only tests use it")]
mod common;
mod faults;
mod line;
mod script;
