//! A small simulated world around the core: nodes with disks, leases on drifting clocks, a lossy and slow network, one
//! leading coordinator after another. After every event it checks that no partition is served twice (O), that a serving
//! node has every acknowledged write (D), and every invariant of the state.
#![allow(dead_code, unreachable_pub)]

mod faults;
pub mod node;

use archon_coordinator_core::*;
use archon_types::*;
pub use faults::Fault;
use node::SimNode;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A clock with an offset and a slight drift: per mille of the true rate, within the allowed drift.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub offset: u64,
    pub per_mille: u64,
}

impl Clock {
    pub fn at(&self, truth: u64) -> Millis {
        Millis::new(self.offset + truth * self.per_mille / 1_000)
    }
}

#[derive(Clone, Debug)]
pub enum Event {
    Tick(usize),
    Turn,
    Heartbeat {
        from: usize,
        node: NodeId,
        incarnation: Incarnation,
        sent: Millis,
    },
    /// The quorum round for a heartbeat has ended.
    Confirmed {
        term: u64,
        from: usize,
        node: NodeId,
        incarnation: Incarnation,
        sent: Millis,
    },
    Answer {
        to: usize,
        incarnation: Incarnation,
        sent: Millis,
        answer: HeartbeatAnswer,
    },
    Register {
        from: usize,
        register: Box<Register>,
    },
    Registered {
        to: usize,
        boot: BootId,
        node: NodeId,
        incarnation: Incarnation,
    },
    Activate {
        node: NodeId,
        incarnation: Incarnation,
    },
    Report {
        node: NodeId,
        incarnation: Incarnation,
        report: Report,
    },
    Stopping {
        node: NodeId,
        incarnation: Incarnation,
    },
    Push {
        to: usize,
        incarnation: Incarnation,
        at: u64,
        duties: Vec<Duty>,
        /// Partitions that were never Online: their copies need not exist yet.
        untouched: BTreeSet<PartitionId>,
    },
    Commit {
        term: u64,
        reply: Option<(usize, BootId)>,
        commands: Vec<Command>,
    },
    Restart(usize),
}

pub struct World {
    pub truth: u64,
    pub state: ClusterState,
    pub liveness: Liveness,
    term: u64,
    coordinator: Clock,
    pub nodes: Vec<SimNode>,
    /// Acknowledged writes of each partition.
    pub acknowledged: BTreeMap<PartitionId, u64>,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    random: u64,
    loss_percent: u64,
    pushed: BTreeMap<usize, u64>,
}

