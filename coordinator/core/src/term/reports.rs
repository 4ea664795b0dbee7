//! What nodes report in this term, and what must be proven before they are answered.

use super::Term;
use crate::command::Command;
use crate::report::{on_reports, on_stopping};
use crate::state::ClusterState;
use archon_types::{ErrorDetail, Incarnation, Millis, NodeId, Report};

/// The outcomes of reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reported {
    /// Why each report is refused, if it is, in their order.
    pub refused: Vec<Option<ErrorDetail>>,
    /// To be committed, each with the place of the report that it is for.
    pub commands: Vec<(usize, Command)>,
}

impl Reported {
    /// Whether a quorum round has to confirm that this coordinator leads before the answer leaves. A node forgets a report that
    /// was answered. A commit proves that this coordinator leads; where there is none, a round does: one that was
    /// succeeded and does not know it would refuse what is true by now, and nobody would hear of it again.
    pub const fn needs_round(&self) -> bool {
        self.commands.is_empty()
    }
}

impl Term {
    /// What one life of a node reports at once.
    pub fn reports(
        &mut self,
        state: &ClusterState,
        now: Millis,
        node: NodeId,
        incarnation: Incarnation,
        reports: &[Report],
    ) -> Reported {
        let mut reported = Reported::default();
        let taken = on_reports(state, &mut self.liveness, now, node, incarnation, reports);
        for (place, taken) in taken.into_iter().enumerate() {
            match taken {
                Ok(commands) => {
                    reported.refused.push(None);
                    reported.commands.extend(commands.into_iter().map(|command| (place, command)));
                }
                Err(error) => reported.refused.push(Some(error)),
            }
        }
        reported
    }

    /// What should be committed when a node says farewell: as [`on_stopping`].
    ///
    /// # Errors
    /// As [`on_stopping`].
    pub fn farewell(
        &self,
        state: &ClusterState,
        node: NodeId,
        incarnation: Incarnation,
    ) -> Result<Vec<Command>, ErrorDetail> {
        on_stopping(state, &self.liveness, node, incarnation)
    }
}
