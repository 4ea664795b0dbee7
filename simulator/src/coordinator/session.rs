//! What a coordinator keeps in memory while it leads, as far as it knows.

use archon_coordinator_core::Term;
use archon_types::{Incarnation, Millis, NodeId, Version};
use std::collections::BTreeMap;

/// A push under way to one life of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pushed {
    pub(crate) incarnation: Incarnation,
    pub(crate) acknowledged: Version,
    pub(crate) sent: u64,
    pub(crate) version: Version,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) term: Term,
    pub(crate) pushed: BTreeMap<NodeId, Pushed>,
    /// When the next control turn and the next round of pushes are due, in true time.
    pub(crate) turn_at: u64,
    pub(crate) push_at: u64,
}

impl Session {
    pub(crate) fn new(term: u64, now: Millis) -> Self {
        Self { term: Term::new(term, now), pushed: BTreeMap::new(), turn_at: u64::MAX, push_at: u64::MAX }
    }
}
