//! A heartbeat of another member.

use archon_member::Carried;
use archon_proto::convert::beats::Beat;
use archon_types::{Incarnation, NodeId};

/// A heartbeat as its member sent it: nothing of it is changed on the way.
#[derive(Clone, Debug)]
pub(super) struct CarriedBeat(pub(super) Beat);

impl Carried for CarriedBeat {
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
