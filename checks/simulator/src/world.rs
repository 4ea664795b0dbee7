//! The world: machines, coordinators, clients and the network between them, driven by one seed.

use crate::check::checks::Checks;
use crate::check::violation::Violation;
use crate::client::calls::Client;
use crate::client::replica_reads::ReplicaReads;
use crate::coordinator::quorum::Quorum;
use crate::coverage::Coverage;
use crate::event::{CoordinatorMessage, Event, MemberMessage};
use crate::faults::parts::{Engines, ReachabilityFaults, Relays, Restarter};
use crate::host::process::{Host, Shadow};
use crate::mutant::{Mutant, ShellMutant};
use crate::network::{End, Network};
use crate::operators::parts::{Changer, Operator, Recoverer, Upgrader};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::worker::workers::Workers;
use std::collections::BTreeMap;

/// State of the whole world.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Scenario,
    pub(crate) truth: u64,
    pub(crate) random: Random,
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) strays: Random,
    pub(crate) drops: Random,
    pub(crate) splits: Random,
    pub(crate) merges: Random,
    pub(crate) operator: Operator,
    pub(crate) recoverer: Recoverer,
    pub(crate) upgrader: Upgrader,
    pub(crate) changer: Changer,
    pub(crate) relays: Relays,
    pub(crate) restarter: Restarter,
    pub(crate) doors: ReachabilityFaults,
    pub(crate) engines: Engines,
    pub(crate) replica_reads: ReplicaReads,
    pub(crate) network: Network,
    pub(crate) quorum: Quorum,
    pub(crate) hosts: Vec<Host>,
    pub(crate) shadows: Vec<Shadow>,
    pub(crate) clients: Vec<Client>,
    pub(crate) workers: Workers,
    pub(crate) checks: Checks,
    /// Boxed, since a machine borrows it whenever it is driven.
    pub(crate) coverage: Box<Coverage>,
    pub(crate) trace: Trace,
    pub(crate) violation: Option<Violation>,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) healing: bool,
    /// End of the last situation created on purpose.
    pub(crate) theme_until: u64,
    /// Scheduled events, by time and order of scheduling. Boxed: an event is large, and the map moves its entries.
    queue: BTreeMap<(u64, u64), Box<Event>>,
    sequence: u64,
    unique: u128,
}

impl World {
    pub(crate) fn new(
        #[cfg_attr(not(feature = "mutants"), allow(unused_mut))] mut plan: Scenario,
        mutant: Option<Mutant>,
        trace_lines: usize,
    ) -> Self {
        #[cfg(feature = "mutants")]
        if let Some(Mutant::Kv(broken)) = mutant {
            plan.dedup.mutant = Some(broken);
        }
        let mut random = Random::new(plan.seed);
        let quorum = Quorum::new(&mut random, mutant);
        let mut world = Self {
            truth: 0,
            network: Network::default(),
            quorum,
            hosts: Vec::new(),
            shadows: Vec::new(),
            clients: Vec::new(),
            workers: Workers::new(plan.seed),
            checks: Checks::default(),
            coverage: Box::default(),
            trace: Trace::new(trace_lines),
            violation: None,
            mutant,
            healing: false,
            theme_until: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            unique: 0,
            random,
            strays: Random::new(plan.seed ^ 0x57A1),
            drops: Random::new(plan.seed ^ 0xD409),
            splits: Random::new(plan.seed ^ 0x5B11),
            merges: Random::new(plan.seed ^ 0x3E46),
            operator: Operator::new(plan.seed),
            recoverer: Recoverer::new(plan.seed),
            upgrader: Upgrader::new(plan.seed),
            changer: Changer::new(plan.seed),
            relays: Relays::new(plan.seed),
            restarter: Restarter::new(plan.seed),
            doors: ReachabilityFaults::new(plan.seed),
            engines: Engines::new(plan.seed),
            replica_reads: ReplicaReads::new(plan.seed),
            plan,
        };
        world.checks.entry_limit = Some(world.plan.entry_limit);
        world.coverage.zoned = u64::from(world.plan.zones > 0);
        world.coverage.limited = u64::from(world.plan.placements_max.is_some());
        world.found_cluster();
        for number in 0..world.plan.nodes {
            world.add_host(number);
        }
        for number in 0..world.plan.clients {
            world.add_client(number);
        }
        world.add_workers();
        world
    }

    pub(crate) fn note<L: std::fmt::Display>(&mut self, line: impl FnOnce() -> L) {
        self.trace.note(self.truth, line);
    }

    /// Returns a number that was never returned before.
    pub(crate) fn unique(&mut self) -> u128 {
        self.unique += 1;
        self.unique
    }

    pub(crate) fn breaks(&self, mutant: ShellMutant) -> bool {
        self.mutant == Some(Mutant::Shell(mutant))
    }

    /// Ends the run if a property is violated.
    pub(crate) fn judge(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result
            && self.violation.is_none()
        {
            self.note(|| format!("VIOLATION {violation}"));
            self.violation = Some(violation);
        }
    }

