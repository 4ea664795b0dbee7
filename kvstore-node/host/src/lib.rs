//! Partitions of one node: everything around a replica, without clocks, disks, sockets or threads.
//!
//! A replica decides for one copy of a partition. A node has many copies, a lease, duties from its coordinator, waiting
//! clients and a log that it may trim; this crate decides what follows from these. [`Partitions`] holds the copies and
//! calls the outside world through [`Shell`], which has two implementations: a shard of the node
//! (`kvstore-node/src/shard/shell.rs`) and a machine of the simulator (`checks/simulator/src/host/shell.rs`). In tests, a
//! [`DisabledRule`] disables one of the rules in `mutant.rs`.
//!
//! | Module | Responsibility |
//! |---|---|
//! | `partitions` | state of one node thread, and all operations on it |
//! | `turn` | carry out the outputs of a replica |
//! | `persist`, `log_write` | writes to the log |
//! | `shell` | interface to clocks, disks and the network |
//! | **`operations/`** | client operations |
//! | `operate` | evaluate and answer client operations |
//! | `forward` | forward operations to another node |
//! | `park` | hold operations until a leadership settles |
//! | `stale` | reads at copies that do not lead |
//! | `snapshot` | snapshots that a leader serves |
//! | `remember` | client records of a partition |
//! | `waiting` | pending answers, and their outcome if a leadership ends |
//! | **`copies/`** | copies of partitions |
//! | `local_copy`, `copy_view` | one copy on its node: its replica and the state around it |
//! | `duty`, `reconcile`, `applied_push` | from a push to actions: open, configure, set aside and delete copies |
//! | `copying`, `pull` | serving and pulling of copies |
//! | `emptied` | reports of reset copies, which must not lead |
//! | `unreadable` | copies with an entry that this version cannot read |
//! | `retention` | how much of a copy's log is kept, and for which copies |
//! | **`ranges/`** | splits and merges |
//! | `split`, `split_off` | seals in a leader's log for keys that its row gives away, and the copies formed of them |
//! | `split_point`, `heat`, `key_sample`, `byte_halves` | when and where a leader proposes a split |
//! | `middle` | split key for an operator's split |
//! | `form`, `forming` | form a copy of a new partition from a copy of its parent |
//! | `yielding`, `absorb` | move the rows of a partition into the log of its left neighbour |
//! | `undersized` | when a leader proposes a merge |

mod copies;
mod log_write;
mod mutant;
mod operations;
mod partitions;
mod persist;
mod ranges;
mod shell;
#[cfg(test)]
mod test_shell;
mod turn;

pub use copies::applied_push::{AppliedPush, PushVerdict};
pub use copies::copy_view::CopyView;
pub use copies::local_copy::{ENGINE_AHEAD_UNKNOWN, FlushUrgency, LocalCopy, RecoveredCopy};
pub use copies::log_replay::LogReplay;
pub use copies::pages::{CopyAsk, CopyJob, CopyPage, CopyStart, OfferResult};
pub use copies::reconcile::{Action, HeldPlacement, HeldState, ReconcileResult, UNKNOWN, reconcile};
pub use copies::reset_report::ResetReport;
pub use copies::retention::{LogClock, Pin, Retention, RetentionLimits};
pub use log_write::LogWrite;
pub use mutant::DisabledRule;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use operations::forward::PassedOn;
pub use operations::park_limits::ParkLimits;
pub use operations::refusal::{Cause, CopyRefusal, Refusal};
pub use operations::request::{Origin, Outcome, Reply, Request, WaitsFor};
pub use operations::snapshot::SnapshotStart;
pub use operations::stale::StaleRow;
pub use operations::waiting_clients::{PendingAnswer, ReadyAnswer, UnansweredOutcome, WaitingClients};
pub use partitions::{Completions, Partitions};
pub use ranges::byte_halves::ByteHalves;
pub use ranges::cleared_spaces::ClearedSpaces;
pub use ranges::form::FormJob;
pub use ranges::forming_copy::{FormStep, FormedPart, FormingCopy};
pub use ranges::split_watch::SplitSearch;
pub use ranges::split_work::FormedCopy;
pub use ranges::yield_page::{YieldAsk, YieldPage};
pub use shell::{CopyEvent, CopyLocation, NodeRegistration, REPLICA_LAG_MS_MAX, Shell};
