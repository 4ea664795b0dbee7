//! Reports of nodes in this term, and the proof needed for their answers.

use super::Term;
use crate::command::Command;
use crate::leader::report::{on_reports, on_stopping};
use crate::state::ClusterState;
use archon_types::{ErrorDetail, Incarnation, Millis, NodeId, Report};

/// Outcomes of reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReportOutcomes {
    /// Refusal of each report, if any, in their order.
    pub refused: Vec<Option<ErrorDetail>>,
    /// Commands to commit, each with the position of its report.
    pub commands: Vec<(usize, Command)>,
}

impl ReportOutcomes {
    /// Returns true if a quorum round must confirm that this coordinator leads before the answer leaves. A node forgets
    /// an answered report. A commit proves that this coordinator leads; without one, a round must: a deposed
    /// coordinator that does not know it would refuse facts that hold by now, and they would be lost.
    pub const fn needs_round(&self) -> bool {
        self.commands.is_empty()
    }
}

impl Term {
    /// Handles reports of one incarnation of a node.
    pub fn reports(
        &mut self,
        state: &ClusterState,
        now: Millis,
        node: NodeId,
        incarnation: Incarnation,
        reports: &[Report],
    ) -> ReportOutcomes {
        let mut reported = ReportOutcomes::default();
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

    /// Returns the commands for a node's farewell, like [`on_stopping`].
    ///
    /// # Errors
    /// Like [`on_stopping`].
    pub fn farewell(
        &self,
        state: &ClusterState,
        node: NodeId,
        incarnation: Incarnation,
    ) -> Result<Vec<Command>, ErrorDetail> {
        on_stopping(state, &self.liveness, node, incarnation)
    }
}
