//! The last heartbeat of a member at its relay.

use super::ReturnAddress;
use archon_types::{Incarnation, Millis};

/// The newest heartbeat of a member and the address for its answer.
#[derive(Clone, Debug)]
pub(super) struct LastBeat<B> {
    /// Address for the answer.
    pub(super) from: ReturnAddress,
    /// Incarnation and number of the heartbeat.
    pub(super) newest: (Incarnation, u64),
    /// Arrival time.
    pub(super) arrived: Millis,
    /// The heartbeat; `None` once it is answered or too old.
    pub(super) beat: Option<B>,
    /// True once the relay has sent it to a coordinator.
    pub(super) is_sent: bool,
    /// True for a node, false for a participant: according to the table of nodes at the first heartbeat, or at the
    /// last update of that table.
    pub(super) is_node: bool,
}
