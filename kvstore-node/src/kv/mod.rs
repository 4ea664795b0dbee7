//! What the replicated entries mean: operations are evaluated once by the leader into blind effects, which every replica
//! applies alike.

pub mod dedup;
pub mod effect;
pub mod evaluate;
pub mod recent;
pub mod row;
#[cfg(test)]
mod rows;
pub mod view;

pub use dedup::{ClientIndex, DedupLimits};
pub use effect::{Effect, EffectError, RowChange};
pub use evaluate::{Evaluation, Request, evaluate};
pub use recent::{Recent, RecentBudget, RecentError};
pub use view::{PartitionView, Reader, View, ViewError};
