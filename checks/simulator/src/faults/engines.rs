//! Engines that refuse all but some reads for a while, as after a write that met a full disk. The log still takes writes.
//! Once there is space, the process opens its engine again, for which it begins another incarnation.

use crate::event::Event;
use crate::world::World;

impl World {
    /// Has the engine of a running process refuse accesses, at times.
    pub(crate) fn refuse_reads_now_and_then(&mut self) {
        if self.healing {
            return;
        }
        let unit = self.plan.unit_ms();
        let delay = self.engines.random.between(unit * 4, unit * 30);
        self.after(delay, Event::RefuseReads);
        let host = self.engines.random.index(self.hosts.len());
        let lasts = self.engines.random.between(unit, unit * 40);
        let machine = &self.hosts[host];
        let Some(process) = machine.process.as_ref().filter(|_| !machine.disk.engine.refuses()) else { return };
        let boot = process.boot;
        machine.disk.engine.refuse(&mut self.engines.random);
        self.coverage.engines_refusing += 1;
        self.note(|| format!("the engine of host {host} refuses accesses for {lasts}"));
        self.after(lasts, Event::OpenEngine { host, boot });
    }

    /// Ends the process, unless it has ended meanwhile, and starts it again.
    pub(crate) fn open_engine(&mut self, host: usize, boot: u64) {
        if self.hosts[host].process.as_ref().is_some_and(|process| process.boot == boot) {
            self.kill(host);
            self.after(1, Event::Restart { host });
        }
    }

    /// Opens all engines that refuse, as the faults end.
    pub(crate) fn open_engines(&mut self) {
        for host in 0..self.hosts.len() {
            if self.hosts[host].disk.engine.refuses() {
                self.kill(host);
            }
        }
    }
}
