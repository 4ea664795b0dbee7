//! A participant's session with the leading coordinator, and the callbacks of its service.

use crate::check::violation::Violation;
use crate::event::{CoordinatorMessage, Event, MemberMessage};
use crate::worker::workers::{Callback, Process, TABLE};
use crate::world::World;
use archon_coordinator_core::Register;
use archon_member::{Acquisition, Effect, GrantOutcome, RegistrationAttempts, RetryDecision};
use archon_types::{Incarnation, Millis, NodeId, Participant};

/// Timer tick of a process, in milliseconds.
const LOOK_MS: u64 = 12;

impl World {
    /// Handles a timer tick, and sends what is due.
    pub(crate) fn work(&mut self, worker: usize, boot: u64) {
        let now = self.worker_now(worker);
        let Some(process) = self.process_of(worker).filter(|process| process.boot == boot) else { return };
        process.it.tick(now);
        self.end_callbacks(worker);
        self.carry_on(worker);
        self.keep_worker_session(worker);
        self.carry_on(worker);
        let delay = self.workers.random.between(LOOK_MS / 2, LOOK_MS);
        self.after(delay, Event::Work { worker, boot });
    }

    fn process_of(&mut self, worker: usize) -> Option<&mut Process> {
        self.workers.machines[worker].process.as_mut()
    }

    /// Ends due callbacks, at times with a failure.
    fn end_callbacks(&mut self, worker: usize) {
        let (now, truth) = (self.worker_now(worker), self.truth);
        let badly = self.workers.random.permille(20) && !self.healing;
        let Some(process) = self.process_of(worker) else { return };
        let (ended, go_on): (Vec<Callback>, Vec<Callback>) =
            process.callbacks.iter().partition(|callback| callback.ends_at <= truth);
        process.callbacks = go_on;
        for Callback { of, acquires, .. } in ended {
            match acquires {
                true => {
                    process.it.acquired(of, !badly, now);
                    process.held.extend((!badly).then_some(of));
                }
                false => {
                    process.held.remove(&of);
                    process.it.released(of, now);
                }
            }
        }
        self.checks.leases_changed = true;
    }

    /// Passes decisions to the service.
    fn carry_on(&mut self, worker: usize) {
        while let Some(effect) = self.process_of(worker).and_then(|process| process.it.next_effect()) {
            // Releases take longer than acquisitions.
            let most = self.plan.unit_ms() * if matches!(effect, Effect::Release(..)) { 20 } else { 6 };
            let slow = self.workers.random.below(3) == 0;
            let lasts = self.workers.random.between(0, if slow { most } else { 5 });
            let ends_at = self.truth + lasts;
            match effect {
                Effect::Acquire(of) => {
                    self.coverage.leases_acquired += 1;
                    self.begins_tenure(worker, of);
                    let Some(process) = self.process_of(worker) else { return };
                    process.callbacks.push(Callback { of, acquires: true, ends_at });
                }
                Effect::Release(of, _) => {
                    self.coverage.leases_released += 1;
                    let Some(process) = self.process_of(worker) else { return };
                    process.callbacks.push(Callback { of, acquires: false, ends_at });
                }
                Effect::Lost(of) => {
                    self.coverage.leases_lost += 1;
                    let Some(process) = self.process_of(worker) else { return };
                    process.callbacks.retain(|callback| callback.of != of);
                    process.held.remove(&of);
                }
            }
            self.checks.leases_changed = true;
        }
    }

    /// Epochs are fencing tokens: each later owner has a higher one, and one belongs to one incarnation.
    fn begins_tenure(&mut self, worker: usize, of: Acquisition) {
        let Some(life) = self.process_of(worker).and_then(|process| process.life) else { return };
        let before = self.workers.latest.insert(of.partition, (of.epoch, life.0, life.1));
        self.note(|| format!("worker {worker} acquires {} in epoch {}", of.partition, of.epoch));
        if let Some((epoch, node, incarnation)) = before
            && (of.epoch < epoch || (of.epoch == epoch && (node, incarnation) != life))
        {
            let (partition, own) = (of.partition, of.epoch);
            let detail = format!("worker {worker} acquires {partition} in epoch {own}, after {node} did in {epoch}");
            self.judge(Err(Violation::TwoServe { detail }));
        }
    }

