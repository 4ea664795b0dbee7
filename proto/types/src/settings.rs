//! Cluster-wide settings; they live in the Raft log, so that every coordinator and node has the same.

use crate::lease::LeaseTiming;
use serde::{Deserialize, Serialize};

/// What the operator chose for the whole cluster at bootstrap.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Heartbeat, lease and failure time-outs.
    pub timing: LeaseTiming,
    /// Live nodes that must be registered before the first assignment, at least 1.
    pub nodes_min: u32,
    /// Partitions of the `default` table, `1..=16384`.
    pub partitions: u32,
    /// Copies of each partition of the `default` table, at least 1.
    pub replication: u8,
    /// How long a follower may leave an append unanswered before its leader asks to drop it, in milliseconds.
    pub replication_timeout_ms: u64,
    /// How long a node stays failed before its replicas are loaded elsewhere, in milliseconds.
    pub replace_after_ms: u64,
    /// Copies that may be under way to or from one node at once.
    pub copies_per_node_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timing: LeaseTiming::default(),
            nodes_min: 1,
            partitions: 64,
            replication: 1,
            replication_timeout_ms: 1_000,
            replace_after_ms: 300_000,
            copies_per_node_max: 2,
        }
    }
}

/// The least Live replicas with which a partition of `replication` copies may serve: ⌈R/2⌉ (2 of 3, 1 of 2, 1 of 1).
pub const fn min_in_sync_default(replication: u8) -> u8 {
    replication.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_in_sync_follows_the_design() {
        let found: Vec<u8> = (1..=5).map(min_in_sync_default).collect();
        assert_eq!(found, [1, 1, 2, 2, 3]);
    }
}
