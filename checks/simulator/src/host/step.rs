//! Turns of a process: inputs from clients and the disk, and log writes.

use super::disk::Batch;
use super::shell::MachineShell;
use crate::client::calls::ReplyTo;
use crate::event::Event;
use crate::host::door::Unreachability;
use crate::mutant::ShellMutant;
use crate::world::World;
use archon_host::{Completions, Partitions, Request};

/// Maximum number of entries per tick that only forget clients.
const FORGETTINGS_MAX: usize = 2;

impl World {
    pub(crate) fn on_requests(&mut self, host: usize, requests: Vec<Request<ReplyTo>>) {
        if matches!(self.hosts[host].door.shut_at(self.truth), Some(Unreachability::Dropped | Unreachability::Refused))
        {
            return;
        }
        self.drive(host, |partitions| requests.into_iter().for_each(|request| partitions.operate(request)));
        self.settle(host);
    }

    /// Ends a turn: flushes every replica that was stepped, until no effects remain, and passes its writes to the log.
    pub(crate) fn settle(&mut self, host: usize) {
        self.drive(host, settle);
        self.submit(host);
    }

    fn submit(&mut self, host: usize) {
        let early = self.breaks(ShellMutant::AckBeforeSync);
        let Some(process) = &mut self.hosts[host].process else { return };
        let gathered = &mut process.partitions.shell_mut().gathered;
        let mut tokens = Vec::new();
        if !gathered.is_empty() {
            let batch = std::mem::take(gathered);
            if early {
                tokens.clone_from(&batch.completes.tokens);
            }
            process.journal.waiting.push_back(batch);
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
        if !tokens.is_empty() {
            self.drive(host, |partitions| partitions.durable(Completions { tokens, ..Completions::default() }));
            self.settle(host);
        }
    }

    /// Handles the end of the current sync.
    pub(crate) fn synced(&mut self, host: usize, boot: u64) {
        let machine = &mut self.hosts[host];
        let Some(process) = machine.process.as_mut().filter(|process| process.boot == boot) else { return };
        machine.disk.sync();
        let batches: Vec<Batch> = std::mem::take(&mut process.journal.in_flight);
        for batch in &batches {
            machine.disk.store(batch);
        }
        self.checks.disks_changed = true;
        self.drive(host, |partitions| batches.into_iter().for_each(|batch| partitions.durable(batch.completes)));
        self.settle(host);
    }

    pub(crate) fn tick(&mut self, host: usize, boot: u64) {
        if self.hosts[host].process.as_ref().is_none_or(|process| process.boot != boot) {
            return;
        }
        self.next_tick(host, boot);
        self.keep_session(host);
        self.keep_relaying(host);
        self.keep_probing(host);
        self.drive(host, |partitions| {
            let _ = partitions.tick(false, FORGETTINGS_MAX);
            partitions.expire(|| true);
            (0..partitions.clients_to_read()).for_each(|_| partitions.read_clients());
        });
        self.keep_pulling(host);
        self.settle(host);
    }
}

/// Carries out the effects, and resumes operations that need not wait any longer.
fn settle(partitions: &mut Partitions<MachineShell>) {
    loop {
        partitions.settle();
        let mut again: Vec<_> = std::iter::from_fn(|| partitions.pop_unparked()).collect();
        if again.is_empty() {
            return;
        }
        while let Some(request) = again.pop() {
            partitions.operate(request);
        }
    }
}
