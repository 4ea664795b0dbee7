//! What a coordinator keeps in memory while it leads, as far as it knows.

use crate::event::{Asked, BatchId, Registrations};
use archon_coordinator_core::term::{Acknowledged, Awaited, Piece, Pieces, Promise, Round, Told, Unconfirmed};
use archon_coordinator_core::{ClusterState, NodeRow, Term};
use archon_member::Heartbeat;
use archon_types::{Incarnation, Millis, NodeId, NodeStatus, TableId, Version};
use std::collections::BTreeMap;

/// What one life of a node was pushed.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) incarnation: Incarnation,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) awaited: Awaited,
    pub(crate) under_way: Option<UnderWay>,
}

impl Pushed {
    /// A life that was told nothing yet.
    pub(crate) fn nothing(incarnation: Incarnation) -> Self {
        Self { incarnation, acknowledged: Acknowledged::default(), awaited: Awaited::default(), under_way: None }
    }
}

/// The last heartbeat of a node, if a relay carried it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) incarnation: Incarnation,
    pub(crate) at: Millis,
    /// Up to where it holds everything.
    pub(crate) holds: Version,
}

/// A push whose answer is waited for.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    pub(crate) number: u64,
    pub(crate) promise: Promise,
    pub(crate) sent: u64,
}

/// What is pushed of tables and nodes: rows of nothing, since no machine keeps tables, and nodes all at once.
pub(crate) struct Whole;

impl Pieces for Whole {
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
    pub(crate) pushed: BTreeMap<NodeId, Pushed>,
    /// Of nodes whose heartbeats are carried.
    pub(crate) heard: BTreeMap<NodeId, Heard>,
    /// What participants were told.
    pub(crate) told: BTreeMap<NodeId, Told>,
    /// Counts pushes.
    pub(crate) pushes: u64,
    /// Heartbeats that wait for a quorum round.
    pub(crate) waiting: Vec<(Unconfirmed, Asked)>,
    /// The round that others wait for; one that hangs is waited for by those alone that came before it.
    pub(crate) round: Option<Round>,
    /// Heartbeats of a batch that are refused, until the others of it are answered.
    pub(crate) refused: BTreeMap<(usize, BatchId), Vec<Heartbeat>>,
    /// When the next control turn and the next round of pushes are due, in true time.
    pub(crate) turn_at: u64,
    pub(crate) push_at: u64,
}

impl Session {
    pub(crate) fn new(term: u64, now: Millis) -> Self {
        Self::of(Term::new(term, now))
    }

    /// A session with this memory that has heard and pushed nothing yet.
    pub(crate) fn of(term: Term) -> Self {
        Self {
            term,
            pushed: BTreeMap::new(),
            heard: BTreeMap::new(),
            told: BTreeMap::new(),
            pushes: 0,
            waiting: Vec::new(),
            round: None,
            refused: BTreeMap::new(),
            turn_at: u64::MAX,
            push_at: u64::MAX,
        }
    }
}
