//! What an operator may order.

use archon_types::{Epoch, Millis, NodeId, PartitionId, TableId};
use serde::{Deserialize, Serialize};

/// From what a member is barred.
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

    /// The table that it is about.
    pub const fn table(self) -> TableId {
        match self {
            Self::Table(table) => table,
            Self::Partition(partition) => partition.table,
        }
    }

    /// Whether it is about this partition.
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
    /// Let the leader of this epoch lead in the next one.
    Bump {
        /// Which partition.
        partition: PartitionId,
        /// The epoch that is to end.
        epoch: Epoch,
    },
    /// Keep partitions from a member.
    Bar {
        /// Which partitions.
        bar: Bar,
        /// Which member.
        member: NodeId,
    },
    /// Take a bar back.
    Unbar {
        /// Which partitions.
        bar: Bar,
        /// Which member.
        member: NodeId,
    },
    /// Let nobody lead the partition.
    Offline {
        /// Which partition.
        partition: PartitionId,
    },
    /// Let the partition be led again.
    Online {
        /// Which partition.
        partition: PartitionId,
    },
    /// Let a member lead nothing, and keep its copies, for a while.
    Maintain {
        /// Which member.
        member: NodeId,
        /// When that ends by itself, on the wall clock.
        until: Millis,
    },
    /// End the maintenance of a member.
    Resume {
        /// Which member.
        member: NodeId,
    },
}
