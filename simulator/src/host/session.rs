//! The session with the leading coordinator: registration, heartbeats, reports, farewell.

use super::process::Life;
use super::start::held;
use crate::event::{Downward, Event, Upward};
use crate::mutant::{ShellMutant, broken_host};
use crate::network::End;
use crate::world::World;
use archon_coordinator_core::{HeartbeatAnswer, Register};
use archon_host::{Again, Beats, Grant, Grants, Registering, Taken};
use archon_replica::Input;
use archon_types::{Epoch, Incarnation, NodeId, PlacementId, Report};

/// How long a stopping process waits for its leaderships to be taken, in heartbeats.
const STOPPING_HEARTBEATS: u64 = 10;

impl World {
    /// Sends what is due.
    pub(crate) fn keep_session(&mut self, host: usize) {
        let (now, unit) = (self.local(host), self.plan.unit_ms());
        let machine = &mut self.hosts[host];
        let (number, storage, last) = (machine.number, machine.disk.storage, machine.disk.incarnation);
        let Some(process) = &mut machine.process else { return };
        let guess = process.guess;
        let Some(life) = process.life else {
            if process.stopping.is_some() {
                return self.exit(host);
            }
            if now >= process.next_register {
                process.next_register = now.plus(unit * 2);
                let register = Register {
                    held: held(process),
                    last_incarnation: last,
                    expects: process.registering.expects(),
                    zone: (self.plan.zones > 0).then(|| format!("z{}", number % self.plan.zones)),
                    partitions_max: self.plan.placements_max,
                    ..Register::new(format!("n{number}"), format!("n{number}:7000"), storage, process.boot_id)
                };
                let others = !std::mem::replace(&mut process.answered, false);
                self.send_up(host, guess, others, &Upward::Register(Box::new(register)));
            }
            return;
        };
        if now >= process.next_heartbeat {
            process.next_heartbeat = now.plus(unit);
            let stopping = process.stopping.is_some();
            let message = Upward::Heartbeat { node: life.node, beat: process.beats.send(now), stopping };
            // The lease is running: a heartbeat without an answer goes to every coordinator.
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

    fn send_up(&mut self, host: usize, guess: usize, others: bool, message: &Upward) {
        for coordinator in 0..crate::coordinator::COORDINATORS {
            if coordinator == guess || others {
                let event = Event::Upward { coordinator, host, message: message.clone() };
                self.send(End::Host(host), End::Coordinator(coordinator), event);
            }
        }
    }

    pub(crate) fn send_report(&mut self, host: usize, report: Report) {
        let Some(process) = &self.hosts[host].process else { return };
        let Some(Life { node, incarnation }) = process.life else { return };
        self.send_up(host, process.guess, false, &Upward::Report { node, incarnation, report });
    }

    pub(super) fn on_session(&mut self, host: usize, message: Downward) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        match message {
            Downward::Registered { boot, node, incarnation } => {
                if process.boot_id == boot && process.life.is_none() {
                    process.answered = true;
                    self.coverage.registrations += 1;
                    self.begin_life(host, node, incarnation);
                }
            }
            Downward::NotRegistered { boot, error } => {
                let asks = process.boot_id == boot && process.life.is_none();
                if asks && process.registering.refused(&error, now) == Again::AtOnce {
                    self.coverage.overtaken += 1;
                    process.next_register = now;
                    process.answered = true;
                }
            }
            Downward::Lease { beat, answer } => {
                if process.life.is_none_or(|life| life.incarnation != beat.incarnation()) {
                    return;
                }
                process.answered = true;
                let (incarnation, number) = (beat.incarnation(), beat.number());
                let HeartbeatAnswer { lease_ms, withdrawn } = answer;
                let grant = Grant { incarnation, number, lease_ms, withdrawn };
                let Taken::Granted { withdrawn, .. } = process.grants.take(beat, grant, now) else { return };
                let ended: Vec<(PlacementId, Epoch)> = withdrawn
                    .iter()
                    .filter_map(|(partition, epoch)| {
                        // One that was set aside leads nothing, and has to say so as well.
                        let aside = || process.slots.values().find(|slot| slot.partition == *partition);
                        let active = process.active.get(partition).copied();
                        Some((active.or_else(|| aside().map(|slot| slot.placement))?, *epoch))
                    })
                    .collect();
                self.checks.leases_changed = true;
                self.tell_leases(host);
                for (placement, epoch) in ended {
                    self.step(host, placement, Input::Withdrawn { epoch });
                }
                self.settle(host);
            }
            Downward::Stale { incarnation } => {
                if process.life.is_some_and(|life| life.incarnation == incarnation) {
                    process.life = None;
                    process.grants = Grants::default();
                    process.reports.clear();
                    process.answered = true;
                    let (boot_id, last) = (self.new_boot_id(), self.hosts[host].disk.incarnation);
                    if let Some(process) = &mut self.hosts[host].process {
                        process.boot_id = boot_id;
                        process.registering = Registering::new(last);
                    }
                    self.tell_leases(host);
                }
            }
            Downward::NotLeader { leader } => {
                process.guess = leader.unwrap_or((process.guess + 1) % crate::coordinator::COORDINATORS);
            }
            Downward::Reported { report, refused } => drop(process.reports.answered(&report, refused)),
            Downward::Push(_) => {}
        }
    }

    /// A new registration: stored first, then every replica forgets that it led (rule 8), then it counts.
    fn begin_life(&mut self, host: usize, node: NodeId, incarnation: Incarnation) {
        let keeps = self.breaks(ShellMutant::KeepsLeading);
        let machine = &mut self.hosts[host];
        machine.disk.incarnation = Some(incarnation);
        let Some(process) = &mut machine.process else { return };
        process.life = Some(Life { node, incarnation });
        process.grants = Grants::new(broken_host(self.mutant));
        process.beats = Beats::new(incarnation);
        process.reports.clear();
        let placements: Vec<PlacementId> = process.slots.keys().copied().collect();
        for placement in placements {
            if keeps {
                continue;
            }
            self.step(host, placement, Input::Renew { incarnation });
            self.rest(host, placement);
        }
        self.tell_leases(host);
    }

    fn tell_leases(&mut self, host: usize) {
        let Some(process) = &self.hosts[host].process else { return };
        for placement in process.slots.keys().copied().collect::<Vec<_>>() {
            self.tell_lease(host, placement);
        }
    }

    /// The node was told to stop: it gives up whatever it leads, then says farewell.
    pub(crate) fn stop_in_order(&mut self, host: usize) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.stopping.is_some() {
            return;
        }
        process.stopping = Some(now);
        let led: Vec<(PlacementId, Epoch)> = process
            .slots
            .iter()
            .filter_map(|(placement, slot)| Some((*placement, slot.replica.configuration()?.row.epoch)))
            .collect();
        for (placement, epoch) in led {
            self.step(host, placement, Input::HandOver { epoch, to: placement });
        }
        self.settle(host);
    }

    fn keep_stopping(&mut self, host: usize, life: Life) {
        let (now, unit) = (self.local(host), self.plan.unit_ms());
        let Some(process) = &self.hosts[host].process else { return };
        let Some(since) = process.stopping else { return };
        let leads = process.slots.values().any(|slot| slot.serving);
        let waits = !process.reports.is_empty();
        if now.since(since) < unit * STOPPING_HEARTBEATS && (leads || waits) {
            return;
        }
        if !leads {
            let Life { node, incarnation } = life;
            self.send_up(host, process.guess, true, &Upward::Leave { node, incarnation });
        }
        self.exit(host);
    }

    /// The process ends by itself; somebody starts it again after a while.
    fn exit(&mut self, host: usize) {
        let unit = self.plan.unit_ms();
        self.end_process(host);
        let down = self.random.between(unit, unit * 20);
        self.after(down, Event::Restart { host });
    }
}
