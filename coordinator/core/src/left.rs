//! What is known of copies that do not count any more: how much of the data each can still hold.

use crate::state::ClusterState;
use archon_types::{Placement, Version};
use serde::{Deserialize, Serialize};

/// How much of a partition's data a copy that does not count can hold. Ordered from worst to best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Condition {
    /// It counted once, and its data is damaged, missing, or was thrown away to be copied anew.
    Gone,
    /// It never counted: a copy under way, with an unknown part of the data.
    Partial,
    /// It is from an older or another state of its node's directory: whole once, nobody knows as of when.
    Older,
    /// It holds everything up to the moment it ceased to count.
    Whole,
}

/// A copy that counted once and does not now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Left {
    /// The row's version at which it ceased to count.
    pub at: Version,
    /// What it holds, never [`Condition::Partial`].
    pub condition: Condition,
}

/// How good a copy that does not count is beside others: by what it can hold, then by when it ceased to count. The
/// greatest is the best.
pub(crate) fn rank(state: &ClusterState, placement: &Placement) -> (Condition, Version) {
    state.left.get(&placement.id).map_or((Condition::Partial, Version::ZERO), |left| (left.condition, left.at))
}

/// What a copy that does not count can hold.
pub(crate) fn condition(state: &ClusterState, placement: &Placement) -> Condition {
    rank(state, placement).0
}
