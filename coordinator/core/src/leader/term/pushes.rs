//! Pushes to one incarnation of a node: data that it acknowledged and lacks, and the meaning of its answers. The next
//! term needs none of this: it starts empty and pushes everything again.

use crate::leader::duties::{DutiesMark, duties, duties_mark};
use crate::leader::term::pieces::Pieces;
use crate::leader::term::table_updates::AnswerDeadline;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::limits::PIECE_BYTES_MAX;
use archon_types::{AccessList, Duty, Millis, NodeId, TableId, TableList, Version};
use std::collections::BTreeMap;

/// Approximate maximum size of a duty in a message: a row with its copies.
const DUTY_BYTES: usize = 128;
/// Approximate maximum size of a client's right in a message: a name and a table's number.
const RIGHT_BYTES: usize = 96;
/// Time after an acknowledgement, in milliseconds, in which an arriving heartbeat may have been sent before it.
const HEARD_SETTLES_MS: u64 = 1_000;

/// Urgency of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushUrgency {
    /// The node's duties changed: other members wait for it.
    Duties,
    /// It lacks only updates of tables and nodes.
    Table,
}

/// The last heartbeat of an incarnation of a node, as far as pushes depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeartbeatSummary {
    /// Time of arrival.
    pub at: Millis,
    /// Version of the tables that the node reported.
    pub holds: Version,
    /// True if a relay brought it: its answer has room for table updates.
    pub carried: bool,
}

/// Next step of the pushes to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushStep {
    /// None: the node lacks nothing, or must get no push.
    Idle,
    /// Wait until this time: the answers to its heartbeats bring everything that it lacks.
    Await(Millis),
    /// Push.
    Push(PushUrgency),
}

/// Content of a push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Push<R, N> {
    /// Version of the state from which the node's duties are derived.
    pub version: Version,
    /// All of its duties, unless it acknowledged them.
    pub duties: Option<Vec<Duty>>,
    /// Missing nodes.
    pub nodes: Option<N>,
    /// Missing rows.
    pub rows: Vec<R>,
    /// The existing tables, if one was dropped.
    pub tables: Option<TableList>,
    /// Rights of clients, if changed.
    pub access: Option<AccessList>,
    /// Version up to which the node then holds everything.
    pub complete: Option<Version>,
    /// Version of the state that the push was made from.
    pub newest: Version,
}

/// Data that the node will hold after a push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promise {
    version: Version,
    mark: DutiesMark,
    nodes: Option<Version>,
    rows: Vec<(TableId, Version)>,
    arriving: Option<TableTransfer>,
    tables: Option<TableList>,
    access: Option<Version>,
    complete: Option<Version>,
    partial: bool,
}

/// A push from these pieces, with the data that the node will hold after it.
pub type PromisedPush<P> = (Push<<P as Pieces>::Rows, <P as Pieces>::Nodes>, Promise);

impl Promise {
    /// Returns true if more follows, since not everything fit.
    pub const fn is_partial(&self) -> bool {
        self.partial
    }
}

/// Progress of a table of which a node has the first pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TableTransfer {
    table: TableId,
    since: Version,
    /// Position of the next piece.
    from: u64,
    /// Version of the oldest piece.
    version: Version,
}

/// Data that one incarnation of a node is known to hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PushProgress {
    /// Inputs of its duties, and the version with which they were pushed.
    duties: Option<(DutiesMark, Version)>,
    tables: BTreeMap<TableId, Version>,
    /// A table of which it has the first pieces.
    arriving: Option<TableTransfer>,
    nodes: Version,
    /// The last drop of a table that it received.
    dropped: Version,
    /// Version of the rights that it received; a node without rights admits no client.
    access: Option<Version>,
    /// Version up to which it knows that it holds everything.
    complete: Version,
    at: Option<Millis>,
    /// Deadline for answers to its heartbeats that bring what it lacks.
    awaited: AnswerDeadline,
}

impl PushProgress {
    /// Returns the next step at `now`, after the last heartbeat of this incarnation. `has_news` returns whether answers
    /// to heartbeats bring everything to a node that holds this version.
    pub fn next_step(
        &mut self,
        state: &ClusterState,
        node: NodeId,
        heard: Option<HeartbeatSummary>,
        now: Millis,
        has_news: impl FnOnce(Version) -> bool,
    ) -> PushStep {
        let Some(due) = self.due(state, node) else { return PushStep::Idle };
        let heard = heard.filter(|heard| heard.carried && self.lacks_news_alone(state, node) && has_news(heard.holds));
        let until = heard.and_then(|heard| self.awaited.until(state, heard.at, heard.holds, now));
        until.map_or(PushStep::Push(due), PushStep::Await)
    }

