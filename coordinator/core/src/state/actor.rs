//! Originators of changes.

use archon_types::NodeId;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Originator of a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Actor {
    /// A coordinator's own control turn, by its id.
    Coordinator(u64),
    /// A node's registration or report.
    Node(NodeId),
    /// A node that registers for the first time, with its own name.
    Newcomer(String),
    /// A person or script.
    Admin {
        /// Identity in its certificate: `admin/alice`. Unknown without TLS.
        identity: Option<String>,
        /// Its address.
        from: IpAddr,
        /// The coordinator through whose console it asked: `coordinator/2`. Not written if `None`: older versions do
        /// not know it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<String>,
    },
}

/// First protocol with [`Actor::Admin::via`].
const VIA_SINCE: u32 = 2;

impl Actor {
    /// Returns the actor without fields that are newer than this protocol.
    #[must_use]
    pub fn by_protocol(self, protocol: u32) -> Self {
        match self {
            Self::Admin { identity, from, .. } if protocol < VIA_SINCE => Self::Admin { identity, from, via: None },
            actor => actor,
        }
    }
}
