//! Messages that nodes relay for others.

use crate::event::{ClusterNow, News};
use crate::host::round::Round;
use archon_member::{Broken, Carried, Heartbeat, LeaseAnswer, Relay, RelayEffect, ReturnAddress, Rows, Ways};
use archon_types::{
    ClusterId, DoorReport, Incarnation, LeaseTiming, Millis, Node, NodeId, NodeStatus, Over, RelayCandidate,
    RemovedNodes, Version, carried_max, doors_of, relays, relays_of,
};
use std::collections::BTreeMap;
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

impl Carried for CarriedBeat {
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
pub(crate) enum Said {
    /// A coordinator's answer or fencing, with the member's updates; the time of the next batch; and the cluster
    /// description.
    Answer {
        heartbeat: Heartbeat,
        lease: Option<LeaseAnswer>,
        news: Option<Box<News>>,
        departure_ms: u64,
        cluster: ClusterNow,
    },
    NoCoordinator,
    Busy,
    Over(Over),
}

/// Last received rows of the nodes.
#[derive(Debug, Default)]
pub(crate) struct NodeRows {
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) removed: RemovedNodes,
    /// Maximum number of members it carries, if below that of the rows.
    few: Option<usize>,
}

impl NodeRows {
    fn alive(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes.values().filter(|node| node.status == NodeStatus::Alive)
    }

    /// Returns the probe targets of a node, each in its current incarnation.
    pub(super) fn doors_of(&self, keeper: NodeId) -> Vec<(NodeId, Incarnation)> {
        let doors = doors_of(cluster(), keeper, self.alive().map(RelayCandidate::of));
        doors.iter().filter_map(|node| Some((*node, self.nodes.get(node)?.incarnation))).collect()
    }

    /// Returns true if these are exactly the known rows.
    pub(crate) fn are<'a>(&self, rows: impl Iterator<Item = &'a Node>) -> bool {
        self.nodes.values().eq(rows)
    }

    /// Returns the address of a node.
    pub(super) fn address(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(&node).map(|row| row.address.as_str())
    }

    /// Returns the relays of a member, given their number.
    pub(super) fn relays_of(&self, member: NodeId, count: usize) -> Vec<NodeId> {
        let relays = relays(cluster(), self.alive().map(RelayCandidate::of), count);
        let zone = self.nodes.get(&member).and_then(|node| node.zone.as_deref());
        relays_of(member, zone, &relays)
    }
}

impl Rows for NodeRows {
    fn members_max(&self) -> usize {
        self.few.unwrap_or_else(|| carried_max(self.alive().count()))
    }

    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<Over> {
        if self.removed.contains(node) {
            return Some(Over { node, incarnation, version: self.removed.version });
        }
        self.nodes.get(&node)?.over(incarnation)
    }
}

/// Returns the world's only cluster.
pub(crate) fn cluster() -> ClusterId {
    ClusterId::new(Uuid::from_u128(1))
}

/// A process's state as a relay and as a relayed member.
#[derive(Debug, Default)]
pub(crate) struct Relaying {
    pub(crate) rows: NodeRows,
    /// Number of relays, from the last answer.
    pub(super) count: usize,
    pub(super) ways: Ways,
    pub(super) round: Option<Round>,
    /// Number of rounds in which it may still ask the coordinators directly.
    pub(super) straight: u32,
    /// True if a relay brought the last answer.
    pub(crate) carried: bool,
    pub(crate) relay: Option<Relay<CarriedBeat>>,
    /// Heartbeats that arrived without an incarnation.
    pub(crate) waiting: Vec<(ReturnAddress, CarriedBeat)>,
}

impl Relaying {
    pub(super) fn begin_life(&mut self, timing: LeaseTiming, now: Millis, broken: Broken) {
        self.end_life();
        self.ways = Ways::default().broken_by(broken);
        self.relay = Some(Relay::new(timing, now).broken_by(broken));
    }

    pub(super) fn end_life(&mut self) {
        (self.count, self.round, self.relay, self.carried, self.straight) = (0, None, None, false, 0);
    }

    /// Takes in rows of nodes. Returns the notifications to members whose incarnations they fence.
    pub(super) fn take_rows(&mut self, rows: Vec<Node>, removed: RemovedNodes) -> Vec<RelayEffect<CarriedBeat>> {
        self.rows.nodes = rows.into_iter().map(|row| (row.id, row)).collect();
        self.rows.removed.renew(Some(removed));
        self.relay.as_mut().map(|relay| relay.rows_changed(&self.rows)).unwrap_or_default()
    }

    /// Limits the number of members it carries.
    pub(crate) fn carry_for_few(&mut self, few: Option<usize>) {
        self.rows.few = few;
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
