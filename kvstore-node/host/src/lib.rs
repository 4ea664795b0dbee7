//! Partitions of one node: everything around a replica, without clocks, disks, sockets or threads.
//!
//! A replica decides for one copy of a partition. A node has many copies, a lease, duties from its coordinator, waiting
//! clients and a log that it may trim; this crate decides what follows from these. [`Partitions`] holds the copies and
//! calls the outside world through [`Shell`], which has two implementations: a shard of the node
//! (`kvstore-node/src/shard/shell.rs`) and a machine of the simulator (`simulator/src/host/shell.rs`). In tests, a
//! [`Broken`] disables one of the rules in `mutant.rs`.
//!
//! | Module | Responsibility |
//! |---|---|
//! | `partitions` | state of one node thread, and all operations on it |
//! | `duty` | open, configure, set aside and delete copies |
//! | `operate` | evaluate and answer client operations |
//! | `forward` | forward operations to another node |
//! | `park` | hold operations until a leadership settles |
//! | `stale` | reads at copies that do not lead |
//! | `snapshot` | snapshots that a leader serves |
//! | `remember` | client records of a partition |
//! | `turn` | carry out the outputs of a replica |
//! | `persist` | writes to the log |
//! | `copying`, `pull` | serving and pulling of copies |
//! | `form`, `forming` | form a copy of a new partition from a copy of its parent |
//! | `local_copy` | one copy on its node: its replica and the state around it |
//! | `copy_view` | read-only view of a copy |
//! | `split` | seals in a leader's log for keys that its row gives away, and the copies formed of them |
//! | `split_point`, `heat`, `key_sample`, `byte_halves` | when and where a leader proposes a split |
//! | `middle` | split key for an operator's split |
//! | `yielding`, `absorb` | move the rows of a partition into the log of its left neighbour |
//! | `unreadable` | copies with an entry that this version cannot read |
//! | `emptied` | reports of reset copies, which must not lead |
//! | `applied_push` | filter for pushes |
//! | `reconcile` | actions that follow from duties, given the copies held |
//! | `retention` | how much of a copy's log is kept, and for which copies |
//! | `waiting` | pending answers, and their outcome if a leadership ends |

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
