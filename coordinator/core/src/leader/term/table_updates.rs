//! Updates of tables and nodes in the answers to heartbeats, if these are relayed (PROTOCOL rules 77 to 80).

use crate::leader::term::pieces::Pieces;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::limits::NEWS_BYTES_MAX;
use archon_types::{Millis, TableList, Version};

/// Number of heartbeat intervals in which no push repeats the content of answers: as many consecutive heartbeats are
/// answered meanwhile.
const ANSWERS_AWAITED: u64 = 3;
/// Number of heartbeat intervals without a heartbeat after which no answers are expected to reach a node.
const SILENT_AFTER: u64 = 5;

/// Tables and nodes that a node lacks. Equal for all holders of the same version, and complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableUpdates<R, N> {
    /// Missing nodes.
    pub nodes: Option<N>,
    /// Missing rows.
    pub rows: Vec<R>,
    /// The existing tables, if one was dropped.
    pub tables: Option<TableList>,
    /// Version up to which the node then holds everything.
    pub complete: Version,
    /// Version of the state that it was made from.
    pub newest: Version,
}

/// Returns the data that a holder of everything up to `since` lacks; `None` if it lacks nothing, or more than fits into
/// an answer.
pub fn news<P: Pieces>(state: &ClusterState, since: Version, pieces: &P) -> Option<TableUpdates<P::Rows, P::Nodes>> {
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
        // A holder of everything up to a version holds exactly the tables of that version.
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
    Some(TableUpdates { nodes, rows, tables, complete, newest })
}

/// Returns true if a node's held version determines the data that it lacks: not if it holds nothing, nor if the version
/// is from an earlier generation.
pub(super) fn counts(state: &ClusterState, holds: Version) -> bool {
    let begun = Version::new(state.begins_at());
    holds > Version::ZERO && (holds >= begun || state.breaks(Mutant::EarlierGenerationCounts))
}

/// Deadline for answers that bring a node its missing data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AnswerDeadline(Option<(Version, Millis)>);

impl AnswerDeadline {
    /// Returns the time until which pushes leave out the content of answers; `None`: answers do not bring it. The
    /// node's last heartbeat, which was relayed, arrived at `heard` and reported that it holds everything up to
    /// `holds`.
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

    /// Records that a push brought it.
    pub fn pushed(&mut self) {
        self.0 = None;
    }
}
