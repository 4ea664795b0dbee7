//! Placement of copies: first assignment, plans, replacement of missing copies, and moves.

pub(crate) mod assign;
pub(crate) mod eligible_nodes;
pub(crate) mod migrate;
pub(crate) mod next_leader;
pub(crate) mod out_of_sync;
pub(crate) mod plan;
pub(crate) mod plan_summary;
pub(crate) mod repair;
pub(crate) mod score;
pub(crate) mod shortfall;
pub(crate) mod waits;
pub(crate) mod withheld_repair;
