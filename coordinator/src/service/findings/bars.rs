//! Bars of members from partitions, as findings show them.

use archon_coordinator_core::{Bar, ClusterState, Note};
use archon_documents::BarSummary;
use archon_types::NodeId;

/// Returns a bar in effect.
pub(crate) fn bar(state: &ClusterState, (member, bar, note): (NodeId, Bar, &Note)) -> BarSummary {
    BarSummary {
        node_id: member.get(),
        node: state.node_name(member),
        subject: state.bar_subject(bar),
        why: note.why.clone(),
        by: state.cause(&note.who),
        at_ms: note.at.get(),
    }
}