impl World {
    pub fn new(seed: u64, nodes: usize, settings: Settings) -> Self {
        let mut world = Self {
            truth: 0,
            state: ClusterState::new(),
            liveness: Liveness::new(Millis::ZERO),
            term: 1,
            coordinator: Clock { offset: 0, per_mille: 1_000 },
            nodes: Vec::new(),
            acknowledged: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            random: seed | 1,
            loss_percent: 5,
            pushed: BTreeMap::new(),
        };
        world.commit(1, None, vec![Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(1)), settings }]);
        world.new_coordinator();
        for number in 0..nodes {
            let clock = world.clock();
            world.nodes.push(SimNode::new(number, clock));
            world.after(number as u64, Event::Tick(number));
        }
        world.after(1, Event::Turn);
        world
    }

    fn clock(&mut self) -> Clock {
        Clock { offset: self.below(1_000_000), per_mille: 995 + self.below(11) }
    }

    /// Returns a pseudo-random number below `end` (xorshift).
    pub fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end.max(1)
    }

    pub fn after(&mut self, millis: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.truth + millis, self.sequence), event);
    }

    /// Sends over the network between the coordinator and a node: slow, and sometimes not at all.
    pub fn send(&mut self, node: usize, event: Event) {
        let lost = self.below(100) < self.loss_percent || self.nodes[node].cut_off_until > self.truth;
        let slow = if self.below(10) == 0 { 400 } else { 20 };
        let delay = 1 + self.below(slow);
        if !lost {
            self.after(delay, event);
        }
    }

    fn now(&self) -> Millis {
        self.coordinator.at(self.truth)
    }

    fn new_coordinator(&mut self) {
        self.term += 1;
        self.coordinator = self.clock();
        self.liveness = Liveness::new(self.now());
        self.pushed.clear();
    }

    fn propose(&mut self, reply: Option<(usize, BootId)>, commands: Vec<Command>) {
        if !commands.is_empty() {
            let delay = 1 + self.below(15);
            self.after(delay, Event::Commit { term: self.term, reply, commands });
        }
    }

    fn commit(&mut self, term: u64, reply: Option<(usize, BootId)>, commands: Vec<Command>) {
        let index = self.state.applied + 1;
        if term != self.term {
            skip(&mut self.state, index);
            return;
        }
        let (at, who) = (Millis::new(self.truth), Actor::Coordinator(1));
        let batch = CommandBatch { request: None, at, who, proposer: 1, term, commands };
        let before = self.state.clone();
        let responses = apply(&mut self.state, index, &batch);
        check(&self.state).unwrap_or_else(|violation| panic!("{violation}\nafter {batch:#?}"));
        check_step(&before, &self.state).unwrap_or_else(|violation| panic!("{violation}\nafter {batch:#?}"));
        self.check_totals();
        if let (Some((to, boot)), [Response::Registered { node, incarnation }]) = (reply, &responses[..]) {
            self.send(to, Event::Registered { to, boot, node: *node, incarnation: *incarnation });
        }
        // A wiped node that held last in-sync copies: the operator declares them lost.
        if let ([Command::Register(register)], [Response::Refused(error)]) = (&batch.commands[..], &responses[..])
            && error.kind == ErrorKind::DataLoss
        {
            let old = self.state.node_by_name(&register.name).map(|row| row.node.id);
            let lost = old.and_then(|old| check_lose_node(&self.state, old).ok());
            self.propose(None, lost.into_iter().map(|lost| lost.command).collect());
        }
    }

    /// Runs until `until` in true time.
    pub fn run(&mut self, until: u64) {
        while let Some(((at, _), _)) = self.queue.first_key_value() {
            if *at > until {
                break;
            }
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            self.truth = at;
            self.handle(event);
            self.check_serving();
        }
        self.truth = until;
    }

    fn handle(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Tick(number) => {
                self.tick(number);
                let delay = 20 + self.below(40);
                self.after(delay, Event::Tick(number));
            }
            Event::Turn => {
                let commands = turn(&self.state, &mut self.liveness, now).commands;
                self.propose(None, commands);
                self.push();
                self.after(50, Event::Turn);
            }
            Event::Heartbeat { from, node, incarnation, sent } => {
                match self.liveness.heard(&self.state, node, incarnation, sent.get() + 1, now) {
                    Ok(false) => {}
                    Ok(true) => {
                        // Now and then a quorum round takes longer than a failure time-out.
                        let slow = if self.below(10) == 0 { 2_500 } else { 10 };
                        let (term, delay) = (self.term, 1 + self.below(slow));
                        self.after(delay, Event::Confirmed { term, from, node, incarnation, sent });
                    }
                    Err(error) if error.kind == ErrorKind::StaleIncarnation => self.nodes[from].hear_stale(incarnation),
                    Err(_) => {}
                }
            }
            Event::Confirmed { term, from, node, incarnation, sent } => {
                if term == self.term
                    && let Ok(answer) = self.liveness.answer(&self.state, node, incarnation, now)
                {
                    self.send(from, Event::Answer { to: from, incarnation, sent, answer });
                }
            }
            Event::Register { from, mut register } => {
                let boot = register.boot;
                // A node that is refused as overtaken learns the recorded incarnation, and registers again.
                register.expects = self.state.node_by_storage(register.storage).map(|row| row.node.incarnation);
                self.propose(Some((from, boot)), vec![Command::Register(register)]);
            }
            Event::Activate { node, incarnation } => self.propose(None, vec![Command::Activate { node, incarnation }]),
            Event::Report { node, incarnation, report } => {
                if let Ok(commands) = on_report(&self.state, &mut self.liveness, now, node, incarnation, &report) {
                    self.propose(None, commands);
                }
            }
            Event::Stopping { node, incarnation } => {
                if let Ok(commands) = on_stopping(&self.state, &self.liveness, node, incarnation) {
                    self.propose(None, commands);
                }
            }
            Event::Commit { term, reply, commands } => self.commit(term, reply, commands),
            Event::Restart(number) => self.nodes[number].restart(self.truth),
            // A stopped process gets its messages when it continues.
            Event::Answer { to, .. } | Event::Registered { to, .. } | Event::Push { to, .. }
                if self.nodes[to].paused_until > self.truth =>
            {
                let delay = self.nodes[to].paused_until - self.truth;
                self.after(delay, event);
            }
            Event::Answer { to, incarnation, sent, answer } => self.nodes[to].answered(incarnation, sent, &answer),
            Event::Registered { to, boot, node, incarnation } => self.nodes[to].registered(boot, node, incarnation),
            Event::Push { to, incarnation, at, duties, untouched } => {
                self.nodes[to].pushed(incarnation, at, duties, &untouched)
            }
        }
    }

    fn push(&mut self) {
        for number in 0..self.nodes.len() {
            let storage = self.nodes[number].storage;
            let Some(row) = self.state.node_by_storage(storage) else { continue };
            let (id, incarnation) = (row.node.id, row.node.incarnation);
            let fresh = self.pushed.get(&number) == Some(&self.state.applied);
            if fresh && self.below(8) != 0 {
                continue;
            }
            if let Some(duties) = duties(&self.state, id) {
                let at = self.state.applied;
                self.pushed.insert(number, at);
                let untouched = self.state.untouched.clone();
                self.send(number, Event::Push { to: number, incarnation, at, duties, untouched });
            }
        }
    }

    /// Checks that the counts from indexes equal a count of all rows.
    fn check_totals(&self) {
        let (totals, counted) = (Totals::of(&self.state), counts(&self.state));
        let of =
            |status: PartitionStatus| totals.partitions.iter().find(|(found, _)| *found == status).map(|(_, n)| *n);
        let found = [
            of(PartitionStatus::Unassigned),
            of(PartitionStatus::Assigned),
            of(PartitionStatus::Online),
            of(PartitionStatus::Unavailable),
            of(PartitionStatus::Offline),
            Some(totals.under_replicated),
            Some(totals.moves.iter().map(|(_, n)| n).sum()),
            Some(totals.nodes.iter().map(|(_, n)| n).sum()),
        ];
        let wanted = [
            counted.partitions_unassigned,
            counted.partitions_assigned,
            counted.partitions_online,
            counted.partitions_unavailable,
            counted.partitions_offline,
            counted.partitions_under_replicated,
            counted.migrations_running,
            counted.nodes_alive + counted.nodes_failed + counted.nodes_lost,
        ];
        assert_eq!(found, wanted.map(|n| Some(u64::from(n))), "{totals:?}");
    }

    fn check_serving(&self) {
        let mut serving: BTreeMap<PartitionId, usize> = BTreeMap::new();
        for node in &self.nodes {
            for (partition, value) in node.serves(self.truth) {
                if let Some(other) = serving.insert(partition, node.number) {
                    let row = self.state.partition(partition);
                    panic!("{partition} is served by {other} and {} at {}: {row:#?}", node.number, self.truth);
                }
                let acknowledged = self.acknowledged.get(&partition).copied().unwrap_or(0);
                assert_eq!(value, acknowledged, "{} serves {partition} without every write", node.number);
            }
        }
    }

    /// Ends all faults and waits until all partitions that can be served are, and every move has ended.
    pub fn heal(&mut self) {
        self.loss_percent = 0;
        for node in &mut self.nodes {
            node.paused_until = 0;
            node.cut_off_until = 0;
        }
        for _ in 0..600 {
            self.serve_everywhere();
            self.run(self.truth + 200);
            if self.has_converged() {
                return;
            }
        }
        let restless =
            |row: &&Partition| row.status != PartitionStatus::Online || row.live().count() < row.placements.len();
        let rows: Vec<_> = self.state.partitions.iter().filter(restless).collect();
        let migrations: Vec<_> =
            self.state.migrations.active().map(|migration| (waiting_for(&self.state, migration), migration)).collect();
        panic!("it does not converge: {:#?}\n{rows:#?}\n{migrations:#?}\n{:#?}", counts(&self.state), self.state.nodes);
    }

    /// Revokes every order, cordon and drain, including those that were requested before and are committed only now.
    fn serve_everywhere(&mut self) {
        let reversal = self.state.controls.reversals().next();
        if let Some(order) = reversal {
            let if_controls = self.state.controls_version;
            self.commit(self.term, None, vec![Command::Control { if_controls, order, why: String::new() }]);
        }
        let others = self.state.nodes.iter().filter(|(_, row)| row.node.goal != NodeGoal::Serve);
        let serve = |(node, _): (&NodeId, _)| Command::SetNode { node: *node, goal: NodeGoal::Serve, if_nodes: None };
        let commands: Vec<Command> = others.map(serve).collect();
        if !commands.is_empty() {
            self.commit(self.term, None, commands);
        }
    }

    /// Returns true if a move must wait: after disks were wiped, a copy may have to stay until the lost ones are
    /// replaced (PROTOCOL rule 7).
    fn must_wait(&self, migration: &Migration) -> bool {
        let why = waiting_for(&self.state, migration);
        why.as_deref() == Some("too few replicas on nodes that are alive would remain")
    }

    fn has_converged(&self) -> bool {
        let served = |row: &Partition| row.status == PartitionStatus::Online || row.live().next().is_none();
        self.state.nodes_alive() >= self.nodes.len()
            && self.state.partitions.iter().all(served)
            && self.state.partitions.iter().all(|row| row.status != PartitionStatus::Unassigned)
            && self.state.migrations.active().all(|migration| self.must_wait(migration))
            && self.state.condemned.is_empty()
            && self.state.partitions.iter().all(|row| self.is_whole(row))
            && self.nodes.iter().all(|node| self.holds_nothing_dropped(node))
    }

    /// Returns true if the node has no copy of a dropped table, unless its number was forgotten with a lost node.
    fn holds_nothing_dropped(&self, node: &SimNode) -> bool {
        let lost = self.state.node_by_storage(node.storage).is_none_or(|row| row.node.status == NodeStatus::Lost);
        lost || node.partitions_held().all(|partition| self.state.tables.contains_key(&partition.table))
    }

    /// Returns true if exactly the wanted copies exist and are in sync. If no in-sync copy is left, possible last
    /// remains stay.
    fn is_whole(&self, row: &Partition) -> bool {
        let wanted = self.state.tables.get(&row.id.table).map_or(0, |table| usize::from(table.replication));
        let live = row.live().count();
        live == 0 || (live == wanted && row.placements.len() == wanted)
    }
}
