//! Applied effects on their way to the engine.

use super::slot::UNKNOWN;
use crate::event::Event;
use crate::world::World;
use archon_kv::RowChange;
use archon_kv::engine::{Change, Engine};
use archon_types::PlacementId;

impl World {
    /// Writes what was committed to the engine, and now and then brings it to the disk.
    pub(crate) fn flush_engine(&mut self, host: usize, boot: u64) {
        let machine = &mut self.hosts[host];
        let Some(process) = machine.process.as_mut().filter(|process| process.boot == boot) else { return };
        for slot in process.slots.values_mut().filter(|slot| slot.pull.is_none()) {
            if slot.recent.engine_ahead() == UNKNOWN && slot.replica.counts() {
                slot.recent.set_engine_ahead(slot.replica.last().seq);
            }
            let Some(frozen) = slot.recent.freeze() else { continue };
            let space = slot.placement;
            let change = |row: &RowChange| Change { space, key: row.key.clone(), value: row.value.clone() };
            let changes: Vec<Change> = frozen.rows().iter().map(change).collect();
            slot.written = frozen.upto;
            if machine.disk.engine.write(&changes).is_err() {
                return;
            }
            slot.recent.flushed(slot.written);
            while slot.log.front().is_some_and(|entry| entry.at.seq <= slot.written) {
                slot.log.pop_front();
            }
        }
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
        let machine = &mut self.hosts[host];
        if machine.disk.engine.sync().is_err() {
            return;
        }
        let Some(process) = &machine.process else { return };
        let placements: Vec<PlacementId> = process.slots.keys().copied().collect();
        for placement in placements {
            let Some(slot) = self.hosts[host].process.as_ref().and_then(|process| process.slots.get(&placement)) else {
                continue;
            };
            if slot.pull.as_ref().is_some_and(|pull| pull.whole) {
                self.copy_done(host, placement);
            } else if slot.pull.is_none()
                && let Some(complete) = slot.replica.position_at(slot.written.min(slot.recent.committed()))
            {
                self.complete_at(host, placement, complete);
            }
        }
    }
}
