//! One node's partitions: what surrounds a replica, without clocks, disks, sockets or threads.
//!
//! A replica decides what one copy of a partition does. A node has many copies, a lease, duties from its coordinator, clients
//! that wait and a log that it may forget. What follows from these is decided here and returned as values; the node's shards
//! and the simulator's machines (`simulator/src/host`) drive the same code. A [`Broken`] takes one of the rules in `mutant.rs` away, in
//! tests alone.
//!
//! | Module | What it decides |
//! |---|---|
//! | `copy` | what one copy is to its node |
//! | `emptied` | when it is said that a copy has thrown its data away |
//! | `grants` | what the node's lease covers |
//! | `obeyed` | which pushes are obeyed |
//! | `reconcile` | what follows from duties, given what is held |
//! | `retention` | how much of a copy's log is kept, and for whom |
//! | `session/` | registering, heartbeats and reports: which answers count, and what is said again |
//! | `waiting` | who is answered when, and with what if a leadership ends |

mod copy;
mod emptied;
mod grants;
mod mutant;
mod obeyed;
mod reconcile;
mod retention;
mod session;
mod waiting;

pub use copy::Copy;
pub use emptied::Emptied;
pub use grants::{Grants, Taken};
pub use mutant::Broken;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use obeyed::{Obeyed, Pushed};
pub use reconcile::{Action, Held, HeldState, Reconciled, UNKNOWN, reconcile};
pub use retention::{Pin, Retention, RetentionLimits};
pub use session::{Again, Beat, Beats, Grant, Registering, Reports};
pub use waiting::{Answer, Ended, Pending, Waiting};
