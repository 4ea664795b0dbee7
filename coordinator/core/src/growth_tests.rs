//! Tests that the cost of a change, heartbeat or turn does not grow with the cluster. The cost is the number of
//! examined partition rows, which does not depend on the machine.

use crate::placement::waits::copies_by_node;
use crate::state::actor::Actor;
use crate::state::partitions::LOOKED_AT;
use crate::{
    ClusterState, Command, CommandBatch, Edit, Goal, Liveness, MigrationId, PartitionChange, Plan, PlanSummary,
    Register, Response, Totals, Waits, apply, duties_mark, nodes_delta, on_stopping, plan, rows_piece, table_piece,
    turn,
};
use archon_types::{
    BootId, ClusterId, Millis, NodeGoal, NodeId, Partition, PartitionId, Placement, PlacementId, ReplicaState,
    Settings, StorageId, TableId, Version,
};
use uuid::Uuid;

pub(crate) struct World {
    pub(crate) state: ClusterState,
    pub(crate) liveness: Liveness,
    pub(crate) now: Millis,
}

impl World {
    /// Creates nodes with equally many partitions, two copies of each, all Online.
    pub(crate) fn new(nodes: u64, partitions_per_node: u32) -> Self {
        let now = Millis::new(1);
        let mut world = Self { state: ClusterState::new(), liveness: Liveness::new(now), now };
        let partitions = u32::try_from(nodes).unwrap() * partitions_per_node;
        let settings = Settings { partitions, nodes_min: 2, replication: 2, ..Settings::default() };
        world.commit(vec![Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(1)), settings }]);
        (1..=nodes).for_each(|number| world.join(number));
        world.settle();
        world
    }

    pub(crate) fn commit(&mut self, commands: Vec<Command>) -> Vec<Response> {
        let who = Actor::Coordinator(1);
        let batch = CommandBatch { request: None, at: self.now, who, proposer: 1, term: 1, commands };
        let index = self.state.applied + 1;
        let responses = apply(&mut self.state, index, &batch);
        let refusal = responses.iter().find_map(Response::refusal);
        assert!(refusal.is_none(), "{refusal:?}");
        responses
    }

    fn join(&mut self, number: u64) {
        let id = Uuid::from_u128(number.into());
        let (storage, boot) = (StorageId::new(id), BootId::new(id));
        self.register(Register::new(format!("n{number}"), format!("n{number}:1"), storage, boot));
    }

    /// Registers and activates a node.
    pub(crate) fn register(&mut self, register: Register) -> NodeId {
        let responses = self.commit(vec![Command::Register(Box::new(register))]);
        let [Response::Registered { node, incarnation }] = responses[..] else { panic!("{responses:?}") };
        self.commit(vec![Command::Activate { node, incarnation }]);
        node
    }

    pub(crate) fn turn(&mut self) -> Vec<Command> {
        self.now = self.now.plus(1);
        turn(&self.state, &mut self.liveness, self.now).commands
    }

    /// Commits all decisions until there are none, and makes all partitions Online.
    pub(crate) fn settle(&mut self) {
        loop {
            let commands = self.turn();
            if commands.is_empty() {
                break;
            }
            self.commit(commands);
        }
        let online = |row: &Partition| PartitionChange::one(row.id, row.version, Edit::Online(row.epoch));
        let changes = self.state.partitions.iter().map(online).collect();
        self.commit(vec![Command::Change(changes)]);
        assert_eq!(self.turn(), []);
    }

    /// Changes the version of one row.
    pub(crate) fn touch(&mut self) -> PartitionId {
        let row = self.state.partitions.get(PartitionId::new(TableId::new(1), 7)).unwrap();
        let (id, edit) = (row.id, Edit::Online(row.epoch));
        self.commit(vec![Command::Change(vec![PartitionChange::one(id, row.version, edit)])]);
        id
    }
}

/// Returns the number of rows that the work examines.
pub(crate) fn looks<T>(work: impl FnOnce() -> T) -> usize {
    let before = LOOKED_AT.get();
    let _ = work();
    LOOKED_AT.get() - before
}

/// Runs the same work in a cluster and in one of eight times its size.
fn both(work: impl Fn(&mut World) -> usize) -> (usize, usize) {
    (work(&mut World::new(5, 40)), work(&mut World::new(40, 40)))
}

