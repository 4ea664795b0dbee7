//! Split of a partition of a table by ranges: the keys and replicas of the new partition.

use crate::admin::range_change::RangeChangePhase;
use crate::common::limits::check_key;
use crate::common::text::shown_key;
use crate::error::{ErrorDetail, ErrorKind};
use crate::ids::{NodeId, PartitionId, PlacementId, Version};
use crate::tables::key_range::KeyRange;
use crate::tables::partition::{Partition, PartitionStatus, Placement, ReplicaState};
use crate::tables::position::Position;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Split in progress in the row of a partition, *left*. Its keys from `at` on become those of a new partition, *right*,
/// which does not exist before the split is done: until then only this record refers to it and its number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Split {
    /// Version of left's row in which this split began. Entries of left's log and reports name it, so that they are not
    /// attributed to another split.
    pub attempt: Version,
    /// First key of right: within left's range, and not its first key.
    pub at: Bytes,
    /// Number of right: no partition of the table had it before, and none will after an abandoned split.
    pub right: u32,
    /// Replicas of right, each on a node with a replica of left, in order of placement.
    pub copies: Vec<RightCopy>,
    /// Left's leader is to give up the keys: enough replicas have them, so that this takes only a moment.
    pub cut: bool,
    /// Position in left's log of the entry with which left gave up the keys. Right's log begins after it. `None` until
    /// a replica of right was formed.
    pub position: Option<Position>,
}

/// One replica of right, which its node forms from its own replica of left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RightCopy {
    /// Number, which it keeps when right is a partition.
    pub id: PlacementId,
    /// Node of the replica.
    pub node: NodeId,
    /// Stage of the replica.
    pub stage: RightStage,
}

/// Stage of a replica of right. Each stage follows the one before; a node that lost its data restarts with the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub enum RightStage {
    /// Its node copies the keys, and still serves them as left's.
    #[default]
    Copying,
    /// It has every key, and receives all writes to left's replica.
    Mirroring,
    /// It is complete, durably, as of the split's position.
    Formed,
}

impl RightCopy {
    /// Returns true if the replica is complete, durably, as of the split's position.
    pub fn is_formed(&self) -> bool {
        self.stage == RightStage::Formed
    }
}

impl Split {
    /// Returns the id of right.
    pub const fn right_of(&self, left: PartitionId) -> PartitionId {
        PartitionId::new(left.table, self.right)
    }

    /// Returns the keys of right.
    pub fn right_range(&self, left: &KeyRange) -> KeyRange {
        KeyRange { begin: self.at.clone(), end: left.end.clone() }
    }

    /// Returns the replica of right on this node.
    pub fn copy_on(&self, node: NodeId) -> Option<&RightCopy> {
        self.copies.iter().find(|copy| copy.node == node)
    }

    /// Returns the phase of the split.
    pub const fn phase(&self) -> RangeChangePhase {
        if self.cut { RangeChangePhase::Forming } else { RangeChangePhase::Copying }
    }

    /// Returns the stage to which the present phase brings the replicas.
    pub const fn goal(&self) -> RightStage {
        if self.cut { RightStage::Formed } else { RightStage::Mirroring }
    }

    /// Returns the number of formed replicas.
    pub fn formed(&self) -> usize {
        self.copies.iter().filter(|copy| copy.is_formed()).count()
    }

    /// Returns right's row after the split, without a leader, with the formed replicas as Live. Its epoch is left's, so
    /// that its first leadership is above every epoch of left's log before the split.
    pub fn right_row(&self, left: &Partition) -> Partition {
        let placement = |copy: &RightCopy| Placement { id: copy.id, node: copy.node, state: ReplicaState::Live };
        Partition {
            id: self.right_of(left.id),
            epoch: left.epoch,
            version: left.version,
            leader: None,
            placements: self.copies.iter().filter(|copy| copy.is_formed()).map(placement).collect(),
            status: PartitionStatus::Unavailable,
            min_in_sync: left.min_in_sync,
            range: self.right_range(&left.range),
            split: None,
            merge: None,
            absorbed: left.absorbed,
        }
    }
}

/// Result of the search for the middle of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Middle {
    /// About as many bytes are before this key as from it on.
    At(Bytes),
    /// The search is in progress; ask again later.
    Searching,
    /// No key divides it into halves.
    Indivisible,
}

/// Checks the split key for a partition with this range: a key within it, and not its first.
///
/// # Errors
/// `InvalidArgument` for an invalid key; `Refused`, with the key and the range, for one at which this partition cannot
/// be split at present.
pub fn check_split_at(range: &KeyRange, at: &Bytes) -> Result<(), ErrorDetail> {
    check_key(at)?;
    if range.contains(at) && range.begin != *at {
        return Ok(());
    }
    let begin = if range.begin.is_empty() { "the first key".to_owned() } else { shown_key(&range.begin) };
    let keys = match &range.end {
        Some(end) => format!("from {begin} up to, not including, {}", shown_key(end)),
        None => format!("from {begin} on"),
    };
    let edge = if range.begin == *at { ", so that it begins there already" } else { "" };
    let why = format!("it cannot be split at {}: its keys are those {keys}{edge}", shown_key(at));
    Err(ErrorDetail::new(ErrorKind::Refused, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_point_is_within_the_range_and_not_its_first_key() {
        let range = KeyRange { begin: Bytes::from_static(b"g"), end: Some(Bytes::from_static(b"m")) };
        let check = |at: &'static str| check_split_at(&range, &Bytes::from_static(at.as_bytes()));
        assert_eq!((check("g\0"), check("l")), (Ok(()), Ok(())));
        for (at, why) in [("g", "begins there already"), ("m", "up to, not including, \"m\""), ("a", "from \"g\"")] {
            let error = check(at).unwrap_err();
            assert!(error.message.contains(why) && error.kind == ErrorKind::Refused, "{at:?}: {error:?}");
        }
        assert_eq!(check("").unwrap_err().kind, ErrorKind::InvalidArgument);
        let all = check_split_at(&KeyRange::ALL, &Bytes::from_static(b"a"));
        assert_eq!(all, Ok(()));
    }
}
