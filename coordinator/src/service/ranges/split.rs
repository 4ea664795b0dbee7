//! Splits by an operator.

use crate::service::admins::{Admins, Result, unexpected};
use crate::service::call::Call;
use crate::service::documents::answers;
use crate::service::findings::subjects;
use crate::service::operator::operate::partition_of;
use crate::service::ranges::middle;
use archon_coordinator_core::{
    ClusterState, EventKind, Liveness, Response as Answer, SplitPlan, check_cancel_split, check_split, check_splittable,
};
use archon_documents::{PartitionName, PartitionSplit, RangeSummary, SplitAnswer, SplitPartition};
use archon_proto::convert::tables::middle::FindMiddle;
use archon_types::{ErrorDetail, ErrorKind, KeyRange, KeyText, Middle, NodeId, PartitionId};

answers! {
    SplitPartition: split,
}

impl Admins {
    /// Starts a split, predicts its effect, or abandons one.
    pub(in crate::service) async fn split(&self, asked: SplitPartition, call: &Call<'_>) -> Result<SplitAnswer> {
        let SplitPartition { partition: name, at, cancel, dry_run } = asked;
        let at = match at {
            _ if cancel => None,
            Some(KeyText(key)) => Some(Ok(Middle::At(key))),
            // Applies even if the search fails: a repeated request is answered with the split that it began.
            None => Some(self.middle(&name, call).await),
        };
        let mut judged = None;
        let decide = |state: &ClusterState, _: &Liveness| {
            let partition = partition_of(state, &name)?;
            let (command, answer) = match &at {
                Some(at) => {
                    let at = match at.clone()? {
                        Middle::At(key) => key,
                        Middle::Searching => return Ok(Err(SplitAnswer { split: None })),
                        Middle::Indivisible => return Err(indivisible(&name)),
                    };
                    let plan = check_split(state, partition, &at)?;
                    (plan.command.clone(), planned(state, partition, plan))
                }
                None => {
                    let command = check_cancel_split(state, partition)?;
                    let begun = begun(state, partition)?;
                    let left_keys = state
                        .partition(partition)
                        .map_or_else(|| begun.left_keys.clone(), |row| RangeSummary::from(&row.range));
                    let answer = PartitionSplit { left_keys, right_keys: None, ..begun };
                    (command, answer)
                }
            };
            let answer = SplitAnswer { split: Some(answer) };
            if dry_run {
                return Ok(Err(answer));
            }
            judged = Some(answer);
            Ok(Ok(command))
        };
        let (session, answer) = match self.commit_unless(call, decide).await? {
            Ok(changed) => changed,
            Err(planned) => return Ok(planned),
        };
        match (answer, judged) {
            (Answer::Done { .. }, Some(judged)) => Ok(judged),
            // A repetition: only the success of the first request is recorded.
            (Answer::Done { .. }, None) => session
                .quorum()
                .replicated()
                .read(|state| Ok(SplitAnswer { split: Some(begun(state, partition_of(state, &name)?)?) })),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Asks the leader of a partition for its split key.
    async fn middle(&self, name: &PartitionName, call: &Call<'_>) -> Result<Middle> {
        let (node, asked) = self
            .view(call, |_, state| {
                let partition = partition_of(state, name)?;
                let leader = check_splittable(state, partition)?.node;
                let row = state.node(leader).ok_or_else(|| {
                    let why = format!("node {leader} leads the partition, and no longer exists");
                    ErrorDetail::new(ErrorKind::Unavailable, why)
                })?;
                let incarnation = row.node.incarnation;
                let asked = FindMiddle { cluster: state.cluster, node: leader, incarnation, partition };
                Ok((row.node.clone(), asked))
            })
            .await?;
        middle::ask(&self.context().transport, &node, asked).await
    }
}

fn indivisible(name: &PartitionName) -> ErrorDetail {
    let message = format!(
        "no key parts partition {}/{} into halves: it has fewer than two rows, or one that is larger than all others \
         together; \
         name a key with --at if it is to be split all the same",
        name.table, name.partition
    );
    ErrorDetail::new(ErrorKind::Refused, message)
}

fn planned(state: &ClusterState, partition: PartitionId, plan: SplitPlan) -> PartitionSplit {
    let (left_keys, right_keys) = (RangeSummary::from(&plan.left_keys), Some((&plan.right_keys).into()));
    answer(state, partition, plan.right.index, (left_keys, right_keys), &plan.nodes)
}

fn answer(
    state: &ClusterState,
    partition: PartitionId,
    right: u32,
    (left_keys, right_keys): (RangeSummary, Option<RangeSummary>),
    nodes: &[NodeId],
) -> PartitionSplit {
    PartitionSplit {
        table_id: partition.table.get(),
        table: state.table_text(partition.table),
        partition: partition.index,
        right,
        left_keys,
        right_keys,
        nodes: nodes.iter().map(|node| subjects::node_name(state, *node)).collect(),
    }
}

/// Returns the answer about the split in progress; without one, the outcome of the last one.
///
/// # Errors
/// `Refused` if no split is known.
fn begun(state: &ClusterState, partition: PartitionId) -> Result<PartitionSplit> {
    let row = state.partition(partition);
    let split = row.and_then(|row| row.split.as_deref());
    let last = || {
        state.events.iter().rev().find_map(|event| match &event.what {
            EventKind::SplitBegun { partition: left, right, .. } if *left == partition => Some(right.index),
            _ => None,
        })
    };
    let right = split.map(|split| split.right).or_else(last).ok_or_else(|| forgotten(state, partition))?;
    let right_row = state.partition(PartitionId::new(partition.table, right));
    let (left_keys, right_keys) = match (row, split) {
        (Some(row), Some(split)) => {
            let keeps = KeyRange { end: Some(split.at.clone()), ..row.range.clone() };
            (Some(keeps), Some(split.right_range(&row.range)))
        }
        (row, _) => (row.map(|row| row.range.clone()), right_row.map(|right| right.range.clone())),
    };
    let nodes: Vec<NodeId> = match split {
        Some(split) => split.copies.iter().map(|copy| copy.node).collect(),
        None => right_row.into_iter().flat_map(|right| &right.placements).map(|copy| copy.node).collect(),
    };
    let left_keys = RangeSummary::from(&left_keys.unwrap_or(KeyRange::ALL));
    Ok(answer(state, partition, right, (left_keys, right_keys.as_ref().map(Into::into)), &nodes))
}

/// Returns the error for a repeated request about a split or merge that is too old for its outcome to be known.
pub(super) fn forgotten(state: &ClusterState, partition: PartitionId) -> ErrorDetail {
    let name = state.partition_name(partition);
    let message = format!("it was started before, and its result is no longer known; see partition {name}");
    ErrorDetail::new(ErrorKind::Refused, message)
}
