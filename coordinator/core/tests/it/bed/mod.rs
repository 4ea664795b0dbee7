//! A cluster for tests: commits given commands, checks every invariant after each entry, and can simulate nodes that
//! perform their duties at once.
#![allow(dead_code, unreachable_pub)]

mod jobs;
pub(crate) mod ranges;

pub use jobs::{JOBS, Jobs, worker};

use archon_coordinator_core::*;
use archon_types::*;
use uuid::Uuid;

pub const TABLE: TableId = TableId::new(1);

/// Log position at which a perfect leader gives keys up.
pub const FORMED_AT: Position = Position::new(Epoch::new(1), Seq::new(7));

pub struct TestBed {
    pub state: ClusterState,
    pub liveness: Liveness,
    pub now: Millis,
    /// Number of heartbeats so far, of all nodes.
    pub beats: u64,
}

pub fn settings(partitions: u32, nodes_min: u32, replication: u8) -> Settings {
    Settings { partitions, nodes_min, replication, ..Settings::default() }
}

pub fn register(name: &str, storage: u128, boot: u128) -> Register {
    let (storage, boot) = (StorageId::new(Uuid::from_u128(storage)), BootId::new(Uuid::from_u128(boot)));
    Register::new(name, format!("{name}.example:7000"), storage, boot)
}

pub fn boxed(register: Register) -> Command {
    Command::Register(Box::new(register))
}

pub fn part(index: u32) -> PartitionId {
    PartitionId::new(TABLE, index)
}

/// Returns codes and facts of findings.
pub fn facts_of(found: Vec<Finding>) -> Vec<Facts> {
    found.into_iter().map(|finding| finding.facts).collect()
}

impl TestBed {
    pub fn empty() -> Self {
        let now = Millis::new(1_000_000);
        Self { state: ClusterState::new(), liveness: Liveness::new(now), now, beats: 0 }
    }

