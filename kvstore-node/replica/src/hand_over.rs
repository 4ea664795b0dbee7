//! Giving a leadership up: no more proposals, what is under way commits, then the release, which is final (rule 12).

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
            // The report may have been lost: say it again.
            Role::Released { epoch: released, told } if *released == epoch => {
                *told = now;
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

    /// Gives up the leadership for good, once nothing is under way (rule 12).
    pub(crate) fn release(&mut self, now: Millis, out: &mut Vec<Output>) {
        let Role::Lead(lead) = &self.role else { return };
        let idle = lead.serving && lead.handing.is_some() && !lead.requests.is_asking();
        if !idle || (self.commit < self.log.last().seq && !self.breaks(Mutant::ReleaseEarly)) {
            return;
        }
        let epoch = lead.epoch;
        self.step_down(out);
        self.role = Role::Released { epoch, told: now };
        self.report(epoch, Fact::Released, out);
    }
}
