//! Merges by an operator.

use super::split::forgotten;
use crate::leader::session::Session;
use crate::service::admins::{Admins, Result, unexpected};
use crate::service::call::Call;
use crate::service::documents::answers;
use crate::service::operator::operate::partition_of;
use archon_coordinator_core::{ClusterState, EventKind, Liveness, Response as Answer, check_cancel_merge, check_merge};
use archon_documents::{MergePartition, PartitionMerge};
use archon_types::{KeyRange, Partition, PartitionId};

answers! {
    MergePartition: merge,
}

impl Admins {
    /// Starts a merge, predicts its effect, or abandons one.
    pub(in crate::service) async fn merge(&self, asked: MergePartition, call: &Call<'_>) -> Result<PartitionMerge> {
        let MergePartition { partition: name, cancel, dry_run } = asked;
        let known = self.context().confirmed(call.within).await?;
        let mut judged = None;
        let decide = |state: &ClusterState, _: &Liveness| {
            let partition = partition_of(state, &name)?;
            let bytes_of = |of: PartitionId| bytes_of(&known, state, of);
            let (command, answer) = if cancel {
                let (right, command) = check_cancel_merge(state, partition)?;
                (command, answer(state, partition, right, bytes_of(right)))
            } else {
                let plan = check_merge(state, partition, bytes_of)?;
                let mut answer = answer(state, partition, plan.right, bytes_of(plan.right));
                answer.range = (&plan.keys).into();
                (plan.command, answer)
            };
            if dry_run {
                return Ok(Err(answer));
            }
            judged = Some(answer);
            Ok(Ok(command))
        };
        let (session, answered) = match self.commit_unless(call, decide).await? {
            Ok(changed) => changed,
            Err(planned) => return Ok(planned),
        };
        match (answered, judged) {
            (Answer::Done { .. }, Some(judged)) => Ok(judged),
            // A repetition: only the success of the first request is recorded.
            (Answer::Done { .. }, None) => session.quorum().replicated().read(|state| {
                let partition = partition_of(state, &name)?;
                let right = state.partition(partition).and_then(|row| Some(row.absorbs()?.1));
                let last = || {
                    state.events.iter().rev().find_map(|event| match event.what {
                        EventKind::MergeBegun { partition: left, right, .. } if left == partition => Some(right),
                        _ => None,
                    })
                };
                let right = right.or_else(last).ok_or_else(|| forgotten(state, partition))?;
                let mut answer = answer(state, partition, right, None);
                // As in the first answer; after the end of the merge the row contains the outcome.
                let gets = |row: &Partition| Some(KeyRange { end: row.absorbed_range()?.end, ..row.range.clone() });
                if let Some(keys) = state.partition(partition).and_then(gets) {
                    answer.range = (&keys).into();
                }
                Ok(answer)
            }),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

/// Returns the data size of a partition as reported by its nodes: the size of its largest replica.
fn bytes_of(session: &Session, state: &ClusterState, partition: PartitionId) -> Option<u64> {
    let loads = session.loads().lock();
    let row = state.partition(partition)?;
    row.live().map(|copy| loads.bytes(copy.node, copy.id)).max().filter(|bytes| *bytes > 0)
}

/// Returns the answer about a merge.
fn answer(state: &ClusterState, partition: PartitionId, right: PartitionId, bytes: Option<u64>) -> PartitionMerge {
    let range = state.partition(partition).map_or(KeyRange::ALL, |row| row.range.clone());
    PartitionMerge {
        table_id: partition.table.get(),
        table: state.table_text(partition.table),
        partition: partition.index,
        right: right.index,
        range: (&range).into(),
        right_bytes: bytes,
    }
}
