//! Table deltas in pieces: a whole table with all nodes may exceed one message.
//!
//! Nodes and rows form one sequence: a node at its id, and after all nodes a row at its partition's number. A piece
//! holds the items between two positions, and the position of the next piece. Positions do not change, so an
//! interrupted delivery resumes where it stopped, at the same or another holder, even if rows changed or the table grew
//! meanwhile.

use crate::common::limits::PIECE_BYTES_MAX;
use crate::ids::{NodeId, TableId, Version};
use crate::members::node::Node;
use crate::tables::partition::Partition;
use crate::tables::removed::RemovedNodes;
use crate::tables::table::{Table, TableDelta};
use bytes::Bytes;
use std::collections::BTreeMap;

/// First position of rows: no node has so high an id.
const ROWS_FROM: u64 = 1 << 63;
/// Most nodes of an assembly; more indicate a defect of the sender.
const NODES_MAX: usize = 65_536;

/// Part of a delta.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TablePiece {
    /// Content. Rows and nodes between the two positions are complete up to its version.
    pub delta: TableDelta,
    /// First position of the piece.
    pub from: u64,
    /// Position of the next piece, always after `from`; `None`: this is the last one.
    pub next: Option<u64>,
}

impl TablePiece {
    /// Creates a delta in one piece.
    pub fn whole(delta: TableDelta) -> Self {
        Self { delta, from: 0, next: None }
    }

    /// Cuts the piece at `from` out of the changes since `since`: about [`PIECE_BYTES_MAX`], at least one node or row.
    /// `rows` and `nodes` are the changes, in any order; they are complete up to `version`, and so is the list of
    /// removed nodes, which goes with the first piece.
    pub fn cut<'a>(
        table: Table,
        since: Version,
        version: Version,
        rows: impl Iterator<Item = &'a Partition>,
        nodes: impl Iterator<Item = &'a Node>,
        removed: Option<RemovedNodes>,
        from: u64,
    ) -> Self {
        let removed = removed.filter(|_| from == 0);
        let mut delta = TableDelta { table, since, version, partitions: Vec::new(), nodes: Vec::new(), removed };
        let mut size = PieceSize { bytes: 0 };
        let mut nodes: Vec<_> = nodes.filter(|node| node.id.get() >= from).collect();
        nodes.sort_unstable_by_key(|node| node.id);
        for node in nodes {
            if !size.takes(node_bytes(node)) {
                return Self { delta, from, next: Some(node.id.get()) };
            }
            delta.nodes.push(node.clone());
        }
        let position = |row: &Partition| ROWS_FROM | u64::from(row.id.index);
        let mut rows: Vec<_> = rows.filter(|row| position(row) >= from).collect();
        rows.sort_unstable_by_key(|row| row.id.index);
        for row in rows {
            if !size.takes(row_bytes(row)) {
                return Self { delta, from, next: Some(position(row)) };
            }
            delta.partitions.push(row.clone());
        }
        Self { delta, from, next: None }
    }
}

/// Size of a piece so far.
struct PieceSize {
    bytes: usize,
}

impl PieceSize {
    fn takes(&mut self, bytes: usize) -> bool {
        let takes = self.bytes == 0 || self.bytes + bytes <= PIECE_BYTES_MAX;
        self.bytes += bytes;
        takes
    }
}

/// Returns the maximum encoded size of a row, so that pieces are bounded without encoding them.
fn row_bytes(row: &Partition) -> usize {
    const ROW: usize = 64;
    const PLACEMENT: usize = 28;
    ROW + PLACEMENT * row.placements.len() + row.range.begin.len() + row.range.end.as_ref().map_or(0, Bytes::len)
}

/// Returns the maximum encoded size of a node.
pub fn node_bytes(node: &Node) -> usize {
    const NODE: usize = 96;
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    NODE + node.name.len() + node.address.len() + optional(&node.zone) + optional(&node.redis)
}

/// Pieces received so far. They take effect only after the last one.
#[derive(Clone, Debug)]
pub struct Assembly {
    table: Table,
    since: Version,
    /// Version of the oldest piece: data complete up to it in every piece is complete.
    version: Version,
    rows: BTreeMap<u32, Partition>,
    nodes: BTreeMap<NodeId, Node>,
    removed: RemovedNodes,
    next: u64,
}

/// Result of adding a piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AssemblyResult {
    /// It was the last one: this is the whole delta.
    Whole(TableDelta),
    /// The piece at this position is to follow.
    More(u64),
    /// It does not fit the previous pieces: start again at position zero.
    Gap,
}

