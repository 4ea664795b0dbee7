//! The replication state machine of one replica of one partition.
//!
//! A pure machine: values in ([`Input`]), values out ([`Output`]). It reads no clock, sends nothing and writes nothing;
//! the shell around it does, and tells it what happened. Entries are opaque bytes: it does not know what a key is. The
//! rules it carries out are those of the replication protocol (primary-backup, acknowledged by *all* Live replicas);
//! where a rule is meant, its number is in the comment.
//!
//! # One turn of the shell
//! 1. Any number of [`Replica::step`] calls, each with one input.
//! 2. One [`Replica::flush`], which emits what was gathered: at most one [`Output::Persist`], and for every follower few
//!    messages that carry many entries each.
//! 3. The outputs are carried out **in order**.
//!
//! # Where things are
//! | file | what it decides |
//! |---|---|
//! | `replica`, `status` | dispatch, configuration, stepping down; what it tells about itself |
//! | `log` | which positions are held, the point of match |
//! | `writes` | what is on its way to the disk, what is durable |
//! | `takeover` | how a new leader gets every follower to hold its log before it serves (rule 9) |
//! | `lead`, `progress` | proposals, appends, acknowledgements, commit |
//! | `hand_over` | giving the leadership up (rule 12) |
//! | `follow` | which appends are accepted, what is cut (rule 10) |
//! | `load` | catching up by copy when the leader's log does not reach back |
//! | `live_set` | who counts, requests to add and to drop (rules 1–6) |
//! | `confirm` | reads without a lease (rule 18) |
//! | `invariants` | what must hold, one property per file |

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
mod overtaken;
mod progress;
mod replica;
mod status;
mod takeover;
mod writes;

#[cfg(test)]
mod tests;

pub use input::{Configuration, Identity, Input, Limits, Peer, Recovered, RecoveredError, Run, Timing};
pub use message::{Body, Entry, Message, Position, ReplicaAddress};
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use output::{Alarm, Output, Record};
pub use replica::Replica;
pub use status::ReplicaStatus;
