//! Tests of the bounds that keep lists and assignments short enough to be sent and stored.

use crate::growth_tests::World;
use crate::state::actor::Actor;
use crate::{Command, CommandBatch, Register, apply, check_split};
use archon_types::limits::{
    KEY_BYTES_MAX, NODE_ASSIGNED_MAX, PARTICIPANT_ASSIGNED_MAX, SPLIT_KEYS_BYTES_MAX, TABLES_MAX,
};
use archon_types::{
    BootId, ErrorDetail, Keys, Participant, PartitionId, Partitioning, RangeLimits, StorageId, Table, TableContent,
    TableId, Version,
};
use bytes::Bytes;
use uuid::Uuid;

impl World {
    fn of_protocol(protocol: u32) -> Self {
        let mut world = Self::new(3, 1);
        world.state.protocol = protocol;
        world
    }

    /// Creates a table, and returns the refusal.
    fn create_table(&mut self, name: &str, partitioning: Partitioning) -> Option<ErrorDetail> {
        let create =
            Command::CreateTable { name: name.to_owned(), partitioning, replication: 2, holds: TableContent::Data };
        let (request, at, who) = (None, self.now, Actor::Coordinator(1));
        let batch = CommandBatch { request, at, who, proposer: 1, term: 1, commands: vec![create] };
        let index = self.state.applied + 1;
        apply(&mut self.state, index, &batch).iter().find_map(|response| response.refusal().cloned())
    }
}

/// Split keys of the greatest length.
fn long_split_keys(count: usize) -> Partitioning {
    let key = |number: usize| Bytes::from(format!("{number:0KEY_BYTES_MAX$}"));
    Partitioning::Range { split_at: (1..=count).map(key).collect(), limits: RangeLimits::default() }
}

#[test]
fn table_beyond_number_of_tables_is_refused() {
    let mut world = World::of_protocol(2);
    let one = Partitioning::Hash { partitions: 1 };
    for number in 2..=TABLES_MAX as u64 {
        let (id, keys) = (TableId::new(number), Keys::Hash { partitions: 1 });
        let table = Table {
            id,
            name: format!("t{number}"),
            keys,
            replication: 2,
            holds: TableContent::Data,
            version: Version::ZERO,
        };
        world.state.tables.insert(id, table);
    }
    world.state.table_last = TableId::new(TABLES_MAX as u64);
    let refusal = world.create_table("one-more", one.clone()).expect("refused");
    assert!(refusal.message.contains("the limit is 65536"), "{}", refusal.message);
    world.state.tables.remove(&TableId::new(2));
    assert_eq!(world.create_table("one-more", one.clone()), None);

    // Earlier versions of the same protocol apply it: the states must not differ.
    let mut earlier = World { state: world.state, ..World::of_protocol(1) };
    earlier.state.protocol = 1;
    assert_eq!(earlier.create_table("two-more", one), None);
}

#[test]
fn split_keys_beyond_their_bytes_are_refused() {
    let mut world = World::of_protocol(2);
    let fitting = SPLIT_KEYS_BYTES_MAX / KEY_BYTES_MAX;
    let each = 1_000;
    for number in 0..fitting / each {
        assert_eq!(world.create_table(&format!("t{number}"), long_split_keys(each)), None);
    }
    assert_eq!(world.state.partitions.split_keys_bytes(), fitting / each * each * KEY_BYTES_MAX);
    let refusal = world.create_table("more", long_split_keys(each)).expect("refused");
    assert!(refusal.message.contains("split keys of all tables"), "{}", refusal.message);

    assert_eq!(world.create_table("rest", long_split_keys(fitting % each)), None);
    assert_eq!(world.state.partitions.split_keys_bytes(), SPLIT_KEYS_BYTES_MAX);
    world.settle();
    let id = PartitionId::new(world.state.table_by_name("rest").unwrap().id, 0);
    let error = check_split(&world.state, id, &Bytes::from_static(b"!")).unwrap_err();
    assert!(error.message.contains("split keys of all tables"), "{}", error.message);

    let table = world.state.table_by_name("t0").unwrap().id;
    world.commit(vec![Command::DropTable { table }]);
    assert_eq!(world.state.partitions.split_keys_bytes(), SPLIT_KEYS_BYTES_MAX - each * KEY_BYTES_MAX);
    assert_eq!(world.state.partitions.image().indexed(), world.state.partitions);

    // The key of a split in progress counts before there is a row that has it.
    let at = Bytes::from("!".repeat(KEY_BYTES_MAX));
    let split = check_split(&world.state, id, &at).expect("its key fits");
    world.commit(vec![split.command]);
    let refusal = world.create_table("again", long_split_keys(each)).expect("refused");
    assert!(refusal.message.contains("split keys of all tables"), "{}", refusal.message);
    assert_eq!(world.create_table("again", long_split_keys(each - 1)), None);
}

#[test]
fn members_without_limit_of_their_own_have_the_bound() {
    let mut world = World::of_protocol(1);
    let node = world.state.nodes.values().next().unwrap().clone();
    assert_eq!(node.room_beside(0), NODE_ASSIGNED_MAX);
    assert_eq!(node.room_beside(NODE_ASSIGNED_MAX + 1), 0);
    let register = |number: u128, partitions_max| {
        let id = Uuid::from_u128(number);
        let named = Register::new(format!("p{number}"), format!("p{number}:1"), StorageId::new(id), BootId::new(id));
        let participant = Some(Participant { tables: vec!["jobs".to_owned()], timing: None });
        Register { participant, partitions_max, ..named }
    };
    let ids = [world.register(register(100, None)), world.register(register(101, Some(7)))];
    let rooms = ids.map(|id| world.state.node(id).unwrap().room_beside(0));
    assert_eq!(rooms, [PARTICIPANT_ASSIGNED_MAX, 7]);
}

#[test]
fn built_in_limit_is_not_advised_to_be_raised() {
    let obstacle = |most: u32| {
        let limits = vec![("athens".to_owned(), most), ("byzantium".to_owned(), NODE_ASSIGNED_MAX)];
        crate::Obstacle::NodesAtLimit { placements: 1, limits }.to_string()
    };
    assert!(obstacle(4).contains("--partitions-max"), "{}", obstacle(4));
    let built_in = obstacle(NODE_ASSIGNED_MAX);
    assert!(!built_in.contains("--partitions-max") && built_in.contains("add a node"), "{built_in}");
}
