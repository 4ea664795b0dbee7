//! Session with the leading coordinator: registration, heartbeats, reports, farewell.

use super::start::held;
use crate::event::{CoordinatorMessage, Event, MemberMessage};
use crate::mutant::broken_member;
use crate::world::World;
use archon_coordinator_core::Register;
use archon_host::NodeRegistration;
use archon_member::{GrantOutcome, Grants, Heartbeats, Prober, RegistrationAttempts, RetryDecision};
use archon_types::{Incarnation, NodeId, Report};

/// Time that a stopping process waits for its leaderships to be taken over, in heartbeats.
const STOPPING_HEARTBEATS: u64 = 10;

impl World {
    /// Sends what is due.
    pub(crate) fn keep_session(&mut self, host: usize) {
        let (now, unit) = (self.local(host), self.plan.unit_ms());
        let machine = &mut self.hosts[host];
        let (number, storage, last) = (machine.number, machine.disk.storage, machine.disk.incarnation);
        let Some(process) = &mut machine.process else { return };
        let guess = process.guess;
        let Some(life) = process.partitions.shell().life else {
            if process.stopping.is_some() {
                return self.exit(host);
            }
            if now >= process.next_register {
                process.next_register = now.plus(unit * 2);
                let register = Register {
                    held: held(process),
                    last_incarnation: last,
                    generation_key: machine.disk.generation_key,
                    told: machine.disk.told,
                    expects: process.registering.expects(),
                    zone: (self.plan.zones > 0).then(|| format!("z{}", number % self.plan.zones)),
                    partitions_max: self.plan.placements_max,
                    protocol_min: process.speaks.oldest,
                    protocol_max: process.speaks.newest,
                    ..Register::new(format!("n{number}"), format!("n{number}:7000"), storage, process.boot_id)
                };
                let others = !std::mem::replace(&mut process.answered, false);
                self.send_up(host, guess, others, &MemberMessage::Register(Box::new(register)));
            }
            return;
        };
        if self.plan.relays {
            self.keep_beating(host, life);
        } else if now >= process.next_heartbeat {
            process.next_heartbeat = now.plus(unit);
            let stopping = process.stopping.is_some();
            let (heartbeat, doors) = (process.heartbeats.send(now), process.prober.report(now));
            let message = MemberMessage::Heartbeat { heartbeat, stopping, doors };
            // The lease is running out: a heartbeat without an answer goes to every coordinator.
            let others = !std::mem::replace(&mut process.answered, false);
            self.send_up(host, guess, others, &message);
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        if now >= process.next_reports && !process.reports.is_empty() {
            process.next_reports = now.plus(unit * 2);
            for report in process.reports.peek(usize::MAX) {
                self.send_report(host, report);
            }
        }
        self.keep_stopping(host, life);
    }

    /// Sends a message to the coordinator that this machine considers the leader, or to all of them.
    pub(crate) fn send_up(&mut self, host: usize, guess: usize, others: bool, message: &MemberMessage) {
        for coordinator in self.coordinators_known_to(host) {
            if coordinator == guess || others {
                self.send_to_coordinator(host, coordinator, message.clone());
            }
        }
    }

    pub(crate) fn send_report(&mut self, host: usize, report: Report) {
        let Some(process) = &self.hosts[host].process else { return };
        let Some(NodeRegistration { node, incarnation }) = process.partitions.shell().life else { return };
        self.send_up(host, process.guess, false, &MemberMessage::Report { node, incarnation, report });
    }

    pub(super) fn on_session(&mut self, host: usize, message: CoordinatorMessage) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        match message {
            CoordinatorMessage::Registered { boot, node, generation_key, incarnation, protocol } => {
                if process.boot_id == boot && process.partitions.shell().life.is_none() {
                    process.answered = true;
                    self.coverage.registrations += 1;
                    let disk = &mut self.hosts[host].disk;
                    disk.protocol = disk.protocol.max(protocol);
                    disk.generation_key = generation_key;
                    self.begin_life(host, node, incarnation);
                }
            }
            CoordinatorMessage::NotRegistered { boot, error } => {
                let asks = process.boot_id == boot && process.partitions.shell().life.is_none();
                if !asks {
                    return;
                }
                match process.registering.refused(&error, now) {
                    RetryDecision::AtOnce => {
                        self.coverage.overtaken += 1;
                        process.next_register = now;
                        process.answered = true;
                    }
                    // The cluster uses a protocol that it does not support: it ends.
                    RetryDecision::Never => drop(self.end_process(host)),
                    RetryDecision::Later => {}
                }
            }
            CoordinatorMessage::Lease { answer, cluster } => {
                let shell = process.partitions.shell_mut();
                if shell.life.is_none() {
                    return;
                }
                let number = answer.number;
                let taken = shell.grants.take(&process.heartbeats, answer, now);
                process.answered |= taken != GrantOutcome::Foreign;
                self.beat_answered(host, number, &taken, None, cluster);
                self.granted(host, taken);
            }
            CoordinatorMessage::Stale { incarnation } => {
                let shell = process.partitions.shell_mut();
                if shell.life.is_some_and(|life| life.incarnation == incarnation) {
                    self.end_life(host);
                }
            }
            CoordinatorMessage::NotLeader { leader } => {
                let guess = process.guess;
                let guess = self.next_guess(host, guess, leader);
                let Some(process) = &mut self.hosts[host].process else { return };
                process.guess = guess;
                self.coordinator_does_not_lead(host);
            }
            CoordinatorMessage::Judged { by, batch, answers, cluster } => {
                self.pass_back(host, by, batch, answers, cluster)
            }
            CoordinatorMessage::BatchRefused { batch, leader } => self.batch_refused(host, batch, leader),
            CoordinatorMessage::Reported { report, refused } => drop(process.reports.answered(&report, refused)),
            CoordinatorMessage::Push(_)
            | CoordinatorMessage::Duties { .. }
            | CoordinatorMessage::Coordinators { .. } => {}
        }
    }

