//! Tests that stuck work costs nothing, however much there is: partitions that no member takes or could lead are
//! scanned neither for every change nor periodically.

use crate::growth_tests::{World, looks};
use crate::{Command, NodeRow, Register};
use archon_types::{
    BootId, NodeId, NodeStatus, Participant, Partition, PartitionStatus, Partitioning, StorageId, TableContent, TableId,
};
use uuid::Uuid;

/// Maximum time between two turns of a process.
const TICK_MS: u64 = 50;

impl World {
    /// Creates a few healthy nodes.
    fn small() -> Self {
        Self::new(3, 4)
    }

    fn create(&mut self, name: &str, partitions: u32, holds: TableContent, replication: u8) -> TableId {
        let (name, partitioning) = (name.to_owned(), Partitioning::Hash { partitions });
        self.commit(vec![Command::CreateTable { name, partitioning, replication, holds }]);
        self.state.table_last
    }

    fn participate(&mut self, number: u128, tables: &[&str], partitions_max: Option<u32>) -> NodeId {
        let id = Uuid::from_u128(1_000 + number);
        let tables = tables.iter().map(ToString::to_string).collect();
        let participant = Some(Participant { tables, timing: None });
        let named = Register::new(format!("p{number}"), format!("p{number}:1"), StorageId::new(id), BootId::new(id));
        self.register(Register { participant, partitions_max, ..named })
    }

    fn end_life(&mut self, node: NodeId) {
        let incarnation = self.state.incarnation(node).unwrap();
        self.commit(vec![Command::NodeFailed { node, incarnation, successors: Vec::new() }]);
    }

    /// Lets time pass, with heartbeats of all alive members, and commits all decisions. Returns the number of turns
    /// with more work than finding that nothing changed.
    fn pass(&mut self, millis: u64) -> usize {
        let (until, mut passes) = (self.now.plus(millis), 0);
        while self.now < until {
            self.now = self.now.plus(TICK_MS - 1);
            let alive = self.state.members().filter(|row| row.node.status == NodeStatus::Alive);
            for (node, incarnation) in alive.map(|row| (row.node.id, row.node.incarnation)).collect::<Vec<_>>() {
                self.liveness.heard(&self.state, node, incarnation, self.now.get(), self.now).unwrap();
            }
            let before = self.liveness.passed;
            let commands = self.turn();
            passes += usize::from(self.liveness.passed != before);
            if !commands.is_empty() {
                self.commit(commands);
            }
        }
        passes
    }

    /// Changes the state without an effect on anything.
    fn change(&mut self) {
        self.commit(Vec::new());
    }

    fn count(&self, table: TableId, status: PartitionStatus) -> usize {
        self.state.partitions.of_table(table).filter(|row: &&Partition| row.status == status).count()
    }
}

/// Returns the rows that a turn examines after a change, with few and with many stuck objects.
fn after_a_change(world: impl Fn(u32) -> World) -> (usize, usize) {
    let after = |many: u32| {
        let mut world = world(many);
        world.change();
        looks(|| assert_eq!(world.turn(), []))
    };
    (after(50), after(800))
}

/// Each table was balanced at its own time and announced when it might be due again: at the other one's next turn.
#[test]
fn even_lease_tables_cause_no_further_turns() {
    for participants in [0, 3] {
        let mut world = World::small();
        (0..participants).for_each(|number| {
            world.participate(number, &["jobs", "rooms"], None);
        });
        world.create("jobs", 12, TableContent::Lease, 1);
        world.pass(2_000);
        world.change();
        world.pass(TICK_MS);
        world.create("rooms", 12, TableContent::Lease, 1);
        world.pass(5_000);
        let passes = world.pass(10_000);
        assert!((4..=6).contains(&passes), "{passes} passes in ten seconds in which nothing happened");
    }
}

