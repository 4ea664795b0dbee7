//! Remaining data in a copy that is not in sync.

use crate::admin::word::words;
use serde::{Deserialize, Serialize};

words! {
    /// Remaining data in a copy that is not in sync. Ordered from worst to best.
    #[derive(Serialize, Deserialize)]
    pub enum Condition: "condition of a copy" {
        /// It counted once, and its data is damaged, missing, or was thrown away to be copied anew.
        Gone = "gone",
        /// It never counted: a copy under way, with an unknown part of the data.
        Partial = "partial",
        /// It is from an older or another state of its node's directory: whole once, nobody knows as of when.
        Older = "older",
        /// It holds everything up to the moment it ceased to count.
        Whole = "whole",
    }
}
