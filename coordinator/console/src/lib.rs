//! Web console: a JSON interface under `/api/v1/` for people and scripts, and a page that shows the current state of
//! the cluster.
//!
//! A console is an ordinary client of the cluster, run beside each coordinator: it calls the leading coordinator, so
//! every coordinator gives the same answers, and it survives changes of the leader. It has its own thread, so its
//! load does not delay Raft and heartbeats.

mod api;
mod cluster;
mod connections;
mod console;
mod documents;
mod error;
mod feed;
mod guard;
mod page;

pub use api::description;
pub use cluster::ConsoleConfig;
pub use console::{Console, STOP_DEADLINE};
pub use documents::{Entry, ValueText};
