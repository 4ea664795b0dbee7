//! What only the leading coordinator remembers and people should know of, taken out of its memory in one short look.

use crate::liveness::Liveness;
use crate::state::ClusterState;
use archon_types::{Epoch, Millis, NodeId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

/// The memory of the leading coordinator, as far as it explains why things are as they are. Empty: nothing is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remembered {
    /// Nodes that have been failed for so long that their copies are replaced.
    pub(crate) failed: BTreeSet<NodeId>,
    /// Nodes that are being failed or about to exit.
    pub(crate) excluded: BTreeSet<NodeId>,
    /// Leaders that admit no write since they hear too few followers: their epoch, and how many Live copies they hear.
    pub(crate) isolated: BTreeMap<PartitionId, (Epoch, u32)>,
}

impl Remembered {
    /// What is remembered at `now`.
    pub fn new(state: &ClusterState, liveness: &Liveness, now: Millis) -> Self {
        // It is down because somebody works on it.
        let awaited = |node: &NodeId| state.controls.maintenance_of(*node).is_none();
        Self {
            failed: liveness.failed_for(state.settings.replace_after_ms, now).filter(awaited).collect(),
            excluded: liveness.excluded().collect(),
            isolated: liveness.isolated.refused(now).collect(),
        }
    }
}
