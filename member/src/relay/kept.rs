//! State of one member at a relay.

use super::ReturnAddress;
use archon_types::{Incarnation, Millis};

/// The newest heartbeat of a member and the address for its answer.
#[derive(Clone, Debug)]
pub(super) struct Kept<B> {
    pub(super) from: ReturnAddress,
    /// Incarnation and number of the heartbeat.
    pub(super) newest: (Incarnation, u64),
    /// Arrival time.
    pub(super) came: Millis,
    /// The heartbeat, until it is answered or too old.
    pub(super) beat: Option<B>,
    /// Set once it was sent.
    pub(super) departed: bool,
    /// Set for nodes, unset for participants, according to the rows at the first heartbeat or the last update of
    /// rows.
    pub(super) is_node: bool,
}
