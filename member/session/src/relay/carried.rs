//! A carried heartbeat.

use archon_member::RelayedHeartbeat;
use archon_proto::convert::members::beats::Beat;
use archon_types::{Incarnation, NodeId};

/// A heartbeat of another member, passed on unchanged.
#[derive(Clone, Debug)]
pub(super) struct CarriedBeat(pub(super) Beat);

impl RelayedHeartbeat for CarriedBeat {
    fn node(&self) -> NodeId {
        self.0.node
    }

    fn incarnation(&self) -> Incarnation {
        self.0.incarnation
    }

    fn number(&self) -> u64 {
        self.0.number
    }
}
