//! Progress of splits and merges of partitions in tables by ranges.

use crate::admin::open_enum::words;
use serde::{Deserialize, Serialize};

words! {
    /// Kind of a range change.
    #[derive(Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum RangeChangeKind: "kind of reshaping" {
        /// The keys from a split key on move to a new partition.
        Split = "split",
        /// The keys of the right neighbour move to this partition; the neighbour is deleted.
        Merge = "merge",
    }
}

words! {
    /// Phase of a split or merge.
    #[non_exhaustive]
    pub enum RangeChangePhase: "phase of a split or merge" {
        /// Of a split: the replicas of the new partition are built, and all keys are served.
        Copying = "copying",
        /// Of a split: the moved keys are unavailable until the replicas of the new partition are complete.
        Forming = "forming",
        /// Of a merge: the keys of the right partition are unavailable until the left one holds them.
        Absorbing = "absorbing",
    }
}
