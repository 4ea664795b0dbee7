//! Conditions that the present state makes intended: they are notices.

use crate::state::ClusterState;
use archon_types::{Facts, Finding, NodeGoal, Severity};

/// Lowers the severity of an intended condition. Missing replicas are intended if only the maintenance of their nodes
/// causes them, and few voters if there were never more.
pub fn with_intent(state: &ClusterState, finding: Finding) -> Finding {
    let is_intended = match finding.facts {
        Facts::UnderReplicated { .. } => state.nodes.down().all(|row| row.node.goal == NodeGoal::Maintain),
        Facts::TooFewVoters { had_more, .. } => !had_more,
        _ => false,
    };
    if is_intended { Finding { severity: Severity::Notice, ..finding } } else { finding }
}
