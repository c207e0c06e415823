#![doc = include_str!("../README.md")]

mod answer;
pub mod azure;
mod connection;
mod date;
pub mod dynamodb;
mod fault;
mod matcher;
mod plan;
mod proxy;
mod recorded;
mod server;
mod service_clock;
mod state;
mod tasks;

pub use bytes::Bytes;
pub use hyper::header::{HeaderMap, HeaderName, HeaderValue};
pub use hyper::{Method, StatusCode};

pub use answer::Answer;
pub use fault::Fault;
pub use matcher::Matcher;
pub use proxy::Proxy;
pub use recorded::{Outcome, Recorded};
