//! A partition of a table by ranges that is being split: which keys another one is to have, and which copies of that one are
//! there.

use crate::error::{ErrorDetail, ErrorKind};
use crate::ids::{NodeId, PartitionId, PlacementId, Version};
use crate::key_range::KeyRange;
use crate::limits::check_key;
use crate::partition::{Partition, PartitionStatus, Placement, ReplicaState};
use crate::position::Position;
use crate::reshaping::ReshapingPhase;
use crate::text::shown_key;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What the row of a partition, *left*, says of its split while it is under way. From `at` on its keys become those of a new
/// partition, *right*, which is none before the split is done: until then nothing but this speaks of it, and its number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Split {
    /// The version of left's row in which this split began. Entries of left's log and facts name it, so that they are not taken
    /// for those of another one.
    pub attempt: Version,
    /// The first key that is to be right's: within left's range, and not its first.
    pub at: Bytes,
    /// Right's number: no partition of the table had it before, and none will after a split that is given up.
    pub right: u32,
    /// Right's copies, each on a node with a copy of left, in order of placement.
    pub copies: Vec<RightCopy>,
    /// Left's leader is to give the keys up: enough copies have them, so that this takes a moment only.
    pub cut: bool,
    /// Where the entry stands in left's log with which left gave the keys up. Right's log begins after it. `None` until a copy of
    /// right was formed.
    pub position: Option<Position>,
}

/// One copy of right, which its node forms from its own copy of left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RightCopy {
    /// Its number, which it keeps when right is a partition.
    pub id: PlacementId,
    /// The node on which it is.
    pub node: NodeId,
    /// How far it is.
    pub stage: RightStage,
}

/// How far a copy of right is. Each stage follows the one before; a node that lost what it had begins with the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub enum RightStage {
    /// Its node copies the keys, and serves them as left's meanwhile.
    #[default]
    Copying,
    /// It has every key, and whatever is written to left's copy is written to it as well.
    Mirroring,
    /// It is whole, durably, as of the split's position.
    Formed,
}

impl RightCopy {
    /// It is whole, durably, as of the split's position.
    pub fn is_formed(&self) -> bool {
        self.stage == RightStage::Formed
    }
}

impl Split {
    /// Right's name.
    pub const fn right_of(&self, left: PartitionId) -> PartitionId {
        PartitionId::new(left.table, self.right)
    }

    /// The keys that right is to have.
    pub fn right_range(&self, left: &KeyRange) -> KeyRange {
        KeyRange { begin: self.at.clone(), end: left.end.clone() }
    }

    /// The copy of right on this node.
    pub fn copy_on(&self, node: NodeId) -> Option<&RightCopy> {
        self.copies.iter().find(|copy| copy.node == node)
    }

    /// How far it is.
    pub const fn phase(&self) -> ReshapingPhase {
        if self.cut { ReshapingPhase::Forming } else { ReshapingPhase::Copying }
    }

    /// The stage to which the present phase brings the copies.
    pub const fn goal(&self) -> RightStage {
        if self.cut { RightStage::Formed } else { RightStage::Mirroring }
    }

    /// How many copies are formed.
    pub fn formed(&self) -> usize {
        self.copies.iter().filter(|copy| copy.is_formed()).count()
    }

    /// Right's row when the split is done, without a leader: the copies that are formed, which count. Its epoch is left's, so that
    /// the one in which it is led first is above every epoch of left's log before the split.
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

/// What is known of the middle of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Middle {
    /// About as many bytes are before this key as from it on.
    At(Bytes),
    /// Its rows are being walked over: whoever wants to know asks again.
    Searching,
    /// No key parts it into halves.
    Indivisible,
}

/// Checks the key at which a partition with these keys is to be split: a key that it has, and not its first.
///
/// # Errors
/// `InvalidArgument` for what is no key; `Refused`, with the key and the range, for one at which this partition cannot be split as things
/// stand.
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
    fn a_split_point_is_within_the_range_and_not_its_first_key() {
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
