//! The protocol of the cluster: its raises, and admission (rules 63 and 64). The simulator replaces the members of a
//! whole cluster by newer and older ones.

use crate::bed::{TestBed, boxed, register, settings, worker};
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use uuid::Uuid;

archon_types::shown_by! {
    RaisedOverOlder => protocol_does_not_rise_over_newly_registered_member,
    HoldOverridden => raise_in_progress_does_not_override_hold,
    AnyProtocolRegisters => member_with_other_protocol_is_refused,
}

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

pub(crate) const fn range(oldest: u32, newest: u32) -> ProtocolRange {
    ProtocolRange { oldest, newest }
}

fn speaking(register: Register, ProtocolRange { oldest, newest }: ProtocolRange) -> Register {
    Register { protocol_min: oldest, protocol_max: newest, ..register }
}

/// Creates a cluster of three coordinators and nodes of protocol 1.
fn bed(mutant: Option<Mutant>) -> TestBed {
    let mut bed = TestBed::running(settings(1, 3, 3), &CITIES);
    let member = |id: u64| {
        let storage = StorageId::new(Uuid::from_u128(id.into()));
        (id, Coordinator { address: format!("127.0.0.1:{id}"), storage, voter: id < 3 })
    };
    let index = bed.state.applied + 1;
    members_changed(&mut bed.state, index, [1, 2, 3].map(member).into(), false);
    bed.state.mutant = mutant;
    bed
}

/// Returns the protocols of the coordinators as the leading one knows them.
fn coordinators(speak: [Option<ProtocolRange>; 3]) -> CoordinatorsSpeak {
    (1..).zip(speak).collect()
}

fn upgraded() -> CoordinatorsSpeak {
    coordinators([Some(range(1, 2)); 3])
}

/// Restarts a node as a version that speaks these protocols.
pub(crate) fn upgrade(bed: &mut TestBed, name: &str, boot: u128, speaks: ProtocolRange) {
    let row = bed.state.node_by_name(name).expect("a node").clone();
    let own = bed.state.partitions.on_node(row.node.id).filter_map(|known| known.placement_on(row.node.id));
    let register = Register {
        held: own.map(|copy| copy.id).collect(),
        last_incarnation: row.activated,
        ..Register::new(name, row.node.address, row.storage, BootId::new(Uuid::from_u128(boot)))
    };
    bed.join_with(speaking(register, speaks));
}

