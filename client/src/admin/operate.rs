//! Administration of nodes and partitions: draining, removing, declaring data lost, forcing a leader.

use crate::admin::{Admin, incomplete};
use crate::error::Error;
use archon_documents::{
    AlterNode, CheckNode, DescribePartition, ForceLeader, ForcedLeader, LoseNode, MergePartition, NodeCheck, NodeLoss,
    NodeSummary, PartitionDescription, PartitionMerge, PartitionName, PartitionSplit, RemoveNode, SplitPartition,
};
use archon_types::limits::check_key;
use archon_types::{ErrorDetail, ErrorKind, KeyText, TraitsChange};
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
        self.ask(&CheckNode { node: name.to_owned() }).await
    }

    /// Changes zone, weight or limit of a running node. The change survives restarts, until it is started with
    /// another flag. Returns the resulting node, and whether anything changed.
    ///
    /// # Errors
    /// `NotFound` if no node has this name; `InvalidArgument` for what no node can have; otherwise see [`Error`].
    pub async fn alter_node(&self, name: &str, change: &TraitsChange) -> Result<(NodeSummary, bool), Error> {
        let altered = self.ask(&AlterNode { node: name.to_owned(), change: change.clone() }).await?;
        Ok((altered.node, altered.changed))
    }

    /// Removes a node that is not alive and holds no in-sync copies. Returns the number of other copies that were
    /// removed with it.
    ///
    /// # Errors
    /// `NotFound` if no node has this name, `Refused` with every reason; otherwise see [`Error`].
    pub async fn remove_node(&self, name: &str) -> Result<u32, Error> {
        Ok(self.ask(&RemoveNode { node: name.to_owned() }).await?.copies_removed)
    }

    /// Declares a failed node's data lost: its copies are discarded and replaced at once.
    ///
    /// # Errors
    /// `NotFound` for an unknown node; `Refused` if it is alive; `DataLoss` if partitions would lose their last
    /// in-sync copy and `accept_data_loss` is not set (the message names them); otherwise see [`Error`].
    pub async fn lose_node(&self, name: &str, accept_data_loss: bool) -> Result<NodeLoss, Error> {
        self.ask(&LoseNode { node: name.to_owned(), accept_data_loss }).await
    }

    /// Returns a full description of one partition.
    ///
    /// # Errors
    /// `NotFound` if there is no such table or partition; otherwise see [`Error`].
    pub async fn describe_partition(&self, table: &str, partition: u32) -> Result<PartitionDescription, Error> {
        self.ask(&DescribePartition { partition: PartitionName::new(table, partition) }).await
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
        let at = Some(KeyText(Bytes::copy_from_slice(at)));
        let split = self.ask_split(table, partition, at, false, dry_run).await?;
        split.ok_or_else(|| incomplete("SplitAnswer without a split"))
    }

    async fn split_in_the_middle(&self, table: &str, partition: u32, dry_run: bool) -> Result<PartitionSplit, Error> {
        let search = async {
            loop {
                if let Some(split) = self.ask_split(table, partition, None, false, dry_run).await? {
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
        let split = self.ask_split(table, partition, None, true, false).await?;
        split.ok_or_else(|| incomplete("SplitAnswer without a split"))
    }

    /// Returns `None` while the leader searches for the split key.
    async fn ask_split(
        &self,
        table: &str,
        partition: u32,
        at: Option<KeyText>,
        cancel: bool,
        dry_run: bool,
    ) -> Result<Option<PartitionSplit>, Error> {
        let partition = PartitionName::new(table, partition);
        Ok(self.ask(&SplitPartition { partition, at, cancel, dry_run }).await?.split)
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
        let partition = PartitionName::new(table, partition);
        self.ask(&MergePartition { partition, cancel: false, dry_run }).await
    }

    /// Cancels an unfinished merge of a partition with its right neighbour.
    ///
    /// # Errors
    /// `NotFound` if there is no such table or partition; `Refused` if it is not being merged; otherwise see [`Error`].
    pub async fn cancel_merge(&self, table: &str, partition: u32) -> Result<PartitionMerge, Error> {
        let partition = PartitionName::new(table, partition);
        self.ask(&MergePartition { partition, cancel: true, dry_run: false }).await
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
        let (partition, node) = (PartitionName::new(table, partition), node.map(str::to_owned));
        self.ask(&ForceLeader { partition, node, accept_data_loss }).await
    }
}
