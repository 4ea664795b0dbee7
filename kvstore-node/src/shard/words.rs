//! Error messages for clients without an answer.

use super::shell::ShardShell;
use archon_host::{Cause, CopyAsk, CopyRefusal, Refusal, UnansweredOutcome};
use archon_types::{ErrorDetail, ErrorKind, PartitionId};

/// Retry delay for a copy that cannot answer yet, in milliseconds.
const RETRY_STALE_MS: u64 = 100;

impl ShardShell {
    /// Returns the error for a refusal.
    pub(super) fn words(&self, partition: PartitionId, refusal: Refusal) -> ErrorDetail {
        let tables = &self.context.shared.tables;
        match refusal {
            Refusal::Stopping => crate::node::state::shutting_down(),
            Refusal::Dropped => self.dropped(partition),
            Refusal::Misrouted => {
                let partition = tables.partition_name(partition);
                let why = format!("the key does not belong to partition {partition}; fetch the table again");
                ErrorDetail::new(ErrorKind::InvalidArgument, why).with_table_version(tables.version())
            }
            Refusal::Moved => {
                let partition = tables.partition_name(partition);
                let why = format!(
                    "the key no longer belongs to partition {partition}, which was split; fetch the table again"
                );
                ErrorDetail::new(ErrorKind::Moved, why).with_table_version(tables.version())
            }
            Refusal::Elsewhere => self.elsewhere(partition),
            Refusal::Changing => {
                let why = format!("the leadership of partition {} is changing", tables.partition_name(partition));
                ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(5)
            }
            Refusal::NoLease => {
                let why = format!("this node holds no valid lease for partition {}", tables.partition_name(partition));
                ErrorDetail::new(ErrorKind::NoLease, why).with_retry_after_ms(50).with_table_version(tables.version())
            }
            Refusal::NoCopy => {
                let partition = tables.partition_name(partition);
                let why = format!(
                    "this node has no replica of partition {partition}; the partition table names the nodes that have one"
                );
                ErrorDetail::new(ErrorKind::WrongNode, why).with_table_version(tables.version())
            }
            Refusal::NotLive => {
                let partition = tables.partition_name(partition);
                let why =
                    format!("the replica of partition {partition} on this node is catching up, and answers no reads");
                ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(RETRY_STALE_MS)
            }
            Refusal::CommitUnknown => {
                let partition = tables.partition_name(partition);
                let why = format!(
                    "the replica of partition {partition} on this node does not know yet which of its rows are committed"
                );
                ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(RETRY_STALE_MS)
            }
            Refusal::Behind => {
                let partition = tables.partition_name(partition);
                let why = format!(
                    "the replica of partition {partition} on this node may lack recent writes; read at its leader"
                );
                ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(RETRY_STALE_MS)
            }
            Refusal::NoWrites(kind) => self.no_writes(partition, kind),
            Refusal::Unreadable(error) => {
                let partition = tables.partition_name(partition);
                let why = format!("partition {partition} cannot be read on this node: {error}");
                ErrorDetail::new(ErrorKind::Unavailable, why)
            }
            Refusal::Unread => {
                let (partition, node) = (tables.partition_name(partition), &self.context.shared.config.name);
                let why = format!(
                    "partition {partition} cannot be read: the disk of its leader, node {node}, is full, and its engine \
                     has to be opened again, which it does by itself once there is space"
                );
                ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(RETRY_STALE_MS)
            }
            Refusal::Ended(ended, cause) => self.ended(partition, ended, cause),
            Refusal::Detail(detail) => detail,
        }
    }

