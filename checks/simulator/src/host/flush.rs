//! Flushes to the engine, clearing of spaces, and forming of copies.

use super::effect::Effect;
use super::shell::MachineShell;
use crate::event::Event;
use crate::mutant::ShellMutant;
use crate::world::World;
use archon_host::{Completions, FormingCopy, LocalCopy};
use archon_kv::engine::{Engine, PageLimit};
use archon_kv::{PartitionView, Reader, row};
use archon_types::{PlacementId, Seq};
use std::ops::Bound;

/// Rows that one step of forming a copy removes or writes: few, so that it takes many.
const FORM_ROWS: usize = 4;

impl World {
    /// Writes committed effects to the engine, and at times syncs it.
    pub(crate) fn flush_engine(&mut self, host: usize, boot: u64) {
        if self.hosts[host].process.as_ref().is_none_or(|process| process.boot != boot) {
            return;
        }
        if self.hosts[host].disk.engine.refuses() {
            // The flusher waits for space, and then opens the engine again.
            return self.after(self.plan.unit_ms(), Event::Flush { host, boot });
        }
        self.drive(host, |partitions| partitions.each(flush));
        self.form_copies(host);
        let sync = self.random.permille(350);
        let delay = self.random.between(10, self.plan.unit_ms());
        self.after(delay, Event::Flush { host, boot });
        if sync {
            self.sync_engine(host);
        }
        self.clear_spaces(host);
        self.settle(host);
    }

    fn sync_engine(&mut self, host: usize) {
        let machine = &self.hosts[host];
        if machine.disk.engine.sync().is_err() {
            return;
        }
        self.copies_synced(host);
        self.copies_formed(host);
        self.drive(host, |partitions| {
            let copies = partitions.copies().values().filter(|local| !local.is_pulling());
            let given: Vec<(PlacementId, Seq)> = copies.map(|local| (local.placement, local.flushing)).collect();
            given.into_iter().for_each(|(placement, upto)| partitions.synced(placement, upto));
        });
    }

    /// Advances every copy being formed by one step.
    fn form_copies(&mut self, host: usize) {
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        let limit = PageLimit { rows_max: FORM_ROWS, bytes_max: usize::MAX };
        let shell = process.partitions.shell_mut();
        // Earlier clearings come first.
        let waits = |forming: &FormingCopy| {
            let job = forming.job();
            shell.clearing.contains_key(&job.to) || shell.clearing.contains_key(&job.from)
        };
        for forming in shell.forms.forming.values_mut().filter(|forming| forming.has_step() && !waits(forming)) {
            let step = forming.step(&machine.disk.engine, FORM_ROWS, limit);
            debug_assert!(step.is_ok(), "a simulated engine takes every row");
        }
    }

    /// Handles a sync of the engine: copies without remaining writes are formed, or have all rows.
    fn copies_formed(&mut self, host: usize) {
        self.drive(host, |partitions| {
            let forms = &mut partitions.shell_mut().forms;
            let mirroring = forms.forming.values().filter(|forming| forming.is_mirroring());
            let mirroring: Vec<_> = mirroring.map(|forming| (forming.job().to, forming.job().attempt)).collect();
            let written: Vec<_> = forms.forming.extract_if(.., |_, forming| forming.is_written()).collect();
            let spoilt = std::mem::take(&mut forms.spoilt);
            spoilt.into_iter().for_each(|(placement, attempt)| partitions.spoilt(placement, attempt));
            mirroring.into_iter().for_each(|(placement, attempt)| partitions.mirroring(placement, attempt));
            written.into_iter().for_each(|(placement, forming)| partitions.formed(placement, forming.job().attempt));
            let formed = std::mem::take(&mut partitions.shell_mut().forms.adopting);
            formed.into_iter().for_each(|formed| partitions.adopt(formed));
        });
    }

    /// Clears spaces that are to be copied into or deleted, on the disk.
    fn clear_spaces(&mut self, host: usize) {
        let unsynced = self.breaks(ShellMutant::DeletedUnsynced);
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        let clearing = std::mem::take(&mut process.partitions.shell_mut().clearing);
        if clearing.is_empty() {
            return;
        }
        for placement in clearing.keys() {
            let cleared = machine.disk.engine.clear(*placement, usize::MAX);
            debug_assert!(cleared.is_ok(), "a simulated engine is always emptied");
        }
        if !unsynced {
            let synced = machine.disk.engine.sync();
            debug_assert!(synced.is_ok(), "a simulated engine is always synced");
        }
        self.drive(host, |partitions| {
            clearing.into_iter().for_each(|(placement, clear)| partitions.cleared(placement, clear));
            let early: Completions = std::mem::take(&mut partitions.shell_mut().early);
            partitions.durable(early);
        });
        self.keep_pulling(host);
    }
}

/// Compares the windows that a leader has cached, uncommitted entries included, with those of its rows and entries.
fn check_cached_windows(shell: &mut MachineShell, local: &LocalCopy<MachineShell>) {
    let view = PartitionView::new(&local.memtable, &shell.disk.engine, local.placement, Reader::Newest);
    let detail = match view.differing_cached_window() {
        Ok(None) => return,
        Ok(Some(client)) => format!("the cached window of {client} in {} differs", local.placement),
        Err(error) => format!("windows of {} cannot be read: {error}", local.placement),
    };
    shell.effects.push(Effect::Alarm(local.partition, detail));
}

/// Writes the effects that a copy has committed since the last flush to the engine.
fn flush(shell: &mut MachineShell, local: &mut LocalCopy<MachineShell>) {
    // A space being cleared accepts no writes.
    if local.is_pulling() || shell.clearing.contains_key(&local.placement) {
        return;
    }
    check_cached_windows(shell, local);
    local.learn_engine_ahead();
    local.freeze();
    let Some(frozen) = local.memtable.frozen().cloned() else { return };
    let (space, upto) = (local.placement, frozen.upto);
    for range in frozen.clears() {
        let (from, to) = row::value_bounds(range);
        let keys = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        shell.forms.spoil(space, range);
        if shell.disk.engine.clear_range(space, keys, usize::MAX).is_err() {
            return;
        }
    }
    let changes = match frozen.changes(&shell.disk.engine, space).collect::<Result<Vec<_>, _>>() {
        Ok(changes) => changes,
        // Only lost storage makes a window unreadable.
        Err(error) => return shell.effects.push(Effect::Alarm(local.partition, error.to_string())),
    };
    let changes = shell.mirrored(changes);
    if shell.disk.engine.write(&changes).is_err() {
        return;
    }
    local.flushing = upto;
    local.memtable.flushed(upto);
    shell.given_to_engine(space, upto);
}
