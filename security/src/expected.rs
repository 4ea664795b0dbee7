//! Whom a process means to reach when it dials an address.

use crate::identity::{Identity, Role};
use std::fmt;

/// Whom somebody dials. An address alone says too little: a node's certificate, stolen, must not make a coordinator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Expected {
    /// A coordinator, whichever.
    Coordinators,
    /// This very coordinator.
    Coordinator(u64),
    /// This very node.
    Node(String),
    /// Whoever serves there: a coordinator or a node. For addresses that a person gave.
    Servers,
}

impl Expected {
    /// Whether this is whom it expects.
    pub fn is(&self, found: &Identity) -> bool {
        match self {
            Self::Coordinators => found.role() == Role::Coordinator,
            Self::Coordinator(id) => found.coordinator() == Some(*id),
            Self::Node(name) => found.role() == Role::Node && found.name() == name,
            Self::Servers => found.role().is_server(),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinators => to.write_str("a coordinator"),
            Self::Coordinator(id) => write!(to, "coordinator/{id}"),
            Self::Node(name) => write!(to, "node/{name}"),
            Self::Servers => to.write_str("a coordinator or a node"),
        }
    }
}