    /// Returns the error of a write that is refused before anything is done about it.
    fn no_writes(&self, partition: PartitionId, kind: ErrorKind) -> ErrorDetail {
        let (partition, node) =
            (self.context.shared.tables.partition_name(partition), &self.context.shared.config.name);
        let why = match (kind, self.context.flusher.disk_full()) {
            (ErrorKind::ReadOnly, Some(lack)) => {
                format!(
                    "partition {partition} takes no writes now: the disk of its leader, node {node}, is full ({lack})"
                )
            }
            (ErrorKind::ReadOnly, None) => {
                format!("partition {partition} takes no writes now: the log of its leader, node {node}, has no room")
            }
            (ErrorKind::Overloaded, _) => {
                format!(
                    "partition {partition} has no room for more writes: the disk of node {node}, or of a follower, takes them \
                     slower than clients bring them"
                )
            }
            _ => format!("partition {partition} takes no writes now on node {node}"),
        };
        ErrorDetail::new(kind, why).with_retry_after_ms(20)
    }

    /// Returns the error for a dropped table; its number is not given out again.
    fn dropped(&self, partition: PartitionId) -> ErrorDetail {
        self.context.shared.tables.dropped(partition).unwrap_or_else(|| self.elsewhere(partition))
    }

    fn elsewhere(&self, partition: PartitionId) -> ErrorDetail {
        let tables = &self.context.shared.tables;
        let leader = tables.leader_address(partition);
        let partition = tables.partition_name(partition);
        let why = match &leader {
            Some(address) => {
                format!("this node does not lead partition {partition}; {address} does, as far as it knows")
            }
            None => format!("this node does not lead partition {partition}"),
        };
        ErrorDetail::new(ErrorKind::NotPartitionLeader, why).with_leader(leader).with_table_version(tables.version())
    }

    /// Returns the error of an operation that ended without an answer.
    fn ended(&self, partition: PartitionId, ended: UnansweredOutcome, cause: Cause) -> ErrorDetail {
        let unavailable = |why: &str| ErrorDetail::new(ErrorKind::Unavailable, why);
        let nothing = match cause {
            Cause::Abandoned | Cause::LeaseLost => unavailable("the leadership of the partition is changing"),
            Cause::Dropped => self.dropped(partition),
            Cause::SetAside => unavailable("the node no longer hosts the partition"),
            Cause::Unloaded => unavailable("the partition has moved away"),
            Cause::Damaged => unavailable("the replica is damaged"),
            Cause::Unreadable => unavailable("this version does not read an entry of the replica's log"),
            Cause::Unread => unavailable("the engine of the node refuses to read the replica's rows"),
            Cause::Stopping => crate::node::state::shutting_down(),
        };
        if ended == UnansweredOutcome::ChangedNothing {
            return nothing;
        }
        let why = match cause {
            Cause::Abandoned => {
                "the leadership ended before the write was committed; its outcome is unknown".to_owned()
            }
            Cause::LeaseLost => {
                "the leadership ended while the answer waited for a lease; the outcome is unknown".to_owned()
            }
            Cause::Dropped
            | Cause::SetAside
            | Cause::Unloaded
            | Cause::Damaged
            | Cause::Unreadable
            | Cause::Unread
            | Cause::Stopping => {
                format!("the outcome is unknown: {}", nothing.message)
            }
        };
        ErrorDetail::new(ErrorKind::DeadlineExceeded, why)
    }

    /// Returns the error for a loader that gets no copy.
    pub(super) fn copy_words(&self, ask: CopyAsk, refusal: CopyRefusal) -> ErrorDetail {
        let CopyAsk { partition, loader, source, epoch, .. } = ask;
        match refusal {
            CopyRefusal::NotHere => {
                let tables = &self.context.shared.tables;
                let why = format!("placement {source} does not lead epoch {epoch} of partition {partition} here");
                ErrorDetail::new(ErrorKind::NotPartitionLeader, why)
                    .with_leader(tables.leader_address(partition))
                    .with_table_version(tables.version())
            }
            CopyRefusal::NotLoading => {
                let why = format!("placement {loader} is not loading partition {partition} as far as its leader knows");
                ErrorDetail::new(ErrorKind::Unavailable, why)
            }
            CopyRefusal::LogTooShort(seq) => {
                let why = format!("the log of partition {partition} does not reach back to {seq}");
                ErrorDetail::new(ErrorKind::Unavailable, why)
            }
        }
    }
}