#[test]
fn change_cost_is_independent_of_cluster_size() {
    let apply = |world: &mut World| looks(|| world.touch());
    let (small, large) = both(apply);
    assert_eq!(small, large);
    assert!(large <= 5, "{large} rows looked at to change one");

    let turn_after = |world: &mut World| {
        world.touch();
        looks(|| assert_eq!(world.turn(), []))
    };
    assert_eq!(both(turn_after), (0, 0));

    let told = |world: &mut World| {
        let before = world.state.table_version();
        let id = world.touch();
        looks(|| {
            let delta = table_piece(&world.state, id.table, before, 0).unwrap().delta;
            assert_eq!((delta.partitions.len(), delta.nodes.len()), (1, 0));
        })
    };
    assert_eq!(both(told), (1, 1));

    let unchanged = |world: &mut World| looks(|| duties_mark(&world.state, NodeId::new(2)).unwrap());
    assert_eq!(both(unchanged), (0, 0));
}

#[test]
fn heartbeat_examines_no_row() {
    let heartbeat = |world: &mut World| {
        let ids: Vec<PartitionId> = world.state.partitions.on_node(NodeId::new(1)).map(|row| row.id).collect();
        ids.into_iter().for_each(|id| {
            world.liveness.withdraw(&world.state, id);
        });
        let incarnation = world.state.incarnation(NodeId::new(3)).unwrap();
        looks(|| {
            let (number, now) = (world.now.get(), world.now);
            world.liveness.heard(&world.state, NodeId::new(3), incarnation, number, now).unwrap();
            let answer = world.liveness.answer(&world.state, NodeId::new(3), incarnation, world.now).unwrap();
            assert!(answer.withdrawn.is_empty() && world.state.table_version() > Version::ZERO);
        })
    };
    assert_eq!(both(heartbeat), (0, 0));
}

#[test]
fn totals_of_healthy_cluster_examine_no_row() {
    let totals = |world: &mut World| looks(|| Totals::of(&world.state));
    assert_eq!(both(totals), (0, 0));
}

#[test]
fn failover_examines_only_rows_of_failed_node() {
    let failover = |world: &mut World| {
        let node = NodeId::new(2);
        let incarnation = world.state.incarnation(node).unwrap();
        looks(|| assert_eq!(on_stopping(&world.state, &world.liveness, node, incarnation).unwrap().len(), 1))
    };
    let (small, large) = both(failover);
    assert_eq!((small, large), (80, 80), "each of two copies of forty partitions per node");
}

/// Moves that wait for the copy limit are not scanned for every change.
#[test]
fn turn_skips_moves_blocked_by_copy_limit() {
    let under_way = |world: &mut World| {
        let joined = world.state.nodes.len() as u64 + 1;
        world.join(joined);
        let planned: Plan = plan(&world.state, Goal::default());
        world.commit(vec![planned.start()]);
        let begun = world.turn();
        assert!(begun.len() >= 2 && begun.len() < planned.moves.len(), "{} of {}", begun.len(), planned.moves.len());
        world.commit(begun);
        world.turn();
        world.touch();
        (looks(|| world.turn()), planned.moves.len())
    };
    let (looked_at, moves) = under_way(&mut World::new(4, 600));
    assert!(moves > 900, "{moves} moves");
    assert!(looked_at * 4 < moves, "{looked_at} rows looked at while {moves} moves wait");
}

/// Returns a world where half of the nodes have just joined and a plan copies, with its number of moves.
fn a_large_plan_under_way() -> (World, usize) {
    let mut world = World::new(10, 800);
    (11..=20).for_each(|number| world.join(number));
    let planned: Plan = plan(&world.state, Goal::default());
    world.commit(vec![planned.start()]);
    let begun = world.turn();
    world.commit(begun);
    (world, planned.moves.len())
}

#[test]
fn plan_page_counts_copies_once() {
    let (world, moves) = a_large_plan_under_way();
    let under_way = looks(|| copies_by_node(&world.state));
    let page = |after: MigrationId| {
        let waits = Waits::new(&world.state);
        let page: Vec<_> = world.state.migrations.of_newest_plan(after).take(256).collect();
        let waiting = page.iter().filter(|migration| waits.waiting_for(migration).is_some()).count();
        assert_eq!(waiting, page.len(), "none is over or about to be");
        page.last().map(|migration| migration.id)
    };
    let (mut after, mut pages, mut most) = (Some(MigrationId::default()), 0, 0);
    while let Some(from) = after {
        most = most.max(looks(|| after = page(from)));
        pages += 1;
    }
    assert!(moves > 4_000 && pages == moves.div_ceil(256) + 1, "{moves} moves, {pages} pages");
    let bound = under_way + 4 * 256;
    assert!(most <= bound, "{most} rows looked at for a page, {bound} are enough");
}

