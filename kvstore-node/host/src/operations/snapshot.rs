//! Snapshots: a leader's view of its partition as of one log position. This module decides whether a copy may give one,
//! and of which keys; the engine's owner reads the rows once the engine holds everything up to the position and nothing
//! beyond.

use crate::copies::local_copy::{ENGINE_AHEAD_UNKNOWN, LocalCopy};
use crate::operations::refusal::Refusal;
use crate::partitions::Partitions;
use crate::shell::Shell;
use archon_replica::Position;
use archon_types::{KeyRange, PartitionId, PlacementId, Seq};

/// Scope of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotStart {
    /// The last log entry included.
    pub position: Position,
    /// The keys of which every row is included.
    pub keys: KeyRange,
}

impl<S: Shell> Partitions<S> {
    /// Returns the copy that leads a partition here, from which a snapshot may be made.
    ///
    /// # Errors
    /// The reason why there is none, above all that this node does not lead.
    pub fn snapshot_source(&self, partition: PartitionId) -> Result<PlacementId, Refusal> {
        let placement = self.active(partition).ok_or(Refusal::Elsewhere)?;
        self.led_by(placement, partition).map(|_| placement)
    }

    /// Returns the scope of a snapshot of a copy, limited to the `wanted` keys. The engine must hold every effect up to
    /// `at` and none beyond.
    ///
    /// A leadership that had ended without this node's knowledge shows no more than it led to. For every write
    /// acknowledged before some moment, read linearizably after that moment and then take the snapshot.
    ///
    /// # Errors
    /// The reason why this copy gives none, also if the first of those keys is not the partition's, or its log seals
    /// it.
    pub fn snapshot_of(
        &self,
        placement: PlacementId,
        partition: PartitionId,
        wanted: &KeyRange,
        at: Seq,
    ) -> Result<SnapshotStart, Refusal> {
        let local = self.led_by(placement, partition)?;
        // After a restart or a pull the engine may have rows of positions not yet known to be committed here.
        let ahead = local.memtable.engine_ahead();
        if ahead == ENGINE_AHEAD_UNKNOWN || ahead.max(local.memtable.engine_position()) > at {
            return Err(Refusal::CommitUnknown);
        }
        let range = local.range().cloned().ok_or(Refusal::Changing)?;
        if !range.contains(&wanted.begin) {
            return Err(Refusal::Moved);
        }
        // Another partition may serve sealed keys; this one lacks its writes.
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
    use crate::mutant::DisabledRule;
    use crate::test_shell::{OWN, PARTITION, TestShell, row, serving};
    use bytes::Bytes;

    fn leader() -> Partitions<TestShell> {
        serving(DisabledRule::default(), row(1, &[]))
    }

    fn committed(node: &Partitions<TestShell>) -> Seq {
        node.copies[&OWN].memtable.committed()
    }

    #[test]
    fn snapshot_is_refused_without_leadership() {
        let mut node = leader();
        assert_eq!(node.snapshot_source(PARTITION), Ok(OWN));
        let other = PartitionId::new(PARTITION.table, PARTITION.index + 1);
        assert_eq!(node.snapshot_source(other), Err(Refusal::Elsewhere));
        node.copies.get_mut(&OWN).expect("a copy").serving = false;
        assert_eq!(node.snapshot_source(PARTITION), Err(Refusal::Elsewhere));
    }

    #[test]
    fn snapshot_is_refused_while_commit_unknown() {
        let mut node = leader();
        let at = committed(&node);
        assert!(node.snapshot_of(OWN, PARTITION, &KeyRange::ALL, at).is_ok());
        let local = node.copies.get_mut(&OWN).expect("a copy");
        local.memtable.set_engine_ahead(at.next().expect("not the last"));
        assert_eq!(node.snapshot_of(OWN, PARTITION, &KeyRange::ALL, at), Err(Refusal::CommitUnknown));
    }

    #[test]
    fn snapshot_covers_requested_keys_of_partition() {
        let mut row = row(1, &[]);
        let range = |begin: &'static str, end: &'static str| KeyRange {
            begin: Bytes::from_static(begin.as_bytes()),
            end: Some(Bytes::from_static(end.as_bytes())),
        };
        row.range = range("c", "m");
        let node = serving(DisabledRule::default(), row);
        let keys =
            |wanted: &KeyRange| node.snapshot_of(OWN, PARTITION, wanted, committed(&node)).map(|start| start.keys);
        assert_eq!(keys(&range("c", "z")), Ok(range("c", "m")));
        assert_eq!(keys(&range("d", "f")), Ok(range("d", "f")));
        assert_eq!(keys(&KeyRange::ALL), Err(Refusal::Moved), "its first keys are another partition's");
        assert_eq!(keys(&range("m", "z")), Err(Refusal::Moved));
    }
}
