//! A partition of a table by ranges that is being merged with its right neighbour.

use crate::ids::{PartitionId, Version};
use crate::key_range::KeyRange;
use crate::partition::Partition;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Most bytes of keys and values that a partition may have which is merged into its left neighbour: they go through that one's
/// log, and nobody serves them meanwhile.
pub const MERGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What a row says of a merge while it is under way: *left* is to have the keys of *right*, the partition that begins where it
/// ends. Both rows say it, from one command on and up to another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Merge {
    /// The version of both rows in which it began. Entries of the two logs and facts name it, so that they are not taken for those
    /// of another one.
    pub attempt: Version,
    /// What the partition is to the merge.
    pub side: MergeSide,
}

/// What a partition is to a merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MergeSide {
    /// Left: it takes the rows of right into its log, and serves them once its own row gives it their keys.
    Absorbs {
        /// Right's number.
        right: u32,
        /// Where right's keys end.
        end: Option<Bytes>,
    },
    /// Right: it gives all of its keys up, and is none any more when it is done.
    Yields {
        /// Left's number.
        left: u32,
    },
}

impl Partition {
    /// The merge in which this partition is left, with right's name.
    pub fn absorbs(&self) -> Option<(&Merge, PartitionId)> {
        let merge = self.merge.as_deref()?;
        match merge.side {
            MergeSide::Absorbs { right, .. } => Some((merge, PartitionId::new(self.id.table, right))),
            MergeSide::Yields { .. } => None,
        }
    }

    /// The merge in which this partition is right, with left's name.
    pub fn yields(&self) -> Option<(&Merge, PartitionId)> {
        let merge = self.merge.as_deref()?;
        match merge.side {
            MergeSide::Yields { left } => Some((merge, PartitionId::new(self.id.table, left))),
            MergeSide::Absorbs { .. } => None,
        }
    }

    /// The keys that it is to get from its right neighbour, while they are merged.
    pub fn absorbed_range(&self) -> Option<KeyRange> {
        match &self.merge.as_deref()?.side {
            MergeSide::Absorbs { end, .. } => Some(KeyRange { begin: self.range.end.clone()?, end: end.clone() }),
            MergeSide::Yields { .. } => None,
        }
    }
}
