//! Administration of nodes and partitions: draining, removing, declaring data lost, forcing a leader.

use crate::admin::{Admin, client, incomplete, node_summary, request_id};
use crate::admin_call::Effect;
use crate::admin_types::NodeSummary;
use crate::error::Error;
use crate::operate_types::{
    ForcedLeader, NodeCheck, NodeLoss, PartitionCopy, PartitionDescription, PartitionMerge, PartitionSplit,
};
use crate::rebalance_types::{MoveStatus, Reshaping};
use archon_proto::convert::alter::AlterNode;
use archon_proto::convert::operate::{
    ForceLeader, LoseNode, MergePartition, PartitionName, RemoveNode, SplitGoal, SplitPartition,
};
use archon_proto::convert::words::enum_word;
use archon_proto::v1;
use archon_types::limits::{check_key, check_name};
use archon_types::{ErrorDetail, ErrorKind, Partition, TraitsChange};
use bytes::Bytes;
use std::time::Duration;

/// Maximum time for a leader to find a split key: enough for hundreds of GiB at a tenth of the speed of disks.
const SEARCH_MAX: Duration = Duration::from_secs(60 * 60);
/// Interval of polls for the split key.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);

impl Admin {
    /// Returns the effects of draining, removing or losing a node, or the obstacles, without any change.
    ///
    /// # Errors
    /// `NotFound` if no node has this name; otherwise see [`Error`].
    pub async fn check_node(&self, name: &str) -> Result<NodeCheck, Error> {
        check_name("node", name)?;
        let request = v1::CheckNodeRequest { cluster: None, name: name.to_owned() };
        let call = |channel, request| async move { client(channel).check_node(request).await };
        let wire: v1::CheckNodeResponse = self.coordinator_client().call(Effect::Reads, request, call).await?;
        Ok(NodeCheck {
            node: node_summary(wire.node.ok_or_else(|| incomplete("CheckNodeResponse.node"))?)?,
            drain: wire.drain.ok_or_else(|| incomplete("CheckNodeResponse.drain"))?.into(),
            remove: wire.remove.ok_or_else(|| incomplete("CheckNodeResponse.remove"))?.into(),
            lost: wire.loss.ok_or_else(|| incomplete("CheckNodeResponse.loss"))?.into(),
        })
    }

    /// Changes zone, weight or limit of a running node. The change survives restarts, until it is started with
    /// another flag. Returns the resulting node, and whether anything changed.
    ///
    /// # Errors
    /// `NotFound` if no node has this name; `InvalidArgument` for what no node can have; otherwise see [`Error`].
    pub async fn alter_node(&self, name: &str, change: &TraitsChange) -> Result<(NodeSummary, bool), Error> {
        check_name("node", name)?;
        let alter = AlterNode { request: request_id(), name: name.to_owned(), change: change.clone() };
        let call = |channel, request| async move { client(channel).alter_node(request).await };
        let request = v1::AlterNodeRequest::from(alter);
        let wire: v1::AlterNodeResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok((node_summary(wire.node.ok_or_else(|| incomplete("AlterNodeResponse.node"))?)?, wire.changed))
    }

    /// Removes a node that is not alive and holds no in-sync copies. Returns the number of other copies that were
    /// removed with it.
    ///
    /// # Errors
    /// `NotFound` if no node has this name, `Refused` with every reason; otherwise see [`Error`].
    pub async fn remove_node(&self, name: &str) -> Result<u32, Error> {
        check_name("node", name)?;
        let request = v1::RemoveNodeRequest::from(RemoveNode { request: request_id(), name: name.to_owned() });
        let call = |channel, request| async move { client(channel).remove_node(request).await };
        let wire: v1::RemoveNodeResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok(wire.copies)
    }

    /// Declares a failed node's data lost: its copies are discarded and replaced at once.
    ///
    /// # Errors
    /// `NotFound` for an unknown node; `Refused` if it is alive; `DataLoss` if partitions would lose their last
    /// in-sync copy and `accept_data_loss` is not set (the message names them); otherwise see [`Error`].
    pub async fn lose_node(&self, name: &str, accept_data_loss: bool) -> Result<NodeLoss, Error> {
        check_name("node", name)?;
        let lose = LoseNode { request: request_id(), name: name.to_owned(), accept_data_loss };
        let call = |channel, request| async move { client(channel).lose_node(request).await };
        let request = v1::LoseNodeRequest::from(lose);
        let wire: v1::LoseNodeResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok(NodeLoss {
            copies_lost: wire.copies,
            counting_copies_lost: wire.counting,
            last_copies_lost: wire.last_copies,
        })
    }

