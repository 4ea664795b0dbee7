//! Snapshots: what a leader shows of its partition as of one position of the log. The rows are read by whoever has the engine,
//! once that holds everything up to the position and nothing beyond; here is decided whether, and of which keys.

use crate::local_copy::{ENGINE_AHEAD_UNKNOWN, LocalCopy};
use crate::partitions::Partitions;
use crate::refusal::Refusal;
use crate::shell::Shell;
use archon_replica::Position;
use archon_types::{KeyRange, PartitionId, PlacementId, Seq};

/// What a snapshot shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotStart {
    /// The last entry of the log that is seen.
    pub position: Position,
    /// The keys of which every row is shown.
    pub keys: KeyRange,
}

impl<S: Shell> Partitions<S> {
    /// The copy that leads a partition here, of which a snapshot may be made.
    ///
    /// # Errors
    /// Why there is none: above all if this node does not lead.
    pub fn snapshot_source(&self, partition: PartitionId) -> Result<PlacementId, Refusal> {
        let placement = self.active(partition).ok_or(Refusal::Elsewhere)?;
        self.led_by(placement, partition).map(|_| placement)
    }

    /// What a snapshot of a copy shows of the keys that are `wanted`, if the engine holds every effect up to `at` and none beyond.
    ///
    /// A leadership that was over without this node's knowing has shown no more than it led to: whoever wants every write that was
    /// acknowledged before some moment reads linearizably after it, and asks for the snapshot then.
    ///
    /// # Errors
    /// Why this copy shows nothing: also if the first of those keys is not the partition's, or its log seals it.
    pub fn snapshot_of(
        &self,
        placement: PlacementId,
        partition: PartitionId,
        wanted: &KeyRange,
        at: Seq,
    ) -> Result<SnapshotStart, Refusal> {
        let local = self.led_by(placement, partition)?;
        // After a restart or a copy the engine may have rows of positions that are not known to be committed here yet.
        let ahead = local.memtable.engine_ahead();
        if ahead == ENGINE_AHEAD_UNKNOWN || ahead.max(local.memtable.engine_position()) > at {
            return Err(Refusal::CommitUnknown);
        }
        let range = local.range().cloned().ok_or(Refusal::Changing)?;
        if !range.contains(&wanted.begin) {
            return Err(Refusal::Moved);
        }
        // What is sealed may be served by another partition, whose writes this one does not have.
        let open = local.split.unsealed(range);
        if !open.contains(&wanted.begin) {
            return Err(Refusal::Changing);
        }
        let position = local.replica.position_at(at).ok_or(Refusal::CommitUnknown)?;
        Ok(SnapshotStart { position, keys: open.and(wanted) })
    }

    fn led_by(&self, placement: PlacementId, partition: PartitionId) -> Result<&LocalCopy<S>, Refusal> {
        let shell = self.shell();
        if shell.is_stopping() {
            return Err(Refusal::Stopping);
        }
        if shell.is_dropped(partition) {
            return Err(Refusal::Dropped);
        }
        let local = self.copies.get(&placement).filter(|local| local.serving && !local.set_aside);
        local.ok_or(Refusal::Elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::Broken;
    use crate::test_shell::{OWN, PARTITION, TestShell, row, serving};
    use bytes::Bytes;

    fn leader() -> Partitions<TestShell> {
        serving(Broken::default(), row(1, &[]))
    }

    fn committed(node: &Partitions<TestShell>) -> Seq {
        node.copies[&OWN].memtable.committed()
    }

    #[test]
    fn who_does_not_lead_gives_no_snapshot() {
        let mut node = leader();
        assert_eq!(node.snapshot_source(PARTITION), Ok(OWN));
        let other = PartitionId::new(PARTITION.table, PARTITION.index + 1);
        assert_eq!(node.snapshot_source(other), Err(Refusal::Elsewhere));
        node.copies.get_mut(&OWN).expect("a copy").serving = false;
        assert_eq!(node.snapshot_source(PARTITION), Err(Refusal::Elsewhere));
    }

    #[test]
    fn rows_of_unknown_positions_are_not_shown() {
        let mut node = leader();
        let at = committed(&node);
        assert!(node.snapshot_of(OWN, PARTITION, &KeyRange::ALL, at).is_ok());
        let local = node.copies.get_mut(&OWN).expect("a copy");
        local.memtable.set_engine_ahead(at.next().expect("not the last"));
        assert_eq!(node.snapshot_of(OWN, PARTITION, &KeyRange::ALL, at), Err(Refusal::CommitUnknown));
    }

    #[test]
    fn of_the_keys_that_are_wanted_those_are_shown_that_the_partition_has() {
        let mut row = row(1, &[]);
        let range = |begin: &'static str, end: &'static str| KeyRange {
            begin: Bytes::from_static(begin.as_bytes()),
            end: Some(Bytes::from_static(end.as_bytes())),
        };
        row.range = range("c", "m");
        let node = serving(Broken::default(), row);
        let keys =
            |wanted: &KeyRange| node.snapshot_of(OWN, PARTITION, wanted, committed(&node)).map(|start| start.keys);
        assert_eq!(keys(&range("c", "z")), Ok(range("c", "m")));
        assert_eq!(keys(&range("d", "f")), Ok(range("d", "f")));
        assert_eq!(keys(&KeyRange::ALL), Err(Refusal::Moved), "its first keys are another partition's");
        assert_eq!(keys(&range("m", "z")), Err(Refusal::Moved));
    }
}
