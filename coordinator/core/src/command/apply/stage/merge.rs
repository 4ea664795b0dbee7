//! Edits of merges with the right neighbour: beginning, completing and abandoning them. Each is one edit of left's row
//! that changes both rows, so that they never contradict each other (PROTOCOL rule 44).

use super::StagedRows;
use crate::command::refusals::{invalid, refused};
use crate::mutant::Mutant;
use crate::state::CONDEMNED_MAX;
use crate::state::events::EventKind;
use archon_types::{ErrorDetail, ErrorKind, Merge, MergeSide, Partition, PartitionId, Version};

impl StagedRows<'_> {
    /// Records in both rows that this partition is to take over the keys of `right`, which must be at that version.
    pub(super) fn begin_merge(
        &mut self,
        row: &mut Partition,
        right: u32,
        right_version: Version,
        undersized_bytes: Option<u64>,
    ) -> Result<(), ErrorDetail> {
        let name = self.state.partition_name(row.id);
        if !self.state.is_range(row.id.table) {
            return Err(invalid(format!("the keys of partition {name} are hashed: only ranges of keys can be merged")));
        }
        let mut other = self.row(PartitionId::new(row.id.table, right))?;
        if other.version != right_version && !self.state.breaks(Mutant::MergeUnguarded) {
            let message = format!("partition {} changed meanwhile; look again", self.state.partition_name(other.id));
            return Err(ErrorDetail::new(ErrorKind::StaleVersion, message)
                .with_have_need(other.version.get(), right_version.get()));
        }
        if row.range.end.as_ref() != Some(&other.range.begin) {
            let other = self.state.partition_name(other.id);
            return Err(invalid(format!("partition {other} does not begin where {name} ends")));
        }
        for row in [&*row, &other] {
            if self.state.is_offline(row.id) {
                let name = self.state.partition_name(row.id);
                return Err(refused(format!("partition {name} is offline, as an operator ordered")));
            }
            if row.is_reshaped() {
                let name = self.state.partition_name(row.id);
                return Err(refused(format!("partition {name} is being split or merged already")));
            }
        }
        if self.state.condemned.len() + other.placements.len() > CONDEMNED_MAX {
            return Err(refused(format!("there are too many replicas to delete to merge {name}")));
        }
        let attempt = self.entry.version();
        let absorbs = MergeSide::Absorbs { right, end: other.range.end.clone() };
        row.merge = Some(Box::new(Merge { attempt, side: absorbs }));
        other.merge = Some(Box::new(Merge { attempt, side: MergeSide::Yields { left: row.id.index } }));
        self.effect.events.push(EventKind::MergeBegun { partition: row.id, right: other.id, undersized_bytes });
        self.put(other);
        Ok(())
    }

    /// Completes the merge: this partition ends where the other one ended, and the other one is removed.
    pub(super) fn widen(&mut self, row: &mut Partition, attempt: Version) -> Result<(), ErrorDetail> {
        let named = |merge: &Merge| merge.attempt == attempt || self.state.breaks(Mutant::AbsorbedStale); // rule 47
        let absorbs = row.absorbs().filter(|(merge, _)| named(merge));
        let (began, right) = absorbs.map(|(merge, right)| (merge.attempt, right)).ok_or_else(|| no_merge(row))?;
        let other = self.row(right)?;
        if other.yields().is_none_or(|(merge, left)| (merge.attempt, left) != (began, row.id)) {
            return Err(no_merge(row));
        }
        let at = other.range.begin;
        row.range.end = other.range.end;
        row.merge = None;
        row.absorbed = began;
        self.effect.rows.remove(&right);
        self.effect.merged_away.push(right);
        self.effect.events.push(EventKind::Merged { partition: row.id, right, at });
        Ok(())
    }

    /// Abandons the merge in which this partition takes part: both keep their keys.
    pub(crate) fn abandon_merge(&mut self, row: &mut Partition, why: &str) -> Result<(), ErrorDetail> {
        let merge = row.merge.take().ok_or_else(|| no_merge(row))?;
        let neighbour = match merge.side {
            MergeSide::Absorbs { right, .. } => right,
            MergeSide::Yields { left } => left,
        };
        let mut other = self.row(PartitionId::new(row.id.table, neighbour))?;
        if other.merge.take().is_none_or(|of| of.attempt != merge.attempt) {
            return Err(no_merge(&other));
        }
        let (partition, right) = match merge.side {
            MergeSide::Absorbs { .. } => (row.id, other.id),
            MergeSide::Yields { .. } => (other.id, row.id),
        };
        self.effect.events.push(EventKind::MergeAbandoned { partition, right, why: why.to_owned() });
        if !self.state.breaks(Mutant::HalfGivenUp) {
            self.put(other); // rule 44
        }
        Ok(())
    }
}

fn no_merge(row: &Partition) -> ErrorDetail {
    refused(format!("partition {} is not being merged by this attempt", row.id))
}