    /// Returns a full description of one partition.
    ///
    /// # Errors
    /// `NotFound` if there is no such table or partition; otherwise see [`Error`].
    pub async fn describe_partition(&self, table: &str, partition: u32) -> Result<PartitionDescription, Error> {
        check_name("table", table)?;
        let (table, partition) = (table.to_owned(), partition);
        let request = v1::DescribePartitionRequest { cluster: None, table, partition };
        let call = |channel, request| async move { client(channel).describe_partition(request).await };
        let wire: v1::DescribePartitionResponse = self.coordinator_client().call(Effect::Reads, request, call).await?;
        let table = wire.table.ok_or_else(|| incomplete("DescribePartitionResponse.table"))?;
        let row = wire.partition.ok_or_else(|| incomplete("DescribePartitionResponse.partition"))?;
        let row = Partition::try_from(row).map_err(|error| incomplete(&error.to_string()))?;
        let ranged = matches!(table.keys, Some(v1::table_info::Keys::RangeNext(_)));
        let copies: Vec<PartitionCopy> = wire.copies.into_iter().map(Into::into).collect();
        let leader = copies.iter().find(|copy| copy.leads);
        Ok(PartitionDescription {
            table_id: table.id,
            table: table.name,
            id: row.id.index,
            epoch: row.epoch.get(),
            version: row.version.get(),
            status: row.status.into(),
            leader_id: leader.map(|copy| copy.node_id),
            leader: leader.map(|copy| copy.node.clone()),
            holds: enum_word::<v1::TableHolds, _>(table.holds),
            replication: table.replication,
            min_in_sync: u32::from(row.min_in_sync),
            copies,
            range: ranged.then(|| (&row.range).into()),
            reshaping: wire.reshaping.map(Reshaping::try_from).transpose()?,
            reasons: wire.reasons.into_iter().map(Into::into).collect(),
            running_move: wire.r#move.map(MoveStatus::try_from).transpose()?,
            force_leader: wire.forced.ok_or_else(|| incomplete("DescribePartitionResponse.forced"))?.into(),
            bars: wire.bars.into_iter().map(Into::into).collect(),
        })
    }

    /// Splits a partition of a table by ranges at `at`: keys from there on move to a new partition on the same nodes.
    /// Without a key, its leader scans its rows for the key that halves its bytes, which takes some seconds per GiB;
    /// the call waits for that, at most an hour.
    ///
    /// The split continues in the background and is visible in [`Admin::describe_partition`]: first the keys are
    /// copied while everything is served, for at most half an hour; then the moving keys pause briefly, at most 5 s.
    /// A split that exceeds a limit is abandoned. With `dry_run`, only returns the effect.
    ///
    /// # Errors
    /// `NotFound` for an unknown table or partition; `InvalidArgument` if keys are hashed or `at` is not a key;
    /// `AssignmentInProgress` while the partition is being split or moved; `Refused` if `at` is outside of its keys
    /// or its first key, while a copy is not in sync, one of its nodes is down, or too many nodes are failed;
    /// `Unavailable` without a leader; otherwise see [`Error`].
    pub async fn split_partition(
        &self,
        table: &str,
        partition: u32,
        at: Option<&[u8]>,
        dry_run: bool,
    ) -> Result<PartitionSplit, Error> {
        let Some(at) = at else { return self.split_in_the_middle(table, partition, dry_run).await };
        check_key(at)?;
        let split = self.ask_split(table, partition, SplitGoal::At(Bytes::copy_from_slice(at)), dry_run).await?;
        split.ok_or_else(|| incomplete("SplitPartitionResponse, which speaks of a search"))
    }

    async fn split_in_the_middle(&self, table: &str, partition: u32, dry_run: bool) -> Result<PartitionSplit, Error> {
        let search = async {
            loop {
                if let Some(split) = self.ask_split(table, partition, SplitGoal::Middle, dry_run).await? {
                    return Ok(split);
                }
                tokio::time::sleep(SEARCH_PAUSE).await;
            }
        };
        let over = |_| {
            let why = format!("the middle of partition {table}/{partition} was not found; name a key to split it at");
            Err(ErrorDetail::new(ErrorKind::Unavailable, why).into())
        };
        tokio::time::timeout(SEARCH_MAX, search).await.unwrap_or_else(over)
    }

