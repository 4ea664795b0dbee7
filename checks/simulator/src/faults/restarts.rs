//! Restarts of a leading coordinator's session within one Raft term, while its earlier proposals are pending: a stall,
//! or a failed task.

use crate::coordinator::Session;
use crate::event::Event;
use crate::world::World;
use archon_coordinator_core::Command;

impl World {
    /// Ends the leading coordinator's session at times.
    pub(crate) fn restart_now_and_then(&mut self) {
        let unit = self.plan.unit_ms();
        let delay = self.restarter.random.between(unit * 4, unit * 60);
        self.after(delay, Event::Restarts);
        if let Some(coordinator) = self.quorum.leader {
            self.restart_session(coordinator);
        }
    }

    /// Handles the failing of an incarnation: in half of the cases the commit is slow, and the session ends meanwhile.
    pub(crate) fn restart_amid(&mut self, coordinator: usize, commands: &[Command]) {
        let fails = commands.iter().any(|command| matches!(command, Command::NodeFailed { .. }));
        if !self.plan.restarts || self.healing || !fails || self.restarter.random.below(2) == 0 {
            return;
        }
        let unit = self.plan.unit_ms();
        self.quorum.slow_until = self.quorum.slow_until.max(self.truth + 1);
        let delay = self.restarter.random.between(1, unit);
        self.after(delay, Event::RestartSession { coordinator });
    }

    /// Ends a coordinator's session and begins the next one of the same Raft term. The process, its log and its pending
    /// proposals continue. The real coordinator commits an entry in between; this one does not, so that the memory
    /// alone must suffice.
    pub(crate) fn restart_session(&mut self, coordinator: usize) {
        let now = self.coordinator_now(coordinator);
        let own = &mut self.quorum.coordinators[coordinator];
        if self.healing {
            return;
        }
        let Some(Session { mut term, pushes, .. }) = own.session.take() else { return };
        term.resume(&own.state, now);
        let (number, proposed) = (term.number(), own.proposed().count());
        own.session = Some(Session { pushes, ..Session::of(term) });
        self.coverage.sessions_restarted += 1;
        self.coverage.sessions_restarted_amid += u64::from(proposed > 0);
        self.note(|| {
            format!("coordinator {coordinator} begins another session in term {number}, {proposed} under way")
        });
        self.wake_session(coordinator);
    }
}
