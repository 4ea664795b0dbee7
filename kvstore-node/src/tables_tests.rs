//! Tests of the cache of the partition tables.

use super::*;
use archon_types::{
    Epoch, Incarnation, KeyRange, Keys, Millis, NodeGoal, NodeStatus, Partition, PartitionStatus, RemovedNodes,
    TableContent,
};

const TABLE: TableId = TableId::new(1);

fn delta(since: u64, version: u64) -> TableDelta {
    let (name, first) = ("default".to_owned(), Version::new(1));
    TableDelta {
        table: Table {
            id: TABLE,
            name,
            keys: Keys::Hash { partitions: 4 },
            replication: 1,
            holds: TableContent::Data,
            version: first,
        },
        since: Version::new(since),
        version: Version::new(version),
        partitions: vec![],
        nodes: vec![],
        removed: None,
    }
}

fn row(index: u32, version: u64) -> Partition {
    Partition {
        id: PartitionId::new(TABLE, index),
        epoch: Epoch::new(1),
        version: Version::new(version),
        leader: None,
        placements: vec![],
        status: PartitionStatus::Online,
        min_in_sync: 1,
        range: KeyRange::ALL,
        split: None,
        merge: None,
        absorbed: Version::ZERO,
    }
}

fn node(id: u64, version: u64) -> Node {
    Node {
        id: NodeId::new(id),
        name: format!("n{id}"),
        address: format!("n{id}:{version}"),
        incarnation: Incarnation::new(version),
        status: NodeStatus::Alive,
        goal: NodeGoal::Serve,
        zone: None,
        weight: 100,
        partitions_max: None,
        version: Version::new(version),
        since: Millis::ZERO,
        redis: None,
    }
}

fn table(delta: TableDelta) -> PushedUpdates {
    PushedUpdates { pieces: vec![TablePiece::whole(delta)], ..PushedUpdates::default() }
}

fn nodes(since: u64, version: u64, nodes: Vec<Node>) -> PushedUpdates {
    let delta = NodeDelta { since: Version::new(since), version: Version::new(version), nodes, removed: None };
    PushedUpdates { nodes: Some(delta), ..PushedUpdates::default() }
}

fn piece(from: u64, next: Option<u64>, version: u64, rows: Vec<Partition>) -> PushedUpdates {
    let delta = TableDelta { partitions: rows, ..delta(0, version) };
    PushedUpdates { pieces: vec![TablePiece { delta, from, next }], ..PushedUpdates::default() }
}

#[test]
fn empty_name_is_the_default_table() {
    let tables = Tables::new(vec![], Version::ZERO);
    assert_eq!(tables.table(""), None);
    assert!(tables.merge(table(delta(0, 5))));
    assert_eq!(tables.table("").map(|table| table.name), Some("default".to_owned()));
    assert_eq!(tables.table(""), tables.table("default"));
    assert_eq!(tables.table("other"), None);
    assert_eq!(tables.partition_name(PartitionId::new(TableId::new(1), 3)), "default/3");
    assert_eq!(tables.partition_name(PartitionId::new(TableId::new(2), 3)), "2/3");
}

#[test]
fn gap_in_node_rows_is_noticed() {
    let tables = Tables::new(vec![], Version::ZERO);
    assert!(!tables.merge(nodes(3, 5, vec![node(1, 5)])), "nodes before 3 are missing");
    assert_eq!(tables.node(NodeId::new(1)), None);
    assert!(
        tables.merge(PushedUpdates { pieces: table(delta(0, 5)).pieces, ..nodes(0, 5, vec![node(1, 5), node(2, 4)]) })
    );
    assert!(tables.merge(nodes(5, 7, vec![node(2, 7)])));
    assert!(tables.merge(nodes(0, 4, vec![node(2, 4)])), "an older one that was late");
    assert_eq!(tables.node(NodeId::new(2)), Some(node(2, 7)));
    let since_five = tables.newer_than("", Version::new(5), 0).map(|piece| piece.delta.nodes);
    assert_eq!(since_five, Some(vec![node(2, 7)]), "whoever asks for a table gets the nodes with it");
}

#[test]
fn removed_node_is_forgotten() {
    let tables = Tables::new(vec![], Version::ZERO);
    let mut removals = tables.removals();
    assert!(
        tables.merge(PushedUpdates { pieces: table(delta(0, 5)).pieces, ..nodes(0, 5, vec![node(1, 5), node(2, 4)]) })
    );
    assert!(!removals.has_changed().unwrap());
    let removed = RemovedNodes::all_but([NodeId::new(1)].into_iter(), NodeId::new(2), Version::new(6));
    let mut news = nodes(5, 6, vec![]);
    news.nodes.as_mut().unwrap().removed = Some(removed.clone());
    assert!(tables.merge(news));
    assert_eq!((tables.node(NodeId::new(2)), removals.has_changed().unwrap()), (None, true));
    assert_eq!([1, 2, 3].map(|id| tables.is_removed(NodeId::new(id))), [false, true, false]);
    removals.mark_unchanged();
    assert!(tables.merge(nodes(5, 6, vec![node(2, 5), node(3, 6)])), "a row that was late");
    assert_eq!((tables.node(NodeId::new(2)), removals.has_changed().unwrap()), (None, false));
    let told = |since| tables.newer_than("", Version::new(since), 0).map(|piece| piece.delta.removed);
    assert_eq!((told(5), told(6)), (Some(Some(removed)), Some(None)), "clients are told too");
}

