//! The replication state machine of one replica of one partition.
//!
//! A pure machine: values in ([`Input`]), values out ([`Output`]). It reads no clock, sends nothing and writes nothing;
//! the shell around it does that and reports the events. Entries are opaque bytes: it does not know what a key is. It
//! implements the rules of the replication protocol (primary-backup, acknowledged by *all* Live replicas); comments
//! cite them by number.
//!
//! # One turn of the shell
//! 1. Any number of [`Replica::step`] calls, each with one input.
//! 2. One [`Replica::flush`], which emits what was gathered: at most one [`Output::Persist`], and for every follower few
//!    messages that carry many entries each.
//! 3. The outputs are carried out **in order**.
//!
//! # Modules
//! | file | responsibility |
//! |---|---|
//! | `replica`, `status` | dispatch, configuration, stepping down; its status |
//! | `log` | positions held, the point of match |
//! | `writes` | writes on their way to the disk, and durable ones |
//! | `takeover` | makes every follower hold a new leader's log before it serves (rule 9) |
//! | `lead`, `progress` | proposals, appends, acknowledgements, commit |
//! | `hand_over` | gives the leadership up (rule 12) |
//! | `follow` | appends accepted, entries cut (rule 10) |
//! | `load` | catch-up by copy when the leader's log does not reach back |
//! | `live_set` | counted replicas, requests to add and to drop (rules 1–6) |
//! | `confirm` | reads without a lease (rule 18) |
//! | `invariants` | invariants, one property per file |

pub mod invariants;

mod confirm;
mod follow;
mod hand_over;
mod input;
mod lead;
mod live_set;
mod load;
mod log;
mod message;
mod mutant;
mod output;
mod overtaken_report;
mod progress;
mod replica;
mod status;
mod takeover;
mod writes;

#[cfg(test)]
mod tests;

pub use input::{Configuration, Identity, Input, Limits, Peer, RecoveredError, RecoveredState, Run, Timing};
pub use message::{Body, Entry, Message, Position, ReplicaAddress};
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use output::{Alarm, Output, Record};
pub use replica::Replica;
pub use status::ReplicaStatus;
