//! Bars of members from partitions, as findings show them.

use crate::service::findings::events;
use archon_coordinator_core::{Bar, ClusterState, Note};
use archon_documents::BarSummary;
use archon_types::NodeId;
use archon_types::subject::Subject;

/// Returns the subject of a bar.
pub(crate) fn subject(state: &ClusterState, bar: Bar) -> Subject {
    match bar {
        Bar::Table(table) => state.table_subject(table),
        Bar::Partition(partition) => state.partition_subject(partition),
    }
}

/// Returns a bar in effect.
pub(crate) fn bar(state: &ClusterState, (member, bar, note): (NodeId, Bar, &Note)) -> BarSummary {
    BarSummary {
        node_id: member.get(),
        node: state.node_name(member),
        subject: subject(state, bar),
        why: note.why.clone(),
        by: events::cause(state, &note.who),
        at_ms: note.at.get(),
    }
}
