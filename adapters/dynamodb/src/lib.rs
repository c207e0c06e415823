#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answers;
mod error;
mod options;
mod record;
mod store;
mod table;
mod versions;

pub use options::{DynamoDbOptions, ExpiryPolicy};
pub use store::DynamoDbStore;
pub use table::Created;
