//! Who is asked what it speaks.

use archon_types::{NodeId, ProtocolRange};

/// A member whose version counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpgradeMember {
    /// Who it is.
    pub name: UpgradeName,
    /// What it speaks, as it said last; `None` of a coordinator that does not answer.
    pub speaks: Option<ProtocolRange>,
    /// Whether it is alive, or answers the coordinator that leads.
    pub answers: bool,
}

/// Which member it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeName {
    /// A member of the quorum.
    Coordinator(u64),
    /// A node of the key-value store.
    Node(NodeId),
    /// A member that owns partitions for a service of its own.
    Participant(NodeId),
}
