//! Splits and merges in progress.

use crate::leader::load::Loads;
use archon_coordinator_core::{ClusterState, RangeChange};
use archon_documents::RangeChangeStatus as Summary;
use archon_types::{KeyText, NodeId};
use std::fmt::Write as _;

/// Maximum number of splits and merges in one answer.
const RESHAPINGS_MAX: usize = 256;

/// A split or merge in the state.
pub(in crate::service) struct RangeChangeSnapshot {
    summary: Summary,
    waits_for: Vec<NodeId>,
}

impl RangeChangeSnapshot {
    /// Reads one split or merge.
    pub(in crate::service) fn new(state: &ClusterState, reshaping: RangeChange) -> Self {
        let count = |copies: usize| u32::try_from(copies).unwrap_or(u32::MAX);
        let waits_for = reshaping.waits_for;
        let summary = Summary {
            table_id: reshaping.partition.table.get(),
            table: state.table_text(reshaping.partition.table),
            partition: reshaping.partition.index,
            kind: reshaping.kind.into(),
            reshaping_phase: reshaping.phase.into(),
            right: reshaping.right.index,
            at: KeyText(reshaping.at),
            percent: reshaping.percent,
            copies_total: count(reshaping.copies),
            copies_ready: count(reshaping.copies_ready),
            waits_for: waits_for.iter().map(|node| state.node_name(*node)).collect(),
            message: reshaping.why,
        };
        Self { summary, waits_for }
    }

    /// Reads the first ones in progress.
    pub(in crate::service) fn first(state: &ClusterState) -> Vec<Self> {
        RangeChange::all(state).take(RESHAPINGS_MAX).map(|reshaping| Self::new(state, reshaping)).collect()
    }

    /// Returns it for people, with the disk reports of the nodes that it waits for.
    pub(in crate::service) fn summary(self, loads: &Loads) -> Summary {
        let Self { mut summary, waits_for } = self;
        let waits = waits_for.iter().zip(&summary.waits_for);
        let full = waits.filter(|(node, _)| loads.disk_full(**node).is_some());
        let full: Vec<&str> = full.map(|(_, name)| name.as_str()).collect();
        if !full.is_empty() {
            let _ = write!(summary.message, "; there is too little space on {}", full.join(", "));
        }
        summary
    }
}