#[test]
fn newer_row_or_removal_fences_incarnation() {
    let tables = Tables::new(vec![], Version::ZERO);
    let mut changes = tables.node_changes();
    assert!(tables.merge(nodes(0, 5, vec![node(1, 5), node(2, 4)])));
    let said = |id, life| tables.over(NodeId::new(id), Incarnation::new(life)).map(|over| over.version.get());
    assert_eq!((said(1, 5), said(2, 4), said(2, 3), said(3, 1)), (None, None, Some(4), None));
    assert!(changes.has_changed().unwrap(), "whoever carries them is told that rows came");
    changes.mark_unchanged();
    let mut news = nodes(5, 7, vec![Node { status: NodeStatus::Failed, version: Version::new(7), ..node(1, 5) }]);
    let removed = RemovedNodes::all_but([NodeId::new(1)].into_iter(), NodeId::new(2), Version::new(6));
    news.nodes.as_mut().unwrap().removed = Some(removed);
    assert!(tables.merge(news));
    assert_eq!((said(1, 5), said(1, 6), said(2, 4)), (Some(7), None, Some(6)));
    assert!(changes.has_changed().unwrap());
}

#[test]
fn partial_delta_of_unknown_table_is_a_gap() {
    let tables = Tables::new(vec!["a:1".into()], Version::ZERO);
    assert!(!tables.merge(PushedUpdates { complete: Some(Version::new(5)), ..table(delta(3, 5)) }));
    assert_eq!(tables.version(), Version::ZERO, "with a gap nothing is complete");
    let coordinators = vec!["b:1".to_owned()];
    assert!(tables.merge(PushedUpdates { coordinators, complete: Some(Version::new(5)), ..table(delta(0, 5)) }));
    assert!(!tables.merge(table(delta(9, 12))));
    assert_eq!((tables.version(), tables.coordinators()), (Version::new(5), vec!["b:1".to_owned()]));
}

#[test]
fn announced_coordinators_are_tried_beside_known_ones() {
    let tables = Tables::new(vec!["a:1".into()], Version::ZERO);
    tables.announce(vec!["a:1".into(), "b:1".into()]);
    tables.announce(vec!["c:1".into()]);
    assert_eq!(tables.coordinators(), ["a:1", "c:1"], "the last announcement counts");
    tables.announce((0..2 * COORDINATORS_MAX).map(|n| format!("d{n}:1")).collect());
    assert_eq!(tables.coordinators().len(), COORDINATORS_MAX);
    let coordinators = vec!["c:1".to_owned()];
    assert!(tables.merge(PushedUpdates { coordinators, ..PushedUpdates::default() }));
    assert_eq!(tables.coordinators(), ["c:1"], "one that this node called says where they are");
}

#[test]
fn incomplete_table_or_delta_has_no_effect() {
    let tables = Tables::new(vec![], Version::ZERO);
    assert!(tables.merge(piece(0, Some(2), 5, vec![row(0, 5), row(1, 5)])));
    assert_eq!((tables.table(""), tables.version()), (None, Version::ZERO), "its second half is missing");
    assert!(!tables.merge(piece(3, None, 5, vec![row(3, 5)])), "row 2 is missing");
    assert!(tables.merge(piece(2, None, 6, vec![row(2, 6), row(3, 5)])));
    let held = |from| tables.newer_than("", Version::ZERO, from).map(|piece| piece.delta.partitions.len());
    assert_eq!((held(0), held((1 << 63) | 3)), (Some(4), Some(1)));
    assert_eq!(tables.version(), Version::ZERO, "rows without nodes say nothing about what is known of both");
    assert!(tables.merge(nodes(0, 4, vec![node(1, 4)])));
    assert_eq!(tables.version(), Version::new(4));
    assert!(tables.merge(PushedUpdates { complete: Some(Version::new(6)), ..PushedUpdates::default() }));
    assert_eq!(tables.version_of(""), Some(Version::new(6)));
    // A change in two pieces; the second never comes.
    let mut change = piece(0, Some(1), 9, vec![row(0, 9)]);
    change.pieces[0].delta.since = Version::new(6);
    assert!(tables.merge(change));
    let rows = tables.newer_than("", Version::new(6), 0).map(|piece| piece.delta.partitions);
    assert_eq!((rows, tables.version()), (Some(vec![]), Version::new(6)));
}

#[test]
fn table_version_excludes_missing_node_changes() {
    let tables = Tables::new(vec![], Version::ZERO);
    assert!(tables.merge(PushedUpdates { pieces: table(delta(0, 8)).pieces, ..nodes(0, 5, vec![node(1, 5)]) }));
    let answer = tables.newer_than("", Version::ZERO, 0).map(|piece| piece.delta.version);
    assert_eq!(answer, Some(Version::new(5)), "a node that changed at 6 would never be asked for again");
}

