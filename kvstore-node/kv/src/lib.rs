//! Meaning of replicated entries: the leader evaluates operations once into blind effects, which every replica applies
//! alike. Pure: no clock, no randomness, no I/O; stored rows come in through the engine trait.

mod clears;
pub mod client_index;
mod client_rows;
pub mod dedup;
pub mod effect;
pub mod engine;
pub mod evaluate;
mod frozen;
mod growth;
pub mod leadership;
pub mod log_time;
pub mod memory;
pub mod memtable;
mod memtable_budget;
mod merged;
mod mutant;
mod newer;
pub mod reshape;
pub mod row;
mod row_map;
#[cfg(test)]
mod rows;
mod seal;
mod trend;
pub mod view;

pub use client_index::{ClientCapacity, ClientIndex, Forgetting};
pub use dedup::DedupLimits;
pub use effect::{Effect, EffectError, RowChange};
pub use engine::Engine;
pub use evaluate::{Evaluation, Request, evaluate, evaluate_elsewhere, evaluate_merged};
pub use frozen::Frozen;
pub use growth::Growth;
pub use leadership::{Leadership, Reading};
pub use log_time::LogTime;
pub use memory::MemoryEngine;
pub use memtable::{Memtable, MemtableError};
pub use memtable_budget::{MemtableBudget, RECENT_BYTES_MAX};
pub use merged::Merged;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use seal::Seal;
pub use view::{PartitionView, Reader, View, ViewError};
