//! Growth of a partition as its leader knows it, and walks over its rows.

use crate::ranges::heat::Heat;
use crate::ranges::undersized::SmallWatch;
use archon_types::{KeyRange, Millis, Op, PartitionId, PlacementId};
use bytes::Bytes;

/// Longest validity of a split key found by a walk, in milliseconds: the partition keeps changing.
pub(crate) const MIDDLE_MS_MAX: u64 = 30_000;

/// Walk over the rows of a partition, to find the bytes of user keys and values, and the middle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitSearch {
    /// The partition.
    pub partition: PartitionId,
    /// Its copy here.
    pub placement: PlacementId,
    /// Its keys.
    pub range: KeyRange,
}

/// Growth of a partition whose table has limits, as its leader knows it.
#[derive(Debug, Default)]
pub(crate) struct SplitWatch {
    /// Its operations, if their rate is limited.
    pub(crate) heat: Option<Heat>,
    pub(crate) walk: Walk,
    /// Present if it is small and small partitions are merged.
    pub(crate) small: Option<SmallWatch>,
}

#[derive(Debug, Default)]
pub(crate) enum Walk {
    /// No walk is needed before that.
    #[default]
    Ready,
    /// Requested.
    UnderWay,
    /// Within its limit until it stores `grown_to` bytes, as far as known.
    Rest { until: Millis, grown_to: Option<u64> },
    /// Above its limit; `at` is its split key.
    Found { range: KeyRange, at: Bytes, bytes: u64, found: Millis, said: Millis },
}

impl SplitWatch {
    /// Counts an operation that is carried out.
    pub(crate) fn note(&mut self, op: &Op) {
        let Some(heat) = &mut self.heat else { return };
        match op {
            Op::Scan { keys, .. } => heat.add(&keys.begin),
            op => {
                op.any_key(|key| {
                    heat.add(key);
                    false
                });
            }
        }
    }
}
