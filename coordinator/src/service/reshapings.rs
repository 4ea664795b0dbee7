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
pub(super) struct Shown(v1::Reshaping);

impl Shown {
    /// A look at one.
    pub(super) fn new(state: &ClusterState, reshaping: Reshaping) -> Self {
        let count = |copies: usize| u32::try_from(copies).unwrap_or(u32::MAX);
        Self(v1::Reshaping {
            partition: Some(reshaping.partition.into()),
            table_name: subjects::table_name(state, reshaping.partition.table),
            kind: reshaping.kind.as_str().to_owned(),
            phase: reshaping.phase.as_str().to_owned(),
            right: reshaping.right.index,
            at: reshaping.at,
            percent: reshaping.percent,
            copies: count(reshaping.copies),
            copies_ready: count(reshaping.copies_ready),
            waits_for: reshaping.waits_for.into_iter().map(|node| subjects::node_name(state, node)).collect(),
            message: reshaping.why,
        })
    }

    /// A look at the first of all that are under way.
    pub(super) fn first(state: &ClusterState) -> Vec<Self> {
        Reshaping::all(state).take(RESHAPINGS_MAX).map(|reshaping| Self::new(state, reshaping)).collect()
    }

    /// As people read it, with what the nodes that are waited for told of their disks.
    pub(super) fn into_wire(self, loads: &Loads) -> v1::Reshaping {
        let Self(mut wire) = self;
        let full = wire.waits_for.iter().filter(|node| loads.disk_full(NodeId::new(node.id)).is_some());
        let full: Vec<&str> = full.map(|node| node.name.as_str()).collect();
        if !full.is_empty() {
            let _ = write!(wire.message, "; there is too little space on {}", full.join(", "));
        }
        wire
    }
}