    /// Handles a processed answer.
    pub(super) fn granted(&mut self, host: usize, taken: GrantOutcome) {
        let GrantOutcome::Granted { withdrawn, .. } = taken else { return };
        self.checks.leases_changed = true;
        self.drive(host, |partitions| {
            partitions.lease_changed();
            partitions.withdrawn(withdrawn);
        });
        self.settle(host);
    }

    /// Handles a fenced incarnation: the process registers again.
    pub(super) fn end_life(&mut self, host: usize) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let shell = process.partitions.shell_mut();
        shell.life = None;
        shell.grants = Grants::default();
        process.reports.clear();
        process.relaying.end_life();
        process.prober = Prober::default();
        process.answered = true;
        let (boot_id, last) = (self.new_boot_id(), self.hosts[host].disk.incarnation);
        if let Some(process) = &mut self.hosts[host].process {
            process.boot_id = boot_id;
            process.registering = RegistrationAttempts::new(last);
        }
        self.drive(host, archon_host::Partitions::lease_changed);
    }

    /// Begins an incarnation: stored first, then every replica forgets that it led (rule 8), then it takes effect.
    fn begin_life(&mut self, host: usize, node: NodeId, incarnation: Incarnation) {
        let (broken, now) = (broken_member(self.mutant), self.local(host));
        let every_ms = self.plan.settings.door_every_ms;
        let offset = self.doors.random.below(every_ms) as f64 / every_ms.max(1) as f64;
        let machine = &mut self.hosts[host];
        machine.disk.incarnation = Some(incarnation);
        let Some(process) = &mut machine.process else { return };
        process.heartbeats = Heartbeats::new(node, incarnation);
        process.relaying.begin_life(self.plan.settings.timing, now, broken);
        process.prober = Prober::new(now, offset);
        process.reports.clear();
        let shell = process.partitions.shell_mut();
        shell.life = Some(NodeRegistration { node, incarnation });
        shell.grants = Grants::new(broken);
        self.drive(host, |partitions| {
            partitions.renew(NodeRegistration { node, incarnation });
            partitions.lease_changed();
        });
    }

    /// Handles a stop order: the node gives up its leaderships, then says farewell.
    pub(crate) fn stop_in_order(&mut self, host: usize) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.stopping.is_some() {
            return;
        }
        process.stopping = Some(now);
        self.drive(host, archon_host::Partitions::release);
        self.settle(host);
    }

    fn keep_stopping(&mut self, host: usize, life: NodeRegistration) {
        let (now, unit) = (self.local(host), self.plan.unit_ms());
        let Some(process) = &self.hosts[host].process else { return };
        let Some(since) = process.stopping else { return };
        let leads = process.partitions.leading() > 0;
        let waits = !process.reports.is_empty();
        if now.since(since) < unit * STOPPING_HEARTBEATS && (leads || waits) {
            return;
        }
        if !leads {
            let NodeRegistration { node, incarnation } = life;
            self.send_up(host, process.guess, true, &MemberMessage::Leave { node, incarnation });
        }
        self.exit(host);
    }

    /// Exits the process by itself; it is restarted after a while.
    fn exit(&mut self, host: usize) {
        let unit = self.plan.unit_ms();
        self.end_process(host);
        let down = self.random.between(unit, unit * 20);
        self.after(down, Event::Restart { host });
    }
}
