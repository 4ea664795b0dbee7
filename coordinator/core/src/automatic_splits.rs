//! Splits that nobody asked for: what becomes of it when a leader says that its partition is above a limit of its table.
//!
//! Leaders know how much a partition holds, and what is asked of it; the coordinator knows what else is going on. What it begins is
//! a split like an operator's, judged by the same check, and goes on by itself. Only how often one was given up is each coordinator's
//! own memory.

use crate::apply::refused;
use crate::command::Command;
use crate::edit::{Edit, PartitionChange};
use crate::operate::check_split;
use crate::rest::{REST_MS_MAX, rest_ms};
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ErrorKind, Millis, NodeId, Outgrown, Partition, PartitionId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Most splits under way, operators' included, beside which another one begins by itself.
pub(crate) const AT_ONCE_MAX: usize = 4;
/// How long a proposal may be under way to the state, in milliseconds: after that it is taken for void.
const PROPOSAL_MS: u64 = 1_000;
/// What became of splits that began by themselves, as far as it matters for the next ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AutomaticSplits {
    proposals: BTreeMap<PartitionId, LastProposal>,
}

/// The last split of a partition that began by itself, until it does not matter for the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LastProposal {
    /// The number that the new partition was to have.
    right: u32,
    /// When the last one was proposed.
    proposed: Millis,
    /// How many were given up, one after the other.
    given_up: u32,
    /// The last one is over, and there is none before that.
    again_at: Option<Millis>,
}

impl AutomaticSplits {
    /// Takes note of how those ended that are over.
    pub(crate) fn sync(&mut self, state: &ClusterState, now: Millis) {
        self.proposals.retain(|left, last| {
            let Some(row) = state.partitions.get(*left).filter(|_| state.range_limits(left.table).is_set()) else {
                return false;
            };
            match (last.again_at, outcome(state, row, last, now)) {
                (Some(again_at), _) => now.since(again_at) < REST_MS_MAX,
                (None, Outcome::UnderWay) => true,
                (None, Outcome::Done) => false,
                (None, Outcome::Void) => {
                    last.again_at = Some(now);
                    last.given_up > 0
                }
                (None, Outcome::GivenUp) => {
                    last.given_up += 1;
                    last.again_at = Some(now.plus(rest_ms(last.given_up)));
                    true
                }
            }
        });
    }

    /// What to do when its leader says that the partition of this row should be split at `at`. `None`: nothing, for it is above no
    /// limit any more, or that is under way.
    ///
    /// # Errors
    /// `Refused`, with why it is not split now: the leader says it again.
    pub(crate) fn judge(
        &mut self,
        state: &ClusterState,
        now: Millis,
        row: &Partition,
        at: &Bytes,
        by: Outgrown,
    ) -> Result<Option<Command>, ErrorDetail> {
        if !state.range_limits(row.id.table).are_exceeded(by) {
            return Ok(None);
        }
        self.sync(state, now);
        let given_up = match self.proposals.get(&row.id) {
            Some(LastProposal { again_at: None, .. }) => return Ok(None),
            Some(last) if last.again_at.is_some_and(|again_at| now < again_at) => {
                let left_ms = last.again_at.map_or(0, |again_at| again_at.since(now));
                return Err(refused(format!(
                    "{} splits of it were given up; there is none by itself for {left_ms} ms",
                    last.given_up
                )));
            }
            last => last.map_or(0, |last| last.given_up),
        };
        self.check_room(state, row)?;
        let plan = check_split(state, row.id, at).map_err(|error| refused(error.message))?;
        let right = plan.right.index;
        self.proposals.insert(row.id, LastProposal { right, proposed: now, given_up, again_at: None });
        let edit = Edit::Split { at: at.clone(), right, outgrown: Some(by) };
        Ok(Some(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)])))
    }

    /// Whether one more may begin beside those that are under way: a node copies rows for one at a time.
    fn check_room(&self, state: &ClusterState, row: &Partition) -> Result<(), ErrorDetail> {
        let proposed = self.proposals.iter().filter(|(_, last)| last.again_at.is_none()).map(|(left, _)| *left);
        let proposed = proposed.filter_map(|left| state.partitions.get(left)).filter(|left| left.split.is_none());
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

enum Outcome {
    /// Or on its way into the state.
    UnderWay,
    /// The new partition is there.
    Done,
    /// It never began.
    Void,
    /// It began, and nothing came of it.
    GivenUp,
}

fn outcome(state: &ClusterState, row: &Partition, last: &LastProposal, now: Millis) -> Outcome {
    let right = PartitionId::new(row.id.table, last.right);
    if row.split.as_ref().is_some_and(|split| split.right == last.right) {
        return Outcome::UnderWay;
    }
    if state.partitions.get(right).is_some() {
        return Outcome::Done;
    }
    let used = state.tables.get(&row.id.table).is_some_and(|table| table.keys.numbers_end() > last.right);
    let others = || state.partitions.splitting().filter_map(|row| Some(row.split.as_ref()?.right_of(row.id)));
    match used {
        true if others().any(|other| other == right) => Outcome::Void,
        true => Outcome::GivenUp,
        false if now.since(last.proposed) < PROPOSAL_MS => Outcome::UnderWay,
        false => Outcome::Void,
    }
}

/// What is answered to somebody who wants the partitions of a lease table split or merged.
pub(crate) fn of_leases(table: &str) -> ErrorDetail {
    let message = format!("table {table} is of leases: it has no keys, and its number of partitions stays");
    ErrorDetail::new(ErrorKind::InvalidArgument, message)
}

/// What is answered to somebody who wants the partitions of a table split or merged by themselves whose keys are hashed.
pub(crate) fn hashed(table: &str) -> ErrorDetail {
    let message = format!(
        "the keys of table {table} are hashed, so that no partition is split or merged; only a table made with --range has limits"
    );
    ErrorDetail::new(ErrorKind::InvalidArgument, message)
}
