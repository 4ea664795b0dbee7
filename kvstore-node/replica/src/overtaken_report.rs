//! Leaderships ended by a higher epoch that the row does not show (rule 25). Usually the row is on its way. But a copy
//! may also know an epoch that was never granted: it accepted a copy that was restored from an old state or acted
//! without a grant, or the coordinators were restored from an old state. No leader could then serve below that epoch,
//! so this is reported to the coordinator, which grants a higher one.

use crate::mutant::Mutant;
use crate::output::Output;
use crate::replica::{Replica, Role};
use archon_types::{Epoch, Fact, Millis};

/// Report that is repeated until a row of a higher epoch comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OvertakenReport {
    /// The epoch in which this replica is named leader and does not lead.
    epoch: Epoch,
    /// The highest known epoch.
    by: Epoch,
    reported: Millis,
}

impl Replica {
    /// Records and reports that `by` has ended `epoch`, in which this replica is named leader. It does not lead in
    /// `epoch`, nor will it again in this incarnation.
    pub(crate) fn overtaken_by(&mut self, now: Millis, epoch: Epoch, by: Epoch, out: &mut Vec<Output>) {
        if self.breaks(Mutant::OvertakenUnreported) {
            return;
        }
        self.overtaken = Some(OvertakenReport { epoch, by, reported: now });
        self.report(epoch, Fact::Overtaken { by }, out);
    }

    /// Records the same without an immediate report, as the row will most likely arrive first.
    pub(crate) fn overtaken_perhaps(&mut self, epoch: Epoch, by: Epoch) {
        if !self.breaks(Mutant::OvertakenUnreported) {
            self.overtaken = Some(OvertakenReport { epoch, by, reported: Millis::ZERO });
        }
    }

    /// Compares a new row with the known epochs: a replica `named` leader cannot lead in an epoch in which it has
    /// followed another leader already, or a lower one.
    pub(crate) fn look_overtaken(&mut self, now: Millis, epoch: Epoch, named: bool, out: &mut Vec<Output>) {
        if self.overtaken.is_some_and(|overtaken| epoch > overtaken.epoch) {
            self.overtaken = None;
        }
        if named && self.overtaken.is_none() && epoch <= self.epoch && matches!(self.role, Role::Follow) {
            self.overtaken_by(now, epoch, self.epoch, out);
        }
    }

    /// Repeats the report, which may have been lost.
    pub(crate) fn tick_overtaken(&mut self, now: Millis, out: &mut Vec<Output>) {
        let timeout_ms = self.timing().replication_timeout_ms;
        let known = self.epoch;
        let Some(overtaken) = &mut self.overtaken else { return };
        if now.since(overtaken.reported) >= timeout_ms {
            overtaken.reported = now;
            overtaken.by = overtaken.by.max(known);
            let OvertakenReport { epoch, by, .. } = *overtaken;
            self.report(epoch, Fact::Overtaken { by }, out);
        }
    }
}
