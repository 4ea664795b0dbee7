//! What a relay keeps of one member.

use super::ReturnAddress;
use archon_types::{Incarnation, Millis};

/// The newest heartbeat of a member, and where its answer goes.
#[derive(Clone, Debug)]
pub(super) struct Kept<B> {
    pub(super) from: ReturnAddress,
    /// Life and number of it.
    pub(super) newest: (Incarnation, u64),
    /// When it came.
    pub(super) came: Millis,
    /// The heartbeat itself, until it is answered or too old.
    pub(super) beat: Option<B>,
    /// Whether it has left once.
    pub(super) departed: bool,
    /// Whether it is a node's, or a participant's, by the rows of when it came first or of when rows came last.
    pub(super) is_node: bool,
}
