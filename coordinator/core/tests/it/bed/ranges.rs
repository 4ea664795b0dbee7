//! A table by ranges for tests.

use super::{TestBed, settings};
use archon_coordinator_core::*;
use archon_types::*;
use bytes::Bytes;

/// The table by ranges.
pub(crate) const TIMES: TableId = TableId::new(2);
/// Names of the nodes, of which as many are used as needed.
const NODES: [&str; 6] = ["athens", "byzantium", "cyrene", "delphi", "ephesus", "fasos"];

/// Returns the id of a partition of the table by ranges.
pub(crate) fn times(index: u32) -> PartitionId {
    PartitionId::new(TIMES, index)
}

pub(crate) fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

impl TestBed {
    /// Creates this number of nodes and a table by ranges, split at these keys, without further changes.
    pub(crate) fn with_ranges(nodes: usize, replication: u8, split_at: &[&str], limits: RangeLimits) -> Self {
        let mut bed = Self::running(settings(1, 3, 1), &NODES[..nodes]);
        let split_at = split_at.iter().map(|at| key(at)).collect();
        let partitioning = Partitioning::Range { split_at, limits };
        bed.ok(Command::CreateTable { name: "times".into(), partitioning, replication, holds: TableContent::Data });
        bed.settle();
        bed
    }

    /// Returns the row of a partition of the table by ranges.
    pub(crate) fn of_times(&self, index: u32) -> &Partition {
        self.state.partition(times(index)).expect("a partition")
    }
}
