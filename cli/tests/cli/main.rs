//! The `leasehold` binary, from outside: real processes, real signals, real terminals, a real file.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[cfg(feature = "aws")]
mod dynamodb;
mod endings;
mod misfortunes;
mod outliving;
mod show;
mod support;
#[cfg(target_os = "linux")]
mod terminals;
mod waiting;
