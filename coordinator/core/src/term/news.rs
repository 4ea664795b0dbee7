//! What a node hears of tables and nodes with the answers to its heartbeats, where others carry these (PROTOCOL rules 77 to 80).

use super::pushes::Pieces;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::limits::NEWS_BYTES_MAX;
use archon_types::{Millis, TableList, Version};

/// For so many heartbeat intervals no push brings what answers bring as well: as many heartbeats in a row are answered meanwhile.
const ANSWERS_AWAITED: u64 = 3;
/// A node of which nothing was heard for so many heartbeat intervals has no heartbeats whose answers could bring it anything.
const SILENT_AFTER: u64 = 5;

/// What a node lacks of tables and nodes. It is the same for all that hold the same, and complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct News<R, N> {
    /// Nodes that it lacks.
    pub nodes: Option<N>,
    /// Rows that it lacks.
    pub rows: Vec<R>,
    /// Which tables there are, if one was dropped.
    pub tables: Option<TableList>,
    /// With this the node holds everything up to here.
    pub complete: Version,
    /// The version of the state that it was made from.
    pub newest: Version,
}

/// What a node lacks that holds everything up to `since`; `None` if it lacks nothing, or more than goes with an answer.
pub fn news<P: Pieces>(state: &ClusterState, since: Version, pieces: &P) -> Option<News<P::Rows, P::Nodes>> {
    if since >= state.table_version() || !counts(state, since) {
        return None;
    }
    let mut bytes = 0;
    let nodes = if state.nodes_version > since { Some(pieces.nodes(state, since)?) } else { None };
    if let Some(nodes) = &nodes {
        bytes += nodes.bytes;
        if nodes.next.is_some() || nodes.version < state.nodes_version {
            return None;
        }
    }
    let tables = (state.dropped_version > since).then(|| state.table_list());
    bytes += tables.as_ref().map_or(0, |list| list.tables.len() * size_of::<Version>());
    let mut rows = Vec::new();
    for table in state.data_tables().filter(|table| state.rows_version_of(table.id) > since) {
        // Whoever holds everything up to a version holds the tables that there were then, and no other.
        let is_held = table.version <= since || state.breaks(Mutant::NewTableAsChange);
        let piece = pieces.rows(state, table.id, if is_held { since } else { Version::ZERO }, 0)?;
        bytes += piece.bytes;
        if piece.next.is_some() || piece.version < state.rows_version_of(table.id) || bytes > NEWS_BYTES_MAX {
            return None;
        }
        rows.push(piece.content);
    }
    if bytes > NEWS_BYTES_MAX {
        return None;
    }
    let nodes = nodes.map(|nodes| nodes.content);
    let (complete, newest) = (state.table_version(), Version::new(state.applied));
    Some(News { nodes, rows, tables, complete, newest })
}

/// Whether it can be told of a node by what it says it holds what it lacks: not if it holds nothing, nor if it says what an earlier
/// generation told it.
pub(super) fn counts(state: &ClusterState, holds: Version) -> bool {
    let begun = Version::new(state.begins_at());
    holds > Version::ZERO && (holds >= begun || state.breaks(Mutant::EarlierGenerationCounts))
}

/// How long answers are awaited that bring a node what it lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Awaited(Option<(Version, Millis)>);

impl Awaited {
    /// Until when no push is to bring what answers bring; `None`: they do not. The node's last heartbeat, which a relay carried, came at
    /// `heard` and said that it holds everything up to `holds`.
    pub fn until(&mut self, state: &ClusterState, heard: Millis, holds: Version, now: Millis) -> Option<Millis> {
        let heartbeat_ms = state.settings.timing.heartbeat_ms;
        if now.since(heard) > heartbeat_ms.saturating_mul(SILENT_AFTER) {
            return None;
        }
        let begun = self.0.filter(|(wanted, _)| holds < *wanted);
        let until = || now.plus(heartbeat_ms.saturating_mul(ANSWERS_AWAITED));
        let (wanted, until) = begun.unwrap_or_else(|| (state.table_version(), until()));
        self.0 = Some((wanted, until));
        (now < until || state.breaks(Mutant::AnswersAwaitedForEver)).then_some(until)
    }

    /// A push brought it.
    pub fn pushed(&mut self) {
        self.0 = None;
    }
}
