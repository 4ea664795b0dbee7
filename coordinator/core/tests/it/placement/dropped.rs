//! Dropped tables: in any situation they leave only orders to delete.

use crate::bed::{TABLE, TestBed, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use std::collections::BTreeSet;
use uuid::Uuid;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

impl TestBed {
    fn drop_table(&mut self) -> u32 {
        match self.ok(Command::DropTable { table: TABLE }) {
            Response::TableDropped { table: TABLE, copies } => copies,
            other => panic!("not dropped: {other:?}"),
        }
    }

    fn create(&mut self, name: &str, partitions: u32, replication: u8) -> TableId {
        match self.ok(Command::CreateTable {
            name: name.into(),
            partitioning: Partitioning::Hash { partitions },
            replication,
            holds: TableContent::Data,
        }) {
            Response::TableCreated { table } => table,
            other => panic!("not created: {other:?}"),
        }
    }

    /// Returns the copies that a node is ordered to delete.
    fn deletions(&self, node: NodeId) -> Vec<PlacementId> {
        let unloads = |duty: Duty| match duty {
            Duty::Unload { placement, .. } => Some(placement),
            _ => None,
        };
        duties(&self.state, node).unwrap_or_default().into_iter().filter_map(unloads).collect()
    }

    fn copies_on(&self, node: NodeId) -> Vec<PlacementId> {
        let mut copies: Vec<PlacementId> =
            self.state.partitions.on_node(node).filter_map(|row| row.placement_on(node)).map(|copy| copy.id).collect();
        copies.sort();
        copies
    }

    fn news(&self) -> Vec<&EventKind> {
        self.state.events.iter().filter(|event| event.index == self.state.applied).map(|event| &event.what).collect()
    }
}

fn running(partitions: u32) -> (TestBed, [NodeId; 3]) {
    let bed = TestBed::running(settings(partitions, 3, 3), &CITIES);
    let nodes = CITIES.map(|name| bed.node(name));
    (bed, nodes)
}

fn deleted(partition: PartitionId, placement: PlacementId) -> Report {
    Report { partition, placement, epoch: Epoch::ZERO, version: Version::ZERO, fact: Fact::Unloaded }
}

#[test]
fn dropped_table_loses_rows_and_copies() {
    let (mut bed, nodes) = running(4);
    let orders = bed.create("orders", 2, 2);
    bed.settle();
    let held = nodes.map(|node| bed.copies_on(node));
    assert_eq!(bed.drop_table(), 12);
    let (name, table) = ("default".to_owned(), TABLE);
    let dropped = EventKind::TableDropped { table, name, partitions: 4, copies: 12, moves: 0 };
    assert_eq!(bed.news(), [&dropped]);
    assert!(bed.state.table_by_name("default").is_none() && bed.state.partition(part(0)).is_none());
    for (node, held) in nodes.into_iter().zip(&held) {
        let left: BTreeSet<PlacementId> = bed.copies_on(node).into_iter().collect();
        let gone: Vec<PlacementId> = held.iter().filter(|copy| !left.contains(copy)).copied().collect();
        assert_eq!(bed.deletions(node), gone);
    }
    bed.round_trip();
    bed.settle();
    assert!(bed.state.condemned.is_empty() && bed.state.former_leaders.is_empty(), "they said that it is deleted");
    assert_eq!((bed.state.partitions.len(), counts(&bed.state).placements_unloading), (2, 0));
    assert!(bed.state.partitions.of_table(orders).all(|row| row.status == PartitionStatus::Online));
    bed.round_trip();
}

#[test]
fn table_of_dropped_name_has_new_copies() {
    let (mut bed, nodes) = running(2);
    let before: BTreeSet<PlacementId> = nodes.iter().flat_map(|node| bed.copies_on(*node)).collect();
    bed.drop_table();
    let again = bed.create("default", 3, 3);
    assert!(again > TABLE);
    bed.settle();
    let after: BTreeSet<PlacementId> = nodes.iter().flat_map(|node| bed.copies_on(*node)).collect();
    assert!(after.len() == 9 && before.is_disjoint(&after), "no copy of the former one serves the new one");
    assert_eq!(bed.online(), 3);
}

#[test]
fn returning_node_deletes_dropped_copies() {
    let (mut bed, [athens, byzantium, cyrene]) = running(2);
    let held = bed.copies_on(athens);
    bed.fail(athens);
    bed.drop_table();
    assert_eq!(duties(&bed.state, athens), None, "it is told nothing while it is away");
    for node in [byzantium, cyrene] {
        for report in bed.facts_of(node) {
            bed.report(node, &report).expect("deleted");
        }
    }
    assert_eq!(bed.state.condemned.nodes().collect::<Vec<_>>(), [(athens, 2)]);
    let row = bed.state.node(athens).expect("known").clone();
    bed.join_with(Register {
        held: held.clone(),
        last_incarnation: row.activated,
        ..Register::new(row.node.name, row.node.address, row.storage, BootId::new(Uuid::from_u128(77)))
    });
    assert_eq!(bed.deletions(athens), held);
    bed.settle();
    assert!(bed.state.condemned.is_empty());
}

#[test]
fn last_copy_of_dropped_table_is_deleted() {
    let (mut bed, [athens, byzantium, cyrene]) = running(1);
    bed.fail(byzantium);
    bed.fail(cyrene);
    let held = bed.copies_on(athens);
    bed.drop_table();
    assert_eq!(bed.deletions(athens), held, "nobody else is alive, and the operator said so");
}

#[test]
fn lost_replaced_or_removed_node_is_not_awaited() {
    let failed = || {
        let (mut bed, [athens, ..]) = running(2);
        bed.fail(athens);
        bed.drop_table();
        bed.settle_but(athens);
        assert_eq!(bed.state.condemned.count_on(athens), 2);
        let version = bed.state.node(athens).expect("known").node.version;
        (bed, athens, version)
    };
    let (mut bed, node, if_version) = failed();
    bed.ok(Command::RemoveNode { node, if_version });
    assert!(bed.state.condemned.is_empty());
    let (mut bed, node, if_version) = failed();
    bed.ok(Command::NodeLost { node, if_version });
    assert!(bed.state.condemned.is_empty());
    let (mut bed, node, _) = failed();
    bed.join_with(register("athens", 55, 56));
    assert!(bed.state.condemned.is_empty() && bed.state.former_leaders.is_empty());
    assert_eq!(bed.state.node(node).map(|row| row.node.status), Some(NodeStatus::Lost));
}

impl TestBed {
    /// Runs rounds in which all other nodes perform their duties.
    fn settle_but(&mut self, away: NodeId) {
        for _ in 0..20 {
            self.heartbeat_all();
            self.round(&[away]);
        }
    }
}

#[test]
fn table_dropped_during_moves_leaves_no_move() {
    let mut bed = TestBed::running(settings(4, 3, 2), &CITIES);
    let delos = bed.join("delos", 9);
    bed.ok(plan(&bed.state, Goal::default()).start());
    let commands = bed.turn();
    bed.commit(commands);
    assert!(bed.state.migrations.all_running().count() > 0 && bed.state.partitions.count_on(delos) > 0);
    let loading = bed.copies_on(delos);
    let (moves, version) = (bed.state.migrations.active_count() as u32, bed.state.moves_version);
    bed.drop_table();
    assert_eq!(bed.state.migrations.active_count(), 0);
    assert!(bed.state.moves_version > version);
    assert!(
        bed.news().iter().any(|what| matches!(what, EventKind::TableDropped { moves: told, .. } if *told == moves))
    );
    let over = |migration: &Migration| matches!(&migration.stage, Stage::Superseded { why } if why.contains("dropped"));
    assert_eq!(bed.state.migrations.iter().filter(|migration| over(migration)).count(), moves as usize);
    assert_eq!(bed.deletions(delos), loading, "what was being copied goes, too");
    bed.settle();
    assert!(bed.state.condemned.is_empty());
}

#[test]
fn leader_of_dropped_table_stays_withdrawn_until_deleted() {
    let (mut bed, _) = running(1);
    let (leader, epoch) = (bed.leader(0).expect("a leader"), bed.row(0).epoch);
    let placement = bed.row(0).leader.expect("a leader");
    assert_eq!(bed.heartbeat(leader).map(|answer| answer.withdrawn), Some(vec![]));
    bed.drop_table();
    let withdrawn = |bed: &mut TestBed| bed.heartbeat(leader).expect("an answer").withdrawn;
    assert_eq!(withdrawn(&mut bed), [(part(0), epoch)]);
    // It reports that it stopped, which ends nothing; then that the copy is gone.
    let released = Report { partition: part(0), placement, epoch, version: Version::ZERO, fact: Fact::Released };
    assert_eq!(bed.report(leader, &released), Ok(vec![]));
    assert_eq!(withdrawn(&mut bed), [(part(0), epoch)]);
    bed.report(leader, &deleted(part(0), placement)).expect("known");
    assert_eq!(withdrawn(&mut bed), []);
}

#[test]
fn table_dropped_during_failover_elects_no_leader() {
    let (mut bed, [athens, ..]) = running(3);
    let led = bed.state.partitions.leaders_on(athens);
    assert!(led > 0);
    // It returns in another incarnation before a takeover: its former leaderships wait for its lease.
    bed.heartbeat_all();
    bed.rejoin(athens, 88);
    assert!(bed.state.partitions.leaderless_in(TABLE).count() > 0 && !bed.state.former_leaders.is_empty());
    bed.drop_table();
    bed.pass(3_000, &[]);
    assert_eq!((bed.state.partitions.len(), bed.online()), (0, 0));
    bed.settle();
    assert!(bed.state.condemned.is_empty() && bed.state.former_leaders.is_empty());
}

#[test]
fn repeated_drop_spares_successor_table() {
    let (mut bed, _) = running(1);
    let request = Some(RequestId::new(Uuid::from_u128(5)));
    let batch = CommandBatch { request, ..bed.batch(vec![Command::DropTable { table: TABLE }]) };
    let first = bed.commit_batch(&batch);
    assert!(first[0].refusal().is_none(), "{first:?}");
    bed.create("default", 1, 3);
    bed.settle();
    assert_eq!(bed.commit_batch(&batch), first, "the answer is the first one");
    assert!(bed.state.table_by_name("default").is_some());
    // Another request that was decided before.
    assert_eq!(bed.refused(Command::DropTable { table: TABLE }), ErrorKind::NotFound);
}

#[test]
fn drop_advances_every_cache() {
    let (mut bed, _) = running(1);
    let orders = bed.create("orders", 1, 3);
    bed.settle();
    let (before, orders_before) = (bed.state.table_version(), bed.state.version_of(TABLE));
    assert_eq!(before, bed.state.version_of(orders).max(bed.state.nodes_version));
    bed.ok(Command::DropTable { table: orders });
    assert!(bed.state.table_version() > before);
    assert_eq!(bed.state.version_of(TABLE), orders_before);
    let list = bed.state.table_list();
    assert_eq!(list, TableList { version: bed.state.dropped_version, last: orders, tables: vec![TABLE] });
    assert!(list.lacks(orders) && !list.lacks(TABLE) && !list.lacks(TableId::new(orders.get() + 1)));
}

#[test]
fn late_report_of_dropped_table_changes_nothing() {
    let (mut bed, [athens, ..]) = running(1);
    let leader = bed.leader(0).expect("a leader");
    let placement = bed.row(0).leader.expect("a leader");
    let silent = bed.fact(0, placement, Fact::Silent { followers: vec![] });
    bed.drop_table();
    assert_eq!(bed.report(leader, &silent).map_err(|error| error.kind), Err(ErrorKind::NotFound));
    bed.settle();
    assert_eq!(bed.report(leader, &deleted(part(0), placement)), Ok(vec![]), "told twice");
    let never = PartitionId::new(TableId::new(9), 0);
    assert_eq!(bed.report(athens, &deleted(never, placement)).map_err(|error| error.kind), Err(ErrorKind::NotFound));
}

#[test]
fn drained_node_of_dropped_table_is_empty() {
    let (mut bed, [athens, ..]) = running(1);
    bed.ok(Command::SetNode { node: athens, goal: NodeGoal::Drain, if_nodes: None });
    bed.drop_table();
    assert!(bed.news().contains(&&EventKind::NodeDrained { node: athens }));
}

#[test]
fn many_dropped_copies_are_deleted_in_portions() {
    const PARTITIONS: u32 = 5_000;
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    let orders = bed.create("orders", PARTITIONS, 1);
    for _ in 0..4 {
        let commands = bed.turn();
        bed.commit(commands);
    }
    assert_eq!(bed.state.partitions.count_on(athens), PARTITIONS + 1);
    bed.ok(Command::DropTable { table: orders });
    let first = bed.deletions(athens);
    assert_eq!((first.len(), bed.state.condemned.len()), (4_096, PARTITIONS as usize));
    let mark = duties_mark(&bed.state, athens);
    let commands = first.into_iter().map(|placement| Command::Deleted { node: athens, placement }).collect();
    bed.commit(commands);
    assert_ne!(duties_mark(&bed.state, athens), mark, "it is told of the others");
    assert_eq!(bed.deletions(athens).len(), PARTITIONS as usize - 4_096);
}
