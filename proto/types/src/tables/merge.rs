//! Merge of a partition with its right neighbour, in a table by ranges.

use crate::ids::{PartitionId, Version};
use crate::tables::key_range::KeyRange;
use crate::tables::partition::Partition;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Maximum size of a partition that is merged into its left neighbour, in bytes of keys and values: they pass through
/// that partition's log, and are not served meanwhile.
pub const MERGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A merge in progress: *left* receives the keys of *right*, the partition that begins where left ends. One command
/// records it in both rows, and another one removes it from both.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Merge {
    /// Version of both rows in which the merge began. Entries of the two logs and reports name it, so that they are not
    /// attributed to another merge.
    pub attempt: Version,
    /// Role of the partition in the merge.
    pub side: MergeSide,
}

/// Role of a partition in a merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MergeSide {
    /// Left: takes the rows of right into its log, and serves them once its own row includes their keys.
    Absorbs {
        /// Number of right.
        right: u32,
        /// End of right's keys.
        end: Option<Bytes>,
    },
    /// Right: gives up all of its keys, and is deleted when the merge is done.
    Yields {
        /// Number of left.
        left: u32,
    },
}

impl Partition {
    /// Returns the merge in which this partition is left, and the id of right.
    pub fn absorbs(&self) -> Option<(&Merge, PartitionId)> {
        let merge = self.merge.as_deref()?;
        match merge.side {
            MergeSide::Absorbs { right, .. } => Some((merge, PartitionId::new(self.id.table, right))),
            MergeSide::Yields { .. } => None,
        }
    }

    /// Returns the merge in which this partition is right, and the id of left.
    pub fn yields(&self) -> Option<(&Merge, PartitionId)> {
        let merge = self.merge.as_deref()?;
        match merge.side {
            MergeSide::Yields { left } => Some((merge, PartitionId::new(self.id.table, left))),
            MergeSide::Absorbs { .. } => None,
        }
    }

    /// Returns the keys that it is to get from its right neighbour, during a merge.
    pub fn absorbed_range(&self) -> Option<KeyRange> {
        match &self.merge.as_deref()?.side {
            MergeSide::Absorbs { end, .. } => Some(KeyRange { begin: self.range.end.clone()?, end: end.clone() }),
            MergeSide::Yields { .. } => None,
        }
    }
}