    /// Returns the urgency of a due push; `None` if `node` lacks nothing, or must get no push.
    pub fn due(&self, state: &ClusterState, node: NodeId) -> Option<PushUrgency> {
        let mark = duties_mark(state, node)?;
        if self.duties_of(state, mark).is_none() {
            return Some(PushUrgency::Duties);
        }
        let behind = |table: &TableId| state.rows_version_of(*table) > self.held(*table);
        let lacks = state.nodes_version > self.nodes
            || state.dropped_version > self.dropped
            || self.lacks_access(state)
            || state.data_tables().any(|table| behind(&table.id));
        lacks.then_some(PushUrgency::Table)
    }

    /// Returns true if the answers to its heartbeats may bring everything that `node` lacks, so that a push need not:
    /// only rows and nodes.
    pub fn lacks_news_alone(&self, state: &ClusterState, node: NodeId) -> bool {
        self.due(state, node) == Some(PushUrgency::Table) && !self.lacks_access(state)
    }

    fn lacks_access(&self, state: &ClusterState) -> bool {
        self.access.is_none_or(|held| state.access_version > held)
    }

    /// Returns the version of the rights that the node holds.
    pub const fn access(&self) -> Option<Version> {
        self.access
    }

    /// Returns the version with which the duties of `mark` were acknowledged.
    fn duties_of(&self, state: &ClusterState, mark: DutiesMark) -> Option<Version> {
        let same = |acknowledged| acknowledged == mark || state.breaks(Mutant::DutiesSaidOnce);
        self.duties.filter(|(acknowledged, _)| same(*acknowledged)).map(|(_, version)| version)
    }

    /// Returns the version of a table that the node acknowledged.
    fn held(&self, table: TableId) -> Version {
        self.tables.get(&table).copied().unwrap_or(Version::ZERO)
    }

    /// Returns a push of the data that `node` lacks, and its holdings after it; `None` if it lacks nothing.
    pub fn next<P: Pieces>(&self, state: &ClusterState, node: NodeId, pieces: &P) -> Option<PromisedPush<P>> {
        let mark = duties_mark(state, node)?;
        let nodes = if state.nodes_version > self.nodes { pieces.nodes(state, self.nodes) } else { None };
        let unchanged = self.duties_of(state, mark);
        let duties = if unchanged.is_some() { None } else { Some(duties(state, node)?) };
        let mut bytes = nodes.as_ref().map_or(0, |nodes| nodes.bytes);
        bytes += duties.as_ref().map_or(0, |duties| duties.len() * DUTY_BYTES);
        let tables = (state.dropped_version > self.dropped).then(|| state.table_list());
        bytes += tables.as_ref().map_or(0, |list| list.tables.len() * size_of::<TableId>());
        let access = self.lacks_access(state).then(|| state.access_list());
        bytes += access.as_ref().map_or(0, |list| (list.access.len() + list.access.withdrawn().len()) * RIGHT_BYTES);
        // Rows refer to nodes, so the nodes come first.
        let mut partial = nodes.as_ref().is_some_and(|nodes| nodes.next.is_some());
        let stale = nodes.as_ref().filter(|nodes| nodes.version < state.nodes_version);
        let mut complete = stale.map_or(state.table_version(), |nodes| nodes.version);
        let mut arriving = self.arriving.filter(|begun| state.tables.contains_key(&begun.table));
        let (mut rows, mut versions) = (Vec::new(), Vec::new());
        for table in state
            .data_tables()
            .map(|table| &table.id)
            .filter(|table| state.rows_version_of(**table) > self.held(**table))
        {
            if partial || bytes >= PIECE_BYTES_MAX {
                partial = true;
                break;
            }
            let begun = arriving.filter(|begun| begun.table == *table);
            let since = begun.map_or(self.held(*table), |begun| begun.since);
            let from = begun.map_or(0, |begun| begun.from);
            let Some(piece) = pieces.rows(state, *table, since, from) else { continue };
            let version = begun.map_or(piece.version, |begun| begun.version.min(piece.version));
            bytes += piece.bytes;
            rows.push(piece.content);
            versions.push((*table, version));
            if begun.is_some() {
                arriving = None;
            }
            if let Some(from) = piece.next {
                arriving = Some(TableTransfer { table: *table, since, from, version });
                partial = true;
            }
            if version < state.rows_version_of(*table) {
                complete = complete.min(version);
            }
        }
        if unchanged.is_some() && rows.is_empty() && nodes.is_none() && tables.is_none() && access.is_none() {
            return None;
        }
        let newest = Version::new(state.applied);
        let version = unchanged.unwrap_or(newest);
        let complete = (!partial).then_some(complete);
        let promise = Promise {
            version,
            mark,
            nodes: nodes.as_ref().map(|nodes| nodes.version),
            rows: versions,
            arriving,
            tables: tables.clone(),
            access: access.as_ref().map(|list| list.version),
            complete,
            partial,
        };
        let nodes = nodes.map(|nodes| nodes.content);
        Some((Push { version, duties, nodes, rows, tables, access, complete, newest }, promise))
    }

