//! Splits and merges under way in the wire's words.

use super::subjects;
use crate::load::Loads;
use archon_coordinator_core::{ClusterState, Reshaping};
use archon_proto::v1;
use archon_types::NodeId;
use std::fmt::Write as _;

/// Most splits and merges in one answer.
const RESHAPINGS_MAX: usize = 256;

/// A split or merge as the state has it.
pub(super) struct Shown {
    wire: v1::Reshaping,
    /// Those who are waited for, by name.
    waits_for: Vec<(NodeId, String)>,
}

impl Shown {
    /// A look at one.
    pub(super) fn new(state: &ClusterState, reshaping: Reshaping) -> Self {
        let count = |copies: usize| u32::try_from(copies).unwrap_or(u32::MAX);
        let names = reshaping.waits_for.iter().map(|node| subjects::node_name(state, *node));
        Self {
            wire: v1::Reshaping {
                partition: Some(reshaping.partition.into()),
                table_name: subjects::table_name(state, reshaping.partition.table),
                kind: reshaping.kind.as_str().to_owned(),
                phase: reshaping.phase.as_str().to_owned(),
                right: reshaping.right.index,
                at: reshaping.at,
                percent: reshaping.percent,
                copies: count(reshaping.copies),
                copies_ready: count(reshaping.copies_ready),
                waits_for: names.collect(),
                message: reshaping.why,
            },
            waits_for: reshaping.waits_for.into_iter().map(|node| (node, state.node_name(node))).collect(),
        }
    }

    /// A look at the first of all that are under way.
    pub(super) fn first(state: &ClusterState) -> Vec<Self> {
        Reshaping::all(state).take(RESHAPINGS_MAX).map(|reshaping| Self::new(state, reshaping)).collect()
    }

    /// As people read it, with what the nodes that are waited for told of their disks.
    pub(super) fn into_wire(mut self, loads: &Loads) -> v1::Reshaping {
        let full = self.waits_for.iter().filter(|(node, _)| loads.disk_full(*node).is_some());
        let full: Vec<&str> = full.map(|(_, name)| name.as_str()).collect();
        if !full.is_empty() {
            let _ = write!(self.wire.message, "; there is too little space on {}", full.join(", "));
        }
        self.wire
    }
}
