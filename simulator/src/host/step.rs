//! A process's turns: inputs to replicas, what follows, the log's writes.

use super::disk::Batch;
use crate::event::Event;
use crate::mutant::ShellMutant;
use crate::world::World;
use archon_replica::{Input, Output};
use archon_types::PlacementId;

impl World {
    /// Gives a replica an input and carries out what follows; the turn ends with [`World::settle`].
    pub(crate) fn step(&mut self, host: usize, placement: PlacementId, input: Input) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        self.trace.note(self.truth, || format!("host {host} {placement:?} <- {input:?}"));
        let mut out = Vec::new();
        slot.replica.step(now, input, &mut out);
        slot.end_spoilt_copies();
        process.touched.insert(placement);
        self.carry_out(host, placement, out);
    }

    /// Ends a turn: flushes every replica that was stepped, until nothing more follows, and hands the log its writes.
    pub(crate) fn settle(&mut self, host: usize) {
        let now = self.local(host);
        loop {
            let Some(process) = &mut self.hosts[host].process else { return };
            if let Some((placement, input)) = process.followups.pop_front() {
                self.step(host, placement, input);
                continue;
            }
            let Some(placement) = process.touched.pop_first() else { break };
            let Some(slot) = process.slots.get_mut(&placement) else { continue };
            let mut out: Vec<Output> = Vec::new();
            slot.replica.flush(now, &mut out);
            slot.end_spoilt_copies();
            self.carry_out(host, placement, out);
        }
        self.submit(host);
    }

    fn submit(&mut self, host: usize) {
        let early = self.breaks(ShellMutant::AckBeforeSync);
        let Some(process) = &mut self.hosts[host].process else { return };
        if !process.journal.gathered.is_empty() {
            let batch = std::mem::take(&mut process.journal.gathered);
            let tokens = if early { batch.tokens.clone() } else { Vec::new() };
            process.journal.waiting.push_back(batch);
            process.followups.extend(tokens.into_iter().map(|(id, token)| (id, Input::Persisted { token })));
        }
        if process.journal.in_flight.is_empty() && !process.journal.waiting.is_empty() {
            // One write and one sync for everything that waits.
            process.journal.in_flight = process.journal.waiting.drain(..).collect();
            let boot = process.boot;
            let delay = match self.random.permille(20) && !self.healing {
                true => self.random.between(10, self.plan.unit_ms() * 8),
                false => self.random.between(1, 5),
            };
            self.after(delay, Event::Synced { host, boot });
        }
        if early && self.hosts[host].process.as_ref().is_some_and(|process| !process.followups.is_empty()) {
            self.settle(host);
        }
    }

    /// The sync under way is done.
    pub(crate) fn synced(&mut self, host: usize, boot: u64) {
        let machine = &mut self.hosts[host];
        let Some(process) = machine.process.as_mut().filter(|process| process.boot == boot) else { return };
        machine.disk.sync();
        let batches: Vec<Batch> = std::mem::take(&mut process.journal.in_flight);
        for batch in &batches {
            machine.disk.store(batch);
        }
        self.checks.disks_changed = true;
        for Batch { tokens, trims, deletions, .. } in batches {
            for (placement, token) in tokens {
                self.step(host, placement, Input::Persisted { token });
            }
            for (placement, upto) in trims {
                self.step(host, placement, Input::Trimmed { upto });
            }
            for (placement, partition) in deletions {
                self.unloaded(host, placement, partition);
            }
        }
        self.settle(host);
    }

    pub(crate) fn tick(&mut self, host: usize, boot: u64) {
        let Some(process) = self.hosts[host].process.as_ref().filter(|process| process.boot == boot) else { return };
        let placements: Vec<PlacementId> = process.slots.keys().copied().collect();
        self.next_tick(host, boot);
        self.keep_session(host);
        for placement in placements {
            self.tell_lease(host, placement);
            let Some(process) = &self.hosts[host].process else { return };
            let Some(slot) = process.slots.get(&placement) else { continue };
            let (ticks, serving) = (slot.replica.wants_ticks(), slot.serving);
            if ticks {
                self.step(host, placement, Input::Tick);
            }
            if serving {
                self.read_clients(host, placement);
                self.forget_clients(host, placement);
            }
            self.release_held(host, placement);
            self.keep_pulling(host, placement);
        }
        self.settle(host);
    }
}
