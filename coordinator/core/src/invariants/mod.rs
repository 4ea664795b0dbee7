//! Invariants of every state and every step, one property per file; shared by unit tests, property tests and the
//! simulator.

mod controls;
mod dropped;
mod indexes;
mod last_copy;
mod leader_counts;
mod leases;
mod leases_stay;
mod live_set;
mod merges;
mod monotone;
mod one_copy_per_node;
mod one_life;
mod one_plan;
mod placement_ids;
mod quorum;
mod ranges_tile;
mod splits;
mod spoken;
pub(crate) mod violation;

use crate::invariants::violation::Violation;
use crate::state::ClusterState;

/// Checks all invariants of a state.
///
/// # Errors
/// The first violation found.
pub fn check(state: &ClusterState) -> Result<(), Violation> {
    leader_counts::check(state)?;
    one_copy_per_node::check(state)?;
    placement_ids::check(state)?;
    live_set::check(state)?;
    leases::check(state)?;
    one_plan::check(state)?;
    one_life::check(state)?;
    controls::check(state)?;
    dropped::check(state)?;
    ranges_tile::check(state)?;
    splits::check(state)?;
    merges::check(state)?;
    quorum::check(state)?;
    spoken::check(state)?;
    indexes::check(state)
}

/// Checks all invariants between a state and any later one.
///
/// # Errors
/// The first violation found.
pub fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    monotone::check(before, after)?;
    placement_ids::check_step(before, after)?;
    live_set::check_step(before, after)?;
    dropped::check_step(before, after)?;
    splits::check_step(before, after)?;
    merges::check_step(before, after)?;
    quorum::check_step(before, after)?;
    leases_stay::check_step(before, after)?;
    spoken::check_step(before, after)?;
    last_copy::check_step(before, after)
}
