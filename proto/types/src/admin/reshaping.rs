//! Progress of splits and merges of partitions in tables by ranges.

use crate::admin::word::words;
use serde::{Deserialize, Serialize};

words! {
    /// Kind of a range change.
    #[derive(Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum ReshapingKind: "kind of reshaping" {
        /// Its keys from one on become those of a new partition.
        Split = "split",
        /// It gets the keys of its right neighbour, which ends.
        Merge = "merge",
    }
}

words! {
    /// Phase of a split or merge.
    #[non_exhaustive]
    pub enum ReshapingPhase: "phase of a split or merge" {
        /// Of a split: the new partition's copies get the keys, and everything is served.
        Copying = "copying",
        /// Of a split: the keys are given up; they wait for the new partition's copies to be whole.
        Forming = "forming",
        /// Of a merge: the right partition's keys are given up; they wait for the left one to have them.
        Absorbing = "absorbing",
    }
}