    pub fn new(settings: Settings) -> Self {
        let mut bed = Self::empty();
        bed.ok(Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(7)), settings });
        bed
    }

    /// Creates a cluster of these nodes, all active, everything assigned and Online.
    pub fn running(settings: Settings, names: &[&str]) -> Self {
        let mut bed = Self::new(settings);
        for (number, name) in names.iter().enumerate() {
            bed.join(name, 1 + number as u128);
        }
        bed.settle();
        bed
    }

    pub fn batch(&self, commands: Vec<Command>) -> CommandBatch {
        CommandBatch { request: None, at: self.now, who: Actor::Coordinator(1), proposer: 1, term: 1, commands }
    }

    pub fn commit_batch(&mut self, batch: &CommandBatch) -> Vec<Response> {
        let before = self.state.clone();
        let responses = apply(&mut self.state, before.applied + 1, batch);
        check(&self.state).unwrap_or_else(|violation| panic!("{violation}\nafter {batch:#?}"));
        check_step(&before, &self.state).unwrap_or_else(|violation| panic!("{violation}\nafter {batch:#?}"));
        responses
    }

    pub fn commit(&mut self, commands: Vec<Command>) -> Vec<Response> {
        let commands = commands.into_iter().map(|command| self.with_known_life(command)).collect();
        let batch = self.batch(commands);
        self.commit_batch(&batch)
    }

    /// Sets the recorded incarnation that a registering node would query, unless the test sets one.
    fn with_known_life(&self, command: Command) -> Command {
        let Command::Register(mut register) = command else { return command };
        let known = self.state.node_by_storage(register.storage).map(|row| row.node.incarnation);
        register.expects = register.expects.or(known);
        Command::Register(register)
    }

    pub fn one(&mut self, command: Command) -> Response {
        self.commit(vec![command]).remove(0)
    }

    /// Commits a registration that names exactly the recorded incarnation that it has.
    pub fn one_as_is(&mut self, register: Register) -> Response {
        let batch = self.batch(vec![boxed(register)]);
        self.commit_batch(&batch).remove(0)
    }

    #[track_caller]
    pub fn ok_as_is(&mut self, register: Register) {
        let response = self.one_as_is(register);
        assert!(response.refusal().is_none(), "{response:?}");
    }

    #[track_caller]
    pub fn ok(&mut self, command: Command) -> Response {
        let response = self.one(command);
        assert!(response.refusal().is_none(), "{response:?}");
        response
    }

    #[track_caller]
    pub fn refused(&mut self, command: Command) -> ErrorKind {
        let before = self.state.clone();
        let response = self.one(command);
        let Response::Refused(error) = response else { panic!("not refused: {response:?}") };
        assert_eq!(
            ClusterState { applied: before.applied, ..self.state.clone() },
            before,
            "a refusal changed something"
        );
        error.kind
    }

    /// Registers and activates a node.
    pub fn join(&mut self, name: &str, storage: u128) -> NodeId {
        self.join_with(register(name, storage, storage + 1_000))
    }

    pub fn join_with(&mut self, register: Register) -> NodeId {
        let Response::Registered { node, incarnation } = self.ok(Command::Register(Box::new(register))) else {
            panic!("not registered")
        };
        self.ok(Command::Activate { node, incarnation });
        node
    }

    /// Restarts a known node in a new process with all its data.
    pub fn rejoin(&mut self, node: NodeId, boot: u128) -> NodeId {
        self.rejoin_with(node, boot, vec![])
    }

    /// The same with copies that its rows do not name.
    pub fn rejoin_with(&mut self, node: NodeId, boot: u128, others: Vec<PlacementId>) -> NodeId {
        let row = self.state.node(node).expect("known").clone();
        let own = self.state.partitions.on_node(node).filter_map(|row| row.placement_on(node)).map(|p| p.id);
        self.join_with(Register {
            held: own.chain(others).collect(),
            last_incarnation: row.activated,
            ..Register::new(row.node.name, row.node.address, row.storage, BootId::new(Uuid::from_u128(boot)))
        })
    }

    /// The same without its copy of one partition.
    pub fn rejoin_without(&mut self, node: NodeId, boot: u128, lost: PartitionId) -> NodeId {
        let row = self.state.node(node).expect("known").clone();
        let others = self.state.partitions.on_node(node).filter(|row| row.id != lost);
        self.join_with(Register {
            held: others.filter_map(|row| row.placement_on(node)).map(|copy| copy.id).collect(),
            last_incarnation: row.activated,
            ..Register::new(row.node.name, row.node.address, row.storage, BootId::new(Uuid::from_u128(boot)))
        })
    }

    pub fn node(&self, name: &str) -> NodeId {
        self.state.node_by_name(name).expect("a node of that name").node.id
    }

    pub fn incarnation(&self, node: NodeId) -> Incarnation {
        self.state.incarnation(node).expect("a node")
    }

    pub fn row(&self, index: u32) -> &Partition {
        self.state.partition(part(index)).expect("a partition")
    }

    pub fn leader(&self, index: u32) -> Option<NodeId> {
        self.row(index).leader_placement().map(|leader| leader.node)
    }

    pub fn turn(&mut self) -> Vec<Command> {
        turn(&self.state, &mut self.liveness, self.now).commands
    }

    pub fn heartbeat(&mut self, node: NodeId) -> Option<HeartbeatAnswer> {
        let incarnation = self.incarnation(node);
        self.beats += 1;
        self.liveness.heard(&self.state, node, incarnation, self.beats, self.now).ok()?;
        self.liveness.answer(&self.state, node, incarnation, self.now).ok()
    }

    pub fn alive(&self) -> Vec<NodeId> {
        self.state.members().map(|row| row.node.id).filter(|node| self.state.is_alive(*node)).collect()
    }

    pub fn heartbeat_all(&mut self) {
        let live = self.alive();
        for node in live {
            self.heartbeat(node);
        }
    }

    /// Advances the time in heartbeats of every alive node that is not `silent`. Turns are committed.
    pub fn pass(&mut self, millis: u64, silent: &[NodeId]) {
        let until = self.now.plus(millis);
        while self.now < until {
            self.now = self.now.plus(100);
            let live: Vec<NodeId> = self.alive();
            for node in live {
                if !silent.contains(&node) {
                    self.heartbeat(node);
                }
            }
            let commands = self.turn();
            if !commands.is_empty() {
                self.commit(commands);
            }
        }
    }

    /// Fails a node and changes nothing else.
    pub fn fail(&mut self, node: NodeId) {
        self.heartbeat_all();
        self.now = self.now.plus(1_300);
        for other in self.alive().into_iter().filter(|other| *other != node) {
            self.heartbeat(other);
        }
        let commands = self.turn().into_iter().filter(|command| matches!(command, Command::NodeFailed { .. }));
        let commands = commands.collect();
        self.commit(commands);
        assert!(!self.state.is_alive(node));
    }

    pub fn report(&mut self, node: NodeId, report: &Report) -> Result<Vec<Response>, ErrorDetail> {
        let commands = on_report(
            &self.state,
            &mut self.liveness,
            self.now,
            node,
            self.state.incarnation(node).expect("a node"),
            report,
        )?;
        Ok(if commands.is_empty() { vec![] } else { self.commit(commands) })
    }

    /// Returns the registration of a process with the directory of this node.
    pub fn registration(&self, name: &str) -> Register {
        let row = self.state.node_by_name(name).expect("a node").clone();
        let own = self.state.partitions.on_node(row.node.id).filter_map(|known| known.placement_on(row.node.id));
        Register {
            held: own.map(|copy| copy.id).collect(),
            last_incarnation: row.activated,
            ..Register::new(name, row.node.address, row.storage, BootId::new(Uuid::from_u128(4_000)))
        }
    }

    /// Reports, for a node that existed before a recovery, the log end of its copies of the first partition: this epoch
    /// and sequence number.
    pub fn tell_end(&mut self, node: NodeId, (epoch, seq): (u64, u64)) {
        for duty in duties(&self.state, node).expect("it is active") {
            let Duty::Inspect { placement } = duty else { panic!("it is asked for nothing else: {duty:?}") };
            let (epoch, last) = (Epoch::new(epoch), Position::new(Epoch::new(epoch), Seq::new(seq)));
            let fact = Fact::Inspected { last };
            let report = Report { partition: part(0), placement, epoch, version: Version::ZERO, fact };
            self.report(node, &report).expect("it is listened to");
        }
    }

    /// Returns the report of a fact, with the epoch and version of the present row.
    pub fn fact(&self, index: u32, placement: PlacementId, fact: Fact) -> Report {
        let row = self.row(index);
        Report { partition: row.id, placement, epoch: row.epoch, version: row.version, fact }
    }

    /// Returns the reports of a perfect node upon its present duties.
    pub fn facts_of(&self, node: NodeId) -> Vec<Report> {
        let mut reports = vec![];
        for duty in duties(&self.state, node).unwrap_or_default() {
            let placement = duty.placement();
            let Some(partition) = duty.partition() else { continue };
            let Some(row) = self.state.partition(partition).cloned() else {
                assert!(matches!(duty, Duty::Unload { .. }), "of a dropped table: {duty:?}");
                let (epoch, version) = (Epoch::ZERO, Version::ZERO);
                reports.push(Report { partition, placement, epoch, version, fact: Fact::Unloaded });
                continue;
            };
            let mut add = |fact| {
                reports.push(Report { partition: row.id, placement, epoch: row.epoch, version: row.version, fact });
            };
            if let Some(split) = row.split.as_deref()
                && let Some(copy) = split.copy_on(node).filter(|copy| !copy.is_formed())
            {
                let (attempt, copy, position) = (split.attempt, copy.id, FORMED_AT);
                add(if split.cut {
                    Fact::Formed { attempt, copy, position }
                } else {
                    Fact::Mirroring { attempt, copy }
                });
            }
            if let Some((merge, right)) = row.absorbs()
                && row.leader == Some(placement)
                && self.state.partition(right).is_some_and(|right| right.status == PartitionStatus::Online)
            {
                add(Fact::Absorbed { attempt: merge.attempt });
            }
            match duty {
                Duty::Unload { .. } => add(Fact::Unloaded),
                Duty::HandOver { .. } => add(Fact::Released),
                Duty::Host { .. } if row.leader == Some(placement) => {
                    // The node of a lost copy gets no duty for it, so the leader does not hear it.
                    let lost = |p: &Placement| self.state.departed.get(&p.id).is_some_and(|departed| departed.lost);
                    let able =
                        |p: &&Placement| p.state == ReplicaState::Load && self.state.is_active(p.node) && !lost(p);
                    match row.placements.iter().find(able) {
                        _ if row.status != PartitionStatus::Online => add(Fact::Online),
                        Some(loader) => add(Fact::CaughtUp {
                            joiner: ReplicaName { placement: loader.id, incarnation: self.incarnation(loader.node) },
                        }),
                        None => {}
                    }
                }
                Duty::Host { .. } | Duty::Inspect { .. } => {}
            }
        }
        reports
    }

    /// Runs one round: a turn, then every alive node that is not deaf performs its duties.
    pub fn round(&mut self, deaf: &[NodeId]) -> bool {
        let commands = self.turn();
        let mut busy = !commands.is_empty();
        if busy {
            self.commit(commands);
        }
        for node in self.state.members().map(|row| row.node.id).collect::<Vec<_>>() {
            if deaf.contains(&node) {
                continue;
            }
            for report in self.facts_of(node) {
                if let Ok(commands) = on_report(
                    &self.state,
                    &mut self.liveness,
                    self.now,
                    node,
                    self.state.incarnation(node).expect("a node"),
                    &report,
                ) && !commands.is_empty()
                {
                    busy = true;
                    self.commit(commands);
                }
            }
        }
        busy
    }

    /// Runs rounds until nothing changes; time passes as needed, and every alive node sends heartbeats.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..2_000 {
            self.heartbeat_all();
            if self.round(&[]) {
                quiet = 0;
            } else {
                quiet += 1;
                if quiet > 30 {
                    return;
                }
                self.now = self.now.plus(100);
            }
        }
        panic!("it does not settle: {:#?}", counts(&self.state));
    }

    /// Returns the copies of each node that are not to be deleted, in order of registration.
    pub fn spread(&self) -> Vec<u32> {
        let kept = |node: NodeId| {
            let rows = self.state.partitions.on_node(node).filter_map(|row| row.placement_on(node));
            rows.filter(|placement| placement.state != ReplicaState::Unload).count() as u32
        };
        self.state.nodes.keys().map(|node| kept(*node)).collect()
    }

    pub fn phases(&self) -> Vec<Phase> {
        self.state.migrations.iter().map(|migration| phase(&self.state, migration)).collect()
    }

    pub fn online(&self) -> u32 {
        counts(&self.state).partitions_online
    }

    /// Checks that the state survives serialisation.
    pub fn round_trip(&self) {
        let bytes = rmp_serde::to_vec_named(&self.state).expect("encodes");
        assert_eq!(rmp_serde::from_slice::<ClusterState>(&bytes).expect("decodes"), self.state);
        let text = serde_json::to_string(&self.state).expect("encodes");
        assert_eq!(serde_json::from_str::<ClusterState>(&text).expect("decodes"), self.state);
    }
}