    pub(crate) fn after(&mut self, millis: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.truth + millis, self.sequence), Box::new(event));
    }

    /// Passes an event to the network.
    pub(crate) fn send(&mut self, from: End, to: End, event: Event) {
        let mut delays = self.network.delays(self.truth, from, to, &mut self.random, &self.plan);
        let Some(last) = delays.pop() else { return };
        for delay in delays {
            self.after(delay, event.clone());
        }
        self.after(last, event);
    }

    /// Passes a coordinator's message to a machine.
    pub(crate) fn send_to_host(&mut self, coordinator: usize, host: usize, message: CoordinatorMessage) {
        self.send(End::Coordinator(coordinator), End::Host(host), Event::CoordinatorMessage { host, message });
    }

    /// Passes a member's message to a coordinator.
    pub(crate) fn send_to_coordinator(&mut self, host: usize, coordinator: usize, message: MemberMessage) {
        let event = Event::MemberMessage { coordinator, host, message };
        self.send(End::Host(host), End::Coordinator(coordinator), event);
    }

    /// Runs until `until` in true time, or until a violation.
    pub(crate) fn run(&mut self, until: u64) {
        while self.violation.is_none() {
            let Some((at, _)) = self.queue.first_key_value().map(|(key, _)| *key) else { break };
            if at > until {
                break;
            }
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            self.truth = at;
            if let Some(paused) = self.paused_until(&event) {
                // A paused process finds its messages when it resumes.
                self.sequence += 1;
                self.queue.insert((paused, self.sequence), event);
                continue;
            }
            self.coverage.events += 1;
            self.handle(*event);
            self.check();
        }
        if self.violation.is_none() {
            self.truth = until;
        }
    }

    /// Returns the end of a pause of a machine's process; those of participants come after those of nodes.
    fn machine_paused_until(&self, host: usize) -> Option<u64> {
        match self.worker_at(host) {
            Some(worker) => self.workers.paused_until(worker),
            None => self.hosts.get(host).map(|host| host.paused_until),
        }
    }

    fn paused_until(&self, event: &Event) -> Option<u64> {
        let host = event.host().and_then(|host| self.machine_paused_until(host));
        let coordinator = event.coordinator().map(|number| self.quorum.coordinators[number].paused_until);
        let worker = event.worker().and_then(|worker| self.workers.paused_until(worker));
        host.or(coordinator).or(worker).filter(|until| *until > self.truth)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Append { coordinator } => self.append_next(coordinator),
            Event::Apply { coordinator } => self.apply_committed(coordinator),
            Event::Turn { coordinator, term } => self.turn(coordinator, term),
            Event::PushRound { coordinator, term } => self.push_round(coordinator, term),
            Event::RoundDone { coordinator, term, round, heard } => {
                self.round_done(coordinator, term, round, heard);
            }
            Event::Answer { coordinator, term, heartbeats } => {
                self.answer_heartbeats(coordinator, term, heartbeats);
            }
            Event::Elect => self.elect_coordinator(),
            Event::Restarts => self.restart_now_and_then(),
            Event::RestartSession { coordinator } => self.restart_session(coordinator),
            Event::RefuseReads => self.refuse_reads_now_and_then(),
            Event::OpenEngine { host, boot } => self.open_engine(host, boot),
            Event::Depose { coordinator } => self.depose(coordinator),
            Event::MemberMessage { coordinator, host, message } => self.on_member_message(coordinator, host, message),
            Event::CoordinatorMessage { host, message: CoordinatorMessage::Coordinators { by, named } } => {
                self.hear_coordinators(host, by, named);
            }
            Event::CoordinatorMessage { host, message } => match self.worker_at(host) {
                Some(worker) => self.worker_hears(worker, message),
                None => self.on_coordinator_message(host, message),
            },
            Event::PeerMessage { host, message, sent } => self.on_peer_message(host, *message, sent),
            Event::ReadReplica { host, again } => self.read_replica(host, again),
            Event::Requests { host, requests } => self.on_requests(host, requests),
            Event::Reply { client, to, log_time, outcome, leader, epoch } => {
                self.on_reply(client, to, log_time, *outcome, (leader, epoch));
            }
            Event::Tick { host, boot } => self.tick(host, boot),
            Event::Flush { host, boot } => self.flush_engine(host, boot),
            Event::Synced { host, boot } => self.synced(host, boot),
            Event::Restart { host } => self.restart(host),
            Event::LosePlacement { host } if !self.healing => self.lose_placement(host),
            Event::LosePlacement { .. } => {}
            Event::Deafen { host, until } if !self.healing => self.hosts[host].deaf_until = until,
            Event::Deafen { .. } => {}
            Event::Client { client, worker, token } => self.client_turn(client, worker, token),
            Event::Fault => self.next_fault(),
            Event::Work { worker, boot } => self.work(worker, boot),
            Event::Hire { worker } => self.start_worker(worker),
            Event::WorkerFault => self.worker_fault(),
            Event::Stray => self.stray(),
            Event::Operator => self.operator_looks(),
            Event::PowerOff { hosts, away } => self.power_off_all(&hosts, away),
            Event::Drop => self.drop_tables(),
            Event::Recover => self.recover_quorum(),
            Event::RecoveryLook => self.recovery_looks(),
            Event::Upgrade => self.go_on_with_upgrade(),
            Event::Reorganise => self.reorganise(),
            Event::QuorumFault => self.quorum_fault(),
            Event::WipeAmid { coordinator, leader } => self.wipe_amid(coordinator, leader),
            Event::LoseLeader { coordinator } => self.lose_leader(coordinator),
            Event::QuorumTick { coordinator, boot } => self.quorum_tick(coordinator, boot),
            Event::QuorumMessage { coordinator, from, message } => self.on_quorum_message(coordinator, from, *message),
            Event::StartCoordinator { coordinator } => self.start_coordinator(coordinator),
            Event::DropAgain { table } => self.drop_again(table),
            Event::Make => self.make_again(),
            Event::ReturnKeys { partition } => self.return_keys(partition),
            Event::MergeBack { partition } => self.merge_back(partition),
            Event::CopyDisk => self.copy_disk_now_and_then(),
            Event::RightDirectory => self.right_directory(),
            Event::Split => self.order_split(),
            Event::Merge => self.order_merge(),
            Event::CancelMerge { partition } => self.cancel_merge(partition),
            Event::CancelSplit { partition } => self.cancel_split(partition),
            Event::DisturbReshape { partition } => self.disturb_reshape(partition),
        }
    }
}