    /// Cancels an unfinished split of a partition.
    ///
    /// # Errors
    /// `NotFound` if there is no such table or partition; `Refused` if it is not being split; otherwise see [`Error`].
    pub async fn cancel_split(&self, table: &str, partition: u32) -> Result<PartitionSplit, Error> {
        let split = self.ask_split(table, partition, SplitGoal::Cancel, false).await?;
        split.ok_or_else(|| incomplete("SplitPartitionResponse, which speaks of a search"))
    }

    /// Returns `None` while the leader searches for the split key.
    async fn ask_split(
        &self,
        table: &str,
        partition: u32,
        goal: SplitGoal,
        dry_run: bool,
    ) -> Result<Option<PartitionSplit>, Error> {
        check_name("table", table)?;
        let name = PartitionName { table: table.to_owned(), index: partition };
        let split = SplitPartition { request: request_id(), partition: name.clone(), goal, dry_run };
        let call = |channel, request| async move { client(channel).split_partition(request).await };
        let request = v1::SplitPartitionRequest::from(split);
        let effect = if dry_run { Effect::Reads } else { Effect::Writes };
        let wire: v1::SplitPartitionResponse = self.coordinator_client().call(effect, request, call).await?;
        Ok((!wire.searching).then(|| PartitionSplit::new(name, wire)))
    }

    /// Merges a partition of a table by ranges with its right neighbour, whose keys follow: the partition takes over
    /// these keys, and the neighbour is deleted. The merge continues in the background, is visible in
    /// [`Admin::describe_partition`], and is abandoned if it takes more than some seconds. With `dry_run`, only
    /// returns the effect.
    ///
    /// # Errors
    /// `NotFound` for an unknown table or partition; `InvalidArgument` if keys are hashed; `AssignmentInProgress`
    /// while one of the two is being split, merged or moved; `Refused` without a right neighbour or if it has more
    /// than 16 MiB, while a copy is not in sync, one of their nodes is down, or too many nodes are failed;
    /// `Unavailable` if one of them has no leader; otherwise see [`Error`].
    pub async fn merge_partition(&self, table: &str, partition: u32, dry_run: bool) -> Result<PartitionMerge, Error> {
        self.ask_merge(table, partition, false, dry_run).await
    }

    /// Cancels an unfinished merge of a partition with its right neighbour.
    ///
    /// # Errors
    /// `NotFound` if there is no such table or partition; `Refused` if it is not being merged; otherwise see [`Error`].
    pub async fn cancel_merge(&self, table: &str, partition: u32) -> Result<PartitionMerge, Error> {
        self.ask_merge(table, partition, true, false).await
    }

    async fn ask_merge(
        &self,
        table: &str,
        partition: u32,
        cancel: bool,
        dry_run: bool,
    ) -> Result<PartitionMerge, Error> {
        check_name("table", table)?;
        let name = PartitionName { table: table.to_owned(), index: partition };
        let merge = MergePartition { request: request_id(), partition: name.clone(), cancel, dry_run };
        let call = |channel, request| async move { client(channel).merge_partition(request).await };
        let request = v1::MergePartitionRequest::from(merge);
        let effect = if dry_run { Effect::Reads } else { Effect::Writes };
        let wire: v1::MergePartitionResponse = self.coordinator_client().call(effect, request, call).await?;
        Ok(PartitionMerge::new(name, wire))
    }

    /// Makes one copy the leader although acknowledged writes may be lost, and discards all others: the copy on
    /// `node`, or else the one that was in sync last. The only remedy after the loss of the last in-sync copy.
    ///
    /// # Errors
    /// `NotFound` if there is no such table, partition or node; `Refused` if nothing needs to be lost; `DataLoss`
    /// if `accept_data_loss` is not set (the message states the loss); otherwise see [`Error`].
    pub async fn force_leader(
        &self,
        table: &str,
        partition: u32,
        node: Option<&str>,
        accept_data_loss: bool,
    ) -> Result<ForcedLeader, Error> {
        check_name("table", table)?;
        if let Some(node) = node {
            check_name("node", node)?;
        }
        let partition = PartitionName { table: table.to_owned(), index: partition };
        let (name, node) = (partition.clone(), node.map(str::to_owned));
        let force = ForceLeader { request: request_id(), partition, node, accept_data_loss };
        let request = v1::ForceLeaderRequest::from(force);
        let call = |channel, request| async move { client(channel).force_leader(request).await };
        let wire: v1::ForceLeaderResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok(ForcedLeader::new(name, wire))
    }
}
