//! Registration: admitted nodes, and strangers to forget.

use crate::bed::{TestBed, boxed, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

#[test]
fn same_process_gets_same_answer() {
    let mut bed = TestBed::new(settings(3, 1, 1));
    let first = bed.ok(boxed(register("athens", 1, 1)));
    let version = bed.state.table_version();
    assert_eq!(bed.ok(boxed(register("athens", 1, 1))), first);
    assert_eq!(bed.state.table_version(), version);
}

#[test]
fn bad_registrations_change_nothing() {
    let mut bed = TestBed::running(settings(3, 1, 1), &["athens"]);
    let good = || register("corinth", 9, 9);
    let cases = [
        (Register { name: "a b".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { address: "nowhere".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { address: "host:0".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { address: ":70".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { address: "h:70000".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { redis: Some("nowhere".into()), ..good() }, ErrorKind::InvalidArgument),
        (Register { zone: Some("".into()), ..good() }, ErrorKind::InvalidArgument),
        (Register { weight: 0, ..good() }, ErrorKind::InvalidArgument),
        (Register { partitions_max: Some(0), ..good() }, ErrorKind::InvalidArgument),
        (Register { storage: StorageId::NIL, ..good() }, ErrorKind::InvalidArgument),
        (Register { protocol_min: 2, protocol_max: 3, ..good() }, ErrorKind::ProtocolMismatch),
        (Register { name: "athens".into(), ..good() }, ErrorKind::NameTaken),
        (Register { address: "athens.example:7000".into(), ..good() }, ErrorKind::NameTaken),
    ];
    for (bad, kind) in cases {
        assert_eq!(bed.refused(boxed(bad.clone())), kind, "{bad:?}");
    }
    bed.ok(boxed(good()));
}

#[test]
fn redis_address_is_that_of_the_last_registration() {
    let mut bed = TestBed::running(settings(3, 1, 1), &["athens"]);
    let redis = |address: Option<&str>| address.map(Into::into);
    let first = Register { redis: redis(Some("127.0.0.1:6379")), ..register("corinth", 9, 9) };
    assert_eq!(first.clone().by_protocol(PROTOCOL_FIRST).redis, None, "it came with a later protocol");
    assert_eq!(first.clone().by_protocol(REDIS_SINCE), first);
    let corinth = bed.join_with(first.clone());
    assert_eq!(bed.state.node(corinth).unwrap().node.redis, first.redis);
    // The process starts again without the listener.
    let expects = Some(bed.incarnation(corinth));
    let again = Register { redis: None, expects, last_incarnation: expects, ..register("corinth", 9, 10) };
    bed.ok(boxed(again));
    assert_eq!(bed.state.node(corinth).unwrap().node.redis, None);
}

/// When the protocol rises, each process gives the address once more. A new incarnation would cost its leaderships.
#[test]
fn redis_address_of_running_process_is_published_in_place() {
    let mut bed = TestBed::running(settings(3, 1, 1), &["athens"]);
    let first = register("corinth", 9, 9);
    let corinth = bed.join_with(first.clone());
    let before = bed.state.node(corinth).unwrap().node.clone();
    let address = Some("127.0.0.1:6379".to_owned());
    bed.ok_as_is(Register { redis: address.clone(), ..first.clone() });
    let after = bed.state.node(corinth).unwrap().node.clone();
    assert_eq!((after.redis.clone(), after.incarnation), (address, before.incarnation));
    assert!(after.version > before.version && bed.state.nodes_version >= after.version, "members learn of it");
    // An attempt without the address that arrives late does not take it back.
    bed.ok(boxed(first));
    assert_eq!(bed.state.node(corinth).unwrap().node, after);
}

/// Its list of copies is older than the copies that the incarnation was given meanwhile.
#[test]
fn late_redis_address_of_failed_incarnation_loses_no_copy() {
    let mut bed = TestBed::running(settings(4, 1, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let known = bed.state.node(athens).unwrap();
    let late = Register {
        boot: known.boot,
        held: vec![],
        last_incarnation: known.activated,
        redis: Some("127.0.0.1:6379".to_owned()),
        ..register("athens", 1, 1)
    };
    bed.fail(athens);
    let live = |bed: &TestBed| bed.state.partitions.iter().map(|row| row.live().count()).collect::<Vec<_>>();
    let before = (live(&bed), bed.state.node(athens).cloned());
    let Response::Refused(error) = bed.one_as_is(late) else { panic!("a late attempt began an incarnation") };
    assert_eq!(error.kind, ErrorKind::StaleVersion);
    assert_eq!((live(&bed), bed.state.node(athens).cloned()), before);
}

#[test]
fn departed_strangers_do_not_bar_new_nodes() {
    let mut bed = TestBed::running(settings(4, 2, 2), &["athens", "byzantium"]);
    let own = [bed.node("athens"), bed.node("byzantium")];
    let most = archon_coordinator_core::STRANGERS_MAX;
    let name = |number: usize| format!("stranger-{number:04}");
    let arrives = |bed: &mut TestBed, number: usize| {
        let number_of_directory = 1_000 + number as u128;
        bed.ok(boxed(register(&name(number), number_of_directory, number_of_directory)));
        bed.node(&name(number))
    };
    let first: Vec<NodeId> = (0..most + 5).map(|number| arrives(&mut bed, number)).collect();
    // One of them is a real node: it has confirmed that it acts.
    let incarnation = bed.incarnation(first[0]);
    bed.ok(Command::Activate { node: first[0], incarnation });
    bed.fail(own[0]);
    bed.pass(2_000, &[&first[..], &own[..1]].concat());
    let strangers = |bed: &TestBed| bed.state.nodes.keys().filter(|node| bed.state.is_stranger(**node)).count();
    assert_eq!(strangers(&bed), most + 4);
    // The next newcomer gets room, and the strangers that left longest ago are forgotten for it.
    let last = arrives(&mut bed, most + 5);
    assert_eq!(strangers(&bed), most - 1);
    for kept in [first[0], own[0], own[1], last] {
        assert!(bed.state.node(kept).is_some(), "{kept}");
    }
    assert!(bed.state.node(first[1]).is_none() && bed.state.node(first[most + 4]).is_some());
}

#[test]
fn stranger_is_forgotten_after_a_while_acting_node_is_not() {
    let mut bed = TestBed::running(settings(4, 2, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    bed.ok(boxed(register("stranger", 50, 50)));
    let stranger = bed.node("stranger");
    bed.pass(2_000, &[athens, stranger]);
    let failed = |bed: &TestBed, node| bed.state.node(node).map(|row| row.node.status);
    assert_eq!(failed(&bed, stranger), Some(NodeStatus::Failed));
    let age_ms = archon_coordinator_core::STRANGER_AGE_MS;
    let late = |bed: &mut TestBed, millis: u64| {
        bed.now = bed.now.plus(millis);
        bed.heartbeat_all();
        bed.pass(300, &[athens, stranger]);
    };
    late(&mut bed, age_ms - 10_000);
    assert_eq!(failed(&bed, stranger), Some(NodeStatus::Failed));
    late(&mut bed, 10_000);
    assert_eq!(failed(&bed, stranger), None);
    assert_eq!(failed(&bed, athens), Some(NodeStatus::Failed));
    // It may return as a newcomer.
    bed.ok(boxed(register("stranger", 50, 51)));
}
