//! Messages that nodes relay for others.

use crate::event::{ClusterNow, TableUpdates};
use archon_member::{
    DisabledRule, Heartbeat, HeartbeatDriver, HeartbeatPace, LeaseAnswer, NodeRows, Relay, RelayEffect,
    RelayedHeartbeat, ReturnAddress, Rows,
};
use archon_types::{
    ClusterId, DoorReport, FencingProof, Incarnation, LeaseTiming, Millis, Node, NodeDelta, NodeId, RemovedNodes,
    Version, carried_max,
};
use uuid::Uuid;

/// Maximum number of machines: a stream number contains the machine, and which of its processes.
pub(crate) const MACHINES: u64 = 1 << 16;

/// A heartbeat as a relay sees it.
#[derive(Clone, Debug)]
pub(crate) struct CarriedBeat {
    pub(crate) heartbeat: Heartbeat,
    pub(crate) stopping: bool,
    /// Version up to which its member holds everything.
    pub(crate) holds: Version,
    /// Its member's probe results.
    pub(crate) doors: Option<DoorReport>,
    /// Time of arrival, on the relay's clock.
    pub(crate) came: Millis,
}

impl RelayedHeartbeat for CarriedBeat {
    fn node(&self) -> NodeId {
        self.heartbeat.node()
    }

    fn incarnation(&self) -> Incarnation {
        self.heartbeat.incarnation()
    }

    fn number(&self) -> u64 {
        self.heartbeat.number()
    }
}

/// A relay's message to a member.
#[derive(Clone, Debug)]
pub(crate) enum RelayMessage {
    /// A coordinator's answer or fencing, with the member's updates; the time of the next batch; and the cluster
    /// description.
    Answer {
        heartbeat: Heartbeat,
        lease: Option<LeaseAnswer>,
        news: Option<Box<TableUpdates>>,
        departure_ms: u64,
        cluster: ClusterNow,
    },
    NoCoordinator,
    Busy,
    Over(FencingProof),
}

/// Rows of the nodes as a relay uses them.
pub(super) struct CarriedRows<'a> {
    pub(super) rows: &'a NodeRows,
    /// Maximum number of members it carries, if below that of the rows.
    pub(super) few: Option<usize>,
}

impl Rows for CarriedRows<'_> {
    fn members_max(&self) -> usize {
        self.few.unwrap_or_else(|| carried_max(self.rows.alive().count()))
    }

    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<FencingProof> {
        self.rows.over(node, incarnation)
    }
}

/// Returns the world's only cluster.
pub(crate) fn cluster() -> ClusterId {
    ClusterId::new(Uuid::from_u128(1))
}

/// A process's state as a relay and as a relayed member.
#[derive(Debug, Default)]
pub(crate) struct RelayState {
    /// Last received rows of the nodes.
    pub(crate) rows: NodeRows,
    pub(super) few: Option<usize>,
    /// Number of relays, from the last answer.
    pub(super) count: usize,
    pub(super) driver: HeartbeatDriver<usize>,
    /// Number of rounds in which it may still ask the coordinators directly.
    pub(super) straight: u32,
    /// True if a relay brought the last answer.
    pub(crate) carried: bool,
    pub(crate) relay: Option<Relay<CarriedBeat>>,
    /// Heartbeats that arrived without an incarnation.
    pub(crate) waiting: Vec<(ReturnAddress, CarriedBeat)>,
}

impl RelayState {
    pub(super) fn begin_life(&mut self, timing: LeaseTiming, now: Millis, broken: DisabledRule) {
        self.end_life();
        self.driver = HeartbeatDriver::new(HeartbeatPace::of_node(timing), now).broken_by(broken);
        self.relay = Some(Relay::new(timing, now).broken_by(broken));
    }

    pub(super) fn end_life(&mut self) {
        (self.count, self.relay, self.carried, self.straight) = (0, None, false, 0);
    }

    /// Takes in all rows of nodes. Returns the notices to members with fenced incarnations.
    pub(super) fn take_rows(
        &mut self,
        version: Version,
        nodes: Vec<Node>,
        removed: RemovedNodes,
    ) -> Vec<RelayEffect<CarriedBeat>> {
        self.rows.merge(NodeDelta { since: Version::ZERO, version, nodes, removed: Some(removed) });
        let rows = CarriedRows { rows: &self.rows, few: self.few };
        self.relay.as_mut().map(|relay| relay.rows_changed(&rows)).unwrap_or_default()
    }

    /// Limits the number of members it carries.
    pub(crate) fn carry_for_few(&mut self, few: Option<usize>) {
        self.few = few;
    }

    /// Ends streams of members.
    pub(crate) fn break_streams(&mut self, streams: impl IntoIterator<Item = u64>) {
        if let Some(relay) = &mut self.relay {
            streams.into_iter().for_each(|stream| relay.ended(stream));
        }
    }
}

/// Returns the stream number of a machine's process.
pub(crate) fn stream(host: usize, boot: u64) -> u64 {
    boot * MACHINES + host as u64
}
