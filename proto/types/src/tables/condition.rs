//! Remaining data in a replica that is not in sync.

use crate::admin::open_enum::words;
use serde::{Deserialize, Serialize};

words! {
    /// Remaining data in a replica that is not in sync. Ordered from worst to best.
    #[derive(Serialize, Deserialize)]
    pub enum Condition: "replica condition" {
        /// Was in sync once; its data is damaged, missing, or was discarded to be copied again.
        Gone = "gone",
        /// Was never in sync: an unfinished replica with an unknown part of the data.
        Partial = "partial",
        /// From an older or different state of its node's directory: complete as of an unknown time.
        Older = "older",
        /// Complete up to the moment it left the in-sync set.
        Whole = "whole",
    }
}
