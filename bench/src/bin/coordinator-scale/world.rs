//! A cluster's state of any size, made through the commands that the coordinators commit.

use anyhow::Context;
use archon_coordinator_core::{
    Actor, ClusterState, Command, CommandBatch, Edit, Liveness, PartitionChange, Register, Response, apply, turn,
};
use archon_types::{
    BootId, ClusterId, HASH_PARTITIONS_MAX, Holds, Millis, NodeId, Partition, PartitionId, Partitioning, Placement,
    PlacementId, ReplicaState, Settings, StorageId, TableId, Version,
};
use uuid::Uuid;

/// The most turns that an assignment may take before it counts as never ending.
const TURNS_MAX: usize = 100_000;

/// The state and the leader's memory of it.
pub(crate) struct World {
    pub(crate) state: ClusterState,
    pub(crate) liveness: Liveness,
    pub(crate) now: Millis,
}

/// The sizes of tables that make so many partitions.
pub(crate) fn table_sizes(partitions: usize) -> Vec<u32> {
    let whole = HASH_PARTITIONS_MAX as usize;
    let mut sizes = vec![HASH_PARTITIONS_MAX; partitions / whole];
    sizes.extend(u32::try_from(partitions % whole).ok().filter(|rest| *rest > 0));
    sizes
}

impl World {
    /// A bootstrapped cluster with tables and no nodes.
    pub(crate) fn new(nodes: usize, partitions: usize, replication: u8) -> anyhow::Result<Self> {
        let now = Millis::new(1);
        let mut world = Self { state: ClusterState::new(), liveness: Liveness::new(now), now };
        let sizes = table_sizes(partitions);
        let first = *sizes.first().context("no partitions")?;
        let nodes_min = u32::try_from(nodes)?;
        let settings = Settings { partitions: first, nodes_min, replication, ..Settings::default() };
        world.commit(vec![Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(1)), settings }])?;
        for (number, partitions) in sizes.into_iter().enumerate().skip(1) {
            world.create_table(&format!("t{number}"), partitions, replication)?;
        }
        Ok(world)
    }

    /// Creates a table.
    pub(crate) fn create_table(&mut self, name: &str, partitions: u32, replication: u8) -> anyhow::Result<TableId> {
        let create = Command::CreateTable {
            name: name.to_owned(),
            partitioning: Partitioning::Hash { partitions },
            replication,
            holds: Holds::Data,
        };
        match self.commit(vec![create])?[..] {
            [Response::TableCreated { table }] => Ok(table),
            ref other => anyhow::bail!("a table was answered with {other:?}"),
        }
    }

    /// Commits commands and fails on a refusal.
    pub(crate) fn commit(&mut self, commands: Vec<Command>) -> anyhow::Result<Vec<Response>> {
        let who = Actor::Coordinator(1);
        let batch = CommandBatch { request: None, at: self.now, who, proposer: 1, term: 1, commands };
        let index = self.state.applied + 1;
        let responses = apply(&mut self.state, index, &batch);
        match responses.iter().find_map(Response::refusal) {
            Some(error) => anyhow::bail!("refused: {error}"),
            None => Ok(responses),
        }
    }

    /// Registers a node, which acts in its life from then on.
    pub(crate) fn join(&mut self, number: usize) -> anyhow::Result<NodeId> {
        let address = format!("10.{}.{}.{}:7201", number >> 16, (number >> 8) & 255, number & 255);
        let id = Uuid::from_u128(number as u128);
        let (storage, boot) = (StorageId::new(id), BootId::new(id));
        let register = Register::new(format!("node-{number:05}"), address, storage, boot);
        match self.commit(vec![Command::Register(Box::new(register))])?[..] {
            [Response::Registered { node, incarnation }] => {
                self.commit(vec![Command::Activate { node, incarnation }])?;
                Ok(node)
            }
            ref other => anyhow::bail!("a registration was answered with {other:?}"),
        }
    }

    /// What the control loop would propose now.
    pub(crate) fn turn(&mut self) -> Vec<Command> {
        self.now = self.now.plus(1);
        turn(&self.state, &mut self.liveness, self.now).commands
    }

    /// Turns until every partition is assigned, as the control loop does; then every leader says that it serves.
    /// Returns how many turns it took.
    pub(crate) fn settle(&mut self) -> anyhow::Result<usize> {
        for turns in 1..TURNS_MAX {
            let commands = self.turn();
            if commands.is_empty() {
                self.all_online()?;
                return Ok(turns);
            }
            self.commit(commands)?;
        }
        anyhow::bail!("{TURNS_MAX} turns did not settle the cluster")
    }

    fn all_online(&mut self) -> anyhow::Result<()> {
        let online = |row: &Partition| PartitionChange::one(row.id, row.version, Edit::Online(row.epoch));
        let changes: Vec<PartitionChange> = self.state.partitions.iter().map(online).collect();
        for chunk in changes.chunks(512) {
            self.commit(vec![Command::Change(chunk.to_vec())])?;
        }
        Ok(())
    }

    /// Gives a table's partitions to one node that leads them all, with followers spread over the others.
    pub(crate) fn assign_to(&mut self, table: TableId, leader: NodeId, replication: u8) -> anyhow::Result<()> {
        let others: Vec<NodeId> = self.state.nodes.keys().copied().filter(|node| *node != leader).collect();
        let rows: Vec<(PartitionId, Version)> =
            self.state.partitions.of_table(table).map(|row| (row.id, row.version)).collect();
        let mut changes = Vec::new();
        let mut last = self.state.placement_last.get();
        for (place, (id, version)) in rows.into_iter().enumerate() {
            let follower = |replica: usize| others[(place + replica * others.len() / 7) % others.len()];
            let nodes = std::iter::once(leader).chain((1..usize::from(replication)).map(follower));
            let placements = nodes.map(|node| {
                last += 1;
                Placement { id: PlacementId::new(last), node, state: ReplicaState::Live }
            });
            changes.push(PartitionChange::one(id, version, Edit::Assign(placements.collect())));
        }
        for chunk in changes.chunks(512) {
            self.commit(vec![Command::Change(chunk.to_vec())])?;
        }
        self.all_online_of(table)
    }

    fn all_online_of(&mut self, table: TableId) -> anyhow::Result<()> {
        let online = |row: &Partition| PartitionChange::one(row.id, row.version, Edit::Online(row.epoch));
        let changes: Vec<PartitionChange> = self.state.partitions.of_table(table).map(online).collect();
        for chunk in changes.chunks(512) {
            self.commit(vec![Command::Change(chunk.to_vec())])?;
        }
        Ok(())
    }
}