#[test]
fn uneven_lease_table_is_balanced_at_once() {
    let mut world = World::small();
    let table = world.create("jobs", 12, TableContent::Lease, 1);
    let first = world.participate(1, &["jobs"], None);
    let second = world.participate(2, &["jobs"], None);
    world.pass(2_000);
    let online = |world: &mut World| {
        let rows = world.state.partitions.of_table(table);
        let changes = rows.map(|row| crate::PartitionChange::one(row.id, row.version, crate::Edit::Online(row.epoch)));
        let changes = changes.collect();
        world.commit(vec![Command::Change(changes)]);
    };
    online(&mut world);
    assert_eq!([first, second].map(|node| world.state.partitions.count_on(node)), [6, 6]);
    world.change();
    assert_eq!(world.turn(), [], "it is even");
    let begun = |world: &World| world.state.partitions.with_copies_above(table, 1).count();
    world.commit(vec![Command::SetNode { node: first, goal: archon_types::NodeGoal::Drain, if_nodes: None }]);
    world.turn();
    assert_eq!(begun(&world), 0, "it was evened out a moment ago");
    world.pass(150);
    assert_eq!(begun(&world), 6);
}

#[test]
fn unowned_leases_are_not_scanned_per_change() {
    let unserved = |partitions| {
        let mut world = World::small();
        let table = world.create("jobs", partitions, TableContent::Lease, 1);
        world.pass(2_000);
        assert_eq!(world.count(table, PartitionStatus::Unassigned), partitions as usize);
        world
    };
    assert_eq!(after_a_change(unserved), (0, 0));

    let full = |partitions| {
        let mut world = World::small();
        let table = world.create("jobs", partitions, TableContent::Lease, 1);
        world.participate(1, &["jobs"], Some(3));
        world.pass(2_000);
        assert_eq!(world.count(table, PartitionStatus::Unassigned), partitions as usize - 3);
        world
    };
    assert_eq!(after_a_change(full), (3, 3), "only what is owned");

    let left = |partitions| {
        let mut world = World::small();
        let table = world.create("jobs", partitions, TableContent::Lease, 1);
        let owner = world.participate(1, &["jobs"], None);
        world.pass(2_000);
        world.end_life(owner);
        world.pass(5_000);
        assert_eq!(world.count(table, PartitionStatus::Unavailable), partitions as usize);
        world
    };
    assert_eq!(after_a_change(left), (0, 0));
    let mut world = left(50);
    let next = world.participate(2, &["jobs"], None);
    world.pass(2_000);
    assert_eq!(world.state.partitions.leaders_on(next), 50, "whoever comes gets them");
}

#[test]
fn unassignable_partitions_are_not_scanned_per_change() {
    let waiting = |partitions| {
        let mut world = World::small();
        let table = world.create("orders", partitions, TableContent::Data, 5);
        world.pass(2_000);
        assert_eq!(world.count(table, PartitionStatus::Unassigned), partitions as usize);
        world
    };
    assert_eq!(after_a_change(waiting), (0, 0));

    let full = |partitions| {
        let mut world = World::small();
        let limited: Vec<NodeRow> = world.state.nodes.values().cloned().collect();
        for row in limited {
            world.state.nodes.update(row.node.id, |row| row.node.partitions_max = Some(8));
        }
        let table = world.create("orders", partitions, TableContent::Data, 1);
        world.pass(2_000);
        assert_eq!(world.count(table, PartitionStatus::Unassigned), partitions as usize);
        world
    };
    assert_eq!(after_a_change(full), (0, 0));
}

#[test]
fn partitions_on_failed_nodes_are_not_scanned_per_change() {
    let out_of_reach = |partitions_per_node| {
        let mut world = World::new(8, partitions_per_node);
        (2..=8).for_each(|node| world.end_life(NodeId::new(node)));
        world.pass(5_000);
        let online = world.state.partitions.leaders_on(NodeId::new(1));
        assert_eq!(online, 2 * partitions_per_node, "the other copy took over");
        assert_eq!(world.count(TableId::new(1), PartitionStatus::Unavailable), 6 * partitions_per_node as usize);
        world
    };
    let (few, many) = after_a_change(out_of_reach);
    assert_eq!(few, many);
}