    fn keep_worker_session(&mut self, worker: usize) {
        let (now, unit) = (self.worker_now(worker), self.plan.unit_ms());
        let speaks = self.spoken_by_workers();
        let machine = &mut self.workers.machines[worker];
        let every = machine.timing.map_or(unit, |timing| timing.heartbeat_ms);
        let (name, timing) = (machine.name.clone(), machine.timing);
        let Some(process) = &mut machine.process else { return };
        let Some((node, incarnation)) = process.life else {
            if process.stopping {
                return self.leave(worker);
            }
            if now >= process.next_register {
                process.next_register = now.plus(unit * 2);
                let participant = Some(Participant { tables: vec![TABLE.to_owned()], timing });
                let register = Register {
                    expects: process.registering.expects(),
                    participant,
                    protocol_min: speaks.oldest,
                    protocol_max: speaks.newest,
                    ..Register::new(name.clone(), format!("{name}:80"), process.storage, process.boot_id)
                };
                let others = !std::mem::replace(&mut process.answered, false);
                self.send_from_worker(worker, others, &MemberMessage::Register(Box::new(register)));
            }
            return;
        };
        let mut messages = Vec::new();
        if now >= process.next_heartbeat {
            process.next_heartbeat = now.plus(every);
            let (heartbeat, stopping) = (process.it.send(now), process.stopping);
            let others = !std::mem::replace(&mut process.answered, false);
            messages.push((others, MemberMessage::Heartbeat { heartbeat, stopping, doors: None }));
        }
        if now >= process.next_poll {
            process.next_poll = now.plus(unit / 2);
            let obeyed = process.it.obeyed();
            messages.push((false, MemberMessage::Poll { node, incarnation, obeyed }));
        }
        if now >= process.next_reports {
            process.next_reports = now.plus(unit / 4);
            let reports = process.it.reports(usize::MAX).into_iter();
            messages.extend(reports.map(|report| (false, MemberMessage::Report { node, incarnation, report })));
        }
        let done = process.it.is_done();
        for (others, message) in messages {
            self.send_from_worker(worker, others, &message);
        }
        if done {
            self.send_from_worker(worker, true, &MemberMessage::Leave { node, incarnation });
            self.leave(worker);
        }
    }

    fn send_from_worker(&mut self, worker: usize, others: bool, message: &MemberMessage) {
        let host = self.machine_of(worker);
        let Some(guess) = self.process_of(worker).map(|process| process.guess) else { return };
        self.send_up(host, guess, others, message);
    }

    /// Ends a process that has released everything; another one is started after a while.
    fn leave(&mut self, worker: usize) {
        self.workers.machines[worker].process = None;
        let unit = self.plan.unit_ms();
        let delay = self.workers.random.between(unit, unit * 20);
        self.after(delay, Event::Hire { worker });
    }

    /// Handles a coordinator's message.
    pub(crate) fn worker_hears(&mut self, worker: usize, message: CoordinatorMessage) {
        let (now, boot_id) = (self.worker_now(worker), self.new_boot_id());
        let Some(process) = self.process_of(worker) else { return };
        match message {
            CoordinatorMessage::Registered { boot, node, incarnation, .. } => {
                if process.boot_id == boot && process.life.is_none() {
                    process.begin(node, incarnation, now);
                }
            }
            CoordinatorMessage::NotRegistered { boot, error } => {
                let asks = process.boot_id == boot && process.life.is_none();
                if asks && process.registering.refused(&error, now) == RetryDecision::AtOnce {
                    process.next_register = now;
                    process.answered = true;
                }
            }
            CoordinatorMessage::Lease { answer, .. } => {
                let taken = process.it.granted(answer, now);
                process.answered |= taken != GrantOutcome::Foreign;
            }
            CoordinatorMessage::Duties { incarnation, term, version, duties } => {
                process.it.duties(incarnation, term, version, &duties, now);
            }
            CoordinatorMessage::Reported { report, refused } => drop(process.it.reported(&report, refused)),
            CoordinatorMessage::Stale { incarnation } => {
                if process.life.is_some_and(|(_, life)| life == incarnation) {
                    process.life = None;
                    process.it.end_life(now);
                    (process.boot_id, process.registering) = (boot_id, RegistrationAttempts::default());
                    process.answered = true;
                }
            }
            CoordinatorMessage::NotLeader { leader } => {
                let guess = process.guess;
                let guess = self.next_guess(self.machine_of(worker), guess, leader);
                let Some(process) = self.process_of(worker) else { return };
                process.guess = guess;
            }
            CoordinatorMessage::Push(_)
            | CoordinatorMessage::Coordinators { .. }
            | CoordinatorMessage::Judged { .. }
            | CoordinatorMessage::BatchRefused { .. } => {}
        }
        self.carry_on(worker);
    }
}

impl Process {
    fn begin(&mut self, node: NodeId, incarnation: Incarnation, now: Millis) {
        self.life = Some((node, incarnation));
        self.answered = true;
        self.it.begin_life(node, incarnation, now);
    }
}
