//! V: a node is declared unreachable only by enough of its own probers, and never too many nodes are (rules 74 and 75).
//!
//! Probe results are recorded here as they happen, whether or not their reports arrive.

use crate::check::door_checks::Verdicts;
use crate::check::violation::Violation;
use crate::world::World;
use archon_coordinator_core::DoorNews;

impl World {
    /// V: compares verdicts with the recorded probe results.
    pub(crate) fn judge_verdicts(&mut self, verdicts: &Verdicts) {
        let &Verdicts { led_for, unreached, alive, ref news } = verdicts;
        let most = (alive / 20).max(1);
        if unreached > most {
            return self.doors_broken(format!("{unreached} of {alive} nodes are given up as unreached at once"));
        }
        for DoorNews { node, incarnation, by, shut_for_ms } in news {
            if by.is_empty() {
                self.coverage.nodes_reached_again += 1;
                continue;
            }
            self.coverage.nodes_unreached += 1;
            self.note(|| format!("{node} is unreached by {by:?} for {shut_for_ms} ms"));
            let witnesses = self.checks.doors.witnesses(&self.plan, (*node, *incarnation), self.truth);
            if witnesses < 2 {
                let detail = format!("{node} is given up by the word of {by:?}, and its door was shut to {witnesses}");
                return self.doors_broken(detail);
            }
            if led_for < self.plan.settings.timing.failure_timeout_ms {
                let detail = format!("{node} is given up by a coordinator that has led for {led_for} ms");
                return self.doors_broken(detail);
            }
        }
    }

    pub(crate) fn doors_broken(&mut self, detail: String) {
        self.judge(Err(Violation::Doors { detail }));
    }
}
