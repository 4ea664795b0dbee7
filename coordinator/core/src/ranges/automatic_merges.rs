//! Automatic merges, started when leaders report that their partitions have been small for a while.
//!
//! Leaders know the size and load of a partition; the coordinator knows which neighbours are small, too. It starts a
//! merge like an operator's, with the same check. Reports of leaders and counts of abandoned merges are volatile memory
//! of each coordinator.

use crate::command::Command;
use crate::command::edit::{Edit, PartitionChange};
use crate::command::refusals::refused;
use crate::operator::check_merge;
use crate::ranges::proposals::{LastProposal, Outcome, Proposals};
use crate::state::ClusterState;
use archon_types::{ErrorDetail, LowUsage, Millis, Partition, PartitionId, RangeLimits, TableId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Number of merges in progress, including operators', from which on no automatic one starts.
pub(crate) const AT_ONCE_MAX: usize = 4;
/// Validity of a leader's report, in milliseconds: leaders repeat it three times in that time.
pub(crate) const WORD_MS: u64 = 30_000;
/// Small partitions and the outcomes of automatic merges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AutomaticMerges {
    /// By first key, so that neighbours are found at once.
    small: BTreeMap<(TableId, Bytes), SmallPartition>,
    /// Time at which expired reports are removed next.
    forget_at: Millis,
    /// By the left partition.
    proposals: Proposals,
}

/// A partition that its leader reported as small.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SmallPartition {
    partition: PartitionId,
    end: Option<Bytes>,
    has: LowUsage,
    said: Millis,
}

impl AutomaticMerges {
    /// Records how ended merges ended, and now and then removes expired reports.
    pub(crate) fn sync(&mut self, state: &ClusterState, now: Millis) {
        if now >= self.forget_at {
            self.forget_at = now.plus(WORD_MS);
            self.small.retain(|_, small| small.is_fresh(now));
        }
        self.proposals.sync(now, |left, last| outcome(state, left, last, now));
    }

    /// Handles a leader's report that its partition has been small for a while. Returns `None` if no neighbour is known
    /// to be as small.
    ///
    /// # Errors
    /// `Refused`, with the reason why nothing is merged now: the leader repeats the report.
    pub(crate) fn judge(
        &mut self,
        state: &ClusterState,
        now: Millis,
        row: &Partition,
        has: LowUsage,
    ) -> Result<Option<Command>, ErrorDetail> {
        let limits = state.range_limits(row.id.table);
        self.sync(state, now);
        let place = (row.id.table, row.range.begin.clone());
        if !limits.may_merge(has) {
            self.small.remove(&place);
            return Ok(None);
        }
        self.small.insert(place, SmallPartition { partition: row.id, end: row.range.end.clone(), has, said: now });
        let Some((left, right, bytes)) = self.pair(state, row, has, limits, now) else { return Ok(None) };
        if self.proposals.has(left) {
            return Ok(None);
        }
        self.check_room(state, left, now)?;
        let plan = check_merge(state, left, |of| self.bytes_of(state, of)).map_err(|error| refused(error.message))?;
        if plan.right != right {
            return Ok(None);
        }
        let (Some(left), Some(right)) = (state.partitions.get(left), state.partitions.get(right)) else {
            return Ok(None);
        };
        self.proposals.begin(left, right.id, now);
        let edit = Edit::Merge { right: right.id.index, right_version: right.version, undersized_bytes: Some(bytes) };
        Ok(Some(Command::Change(vec![PartitionChange::one(left.id, left.version, edit)])))
    }

    /// Returns the partition with a neighbour that is as small, the right one preferred: left, right, and the bytes of
    /// both.
    fn pair(
        &self,
        state: &ClusterState,
        row: &Partition,
        has: LowUsage,
        limits: RangeLimits,
        now: Millis,
    ) -> Option<(PartitionId, PartitionId, u64)> {
        let table = row.id.table;
        let right = row.range.end.as_ref().and_then(|end| self.small.get(&(table, end.clone())));
        let right = right.filter(|right| right.is_as_said(state, now) && limits.merges(has, right.has));
        if let Some(right) = right {
            return Some((row.id, right.partition, has.bytes.saturating_add(right.has.bytes)));
        }
        let before = self.small.range((table, Bytes::new())..(table, row.range.begin.clone())).next_back();
        let left = before.map(|(_, left)| left).filter(|left| left.end.as_ref() == Some(&row.range.begin));
        let left = left.filter(|left| left.is_as_said(state, now) && limits.merges(left.has, has))?;
        Some((left.partition, row.id, left.has.bytes.saturating_add(has.bytes)))
    }

    fn bytes_of(&self, state: &ClusterState, partition: PartitionId) -> Option<u64> {
        let row = state.partitions.get(partition)?;
        self.small.get(&(partition.table, row.range.begin.clone())).map(|small| small.has.bytes)
    }

    /// Checks that another merge may start, and one of this partition.
    fn check_room(&self, state: &ClusterState, left: PartitionId, now: Millis) -> Result<(), ErrorDetail> {
        self.proposals.check_rested(left, now, "merges")?;
        let under_way = state.partitions.merging().filter(|row| row.absorbs().is_some()).count();
        let proposed = |last: &LastProposal| state.partitions.get(last.right).is_some_and(|row| row.merge.is_none());
        let under_way = under_way + self.proposals.under_way().filter(|(_, last)| proposed(last)).count();
        if under_way >= AT_ONCE_MAX {
            return Err(refused(format!(
                "{under_way} merges are under way, and no more than {AT_ONCE_MAX} begin by themselves"
            )));
        }
        Ok(())
    }
}

/// Returns the outcome of the last proposed merge of this partition.
fn outcome(state: &ClusterState, left: PartitionId, last: &LastProposal, now: Millis) -> Outcome {
    let Some(row) = state.partitions.get(left).filter(|_| state.partitions.get(last.right).is_some()) else {
        return Outcome::Done;
    };
    if row.absorbs().is_some_and(|(_, right)| right == last.right) || last.may_come(now) {
        return Outcome::UnderWay;
    }
    // An unchanged row was not touched by it.
    if row.version == last.version { Outcome::Void } else { Outcome::GivenUp }
}

impl SmallPartition {
    fn is_fresh(&self, now: Millis) -> bool {
        now.since(self.said) < WORD_MS
    }

    /// Returns true if the report is fresh and the partition still has these keys.
    fn is_as_said(&self, state: &ClusterState, now: Millis) -> bool {
        let row = state.partitions.get(self.partition).filter(|_| self.is_fresh(now));
        row.is_some_and(|row| row.range.end == self.end && !row.is_reshaped())
    }
}