impl Assembly {
    /// Adds a piece. The piece at position zero starts again, discarding the previous ones; duplicates are accepted.
    pub fn take(held: &mut Option<Self>, piece: TablePiece) -> AssemblyResult {
        let TablePiece { delta, from, next } = piece;
        if from == 0 && next.is_none() {
            if held.as_ref().is_some_and(|held| held.table.id == delta.table.id) {
                *held = None;
            }
            return AssemblyResult::Whole(delta);
        }
        let newer =
            |held: &Self| held.table.id == delta.table.id && held.since == delta.since && held.version > delta.version;
        if from == 0
            && let Some(held) = held.as_ref().filter(|held| newer(held))
        {
            // Late piece of an earlier attempt. Starting again with it would make the following pieces seem newer than
            // they are.
            return AssemblyResult::More(held.next);
        }
        if from == 0 {
            *held = Some(Self {
                table: delta.table.clone(),
                since: delta.since,
                version: delta.version,
                rows: BTreeMap::new(),
                nodes: BTreeMap::new(),
                removed: RemovedNodes::default(),
                next: 0,
            });
        }
        let goes_on =
            |held: &&mut Self| held.table.id == delta.table.id && held.since == delta.since && from <= held.next;
        let Some(assembly) = held.as_mut().filter(goes_on) else { return AssemblyResult::Gap };
        assembly.add(delta);
        if assembly.nodes.len() > NODES_MAX {
            *held = None;
            return AssemblyResult::Gap;
        }
        match next {
            Some(next) => {
                assembly.next = assembly.next.max(next);
                AssemblyResult::More(assembly.next)
            }
            None => held.take().map_or(AssemblyResult::Gap, |whole| AssemblyResult::Whole(whole.finish())),
        }
    }

    /// Returns the table in assembly.
    pub fn table(&self) -> TableId {
        self.table.id
    }

    fn add(&mut self, delta: TableDelta) {
        for row in delta.partitions {
            if self.rows.get(&row.id.index).is_none_or(|held| held.version < row.version) {
                self.rows.insert(row.id.index, row);
            }
        }
        for node in delta.nodes {
            if self.nodes.get(&node.id).is_none_or(|held| held.version < node.version) {
                self.nodes.insert(node.id, node);
            }
        }
        self.removed.renew(delta.removed);
        self.version = self.version.min(delta.version);
        if delta.table.version > self.table.version {
            self.table = delta.table;
        }
    }

