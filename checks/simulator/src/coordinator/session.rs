//! Volatile state of a leading coordinator.

use crate::event::{BatchId, HeartbeatRequest, Registrations};
use archon_coordinator_core::term::{
    HeartbeatSummary, Piece, Pieces, Polls, Promise, PushProgress, Round, UnconfirmedHeartbeat,
};
use archon_coordinator_core::{ClusterState, NodeRow, Term};
use archon_member::Heartbeat;
use archon_types::{Incarnation, Millis, NodeId, NodeStatus, TableId, Version};
use std::collections::BTreeMap;

/// Last push to one incarnation of a node.
#[derive(Clone, Debug)]
pub(crate) struct LastPush {
    pub(crate) incarnation: Incarnation,
    pub(crate) acknowledged: PushProgress,
    pub(crate) under_way: Option<UnderWay>,
}

impl LastPush {
    /// Returns the state of an incarnation without pushes.
    pub(crate) fn nothing(incarnation: Incarnation) -> Self {
        Self { incarnation, acknowledged: PushProgress::default(), under_way: None }
    }
}

/// A push that awaits its answer.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    pub(crate) number: u64,
    pub(crate) promise: Promise,
    pub(crate) sent: u64,
}

/// Pushed rows of tables and nodes: no table rows, since machines keep no tables, and all nodes at once.
pub(crate) struct WholeTables;

impl Pieces for WholeTables {
    type Rows = ();
    type Nodes = Registrations;

    fn rows(&self, state: &ClusterState, table: TableId, _: Version, _: u64) -> Option<Piece<()>> {
        Some(Piece { content: (), bytes: 0, version: state.rows_version_of(table), next: None })
    }

    fn nodes(&self, state: &ClusterState, _: Version) -> Option<Piece<Registrations>> {
        let version = state.nodes_version;
        let life = |row: &NodeRow| (row.node.id, row.node.incarnation, row.node.status != NodeStatus::Alive);
        let nodes = state.nodes.values().map(life).collect();
        let (rows, removed) = match (state.settings.relays_from, state.settings.doors_every_ms(state.protocol)) {
            (0, 0) => Default::default(),
            _ => {
                let rows = state.nodes.values().map(|row| row.node.clone()).collect();
                (rows, state.removed_since(Version::ZERO).unwrap_or_default())
            }
        };
        let content = Registrations { version, nodes, rows, removed };
        Some(Piece { content, bytes: 0, version, next: None })
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) term: Term,
    pub(crate) pushed: BTreeMap<NodeId, LastPush>,
    /// The last heartbeats of nodes, if relayed.
    pub(crate) heard: BTreeMap<NodeId, (Incarnation, HeartbeatSummary)>,
    /// Polls of participants.
    pub(crate) polls: Polls,
    /// Counter of pushes.
    pub(crate) pushes: u64,
    /// Heartbeats that wait for a quorum round.
    pub(crate) waiting: Vec<(UnconfirmedHeartbeat, HeartbeatRequest)>,
    /// The shared round; only earlier heartbeats wait for a round that hangs.
    pub(crate) round: Option<Round>,
    /// Refused heartbeats of a batch, until the rest of the batch is answered.
    pub(crate) refused: BTreeMap<(usize, BatchId), Vec<Heartbeat>>,
    /// Next control turn and next push round, in true time.
    pub(crate) turn_at: u64,
    pub(crate) push_at: u64,
}

impl Session {
    pub(crate) fn new(term: u64, now: Millis) -> Self {
        Self::of(Term::new(term, now))
    }

    /// Returns a session with this memory that has received and pushed nothing yet.
    pub(crate) fn of(term: Term) -> Self {
        Self {
            term,
            pushed: BTreeMap::new(),
            heard: BTreeMap::new(),
            polls: Polls::default(),
            pushes: 0,
            waiting: Vec::new(),
            round: None,
            refused: BTreeMap::new(),
            turn_at: u64::MAX,
            push_at: u64::MAX,
        }
    }
}
