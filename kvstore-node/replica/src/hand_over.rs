//! Handing over a leadership: no further proposals, pending ones commit, then the release, which is final (rule 12).

use crate::mutant::Mutant;
use crate::output::Output;
use crate::replica::{Replica, Role};
use archon_types::{Epoch, Fact, Millis, PlacementId};

impl Replica {
    pub(crate) fn hand_over(&mut self, now: Millis, epoch: Epoch, to: PlacementId, out: &mut Vec<Output>) {
        match &mut self.role {
            Role::Lead(lead) if lead.epoch == epoch => {
                lead.handing = Some(to);
                lead.requests.candidate = None;
                self.advance(now, out);
            }
            // The report may have been lost: repeat it.
            Role::Released { epoch: released, reported } if *released == epoch => {
                *reported = now;
                self.report(epoch, Fact::Released, out);
            }
            Role::Lead(_) | Role::Released { .. } | Role::Follow => {}
        }
    }

    pub(crate) fn keep_leading(&mut self, epoch: Epoch) {
        if let Role::Lead(lead) = &mut self.role
            && lead.epoch == epoch
        {
            lead.handing = None;
        }
    }

    /// Gives up a leadership for which the coordinator waits until its lease expires; a release ends that wait.
    pub(crate) fn withdrawn(&mut self, now: Millis, epoch: Epoch, out: &mut Vec<Output>) {
        if let Role::Lead(lead) = &mut self.role
            && lead.epoch == epoch
        {
            lead.withdrawn.get_or_insert(now);
            lead.requests.candidate = None;
            self.advance(now, out);
        } else if self.is_over(epoch) {
            // Every answer of the coordinator repeats the request until it hears the release.
            self.report(epoch, Fact::Released, out);
        }
    }

    /// Returns whether this copy will never lead in `epoch`: it persisted that epoch or a higher one without leading in
    /// it now, or applies a row of a higher one (rules 4, 8, 12).
    fn is_over(&self, epoch: Epoch) -> bool {
        let leads = matches!(&self.role, Role::Lead(lead) if lead.epoch == epoch);
        let beyond = self.configuration.as_ref().is_some_and(|known| known.row.epoch > epoch);
        !leads && (self.epoch >= epoch || beyond)
    }

    /// Gives up the leadership for good, once nothing is pending (rule 12).
    pub(crate) fn release(&mut self, now: Millis, out: &mut Vec<Output>) {
        let timeout_ms = self.timing().replication_timeout_ms;
        let Role::Lead(lead) = &self.role else { return };
        let committed = self.commit >= self.log.last().seq || self.breaks(Mutant::ReleaseEarly);
        let idle = lead.serving && lead.is_ending() && !lead.requests.is_pending() && committed;
        // The next leader may commit what this one cannot; no client gets an acknowledgement.
        let overdue = lead.withdrawn.is_some_and(|since| !lead.serving || now.since(since) >= timeout_ms);
        if !idle && !overdue {
            return;
        }
        let epoch = lead.epoch;
        self.step_down(out);
        self.role = Role::Released { epoch, reported: now };
        self.report(epoch, Fact::Released, out);
    }
}