#[test]
fn plan_summary_examines_only_running_moves() {
    let (world, moves) = a_large_plan_under_way();
    let running = world.state.migrations.all_running().count();
    let mut summary = PlanSummary::default();
    let looked_at = looks(|| summary = PlanSummary::of(&world.state));
    assert!(looked_at <= 2 * running && running * 50 < moves, "{looked_at} rows for {running} of {moves} moves");
    assert_eq!((summary.moves() as usize, summary.copying as usize, summary.over()), (moves, running, 0));
    let read: ClusterState = rmp_serde::from_slice(&rmp_serde::to_vec_named(&world.state).unwrap()).unwrap();
    assert_eq!((PlanSummary::of(&read), world.state == read), (summary, true));
}

#[test]
fn duties_mark_changes_with_every_input() {
    let mut world = World::new(5, 4);
    let node = NodeId::new(2);
    let mut last = duties_mark(&world.state, node);
    let mut differs = |world: &World, what: &str| {
        let mark = duties_mark(&world.state, node);
        assert_ne!(mark, last, "{what}");
        last = mark;
    };
    let row = world.state.partitions.on_node(node).next().cloned().unwrap();
    let edit = |world: &mut World, edit: Edit| {
        let row = world.state.partitions.get(row.id).unwrap();
        let change = PartitionChange::one(row.id, row.version, edit);
        world.commit(vec![Command::Change(vec![change])]);
    };
    edit(&mut world, Edit::Online(row.epoch));
    differs(&world, "a row of it changed");
    let free = (1..=5).map(NodeId::new).find(|other| row.placement_on(*other).is_none()).unwrap();
    let id = PlacementId::new(world.state.placement_last.get() + 1);
    edit(&mut world, Edit::Add(Placement { id, node: free, state: ReplicaState::Load }));
    differs(&world, "another copy of its partition came");
    world.commit(vec![Command::SetNode { node, goal: NodeGoal::Drain, if_nodes: None }]);
    differs(&world, "it is emptied");
    world.commit(vec![Command::SetNode { node: free, goal: NodeGoal::Cordon, if_nodes: None }]);
    differs(&world, "it is emptied, and others to whom it hands over changed");
    world.commit(vec![Command::SetNode { node, goal: NodeGoal::Serve, if_nodes: None }]);
    differs(&world, "it is emptied no more");
    world.join(6);
    assert_eq!(duties_mark(&world.state, node), last, "what does not concern it changes nothing");
}

/// An image keeps the state of its creation and reads like the state itself.
#[test]
fn image_keeps_state_while_rows_change() {
    let mut world = World::new(5, 40);
    let before = world.state.clone();
    let image = world.state.image();
    for _ in 0..3 {
        world.touch();
    }
    world.join(6);
    let read: ClusterState = rmp_serde::from_slice(&rmp_serde::to_vec_named(&image).unwrap()).unwrap();
    assert!(read == before && read != world.state);
    assert!(image.restored() == before, "and can be looked up in again");
}

#[test]
fn nodes_delta_parts_contain_every_node() {
    let mut world = World::new(3, 4);
    (4..=40).for_each(|number| world.join(number));
    let bytes_max = 6 * archon_types::node_bytes(&world.state.nodes.values().next_back().unwrap().node) + 1;
    let (mut since, mut seen, mut parts) = (Version::ZERO, 0, 0);
    while since < world.state.nodes_version {
        let part = nodes_delta(&world.state, since, bytes_max);
        assert!(part.nodes.iter().all(|node| node.version > since && node.version <= part.version));
        assert!(part.nodes.len() <= 7 && part.version > since);
        (since, seen, parts) = (part.version, seen + part.nodes.len(), parts + 1);
    }
    assert_eq!((seen, parts), (40, 6));
    let rows = rows_piece(&world.state, TableId::new(1), Version::ZERO, 0).unwrap().delta;
    assert_eq!((rows.partitions.len(), rows.nodes.len(), rows.version), (12, 0, world.state.nodes_version));
}
