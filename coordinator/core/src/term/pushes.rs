//! What one life of a node was pushed: what it acknowledged, what it lacks, and what its answers mean. Nothing here is
//! needed by the next term, which begins with nothing and says everything anew.

use crate::duties::{DutiesMark, duties, duties_mark};
use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::limits::PIECE_BYTES_MAX;
use archon_types::{AccessList, Duty, Millis, NodeId, TableId, TableList, Version};
use std::collections::BTreeMap;

/// What a duty takes in a message at most, roughly: a row with its copies.
const DUTY_BYTES: usize = 128;
/// What a right of a client takes in a message at most, roughly: a name and a table's number.
const RIGHT_BYTES: usize = 96;
/// A heartbeat that came sooner than this after an acknowledgement may have been sent before it, in milliseconds.
const HEARD_SETTLES_MS: u64 = 1_000;

/// A part of a table, or of the nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece<T> {
    /// What is sent.
    pub content: T,
    /// How large that is.
    pub bytes: usize,
    /// Whoever takes it in holds this version.
    pub version: Version,
    /// Where to go on, of what was left out for lack of space.
    pub next: Option<u64>,
}

/// Where pieces come from. One may be a little behind the state: what it lacks comes with the next push.
pub trait Pieces {
    /// Rows of a table, as they are sent.
    type Rows;
    /// Nodes, as they are sent.
    type Nodes;

    /// The piece at `from` of the rows of `table` newer than `since`; `None` if there is no such table.
    fn rows(&self, state: &ClusterState, table: TableId, since: Version, from: u64) -> Option<Piece<Self::Rows>>;

    /// The nodes newer than `since`, as many of them as fit into one push.
    fn nodes(&self, state: &ClusterState, since: Version) -> Option<Piece<Self::Nodes>>;
}

/// How urgently a push is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// The node's duties changed: somebody waits for it.
    Duties,
    /// It only lacks something of tables and nodes.
    Table,
}

/// What a push brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Push<R, N> {
    /// The version of the state that the node's duties follow from.
    pub version: Version,
    /// All its duties, unless it acknowledged them.
    pub duties: Option<Vec<Duty>>,
    /// Nodes that it lacks.
    pub nodes: Option<N>,
    /// Rows that it lacks.
    pub rows: Vec<R>,
    /// Which tables there are, if one was dropped.
    pub tables: Option<TableList>,
    /// What clients may do, if that changed.
    pub access: Option<AccessList>,
    /// With this push the node holds everything up to here.
    pub complete: Option<Version>,
    /// The version of the state that the push was made from.
    pub newest: Version,
}

/// What the node will hold once it took a push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promise {
    version: Version,
    mark: DutiesMark,
    nodes: Option<Version>,
    rows: Vec<(TableId, Version)>,
    arriving: Option<Arriving>,
    tables: Option<TableList>,
    access: Option<Version>,
    complete: Option<Version>,
    partial: bool,
}

/// A push from these pieces, and what the node will hold once it took it.
pub type Promised<P> = (Push<<P as Pieces>::Rows, <P as Pieces>::Nodes>, Promise);

impl Promise {
    /// Whether more is to follow: it did not fit.
    pub const fn is_partial(&self) -> bool {
        self.partial
    }
}

/// How much a node has of a table of which it has the first pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Arriving {
    table: TableId,
    since: Version,
    /// Where to go on.
    from: u64,
    /// That of the oldest piece.
    version: Version,
}

/// What one life of a node is known to hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acknowledged {
    /// What its duties followed from, and the version with which they were pushed.
    duties: Option<(DutiesMark, Version)>,
    tables: BTreeMap<TableId, Version>,
    /// A table of which it has the first pieces.
    arriving: Option<Arriving>,
    nodes: Version,
    /// The last drop of a table that it was told of.
    dropped: Version,
    /// As of when it was told what clients may do; whoever was not told lets no client do anything.
    access: Option<Version>,
    /// It was told that it holds everything up to here.
    complete: Version,
    at: Option<Millis>,
}