    fn finish(self) -> TableDelta {
        TableDelta {
            table: self.table,
            since: self.since,
            version: self.version,
            partitions: self.rows.into_values().collect(),
            nodes: self.nodes.into_values().collect(),
            removed: self.removed.newer_than(self.since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, PartitionId, PlacementId};
    use crate::tables::key_range::KeyRange;
    use crate::tables::partition::{PartitionStatus, Placement, ReplicaState};
    use crate::tables::partition_table::PartitionTable;
    use crate::tables::table::{Keys, TableContent};

    fn row(index: u32, version: u64) -> Partition {
        let placement = |id| Placement { id: PlacementId::new(id), node: NodeId::new(id), state: ReplicaState::Live };
        Partition {
            id: PartitionId::new(TableId::new(1), index),
            epoch: Epoch::new(version),
            version: Version::new(version),
            leader: Some(PlacementId::new(1)),
            placements: (1..=3).map(placement).collect(),
            status: PartitionStatus::Online,
            min_in_sync: 2,
            range: KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        }
    }

    fn node(id: u64, version: u64) -> Node {
        Node { version: Version::new(version), ..Node::new(NodeId::new(id), format!("n{id}"), format!("n{id}:1")) }
    }

    struct Holder {
        rows: Vec<Partition>,
        nodes: Vec<Node>,
        version: u64,
    }

    impl Holder {
        fn large() -> Self {
            let rows = (0..16_384).map(|index| row(index, 5)).collect();
            Self { rows, nodes: (1..=10_000).map(|id| node(id, 4)).collect(), version: 5 }
        }

        fn piece(&self, from: u64) -> TablePiece {
            let (id, version) = (TableId::new(1), Version::new(1));
            let table = Table {
                id,
                name: "default".into(),
                keys: Keys::Hash { partitions: 16_384 },
                replication: 3,
                holds: TableContent::Data,
                version,
            };
            let version = Version::new(self.version);
            TablePiece::cut(table, Version::ZERO, version, self.rows.iter(), self.nodes.iter(), None, from)
        }

        fn whole(&self) -> PartitionTable {
            let mut delta = self.piece(0).delta;
            (delta.partitions, delta.nodes) = (self.rows.clone(), self.nodes.clone());
            PartitionTable::from_whole(delta).unwrap()
        }
    }

    #[test]
    fn large_table_arrives_whole_with_its_last_piece() {
        let holder = Holder::large();
        let (mut held, mut from, mut pieces) = (None, 0, 0);
        let whole = loop {
            let piece = holder.piece(from);
            pieces += 1;
            match Assembly::take(&mut held, piece) {
                AssemblyResult::More(next) => from = next,
                AssemblyResult::Whole(delta) => break delta,
                AssemblyResult::Gap => panic!("no gap"),
            }
        };
        assert!(pieces >= 4, "{pieces} pieces");
        assert_eq!(PartitionTable::from_whole(whole).unwrap(), holder.whole());
        assert!(held.is_none());
    }

    #[test]
    fn change_between_pieces_does_not_raise_the_version() {
        let mut holder = Holder::large();
        let mut held = None;
        let AssemblyResult::More(next) = Assembly::take(&mut held, holder.piece(0)) else { panic!("one piece") };
        // A row that was delivered already changes, and one that is still to come.
        (holder.rows[0], holder.rows[16_383], holder.version) = (row(0, 9), row(16_383, 8), 9);
        let mut from = next;
        let whole = loop {
            match Assembly::take(&mut held, holder.piece(from)) {
                AssemblyResult::More(next) => from = next,
                AssemblyResult::Whole(delta) => break delta,
                AssemblyResult::Gap => panic!("no gap"),
            }
        };
        assert_eq!(whole.version, Version::new(5), "row 0 of version 9 is missing");
        let mut table = PartitionTable::from_whole(whole).unwrap();
        assert_eq!(table.partition(16_383), Some(&row(16_383, 8)));
        // An update from the claimed version brings the missing rows.
        assert!(table.merge(holder.whole().newer_than(Version::new(5))));
        assert_eq!(table, holder.whole());
    }

    /// A long delayed first piece put an older beginning before a newer end, and the whole passed as new.
    #[test]
    fn late_first_piece_does_not_replace_a_newer_one() {
        let mut holder = Holder::large();
        let late = holder.piece(0);
        (holder.rows[0], holder.version) = (row(0, 9), 9);
        let mut held = None;
        let AssemblyResult::More(mut from) = Assembly::take(&mut held, holder.piece(0)) else { panic!("one piece") };
        assert_eq!(Assembly::take(&mut held, late), AssemblyResult::More(from));
        let whole = loop {
            match Assembly::take(&mut held, holder.piece(from)) {
                AssemblyResult::More(next) => from = next,
                AssemblyResult::Whole(delta) => break delta,
                AssemblyResult::Gap => panic!("no gap"),
            }
        };
        assert_eq!(PartitionTable::from_whole(whole).unwrap(), holder.whole());
    }

    #[test]
    fn interrupted_delivery_resumes_or_restarts_without_gap() {
        let holder = Holder::large();
        let mut held = None;
        let AssemblyResult::More(second) = Assembly::take(&mut held, holder.piece(0)) else { panic!("one piece") };
        let AssemblyResult::More(third) = Assembly::take(&mut held, holder.piece(second)) else { panic!("two pieces") };
        assert_eq!(Assembly::take(&mut held, holder.piece(second)), AssemblyResult::More(third), "said twice");
        assert_eq!(Assembly::take(&mut held, holder.piece(0)), AssemblyResult::More(second), "begun anew");
        assert_eq!(Assembly::take(&mut held, holder.piece(third)), AssemblyResult::Gap, "the second is missing");
        let mut other = holder.piece(second);
        other.delta.since = Version::new(3);
        assert_eq!(Assembly::take(&mut held, other), AssemblyResult::Gap, "of another delta");
        assert_eq!(Assembly::take(&mut None, holder.piece(second)), AssemblyResult::Gap, "the first never came");
    }

    #[test]
    fn small_delta_is_one_piece_and_keeps_other_assemblies() {
        let holder = Holder { rows: vec![row(3, 5)], nodes: vec![node(7, 5)], version: 5 };
        let piece = holder.piece(0);
        assert_eq!((piece.next, piece.delta.partitions.len(), piece.delta.nodes.len()), (None, 1, 1));
        let mut held = None;
        assert!(matches!(Assembly::take(&mut held, Holder::large().piece(0)), AssemblyResult::More(_)));
        let mut other = piece.clone();
        other.delta.table.id = TableId::new(2);
        assert!(matches!(Assembly::take(&mut held, other), AssemblyResult::Whole(_)));
        assert_eq!(held.as_ref().map(Assembly::table), Some(TableId::new(1)));
        assert!(matches!(Assembly::take(&mut held, piece), AssemblyResult::Whole(_)));
        assert!(held.is_none());
    }
}
