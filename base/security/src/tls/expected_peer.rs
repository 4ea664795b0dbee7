//! Expected identities of dialled servers.

use crate::callers::identity::{Identity, Role};
use std::fmt;

/// Expected peer. An address alone is not enough: with a stolen certificate, a node could otherwise act as
/// coordinator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ExpectedPeer {
    /// Any coordinator.
    Coordinators,
    /// One coordinator.
    Coordinator(u64),
    /// One node.
    Node(String),
    /// Any coordinator or node, for addresses that a person entered.
    Servers,
}

impl ExpectedPeer {
    /// Returns whether `found` is expected.
    pub fn is(&self, found: &Identity) -> bool {
        match self {
            Self::Coordinators => found.role() == Role::Coordinator,
            Self::Coordinator(id) => found.coordinator() == Some(*id),
            Self::Node(name) => found.role() == Role::Node && found.name() == name,
            Self::Servers => found.role().is_server(),
        }
    }
}

impl fmt::Display for ExpectedPeer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinators => to.write_str("a coordinator"),
            Self::Coordinator(id) => write!(to, "coordinator/{id}"),
            Self::Node(name) => write!(to, "node/{name}"),
            Self::Servers => to.write_str("a coordinator or a node"),
        }
    }
}
