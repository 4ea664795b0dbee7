//! Changes of existing nodes and tables: effect and duration.

use crate::bed::{TABLE, TestBed, boxed, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

/// Returns the number of in-sync copies of each partition of the first table, and the number required for writes.
fn copies(bed: &TestBed) -> Vec<(usize, u8)> {
    bed.state.partitions.of_table(TABLE).map(|row| (row.live().count(), row.min_in_sync)).collect()
}

fn so_many(replication: u8) -> TableChange {
    TableChange { replication: Some(replication), ..TableChange::default() }
}

fn wants(bed: &mut TestBed, replication: u8) {
    let command = check_alter_table(&bed.state, &bed.state.tables[&TABLE], &so_many(replication)).expect("it may");
    bed.ok(command.expect("a change"));
}

fn altered(bed: &mut TestBed, node: NodeId, change: &TraitsChange) {
    let command = check_alter_node(&bed.state, node, change).expect("it may").command.expect("a change");
    bed.ok(command);
}

fn weight(weight: u32) -> TraitsChange {
    TraitsChange { weight: Some(weight), ..TraitsChange::default() }
}

/// Restarts the node with these flags.
fn restarted(bed: &mut TestBed, node: NodeId, boot: u128, flags: &NodeTraits) {
    let row = bed.state.node(node).expect("known").clone();
    let held = bed.state.partitions.on_node(node).filter_map(|row| row.placement_on(node)).map(|copy| copy.id);
    let boot = BootId::new(uuid::Uuid::from_u128(boot));
    let again = Register {
        held: held.collect(),
        last_incarnation: row.activated,
        zone: flags.zone.clone(),
        weight: flags.weight,
        partitions_max: flags.partitions_max,
        ..Register::new(row.node.name, row.node.address, row.storage, boot)
    };
    bed.join_with(again);
}

#[test]
fn altered_traits_persist_until_flags_change() {
    let mut bed = TestBed::running(settings(6, 3, 2), &CITIES);
    let athens = bed.node("athens");
    let version = bed.state.nodes_version;
    let change = TraitsChange { zone: Some(Some("east".into())), partitions_max: Some(Some(9)), ..weight(50) };
    let judged = check_alter_node(&bed.state, athens, &change).unwrap();
    let after = NodeTraits { zone: Some("east".into()), weight: 50, partitions_max: Some(9) };
    assert_eq!((judged.before, judged.after), (NodeTraits::default(), after.clone()));
    bed.ok(judged.command.clone().unwrap());
    assert_eq!(bed.state.node(athens).unwrap().node.traits(), after);
    assert!(bed.state.nodes_version > version, "nodes and clients are told");
    let event = EventKind::NodeAltered { node: athens, before: NodeTraits::default(), after: after.clone() };
    assert_eq!(bed.state.events.back().map(|event| &event.what), Some(&event));
    bed.round_trip();
    // The row has changed meanwhile.
    assert_eq!(bed.refused(judged.command.unwrap()), ErrorKind::StaleVersion);
    assert_eq!(check_alter_node(&bed.state, athens, &change).unwrap().command, None);

    restarted(&mut bed, athens, 501, &NodeTraits::default());
    assert_eq!(bed.state.node(athens).unwrap().node.traits(), after, "started as before");
    let flags = NodeTraits { weight: 200, ..NodeTraits::default() };
    restarted(&mut bed, athens, 502, &flags);
    assert_eq!(bed.state.node(athens).unwrap().node.traits(), NodeTraits { weight: 200, ..after.clone() });
    altered(&mut bed, athens, &weight(70));
    restarted(&mut bed, athens, 503, &flags);
    assert_eq!(bed.state.node(athens).unwrap().node.traits(), NodeTraits { weight: 70, ..after });
}

#[test]
fn traits_out_of_range_are_refused() {
    let mut bed = TestBed::running(settings(3, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    let kind =
        |bed: &TestBed, node, change: &TraitsChange| check_alter_node(&bed.state, node, change).unwrap_err().kind;
    assert_eq!(kind(&bed, athens, &weight(0)), ErrorKind::InvalidArgument);
    let none = TraitsChange { partitions_max: Some(Some(0)), ..TraitsChange::default() };
    assert_eq!(kind(&bed, athens, &none), ErrorKind::InvalidArgument);
    assert_eq!(kind(&bed, NodeId::new(99), &weight(5)), ErrorKind::NotFound);
    let if_version = bed.state.node(athens).unwrap().node.version;
    let traits = NodeTraits { weight: 0, ..NodeTraits::default() };
    assert_eq!(bed.refused(Command::AlterNode { node: athens, if_version, traits }), ErrorKind::InvalidArgument);
    let traits = NodeTraits::default();
    assert_eq!(bed.refused(Command::AlterNode { node: NodeId::new(99), if_version, traits }), ErrorKind::NotFound);
}

/// The operator's traits do not apply to another directory with that name.
#[test]
fn node_with_another_directory_gets_traits_of_its_flags() {
    let mut bed = TestBed::running(settings(3, 1, 3), &CITIES);
    let athens = bed.node("athens");
    altered(&mut bed, athens, &weight(50));
    bed.fail(athens);
    let another = bed.join_with(register("athens", 77, 77));
    assert_eq!(bed.state.node(another).unwrap().node.weight, 100);
    assert_eq!(check_alter_node(&bed.state, athens, &weight(5)).unwrap_err().kind, ErrorKind::NotFound, "it is lost");
}

#[test]
fn plans_drains_and_assignments_use_altered_traits() {
    let mut bed = TestBed::running(settings(8, 4, 2), &["a", "b", "c", "d"]);
    assert!(plan(&bed.state, Goal::default()).moves.is_empty());
    let (a, b) = (bed.node("a"), bed.node("b"));
    let limit = |most| TraitsChange { partitions_max: Some(most), ..TraitsChange::default() };
    altered(&mut bed, a, &limit(Some(1)));
    let moves = plan(&bed.state, Goal::default()).moves;
    assert_eq!(moves.iter().filter(|step| step.from == a).count(), 3, "{moves:?}");
    // A limit on all other nodes makes a drain impossible.
    for name in ["b", "c", "d"] {
        let node = bed.node(name);
        altered(&mut bed, node, &limit(Some(4)));
    }
    let limits = ["b", "c", "d"].map(|name| (name.to_owned(), 4)).to_vec();
    let obstacles = check_drain(&bed.state, a).unwrap_err();
    assert_eq!(obstacles, vec![Obstacle::NodesAtLimit { placements: 4, limits }]);
    assert!(obstacles[0].to_string().contains("(b takes 4 at most, c takes 4"), "{}", obstacles[0]);
    let d = bed.node("d");
    for node in [b, bed.node("c"), d] {
        altered(&mut bed, node, &limit(None));
    }
    assert!(check_drain(&bed.state, a).is_ok());
    // A new table avoids a full node and one of small weight.
    altered(&mut bed, d, &weight(1));
    bed.ok(Command::CreateTable {
        name: "orders".into(),
        partitioning: Partitioning::Hash { partitions: 8 },
        replication: 2,
        holds: TableContent::Data,
    });
    bed.settle();
    let of_table =
        |node| bed.state.partitions.of_table(TableId::new(2)).filter(move |row| row.placement_on(node).is_some());
    assert_eq!((of_table(a).count(), of_table(d).count()), (0, 0));
    bed.ok(boxed(register("e", 9, 9)));
}

#[test]
fn table_takes_writes_while_replication_rises() {
    let mut bed = TestBed::running(settings(4, 3, 1), &CITIES);
    let version = bed.state.tables[&TABLE].version;
    wants(&mut bed, 3);
    assert_eq!(copies(&bed), [(1, 1); 4], "two copies that are to count would keep every write waiting for the second");
    assert!(bed.state.tables[&TABLE].version > version);
    let traits = |replication| TableTraits { replication, limits: RangeLimits::NONE };
    let event = EventKind::TableAltered { table: TABLE, name: "default".into(), before: traits(1), after: traits(3) };
    assert_eq!(bed.state.events.back().map(|event| &event.what), Some(&event));
    assert_eq!(counts(&bed.state).partitions_under_replicated, 4);
    while copies(&bed) != [(3, 2); 4] {
        bed.heartbeat_all();
        bed.round(&[]);
        for (live, min) in copies(&bed) {
            assert_eq!(min, if live == 3 { 2 } else { 1 }, "{live} copies count");
        }
        bed.now = bed.now.plus(100);
    }
    bed.settle();
    assert_eq!((copies(&bed), bed.online()), (vec![(3, 2); 4], 4));
    assert_eq!(check_alter_table(&bed.state, &bed.state.tables[&TABLE], &so_many(3)), Ok(None));
}

#[test]
fn lower_replication_keeps_last_copies() {
    let mut bed = TestBed::running(settings(4, 3, 3), &CITIES);
    let (athens, byzantium) = (bed.node("athens"), bed.node("byzantium"));
    bed.fail(athens);
    bed.fail(byzantium);
    wants(&mut bed, 1);
    assert!(copies(&bed).iter().all(|(live, min)| (*live, *min) == (3, 1)));
    bed.pass(5_000, &[athens, byzantium]);
    // Only the copy on cyrene is reachable: it stays, the others go.
    let cyrene = bed.node("cyrene");
    for row in bed.state.partitions.of_table(TABLE) {
        assert_eq!(row.placement_on(cyrene).map(|copy| copy.state), Some(ReplicaState::Live), "{row:?}");
    }
    bed.rejoin(athens, 501);
    bed.rejoin(byzantium, 502);
    bed.settle();
    assert_eq!((copies(&bed), bed.online()), (vec![(1, 1); 4], 4));
    assert!(bed.state.partitions.of_table(TABLE).all(|row| row.placements.len() == 1));
}

#[test]
fn replication_can_be_changed_repeatedly() {
    let mut bed = TestBed::running(settings(4, 3, 3), &CITIES);
    wants(&mut bed, 1);
    bed.round(&[]);
    wants(&mut bed, 3);
    bed.settle();
    assert_eq!(copies(&bed), [(3, 2); 4]);
    wants(&mut bed, 2);
    bed.settle();
    assert_eq!(copies(&bed), [(2, 1); 4]);
    // A table that waits for its first nodes is assigned with its latest traits.
    let mut bed = TestBed::new(settings(4, 3, 3));
    wants(&mut bed, 1);
    for (number, name) in CITIES.into_iter().enumerate() {
        bed.join(name, 1 + number as u128);
    }
    bed.settle();
    assert_eq!(copies(&bed), [(1, 1); 4]);
    assert_eq!(bed.row(part(3).index).placements.len(), 1);
}

#[test]
fn replication_above_node_count_is_refused() {
    let mut bed = TestBed::running(settings(3, 1, 1), &["athens", "byzantium"]);
    let table = bed.state.tables[&TABLE].clone();
    let error = check_alter_table(&bed.state, &table, &so_many(3)).unwrap_err();
    assert_eq!((error.kind, error.have, error.need), (ErrorKind::Refused, Some(2), Some(3)));
    assert_eq!(error, check_nodes_for(&bed.state, "default", 3).unwrap_err(), "as when it is made");
    let traits = |replication| TableTraits { replication, limits: RangeLimits::NONE };
    let command =
        |replication, if_version| Command::AlterTable { table: TABLE, if_version, traits: traits(replication) };
    assert_eq!(bed.refused(command(0, table.version)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(command(8, table.version)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(command(2, Version::ZERO)), ErrorKind::StaleVersion);
    let unknown = Command::AlterTable { table: TableId::new(9), if_version: table.version, traits: traits(2) };
    assert_eq!(bed.refused(unknown), ErrorKind::NotFound);
}