#[test]
fn rows_newer_than_complete_version_are_no_gap() {
    let tables = Tables::new(vec![], Version::ZERO);
    assert!(tables.merge(nodes(0, 3, vec![node(1, 3)])));
    // The nodes have not changed since, nor has the table while the nodes did.
    let rows = TableDelta { partitions: vec![row(0, 5)], ..delta(0, 5) };
    assert!(tables.merge(PushedUpdates { complete: Some(Version::new(8)), ..table(rows) }));
    assert_eq!(tables.complete(), Version::new(8));
    assert!(tables.merge(nodes(8, 9, vec![node(2, 9)])));
    assert!(tables.merge(table(TableDelta { partitions: vec![row(1, 10)], ..delta(8, 10) })));
    assert!(!tables.merge(table(TableDelta { partitions: vec![row(2, 12)], ..delta(11, 12) })), "that is one");
    // A gap in a push that claims completeness does not make it complete.
    assert!(!tables.merge(PushedUpdates { complete: Some(Version::new(20)), ..nodes(15, 20, vec![]) }));
    assert_eq!(tables.complete(), Version::new(8));
}

fn list(version: u64, last: u64, tables: &[u64]) -> PushedUpdates {
    let tables = tables.iter().copied().map(TableId::new).collect();
    let list = TableList { version: Version::new(version), last: TableId::new(last), tables };
    PushedUpdates { tables: Some(list), ..PushedUpdates::default() }
}

#[test]
fn late_row_does_not_restore_dropped_table() {
    let tables = Tables::new(vec![], Version::ZERO);
    let gone = PartitionId::new(TABLE, 1);
    assert!(tables.merge(PushedUpdates { complete: Some(Version::new(5)), ..table(delta(0, 5)) }));
    assert!(tables.merge(piece(0, Some(2), 6, vec![row(0, 6), row(1, 6)])), "more is to follow");
    assert!(tables.merge(list(3, 1, &[1])), "another one was dropped");
    assert_eq!((tables.table("").is_some(), tables.dropped(gone)), (true, None));
    let version = Some(Version::new(7));
    assert!(tables.merge(PushedUpdates { complete: version, ..list(7, 2, &[2]) }));
    assert_eq!((tables.table(""), tables.version()), (None, Version::new(7)), "the version does not fall");
    assert_eq!(tables.dropped(gone).map(|why| (why.kind, why.table_version)), Some((ErrorKind::NotFound, version)));
    assert_eq!(tables.dropped(PartitionId::new(TableId::new(2), 0)), None, "it has not come yet");
    assert_eq!(tables.dropped(PartitionId::new(TableId::new(3), 0)), None, "it was made since");
    // Older and late: no gap, as there is nothing to ask for.
    assert!(tables.merge(table(delta(0, 6))) && tables.merge(piece(2, None, 6, vec![row(2, 6)])));
    assert!(tables.merge(list(3, 1, &[1])));
    assert_eq!((tables.table(""), tables.dropped(gone).is_some()), (None, true));
}

#[test]
fn name_of_dropped_table_is_not_found() {
    let tables = Tables::new(vec![], Version::ZERO);
    let answer = |name| tables.dropped_name(name).map(|dropped| (dropped.kind, dropped.table_version));
    assert!(tables.merge(PushedUpdates { complete: Some(Version::new(5)), ..table(delta(0, 5)) }));
    assert!(tables.merge(PushedUpdates { complete: Some(Version::new(7)), ..list(7, 2, &[2]) }));
    assert_eq!(answer("default"), None, "table 2, which is not known here yet, may have that name now");
    let orders = Table { id: TableId::new(2), name: "orders".to_owned(), ..delta(0, 7).table };
    assert!(tables.merge(table(TableDelta { table: orders, ..delta(0, 7) })));
    for name in ["", "default"] {
        assert_eq!(answer(name), Some((ErrorKind::NotFound, Some(Version::new(7)))));
    }
    assert_eq!(answer("invoices"), None, "it was never there");
    // Another table has the name now, and is dropped in turn.
    let again = || TableDelta { table: Table { id: TableId::new(3), ..delta(0, 8).table }, ..delta(0, 8) };
    assert!(tables.merge(table(again())));
    assert_eq!(tables.table("default").map(|table| table.id), Some(TableId::new(3)));
    assert!(tables.merge(list(9, 3, &[2])));
    assert_eq!((tables.table("default"), answer("default").is_some()), (None, true));
}

#[test]
fn dropped_names_are_bounded_and_newest_stay() {
    let tables = Tables::new(vec![], Version::ZERO);
    let last = DROPPED_NAMES_MAX as u64 + 2;
    for id in 1..=last {
        let name = format!("t{id}");
        let row = Table { id: TableId::new(id), name, ..delta(0, 5).table };
        assert!(tables.merge(table(TableDelta { table: row, ..delta(0, 5) })));
    }
    assert!(tables.merge(list(6, last, &[])));
    let remembered = [1, 2, 3, last].map(|id| tables.dropped_name(&format!("t{id}")).is_some());
    assert_eq!(remembered, [false, false, true, true]);
}
