//! Members whose protocol versions matter.

use archon_types::{NodeId, ProtocolRange};

/// A member whose protocol versions matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpgradeMember {
    /// Its name.
    pub name: UpgradeName,
    /// The protocols of its last report; `None` for a coordinator that does not answer.
    pub speaks: Option<ProtocolRange>,
    /// True if it is alive, or answers the leading coordinator.
    pub answers: bool,
}

/// Name of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeName {
    /// A member of the quorum.
    Coordinator(u64),
    /// A node of the key-value store.
    Node(NodeId),
    /// A member that owns partitions for another service.
    Participant(NodeId),
}
