//! Leaderships ended by a higher epoch of which the row says nothing (rule 25). Mostly the row is on its way. But a copy may
//! also know an epoch that was never granted: it obeyed a copy that was set back or strayed, or the coordinators were set back
//! themselves. Then nobody could ever lead again below it, so the coordinator is told, and grants above it.

use crate::mutant::Mutant;
use crate::output::Output;
use crate::replica::{Replica, Role};
use archon_types::{Epoch, Fact, Millis};

/// What is told until a row of a higher epoch comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overtaken {
    /// The epoch in which this replica is named leader and does not lead.
    epoch: Epoch,
    /// The highest epoch known of.
    by: Epoch,
    reported: Millis,
}

impl Replica {
    /// Remembers that `epoch`, in which this replica is named leader, is over because of `by`, and tells it. It does not lead
    /// in `epoch` any more, nor will it again in this life.
    pub(crate) fn overtaken_by(&mut self, now: Millis, epoch: Epoch, by: Epoch, out: &mut Vec<Output>) {
        if self.breaks(Mutant::OvertakenUnreported) {
            return;
        }
        self.overtaken = Some(Overtaken { epoch, by, reported: now });
        self.report(epoch, Fact::Overtaken { by }, out);
    }

    /// As [`Replica::overtaken_by`], where the row will most likely be here before anything has to be told.
    pub(crate) fn overtaken_perhaps(&mut self, epoch: Epoch, by: Epoch) {
        if !self.breaks(Mutant::OvertakenUnreported) {
            self.overtaken = Some(Overtaken { epoch, by, reported: Millis::ZERO });
        }
    }

    /// Compares a new row with what this replica knows: `named` leader in an epoch that it has followed somebody in already,
    /// or that is below, it cannot lead.
    pub(crate) fn look_overtaken(&mut self, now: Millis, epoch: Epoch, named: bool, out: &mut Vec<Output>) {
        if self.overtaken.is_some_and(|overtaken| epoch > overtaken.epoch) {
            self.overtaken = None;
        }
        if named && self.overtaken.is_none() && epoch <= self.epoch && matches!(self.role, Role::Follow) {
            self.overtaken_by(now, epoch, self.epoch, out);
        }
    }

    /// Tells it again: the report may be lost.
    pub(crate) fn tick_overtaken(&mut self, now: Millis, out: &mut Vec<Output>) {
        let timeout_ms = self.timing().replication_timeout_ms;
        let known = self.epoch;
        let Some(overtaken) = &mut self.overtaken else { return };
        if now.since(overtaken.reported) >= timeout_ms {
            overtaken.reported = now;
            overtaken.by = overtaken.by.max(known);
            let Overtaken { epoch, by, .. } = *overtaken;
            self.report(epoch, Fact::Overtaken { by }, out);
        }
    }
}
