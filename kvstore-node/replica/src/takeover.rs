//! Take-over: a new leader first makes every counted follower persist its epoch, match, and hold its whole log; that
//! commits the log, and only then does it serve (rule 9). The first leader of a new partition does the same, and also
//! waits until the coordinator has recorded that it leads.

use crate::lead::Lead;
use crate::message::Position;
use crate::mutant::Mutant;
use crate::output::Output;
use crate::replica::{Replica, Role};
use archon_types::{Epoch, Fact, Millis};

impl Replica {
    /// Begins to lead `epoch`, which is above every epoch persisted here.
    pub(crate) fn take_over(&mut self, now: Millis, epoch: Epoch, out: &mut Vec<Output>) {
        self.step_down(out);
        self.stop_copy(out);
        self.following = None;
        self.epoch = epoch;
        self.writes.epoch(epoch);
        self.role = Role::Lead(Box::new(Lead::new(epoch, self.log.last().seq)));
        self.learn(now, true);
    }

    /// Serves, if every counted replica holds the whole log.
    pub(crate) fn finish_take_over(&mut self, now: Millis, out: &mut Vec<Output>) {
        let Role::Lead(lead) = &self.role else { return };
        if lead.serving {
            return;
        }
        let (epoch, start) = (lead.epoch, lead.start);
        // Its own tail counts only once it is durable, as does the epoch.
        let own = self.epoch_durable >= epoch && self.log.durable() >= start;
        let followers = self.breaks(Mutant::ServeEarly) || self.counted_hold(start);
        let enough = self.is_enough() || self.breaks(Mutant::TakeoverBelowMin); // rule 2
        if !own || !followers || !enough {
            return;
        }
        let announced = lead.announced;
        if self.is_unheard_of(lead) {
            if let Role::Lead(lead) = &mut self.role
                && !announced
            {
                (lead.announced, lead.online_reported) = (true, now);
                self.report(epoch, Fact::Online, out);
            }
            return;
        }
        if let Role::Lead(lead) = &mut self.role {
            lead.serving = true;
            lead.online_reported = now;
        }
        if start > self.commit {
            self.commit = start;
            out.push(Output::Commit { upto: start });
        }
        out.push(Output::Serve(true));
        if !announced {
            self.report(epoch, Fact::Online, out);
        }
    }

    /// Returns whether nothing was ever written to this partition, as far as known here, and the coordinator has not
    /// recorded yet that it is led. Until then, a copy lost with its node's data counts as never created, so nothing
    /// may be acknowledged (rule 19). A log with any entry proves that an earlier leader was recorded.
    fn is_unheard_of(&self, lead: &Lead) -> bool {
        self.log.last() == Position::ZERO && self.online_unheard(lead) && !self.breaks(Mutant::ServeUnheard)
    }
}
