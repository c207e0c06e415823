#![cfg_attr(feature = "client", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "client"),
    doc = "Leases with fencing tokens on Azure Blob Storage, on a port of yours."
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "client")]
mod account;
mod answers;
mod check;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod discreet;
mod error;
mod name;
mod native;
mod native_admin;
mod options;
pub mod port;
mod record;
mod recorded;
mod seen;
#[cfg(feature = "client")]
mod shared_key;
mod store;

#[cfg(feature = "client")]
pub use account::Account;
#[cfg(feature = "client")]
pub use client::AzureClient;
pub use options::{AzureBlobOptions, Mode, TokenSource};
pub use store::AzureBlobStore;
