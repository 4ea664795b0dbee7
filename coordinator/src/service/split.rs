//! Splits by an operator.

use super::admin::{Admins, Result, unexpected};
use super::call::Call;
use super::operate::partition_of;
use super::subjects;
use crate::middle;
use archon_coordinator_core::{
    ClusterState, EventKind, Liveness, Response as Answer, SplitPlan, check_cancel_split, check_split, check_splittable,
};
use archon_proto::convert::middle::FindMiddle;
use archon_proto::convert::operate::{PartitionName, SplitGoal, SplitPartition};
use archon_proto::v1;
use archon_types::{ErrorDetail, ErrorKind, KeyRange, Middle, NodeId, PartitionId};
use std::time::Duration;

impl Admins {
    /// Begins a split, says what it would do, or gives one up.
    pub(super) async fn split(
        &self,
        request: v1::SplitPartitionRequest,
        call: &Call<'_>,
    ) -> Result<v1::SplitPartitionResponse> {
        let cluster = request.cluster.clone();
        let SplitPartition { request, partition: name, goal, dry_run } = SplitPartition::try_from(request)?;
        let at = match goal {
            SplitGoal::At(key) => Some(Ok(Middle::At(key))),
            SplitGoal::Cancel => None,
            // Whatever is known of it, whoever asks again for what was begun is told of that.
            SplitGoal::Middle => Some(self.middle(cluster.as_ref(), &name, call.within).await),
        };
        let mut judged = None;
        let decide = |state: &ClusterState, _: &Liveness| {
            let partition = partition_of(state, &name)?;
            let (command, answer) = match at {
                Some(at) => {
                    let at = match at? {
                        Middle::At(key) => key,
                        Middle::Searching => return Ok(Err(searching())),
                        Middle::Indivisible => return Err(indivisible(&name)),
                    };
                    let plan = check_split(state, partition, &at)?;
                    (plan.command.clone(), planned(state, partition, plan))
                }
                None => {
                    let command = check_cancel_split(state, partition)?;
                    let answer = v1::SplitPartitionResponse {
                        left_keys: state.partition(partition).map(|row| row.range.clone().into()),
                        right_keys: None,
                        ..begun(state, partition)?
                    };
                    (command, answer)
                }
            };
            if dry_run {
                return Ok(Err(answer));
            }
            judged = Some(answer);
            Ok(Ok(command))
        };
        let (session, answer) = match self.change_unless(cluster.as_ref(), request, call, decide).await? {
            Ok(changed) => changed,
            Err(planned) => return Ok(planned),
        };
        match (answer, judged) {
            (Answer::Done { .. }, Some(judged)) => Ok(judged),
            // Asked again: of the first time it is remembered that it was done.
            (Answer::Done { .. }, None) => {
                session.quorum().replicated().read(|state| begun(state, partition_of(state, &name)?))
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// What the leader of a partition that can be split knows of its middle.
    async fn middle(&self, cluster: Option<&v1::ClusterRef>, name: &PartitionName, within: Duration) -> Result<Middle> {
        let (node, asked) = self
            .look(cluster, within, |_, state| {
                let partition = partition_of(state, name)?;
                let leader = check_splittable(state, partition)?.node;
                let row = state.node(leader).ok_or_else(|| {
                    let why = format!("node {leader} leads the partition, and is not known any more");
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

/// The answer while the leader looks for the middle.
fn searching() -> v1::SplitPartitionResponse {
    v1::SplitPartitionResponse { searching: true, ..v1::SplitPartitionResponse::default() }
}

fn indivisible(name: &PartitionName) -> ErrorDetail {
    let message = format!(
        "no key parts partition {}/{} into halves: it has fewer than two rows, or one that is larger than all others together; \
         name a key with --at if it is to be split all the same",
        name.table, name.index
    );
    ErrorDetail::new(ErrorKind::Refused, message)
}

fn planned(state: &ClusterState, partition: PartitionId, plan: SplitPlan) -> v1::SplitPartitionResponse {
    v1::SplitPartitionResponse {
        partition: Some(partition.into()),
        right: plan.right.index,
        left_keys: Some(plan.left_keys.into()),
        right_keys: Some(plan.right_keys.into()),
        nodes: plan.nodes.into_iter().map(|node| subjects::node_name(state, node)).collect(),
        searching: false,
    }
}

/// What the split is about that is under way; if none is, what came of the last one.
///
/// # Errors
/// `Refused` if nothing is known of any.
fn begun(state: &ClusterState, partition: PartitionId) -> Result<v1::SplitPartitionResponse> {
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
    Ok(v1::SplitPartitionResponse {
        partition: Some(partition.into()),
        right,
        left_keys: left_keys.map(Into::into),
        right_keys: right_keys.map(Into::into),
        nodes: nodes.into_iter().map(|node| subjects::node_name(state, node)).collect(),
        searching: false,
    })
}

/// What is answered to whoever asks again for something that was begun so long ago that nobody knows what came of it.
pub(super) fn forgotten(state: &ClusterState, partition: PartitionId) -> ErrorDetail {
    let name = state.partition_name(partition);
    let message =
        format!("that was begun before, and it is not known any more what came of it; look at partition {name}");
    ErrorDetail::new(ErrorKind::Refused, message)
}
