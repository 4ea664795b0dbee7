//! One node's partitions: what surrounds a replica, without clocks, disks, sockets or threads.
//!
//! A replica decides what one copy of a partition does. A node has many copies, a lease, duties from its coordinator, clients
//! that wait and a log that it may forget. What follows from these is decided here. [`Partitions`] has the copies; whatever it
//! needs of the world it calls for through [`Shell`], of which there are two: a shard of the node
//! (`kvstore-node/src/shard/shell.rs`) and a machine of the simulator (`simulator/src/host/shell.rs`). A [`Broken`] takes
//! one of the rules in `mutant.rs` away, in tests alone.
//!
//! | Module | What it decides |
//! |---|---|
//! | `partitions` | what a node's thread has, and everything that can be done with it |
//! | `duty` | how copies are opened, configured, set aside and deleted |
//! | `operate` | how clients' operations are evaluated and answered |
//! | `forward` | which operations are passed on to another node, and to which |
//! | `park` | which operations wait for a leadership to settle |
//! | `stale` | what a copy shows that need not lead |
//! | `snapshot` | of what a leader gives a snapshot |
//! | `remember` | whom a partition remembers |
//! | `turn` | how what a replica wants is carried out |
//! | `persist` | what is written to the log |
//! | `copying`, `pull` | how copies are given and pulled |
//! | `form`, `forming` | how a copy of a new partition is formed from one of the partition that it is split from |
//! | `local_copy` | one copy on its node: its replica and what is kept around it |
//! | `copy_view` | what the others need to know of it |
//! | `split` | what a leader's log says of keys that its row gives away, and what is formed of them |
//! | `split_point`, `heat`, `key_sample`, `byte_halves` | when a leader says that its partition should be split, and where |
//! | `middle` | where the middle of a partition is that an operator wants to split |
//! | `yielding`, `absorb` | how the rows of a partition come into the log of its left neighbour |
//! | `unreadable` | copies with an entry that this version does not read |
//! | `emptied` | when it is said that a copy has thrown its data away, and that it may not lead |
//! | `applied_push` | which pushes are applied |
//! | `reconcile` | what follows from duties, given what is held |
//! | `retention` | how much of a copy's log is kept, and for whom |
//! | `waiting` | who is answered when, and with what if a leadership ends |

mod absorb;
mod applied_push;
mod byte_halves;
mod copy_view;
mod copying;
mod duty;
mod emptied;
mod form;
mod forming;
mod forward;
mod heat;
mod key_sample;
mod local_copy;
mod log_write;
mod middle;
mod mutant;
mod operate;
mod park;
mod partitions;
mod persist;
mod pull;
mod reconcile;
mod refusal;
mod remember;
mod request;
mod retention;
mod shell;
mod snapshot;
mod split;
mod split_off;
mod split_point;
mod stale;
#[cfg(test)]
mod test_shell;
mod turn;
mod undersized;
mod unreadable;
mod waiting;
mod yielding;

pub use applied_push::{AppliedPush, Pushed};
pub use byte_halves::ByteHalves;
pub use copy_view::CopyView;
pub use copying::{CopyAsk, CopyJob, CopyPage, CopyStart, Offered};
pub use emptied::Emptied;
pub use form::FormJob;
pub use forming::{FormStep, FormedPart, Forming};
pub use forward::{Origin, PassedOn};
pub use local_copy::{ENGINE_AHEAD_UNKNOWN, FlushUrgency, Found, LocalCopy, Outcome};
pub use log_write::LogWrite;
pub use mutant::Broken;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use park::ParkLimits;
pub use partitions::{Completes, Partitions};
pub use persist::unreadable;
pub use reconcile::{Action, Held, HeldState, Reconciled, UNKNOWN, reconcile};
pub use refusal::{Cause, CopyRefusal, Refusal};
pub use request::{Reply, Request, WaitsFor};
pub use retention::{LogClock, Pin, Retention, RetentionLimits};
pub use shell::{At, Life, Observed, Shell};
pub use snapshot::SnapshotStart;
pub use split_off::FormedCopy;
pub use split_point::SplitSearch;
pub use stale::StaleRow;
pub use waiting::{Ended, Pending, ReadyAnswer, Waiting};
pub use yielding::{YieldAsk, YieldPage};