impl Acknowledged {
    /// Whether a push is due, and how urgently; `None` if `node` lacks nothing, or must be told nothing.
    pub fn due(&self, state: &ClusterState, node: NodeId) -> Option<Due> {
        let mark = duties_mark(state, node)?;
        if self.duties_of(state, mark).is_none() {
            return Some(Due::Duties);
        }
        let behind = |table: &TableId| state.rows_version_of(*table) > self.held(*table);
        let lacks = state.nodes_version > self.nodes
            || state.dropped_version > self.dropped
            || self.lacks_access(state)
            || state.data_tables().any(|table| behind(&table.id));
        lacks.then_some(Due::Table)
    }

    /// Whether the answers to its heartbeats may bring all that `node` lacks, so that a push need not: only rows and nodes.
    pub fn lacks_news_alone(&self, state: &ClusterState, node: NodeId) -> bool {
        self.due(state, node) == Some(Due::Table) && !self.lacks_access(state)
    }

    fn lacks_access(&self, state: &ClusterState) -> bool {
        self.access.is_none_or(|held| state.access_version > held)
    }

    /// As of when the node knows what clients may do.
    pub const fn access(&self) -> Option<Version> {
        self.access
    }

    /// The version with which the duties were acknowledged that follow from `mark`.
    fn duties_of(&self, state: &ClusterState, mark: DutiesMark) -> Option<Version> {
        let same = |acknowledged| acknowledged == mark || state.breaks(Mutant::DutiesSaidOnce);
        self.duties.filter(|(acknowledged, _)| same(*acknowledged)).map(|(_, version)| version)
    }

    /// The version of a table that the node acknowledged.
    fn held(&self, table: TableId) -> Version {
        self.tables.get(&table).copied().unwrap_or(Version::ZERO)
    }

    /// What `node` lacks, and what it holds once it took that; `None` if it lacks nothing.
    pub fn next<P: Pieces>(&self, state: &ClusterState, node: NodeId, pieces: &P) -> Option<Promised<P>> {
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
        // Rows name nodes, so the nodes come first.
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
                arriving = Some(Arriving { table: *table, since, from, version });
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

    /// Takes note of what the node now holds. It answered a push that it obeys the duties of `version`; with a `gap` it
    /// needs everything of tables and nodes from the start. Returns whether it obeys what was pushed; if not, the push is not
    /// to be repeated at once.
    pub fn take(&mut self, promise: Promise, version: Version, gap: bool, now: Millis) -> bool {
        if version < promise.version {
            // It obeys an older state than this one: it did not take the push. Say it again.
            *self = Self::default();
            return false;
        }
        if version > promise.version {
            // It obeys other duties than those: ones whose acknowledgement was lost. Marks come back when a drain or a move
            // is undone, so only the version tells. Say the duties.
            self.duties = None;
            return false;
        }
        let duties = Some((promise.mark, promise.version));
        if gap {
            // It obeys, and needs everything from the start; not at once, in case it says so again.
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
        true
    }

    /// This life said in a heartbeat, which came at `heard`, that it holds everything up to `holds`, by whatever way that came: it need not be
    /// told again (rule 78).
    pub fn note_held(&mut self, state: &ClusterState, heard: Millis, holds: Version) {
        let holds = holds.min(state.table_version());
        if holds <= self.complete || !super::news::counts(state, holds) {
            return;
        }
        // A table that was made or altered since is not among what it holds.
        for table in state.data_tables().filter(|table| table.version <= holds) {
            let held = self.tables.entry(table.id).or_insert(holds);
            *held = holds.max(*held);
        }
        self.nodes = self.nodes.max(holds);
        self.dropped = self.dropped.max(holds);
        self.complete = holds;
        self.at = self.at.max(Some(heard));
    }

    /// This life said in a heartbeat, which came at `heard`, which version of the tables it holds. If that is less than it
    /// acknowledged before, it gets everything again. Returns whether it does.
    pub fn look_at_heartbeat(&mut self, heard: Millis, holds: Version) -> bool {
        let settled = self.at.is_some_and(|at| heard.since(at) > HEARD_SETTLES_MS);
        let lost = settled && holds < self.complete;
        if lost {
            *self = Self::default();
        }
        lost
    }
}
