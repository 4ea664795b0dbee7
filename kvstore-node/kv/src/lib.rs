//! Meaning of replicated entries: the leader evaluates operations once into effects (blind row changes, and records that
//! windows of clients are joined with), which every replica applies alike. Pure: no clock, no randomness, no I/O; stored
//! rows come in through the engine trait.

pub mod engine;
mod exactly_once;
pub mod memory;
mod mutant;
pub mod numbers;
mod operations;
mod ranges;
mod rows;

pub use engine::Engine;
pub use exactly_once::client_index::{ClientCapacity, ClientIndex, ForgottenClients};
pub use exactly_once::dedup::DedupLimits;
pub use exactly_once::window::{Piece, Pieces, Record, Window};
pub use memory::MemoryEngine;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use operations::effect;
pub use operations::effect::{Effect, EffectError, RowChange};
pub use operations::evaluate::{Evaluation, Request, evaluate, evaluate_elsewhere, evaluate_merged};
pub use operations::leadership::{Leadership, ReadMode};
pub use operations::log_time::LogTime;
pub use ranges::merge_record::MergeRecord;
pub use ranges::reshape;
pub use ranges::seal::Seal;
pub use rows::expiry_index::ExpiryIndex;
pub use rows::frozen_rows::FrozenRows;
pub use rows::growth::Growth;
pub use rows::memtable::{Memtable, MemtableError};
pub use rows::memtable_budget::MemtableBudget;
pub use rows::row;
pub use rows::view::{ClientPage, PartitionView, Reader, View, ViewError, engine_position};