fn raises(bed: &TestBed, coordinators: &CoordinatorsSpeak) -> Option<u32> {
    match check_raise(&bed.state, coordinators).expect("a cluster that runs") {
        Some(Command::RaiseProtocol { to }) => Some(to),
        None => None,
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn protocol_rises_once_every_member_speaks_it() {
    let mut bed = bed(None);
    for (boot, city) in (500..).zip(CITIES) {
        assert_eq!(raises(&bed, &upgraded()), None, "{city} is of the old version");
        upgrade(&mut bed, city, boot, range(1, 2));
    }
    for silent in 0..3 {
        let mut speak = [Some(range(1, 2)); 3];
        for other in [None, Some(ProtocolRange::FIRST)] {
            speak[silent] = other;
            assert_eq!(raises(&bed, &coordinators(speak)), None, "coordinator {} says {other:?}", silent + 1);
        }
    }
    let raise = check_raise(&bed.state, &upgraded()).expect("a cluster that runs").expect("all speak it");
    bed.ok(raise.clone());
    assert_eq!(bed.state.protocol, 2);
    let what = EventKind::ProtocolRaised { before: 1, after: 2 };
    assert_eq!(bed.state.events.back().expect("an event").what, what);
    let events = bed.state.events.len();
    bed.ok(raise);
    assert_eq!((raises(&bed, &upgraded()), bed.state.events.len()), (None, events), "once is enough");
}

#[test]
fn failed_old_node_blocks_raise_until_given_up() {
    let mut bed = bed(None);
    for (boot, city) in (500..).zip(&CITIES[..2]) {
        upgrade(&mut bed, city, boot, range(1, 2));
    }
    let cyrene = bed.node("cyrene");
    bed.fail(cyrene);
    assert_eq!(raises(&bed, &upgraded()), None);
    let members = upgrade_members(&bed.state, &upgraded());
    let waits: Vec<_> = laggards(&members, 2).collect();
    let expected =
        UpgradeMember { name: UpgradeName::Node(cyrene), speaks: Some(ProtocolRange::FIRST), answers: false };
    assert_eq!(waits, [&expected]);
    let if_version = bed.state.node(cyrene).expect("a row").node.version;
    bed.ok(Command::NodeLost { node: cyrene, if_version });
    assert_eq!(raises(&bed, &upgraded()), Some(2));
}

#[test]
fn participants_block_raise() {
    let mut bed = TestBed::jobs(4, 1);
    upgrade(&mut bed, "athens", 500, range(1, 2));
    let none = CoordinatorsSpeak::new();
    assert_eq!(raises(&bed, &none), None);
    let old = bed.node("worker-0");
    bed.fail(old);
    bed.join_with(speaking(worker_of_a_later_version(), range(1, 3)));
    assert_eq!(raises(&bed, &none), Some(2), "what all of them speak");
}

fn worker_of_a_later_version() -> Register {
    let again = BootId::new(Uuid::from_u128(900));
    Register { boot: again, ..worker(0) }
}

#[test]
fn protocol_stays_without_common_version() {
    let mut bed = bed(None);
    for (boot, city) in (500..).zip(CITIES) {
        upgrade(&mut bed, city, boot, range(1, 3));
    }
    let apart = coordinators([Some(range(1, 3)), Some(range(1, 2)), Some(range(1, 4))]);
    assert_eq!(raises(&bed, &apart), Some(2));
    upgrade(&mut bed, "cyrene", 600, range(1, u32::MAX));
    assert_eq!(raises(&bed, &apart), Some(2), "whatever a member says of itself");
    let gap = coordinators([Some(range(1, 4)), Some(range(3, 3)), Some(range(1, 4))]);
    assert_eq!(raises(&bed, &gap), Some(3), "the one that cannot speak 2 waits for nobody");
}

fn protocol_does_not_rise_over_newly_registered_member(mutant: Option<Mutant>) -> bool {
    let mut bed = bed(mutant);
    for (boot, city) in (500..).zip(CITIES) {
        upgrade(&mut bed, city, boot, range(1, 2));
    }
    let raise = check_raise(&bed.state, &upgraded()).expect("a cluster that runs").expect("all speak it");
    upgrade(&mut bed, "cyrene", 600, ProtocolRange::FIRST);
    let index = bed.state.applied + 1;
    let batch = bed.batch(vec![raise]);
    let refused = apply(&mut bed.state, index, &batch)[0].refusal().is_some();
    assert_eq!(check(&bed.state).is_ok(), refused);
    refused
}

fn raise_in_progress_does_not_override_hold(mutant: Option<Mutant>) -> bool {
    let mut bed = bed(mutant);
    for (boot, city) in (500..).zip(CITIES) {
        upgrade(&mut bed, city, boot, range(1, 3));
    }
    bed.ok(Command::RaiseProtocol { to: 2 });
    let raise = next_raise(&bed.state, &coordinators([Some(range(1, 3)); 3])).expect("nobody holds it yet");
    bed.ok(Command::HoldProtocol { held: true });
    bed.one(raise).refusal().is_some()
}

fn member_with_other_protocol_is_refused(mutant: Option<Mutant>) -> bool {
    let mut bed = bed(mutant);
    for (boot, city) in (500..).zip(CITIES) {
        upgrade(&mut bed, city, boot, range(1, 2));
    }
    bed.ok(Command::RaiseProtocol { to: 2 });
    let newcomer = |speaks| boxed(speaking(register("delos", 40, 41), speaks));
    let index = bed.state.applied + 1;
    let batch = bed.batch(vec![newcomer(ProtocolRange::FIRST)]);
    let answer = apply(&mut bed.state, index, &batch).remove(0);
    let Response::Refused(error) = answer else {
        assert!(check(&bed.state).is_err(), "the invariant overlooks it");
        return false;
    };
    assert_eq!(error.kind, ErrorKind::ProtocolMismatch);
    assert!(error.message.contains("protocol 2") && error.message.contains("start a newer version"), "{error}");
    let newer = bed.one(newcomer(range(3, 4)));
    let text = newer.refusal().expect("too new").to_string();
    assert!(text.contains("start an older version") || text.contains("older version"), "{text}");
    bed.ok(newcomer(range(2, 3)));
    let old = check_coordinator_speaks(&bed.state, 4, ProtocolRange::FIRST).expect_err("too old");
    assert!(old.message.contains("coordinator 4 supports 1"), "{old}");
    check_coordinator_speaks(&bed.state, 4, range(1, 2)).expect("it speaks 2");
    true
}

#[test]
fn raise_and_join_exclude_each_other() {
    let mut bed = bed(None);
    for (boot, city) in (500..).zip(CITIES) {
        upgrade(&mut bed, city, boot, range(1, 2));
    }
    let storage = StorageId::new(Uuid::from_u128(4));
    let newcomer = Newcomer { id: 4, address: "127.0.0.1:4".into(), storage, voter: true };
    check_coordinator_speaks(&bed.state, 4, ProtocolRange::FIRST).expect("the cluster speaks 1 yet");
    let raise = check_raise(&bed.state, &upgraded()).expect("a cluster that runs").expect("all speak it");
    let join = check_join(&bed.state, &newcomer).expect("it may join").expect("it is new");
    // The newcomer is admitted first: the raise waits for it.
    let mut first = bed.state.clone();
    let batch = bed.batch(vec![join.clone()]);
    apply(&mut first, bed.state.applied + 1, &batch);
    assert!(check_raise(&first, &upgraded()).is_err() && next_raise(&first, &upgraded()).is_none());
    let batch = bed.batch(vec![raise.clone()]);
    let refused = apply(&mut first, bed.state.applied + 2, &batch);
    assert!(
        refused[0].refusal().is_some_and(|error| error.message.contains("coordinator 4 is joining")),
        "{refused:?}"
    );
    // The raise comes first: an earlier check of the newcomer is void.
    bed.ok(raise);
    assert_eq!(bed.refused(join), ErrorKind::StaleVersion);
}

#[test]
fn removed_coordinator_is_refused_from_its_protocol_on() {
    let mut bed = bed(None);
    for (boot, city) in (500..).zip(CITIES) {
        upgrade(&mut bed, city, boot, range(1, 2));
    }
    let members: Members = bed.state.coordinators.members.clone().into_iter().filter(|(id, _)| *id != 3).collect();
    let (index, version) = (bed.state.applied + 1, bed.state.access_version);
    members_changed(&mut bed.state, index, members, false);
    assert!(bed.state.refused_certificates().is_empty() && bed.state.access_version == version);
    bed.ok(Command::RaiseProtocol { to: 2 });
    let refused: Vec<String> = bed.state.refused_certificates().into_keys().collect();
    assert_eq!(refused, ["coordinator/3"]);
    assert!(bed.state.access_version > version);
}

/// Participants that could own every table continue without a stop; only tables created later need a grant.
#[test]
fn raised_protocol_grants_present_lease_tables() {
    let mut bed = bed(None);
    for (boot, city) in (500..).zip(CITIES) {
        upgrade(&mut bed, city, boot, range(1, 2));
    }
    let create = |name: &str| Command::CreateTable {
        name: name.into(),
        partitioning: Partitioning::Hash { partitions: 1 },
        replication: 1,
        holds: TableContent::Lease,
    };
    bed.ok(create("jobs"));
    bed.ok(Command::RaiseProtocol { to: 2 });
    bed.ok(create("later"));
    let owns = |name: &str| bed.state.access.may_own("w", bed.state.table_by_name(name).expect("a table").id);
    assert_eq!((owns("jobs"), owns("later")), (true, false));
}

#[test]
fn protocol_does_not_rise_during_recovery() {
    let mut bed = bed(None);
    let storage = StorageId::new(Uuid::from_u128(77));
    let founder = (9, Coordinator { address: "127.0.0.1:9".into(), storage, voter: true });
    begin_generation(&mut bed.state, (2, GenerationKey::NIL), bed.now, founder).expect("a state to begin with");
    assert_eq!(check_raise(&bed.state, &upgraded()).map_err(|error| error.kind), Err(ErrorKind::Unavailable));
}

#[test]
fn commands_of_newer_protocol_are_refused() {
    let mut bed = bed(None);
    let older = [Command::CancelPlan, Command::RaiseProtocol { to: 2 }];
    check_commands(&bed.state, &older).expect("all are of protocol 1");
    let newer = [Command::CancelPlan, Command::HoldProtocol { held: true }];
    let refused = check_commands(&bed.state, &newer).expect_err("not everybody can read it");
    assert!(refused.message.contains("HoldProtocol needs protocol 2, and the cluster uses 1"), "{refused}");
    bed.state.protocol = 2;
    check_commands(&bed.state, &newer).expect("everybody can read it");
    check_commands(&ClusterState::new(), &older).expect("before there is a cluster the first one is spoken");
}

#[test]
fn raise_by_operator_ends_hold() {
    let mut bed = bed(None);
    for (boot, city) in (500..).zip(CITIES) {
        upgrade(&mut bed, city, boot, range(1, 4));
    }
    let all = |newest| coordinators([Some(range(1, newest)); 3]);
    bed.ok(next_raise(&bed.state, &all(2)).expect("nobody holds it"));
    bed.ok(Command::HoldProtocol { held: true });
    let events = bed.state.events.len();
    bed.ok(Command::HoldProtocol { held: true });
    assert_eq!(bed.state.events.len(), events, "it is so already");
    bed.round_trip();
    assert_eq!(next_raise(&bed.state, &all(3)), None);
    assert_eq!(raises(&bed, &all(3)), Some(3));
    let (index, mut finalize) = (bed.state.applied + 1, bed.batch(vec![Command::RaiseProtocol { to: 3 }]));
    finalize.who = Actor::Admin { identity: None, from: IpAddr::V4(Ipv4Addr::LOCALHOST), via: None };
    assert!(apply(&mut bed.state, index, &finalize)[0].refusal().is_none());
    assert_eq!(next_raise(&bed.state, &all(4)), Some(Command::RaiseProtocol { to: 4 }));
    bed.ok(Command::HoldProtocol { held: true });
    bed.ok(Command::HoldProtocol { held: false });
    assert!(next_raise(&bed.state, &all(4)).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Members of any versions come, go and return, and the protocol is raised on possibly outdated data. The bed
    /// checks the invariants after each step.
    #[test]
    fn every_member_speaks_the_protocol(
        steps in proptest::collection::vec((0_usize..6, 1_u32..4, 0_u32..3), 1..40)
    ) {
        let mut bed = bed(None);
        let mut stale = None;
        for (boot, (step, oldest, more)) in (1_000..).zip(steps) {
            let speaks = range(oldest, oldest + more);
            match step {
                0..3 => {
                    let row = bed.state.node_by_name(CITIES[step]).expect("a node").clone();
                    if row.speaks().contains(bed.state.protocol) && speaks.contains(bed.state.protocol) {
                        upgrade(&mut bed, CITIES[step], boot, speaks);
                    } else {
                        let other = speaking(register(&format!("x{boot}"), boot, boot + 1), speaks);
                        let taken = bed.one(boxed(other)).refusal().is_none();
                        prop_assert_eq!(taken, speaks.contains(bed.state.protocol));
                    }
                }
                3 => stale = check_raise(&bed.state, &coordinators([Some(range(1, 9)); 3])).expect("it runs"),
                4 => drop(stale.take().map(|raise| bed.one(raise))),
                _ => {
                    let raise = check_raise(&bed.state, &coordinators([Some(speaks); 3])).expect("it runs");
                    if let Some(raise) = raise {
                        bed.ok(raise);
                    }
                }
            }
        }
    }
}

#[test]
fn speaker_is_written_from_its_protocol_on() {
    let spoken_for = |via: Option<&str>| Actor::Admin {
        identity: Some("admin/alice".into()),
        from: IpAddr::V4(Ipv4Addr::LOCALHOST),
        via: via.map(str::to_owned),
    };
    let by = |protocol| spoken_for(Some("coordinator/2")).by_protocol(protocol);
    assert_eq!((by(1), by(2)), (spoken_for(None), spoken_for(Some("coordinator/2"))));
}
