//! Orders of operators.

use archon_types::{Epoch, Millis, NodeId, PartitionId, TableId};
use serde::{Deserialize, Serialize};

/// Partitions from which a member is barred.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Bar {
    /// All partitions of a table.
    Table(TableId),
    /// One partition.
    Partition(PartitionId),
}

impl Bar {
    /// The first one in order.
    pub(super) const FIRST: Self = Self::Table(TableId::ZERO);

    /// Returns the table of the bar.
    pub const fn table(self) -> TableId {
        match self {
            Self::Table(table) => table,
            Self::Partition(partition) => partition.table,
        }
    }

    /// Returns true if the bar includes this partition.
    pub fn covers(self, partition: PartitionId) -> bool {
        match self {
            Self::Table(table) => partition.table == table,
            Self::Partition(only) => partition == only,
        }
    }
}

/// An order about a partition or a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Renews the leadership: the leader of this epoch leads in the next one.
    Bump {
        /// The partition.
        partition: PartitionId,
        /// The epoch to end.
        epoch: Epoch,
    },
    /// Bars a member from partitions.
    Bar {
        /// The partitions.
        bar: Bar,
        /// The member.
        member: NodeId,
    },
    /// Lifts a bar.
    Unbar {
        /// The partitions.
        bar: Bar,
        /// The member.
        member: NodeId,
    },
    /// Takes the partition offline: it gets no leader.
    Offline {
        /// The partition.
        partition: PartitionId,
    },
    /// Brings the partition online again.
    Online {
        /// The partition.
        partition: PartitionId,
    },
    /// Puts a member in maintenance: it leads nothing and keeps its copies.
    Maintain {
        /// The member.
        member: NodeId,
        /// Automatic end, on the wall clock.
        until: Millis,
    },
    /// Ends the maintenance of a member.
    Resume {
        /// The member.
        member: NodeId,
    },
}