    /// Records a node's answer to a push: it obeys the duties of `version`; with a `gap` it needs all tables and nodes
    /// from the start. Returns true if it obeys the pushed duties; otherwise the push must not be repeated at once.
    pub fn take(&mut self, promise: Promise, version: Version, gap: bool, now: Millis) -> bool {
        if version < promise.version {
            // It obeys an older state than this one: it did not apply the push, which must be repeated.
            *self = Self::default();
            return false;
        }
        if version > promise.version {
            // It obeys other duties: ones with a lost acknowledgement. Marks recur when a drain or a move is undone, so
            // only the version distinguishes them. The duties must be pushed again.
            self.duties = None;
            return false;
        }
        let duties = Some((promise.mark, promise.version));
        if gap {
            // It obeys, and needs everything from the start; not at once, in case it reports that again.
            *self = Self { duties, ..Self::default() };
            return false;
        }
        for (table, version) in promise.rows {
            if promise.arriving.is_none_or(|arriving| arriving.table != table) {
                self.tables.insert(table, version);
            }
        }
        self.arriving = promise.arriving;
        if let Some(list) = promise.tables {
            self.tables.retain(|table, _| !list.lacks(*table));
            self.dropped = list.version;
        }
        self.access = self.access.max(promise.access);
        if let Some(complete) = promise.complete {
            self.complete = self.complete.max(complete);
        }
        if let Some(version) = promise.nodes {
            self.nodes = version;
        }
        self.duties = duties;
        self.at = Some(now);
        self.awaited.pushed();
        true
    }

    /// Records that this incarnation holds everything up to `holds` from any source, as reported in a heartbeat that
    /// arrived at `heard`: it need not be pushed again (rule 78).
    pub fn note_held(&mut self, state: &ClusterState, heard: Millis, holds: Version) {
        let holds = holds.min(state.table_version());
        if holds <= self.complete || !super::table_updates::counts(state, holds) {
            return;
        }
        // A table that was created or altered later is not included.
        for table in state.data_tables().filter(|table| table.version <= holds) {
            let held = self.tables.entry(table.id).or_insert(holds);
            *held = holds.max(*held);
        }
        self.nodes = self.nodes.max(holds);
        self.dropped = self.dropped.max(holds);
        self.complete = holds;
        self.at = self.at.max(Some(heard));
    }

    /// Takes in a heartbeat of this incarnation. The version in it includes everything that the node holds from any
    /// source if `is_whole`. Returns true if the node lost data, as [`look_at_heartbeat`](Self::look_at_heartbeat).
    pub fn hear(
        &mut self,
        state: &ClusterState,
        HeartbeatSummary { at, holds, .. }: HeartbeatSummary,
        is_whole: bool,
    ) -> bool {
        let lost = self.look_at_heartbeat(at, holds);
        if is_whole {
            self.note_held(state, at, holds);
        }
        lost
    }

    /// Compares the version of the tables that this incarnation reported in a heartbeat, which arrived at `heard`. If
    /// it is lower than the acknowledged one, everything is pushed again. Returns true in that case.
    pub fn look_at_heartbeat(&mut self, heard: Millis, holds: Version) -> bool {
        let settled = self.at.is_some_and(|at| heard.since(at) > HEARD_SETTLES_MS);
        let lost = settled && holds < self.complete;
        if lost {
            *self = Self::default();
        }
        lost
    }
}
