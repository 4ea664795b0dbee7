//! Automatic splits, started when a leader reports that its partition is above a limit of its table.
//!
//! Leaders know the size and load of a partition; the coordinator knows what else is in progress. It starts a split
//! like an operator's, with the same check. Only the counts of abandoned splits are volatile memory of each
//! coordinator.

use crate::command::Command;
use crate::command::edit::{Edit, PartitionChange};
use crate::command::refusals::refused;
use crate::operator::check_split;
use crate::ranges::proposals::{LastProposal, Outcome, Proposals};
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ExceededLimit, Millis, NodeId, Partition, PartitionId};
use bytes::Bytes;

/// Number of splits in progress, including operators', from which on no automatic one starts.
pub(crate) const AT_ONCE_MAX: usize = 4;
/// Outcomes of automatic splits, as far as they matter for the next ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AutomaticSplits {
    proposals: Proposals,
}

impl AutomaticSplits {
    /// Records how ended splits ended.
    pub(crate) fn sync(&mut self, state: &ClusterState, now: Millis) {
        self.proposals.sync(now, |left, last| outcome(state, left, last, now));
    }

    /// Handles a leader's report that its partition should be split at `at`. Returns `None` if it is above no limit any
    /// longer, or a split is in progress.
    ///
    /// # Errors
    /// `Refused`, with the reason why it is not split now: the leader repeats the report.
    pub(crate) fn judge(
        &mut self,
        state: &ClusterState,
        now: Millis,
        row: &Partition,
        at: &Bytes,
        by: ExceededLimit,
    ) -> Result<Option<Command>, ErrorDetail> {
        if !state.range_limits(row.id.table).are_exceeded(by) {
            return Ok(None);
        }
        self.sync(state, now);
        if self.proposals.has(row.id) {
            return Ok(None);
        }
        self.proposals.check_rested(row.id, now, "splits")?;
        self.check_room(state, row)?;
        let plan = check_split(state, row.id, at).map_err(|error| refused(error.message))?;
        self.proposals.begin(row, plan.right, now);
        let edit = Edit::Split { at: at.clone(), right: plan.right.index, outgrown: Some(by) };
        Ok(Some(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)])))
    }

    /// Checks that another split may start: a node copies rows for one split at a time.
    fn check_room(&self, state: &ClusterState, row: &Partition) -> Result<(), ErrorDetail> {
        let proposed = self.proposals.under_way().filter_map(|(left, _)| state.partitions.get(left));
        let proposed = proposed.filter(|left| left.split.is_none());
        let under_way: Vec<&Partition> = state.partitions.splitting().chain(proposed.clone()).collect();
        if under_way.len() >= AT_ONCE_MAX {
            return Err(refused(format!(
                "{} splits are under way, and no more than {AT_ONCE_MAX} begin by themselves",
                under_way.len()
            )));
        }
        if proposed.into_iter().any(|other| other.id.table == row.id.table) {
            return Err(refused("another split of the table begins at this moment".to_owned()));
        }
        let splits = |node: &NodeId| under_way.iter().any(|other| other.placement_on(*node).is_some());
        if let Some(node) = row.placements.iter().map(|copy| copy.node).find(splits) {
            return Err(refused(format!("{} takes part in another split", state.node_name(node))));
        }
        Ok(())
    }
}

/// Returns the outcome of the last proposed split of this partition.
fn outcome(state: &ClusterState, left: PartitionId, last: &LastProposal, now: Millis) -> Outcome {
    let Some(row) = state.partitions.get(left).filter(|_| state.range_limits(left.table).is_set()) else {
        return Outcome::Done;
    };
    if row.split.as_ref().is_some_and(|split| split.right_of(row.id) == last.right) {
        return Outcome::UnderWay;
    }
    if state.partitions.get(last.right).is_some() {
        return Outcome::Done;
    }
    let used = state.tables.get(&row.id.table).is_some_and(|table| table.keys.numbers_end() > last.right.index);
    let others = || state.partitions.splitting().filter_map(|row| Some(row.split.as_ref()?.right_of(row.id)));
    match used {
        true if others().any(|other| other == last.right) => Outcome::Void,
        true => Outcome::GivenUp,
        false if last.may_come(now) => Outcome::UnderWay,
        false => Outcome::Void,
    }
}
