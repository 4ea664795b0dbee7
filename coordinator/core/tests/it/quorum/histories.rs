//! Two recoveries of one generation number, from two states: members never confuse them (rule 60).

use crate::bed::{TestBed, boxed, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use uuid::Uuid;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const FIRST: u128 = 0x8a1f_77d2_0c55_4e1b_9b3a_1c6e_42f0_7d11;
const SECOND: u128 = 0x3c90_51ee_b7d4_4f02_a6e8_90b1_5d7c_2e93;

fn key(number: u128) -> GenerationKey {
    GenerationKey::new(Uuid::from_u128(number))
}

fn speaking(register: Register) -> Register {
    Register { protocol_max: GENERATION_KEYS_SINCE, ..register }
}

/// Creates a cluster of three copies of one partition, before any recovery.
fn before() -> TestBed {
    let mut bed = TestBed::new(settings(1, 3, 3));
    for (number, city) in CITIES.iter().enumerate() {
        bed.join_with(speaking(register(city, 1 + number as u128, 1_001 + number as u128)));
    }
    bed.settle();
    bed.state.protocol = GENERATION_KEYS_SINCE;
    bed
}

/// Creates the same cluster, recovered under this key.
fn recovered(generation: u64, of: u128) -> TestBed {
    let mut bed = before();
    begin(&mut bed, generation, of);
    bed
}

fn begin(bed: &mut TestBed, generation: u64, of: u128) {
    let storage = StorageId::new(Uuid::from_u128(of));
    let founder = (9, Coordinator { address: "127.0.0.1:9".into(), storage, voter: true });
    begin_generation(&mut bed.state, (generation, key(of)), bed.now, founder).expect("a state to begin with");
    check(&bed.state).expect("a state like any other");
    bed.liveness = Liveness::new(bed.now);
    if bed.state.stands_by() {
        bed.ok(Command::TakeOver);
    }
}

/// A data directory, as its registrations describe it.
#[derive(Clone, Debug)]
struct Directory {
    said: Register,
    boots: u128,
}

impl Directory {
    fn new(name: &str, storage: u128) -> Self {
        Self { said: speaking(register(name, storage, 0)), boots: 0 }
    }

    /// Returns the directory of an existing node.
    fn of(bed: &TestBed, name: &str) -> Self {
        Self { said: speaking(bed.registration(name)), boots: 0 }
    }

    /// Starts it, registers it with the coordinators of `bed`, and stores the answer.
    fn registers(&mut self, bed: &mut TestBed) -> Result<(NodeId, Incarnation), ErrorDetail> {
        self.boots += 1;
        let known = bed.state.node_by_storage(self.said.storage).cloned();
        if let Some(row) = known.as_ref().filter(|row| row.node.status == NodeStatus::Alive) {
            let failed =
                Command::NodeFailed { node: row.node.id, incarnation: row.node.incarnation, successors: vec![] };
            bed.ok(failed);
        }
        self.said.boot = BootId::new(Uuid::from_u128(self.said.storage.get().as_u128() * 1_000_000 + self.boots));
        self.said.expects = known.map(|row| row.node.incarnation);
        match bed.one(boxed(self.said.clone())) {
            Response::Registered { node, incarnation } => {
                bed.ok(Command::Activate { node, incarnation });
                self.said.last_incarnation = Some(incarnation);
                self.said.generation_key = bed.state.generation_key(bed.state.generation);
                Ok((node, incarnation))
            }
            Response::Refused(error) => Err(error),
            other => panic!("no answer to a registration: {other:?}"),
        }
    }

    /// Registers it, and reports the log end of its copy.
    fn tells(&mut self, bed: &mut TestBed, end: (u64, u64)) -> NodeId {
        let (node, _) = self.registers(bed).expect("it is taken in");
        bed.tell_end(node, end);
        node
    }
}

/// Reports the copies of all former nodes, so that the generation continues.
fn settled(bed: &mut TestBed) {
    for city in CITIES {
        Directory::of(bed, city).tells(bed, (1, 5));
    }
    bed.pass(2_000, &[]);
    assert!(bed.state.recovery.is_none());
}

#[test]
fn node_of_other_second_generation_is_refused() {
    let (mut first, mut second) = (recovered(2, FIRST), recovered(2, SECOND));
    let mut athens = Directory::of(&first, "athens");
    athens.registers(&mut first).expect("it comes from the first generation");
    // The second one was settled without it long ago, so no reports are requested any longer.
    settled(&mut second);
    let refused = athens.registers(&mut second).expect_err("it belongs to the first");
    assert_eq!(refused.kind, ErrorKind::OtherHistory);
    for word in [key(FIRST).to_string(), key(SECOND).to_string(), "--generation 3".into()] {
        assert!(refused.message.contains(&word), "{word} is not in: {refused}");
    }
    athens.registers(&mut first).expect("its own take it in");
    let mut stranger = Directory::new("delos", 77);
    stranger.registers(&mut first).expect("a new node");
    assert_eq!(stranger.registers(&mut second).map_err(|error| error.kind), Err(ErrorKind::OtherHistory));
}

#[test]
fn node_of_other_history_must_register() {
    for (own, other) in [(FIRST, SECOND), (SECOND, FIRST)] {
        let (mine, mut theirs) = (recovered(2, own), recovered(2, other));
        let (athens, incarnation) =
            Directory::of(&theirs, "athens").registers(&mut theirs).expect("it comes from before");
        let refused = mine.state.check_sender(athens, incarnation).expect_err("nobody here knows that life");
        assert_eq!(refused.kind, ErrorKind::StaleIncarnation, "so it registers, and is told: {refused}");
        // An incarnation that is not applied yet is waited for.
        let next = Incarnation::new(mine.state.applied + 7);
        let early = mine.state.check_sender(athens, next).expect_err("it is not applied");
        assert_eq!(early.kind, ErrorKind::Unavailable);
    }
}

#[test]
fn participant_of_other_second_generation_is_refused() {
    let (mut first, mut second) = (recovered(2, FIRST), recovered(2, SECOND));
    for bed in [&mut first, &mut second] {
        settled(bed);
    }
    let mut worker = Directory::new("worker", 90);
    worker.said.participant = Some(Participant { tables: vec!["jobs".into()], timing: None });
    worker.registers(&mut first).expect("a new participant");
    assert_eq!(worker.registers(&mut second).map_err(|error| error.kind), Err(ErrorKind::OtherHistory));
}

#[test]
fn copy_of_other_history_is_doubted_in_third_generation() {
    let mut first = recovered(2, FIRST);
    let mut athens = Directory::of(&first, "athens");
    athens.registers(&mut first).expect("it comes from the first generation");
    let mut second = recovered(2, SECOND);
    settled(&mut second);
    let mut third = second;
    let own: Vec<Directory> = ["byzantium", "cyrene"].map(|city| Directory::of(&third, city)).into();
    begin(&mut third, 3, SECOND + 1);
    for mut directory in own {
        directory.said.generation_key = key(SECOND);
        directory.tells(&mut third, (begins_at(2, key(SECOND)) + 1, 9));
    }
    // Its log ends later, by numbers of the other history.
    let athens = athens.tells(&mut third, (first_number(3) - 1, 900));
    third.pass(5_000, &[]);
    assert!(third.state.recovery.is_some(), "what athens holds is not given up in silence");
    assert!(doubts(&third.state).contains(&Doubt::OtherHistory { node: athens }));
    third.ok(check_settle(&third.state, true).expect("it may be accepted").expect("a command"));
    third.pass(2_000, &[]);
    let counts: Vec<NodeId> = third.row(0).live().map(|copy| copy.node).collect();
    assert_eq!(counts, [third.node("byzantium"), third.node("cyrene")]);
    third.round_trip();
}

#[test]
fn generation_keys_are_written_from_their_protocol_on() {
    let mut bed = before();
    bed.state.protocol = PROTOCOL_FIRST;
    begin(&mut bed, 2, FIRST);
    assert!(bed.state.generation_keys.is_empty());
    assert!(bed.state.applied > first_number(2), "its numbers are its own all the same");
    let said = Register { generation_key: key(FIRST), ..register("athens", 1, 2) };
    assert!(said.clone().by_protocol(PROTOCOL_FIRST).generation_key.is_nil());
    assert_eq!(said.clone().by_protocol(GENERATION_KEYS_SINCE), said);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any order of starts: a directory that lived in one of two generations of a number is admitted by that one
    /// alone, and their incarnations share no numbers.
    #[test]
    fn generations_of_one_number_share_no_incarnation(
        keys in (any::<u128>(), any::<u128>()).prop_filter("two keys", |(one, other)| one != other && *one > 0 && *other > 0),
        steps in proptest::collection::vec((0usize..6, 0usize..2), 1..30),
    ) {
        let mut beds = [recovered(2, keys.0), recovered(2, keys.1)];
        let mut directories: Vec<Directory> = CITIES.map(|city| Directory::of(&beds[0], city)).into();
        directories.extend(["delos", "ephesus", "sparta"].iter().zip(50..).map(|(name, storage)| Directory::new(name, storage)));
        let mut lived_in = [None; 6];
        let mut lives = [BTreeSet::new(), BTreeSet::new()];
        for (directory, bed) in steps {
            let answer = directories[directory].registers(&mut beds[bed]);
            match answer {
                Ok(life) => {
                    prop_assert_eq!(*lived_in[directory].get_or_insert(bed), bed);
                    lives[bed].insert(life);
                }
                Err(refused) => {
                    prop_assert_eq!(refused.kind, ErrorKind::OtherHistory);
                    prop_assert!(lived_in[directory].is_some_and(|own| own != bed), "its own refused it: {}", refused);
                }
            }
        }
        prop_assert_eq!(lives[0].intersection(&lives[1]).count(), 0);
    }
}
