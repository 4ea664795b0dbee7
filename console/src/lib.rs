//! What people and scripts reach by HTTP: an interface in JSON under `/api/v1/`, and a page that shows the cluster as it is now.
//!
//! A console is a client of the cluster like any other, which each coordinator runs beside itself: it asks whoever leads, so that every
//! coordinator answers the same, and it goes on while the leader changes. It has a thread of its own; whatever it is asked for, Raft and
//! heartbeats do not wait for it.

mod api;
mod connections;
mod console;
mod documents;
mod error;
mod feed;
mod guard;
mod in_plaintext;
mod page;

pub use api::description;
pub use console::{Console, ConsoleConfig, STOP_DEADLINE};
pub use documents::{Entry, ValueText};
