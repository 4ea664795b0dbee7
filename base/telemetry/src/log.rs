//! Readings of a member's write-ahead log, which nodes and coordinators share.

use crate::histogram::Distribution;
use crate::metrics;
use archon_types::Definition;

metrics! {
    /// The write-ahead log of a member.
    #[derive(Clone, Copy, Debug)]
    pub struct LogReadings {
        syncs: u64 = Definition::counter("archon_wal_syncs_total", "durable writes of the write-ahead log");
        batches: u64 = Definition::counter("archon_wal_batches_total", "batches that the write-ahead log made durable");
        written_bytes: u64 = Definition::counter("archon_wal_written_bytes_total", "bytes written to the write-ahead log");
        sync_seconds: Distribution = Definition::histogram(
            "archon_wal_sync_seconds",
            "duration of a durable write of the write-ahead log, until the disk has it"
        );
    }
}
