//! The node's cache of the partition tables: routes, leader hints and the answers to `GetTable`.

use archon_member::NodeRows;
use archon_proto::convert::members::session::Member;
use archon_types::limits::COORDINATORS_MAX;
use archon_types::{
    Assembly, AssemblyResult, DEFAULT_TABLE, ErrorDetail, ErrorKind, FencingProof, Incarnation, KeyRange, Node,
    NodeDelta, NodeId, NodeStatus, Partition, PartitionId, PartitionTable, PlacementId, RangeLimits, RelayAddress,
    ScanOrder, Table, TableDelta, TableId, TableList, TablePiece, Version,
};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use tokio::sync::watch;

/// Most names of dropped tables that are remembered; those of the newest tables stay.
const DROPPED_NAMES_MAX: usize = 1_024;

#[derive(Debug, Default)]
struct State {
    /// Tables without nodes, which are stored below, once for all tables.
    tables: BTreeMap<TableId, PartitionTable>,
    /// Tables with automatic splits or merges.
    limited: BTreeMap<TableId, RangeLimits>,
    rows: NodeRows,
    /// Existing tables, as of the last drop received.
    list: TableList,
    /// Names of tables that were held here and dropped, each with the last such table.
    dropped_names: BTreeMap<String, TableId>,
    /// Version up to which everything is held, according to the coordinator.
    complete: Version,
    /// A table with only its first pieces here. It does not apply before the last one is.
    arriving: Option<Assembly>,
    coordinators: Vec<String>,
    /// Addresses announced by a coordinator since then.
    announced: Vec<String>,
    /// The highest version received.
    told: Version,
}

/// Contents of a push besides duties.
#[derive(Debug, Default)]
pub(crate) struct PushedUpdates {
    pub(crate) pieces: Vec<TablePiece>,
    pub(crate) nodes: Option<NodeDelta>,
    /// The existing tables, if one was dropped.
    pub(crate) tables: Option<TableList>,
    /// With this push, everything is held up to here.
    pub(crate) complete: Option<Version>,
    pub(crate) coordinators: Vec<String>,
}

impl PushedUpdates {
    /// Returns whether there is anything new about tables or nodes.
    pub(crate) fn any(&self) -> bool {
        !self.pieces.is_empty() || self.nodes.is_some() || self.tables.is_some()
    }
}

/// All tables received from the coordinator. Newer rows are never replaced by older ones.
#[derive(Debug)]
pub(crate) struct Tables {
    state: RwLock<State>,
    version: watch::Sender<Version>,
    /// The version of the nodes' rows.
    nodes: watch::Sender<Version>,
    /// The version of the last removal of a node.
    removals: watch::Sender<Version>,
}

impl Tables {
    /// Starts without tables; `coordinators` are the configured addresses, and `told` is the highest version received
    /// by an earlier run.
    pub(crate) fn new(coordinators: Vec<String>, told: Version) -> Self {
        Self {
            state: RwLock::new(State { coordinators, told, ..State::default() }),
            version: watch::Sender::new(Version::ZERO),
            nodes: watch::Sender::new(Version::ZERO),
            removals: watch::Sender::new(Version::ZERO),
        }
    }

    /// Applies the contents of one push. Returns whether there was no gap; with a gap everything is needed from the
    /// start.
    pub(crate) fn merge(&self, news: PushedUpdates) -> bool {
        let mut state = self.state.write();
        let mut whole = true;
        if let Some(delta) = news.nodes {
            whole &= state.rows.merge(delta);
        }
        if let Some(list) = news.tables {
            state.take_list(list);
        }
        for piece in news.pieces {
            if state.list.lacks(piece.delta.table.id) {
                continue; // It was late.
            }
            whole &= match Assembly::take(&mut state.arriving, piece) {
                AssemblyResult::Whole(delta) => state.merge_table(delta),
                AssemblyResult::More(_) => true,
                AssemblyResult::Gap => false,
            };
        }
        if !news.coordinators.is_empty() {
            state.coordinators = news.coordinators;
            state.announced.clear();
        }
        if let Some(complete) = news.complete.filter(|_| whole) {
            state.hold(complete);
        }
        let claims = state.tables.values().map(|table| state.claim(table));
        let newest = claims.max().unwrap_or_default().max(state.complete);
        let (removed, nodes) = (state.rows.removed().version, state.rows.version());
        drop(state);
        for (watched, now) in [(&self.removals, removed), (&self.nodes, nodes)] {
            watched.send_if_modified(|version| std::mem::replace(version, now.max(*version)) < now);
        }
        // Also when the newest is the same: another table may have become newer.
        self.version.send_modify(|version| *version = newest.max(*version));
        whole
    }

    /// Returns the newest version up to which any table is held whole.
    pub(crate) fn version(&self) -> Version {
        *self.version.borrow()
    }

    /// Returns a watch of [`Tables::version`], for long polls.
    pub(crate) fn watch(&self) -> watch::Receiver<Version> {
        self.version.subscribe()
    }

    /// Returns a watch that changes whenever nodes were removed, for per-node state.
    pub(crate) fn removals(&self) -> watch::Receiver<Version> {
        self.removals.subscribe()
    }

    /// Returns whether the node was removed from the cluster for good, as far as known.
    pub(crate) fn is_removed(&self, id: NodeId) -> bool {
        self.state.read().rows.removed().contains(id)
    }

    /// Records a version received from the coordinators.
    pub(crate) fn note_told(&self, version: Version) {
        let mut state = self.state.write();
        state.told = state.told.max(version);
    }

    /// Returns the highest version received from the coordinators.
    pub(crate) fn told(&self) -> Version {
        self.state.read().told
    }

    /// Returns addresses of the coordinators, as last received, and those announced since.
    pub(crate) fn coordinators(&self) -> Vec<String> {
        let state = self.state.read();
        let new = state.announced.iter().filter(|address| !state.coordinators.contains(address));
        let room = COORDINATORS_MAX.saturating_sub(state.coordinators.len());
        state.coordinators.iter().chain(new.take(room)).cloned().collect()
    }

    /// Stores all coordinators' addresses as one of them announced. This node did not call it, so known addresses stay,
    /// too.
    pub(crate) fn announce(&self, coordinators: Vec<String>) {
        self.state.write().announced = coordinators;
    }

    /// Returns the piece at `from` of the rows of the table with this name newer than `since`, and of such nodes;
    /// `None` if there is no such table.
    pub(crate) fn newer_than(&self, name: &str, since: Version, from: u64) -> Option<TablePiece> {
        let state = self.state.read();
        let table = state.named(name)?;
        let rows = table.partitions().filter(|row| row.version > since);
        let nodes = state.rows.all().filter(|node| node.version > since);
        Some(TablePiece::cut(
            table.table().clone(),
            since,
            state.claim(table),
            rows,
            nodes,
            state.rows.removed().newer_than(since),
            from,
        ))
    }

    /// Returns the version up to which the table with this name is held whole, with the nodes.
    pub(crate) fn version_of(&self, name: &str) -> Option<Version> {
        let state = self.state.read();
        state.named(name).map(|table| state.claim(table))
    }

    /// Returns the table with this name, with its number of partitions.
    pub(crate) fn table(&self, name: &str) -> Option<Table> {
        self.read_table(name, Table::clone)
    }

    /// Reads the row of the table with this name, if it is known.
    pub(crate) fn read_table<T>(&self, name: &str, read: impl FnOnce(&Table) -> T) -> Option<T> {
        self.state.read().named(name).map(|table| read(table.table()))
    }

    /// Returns the version up to which everything is known: a name without a table here had none by then.
    pub(crate) fn complete(&self) -> Version {
        self.state.read().complete
    }

    /// Returns the error for a partition of a dropped table.
    pub(crate) fn dropped(&self, partition: PartitionId) -> Option<ErrorDetail> {
        let state = self.state.read();
        state.list.lacks(partition.table).then(|| {
            let why = format!("the table of partition {partition} was dropped, with all that was in it");
            ErrorDetail::new(ErrorKind::NotFound, why).with_table_version(state.list.version)
        })
    }

    /// Returns the error for the name of a dropped table, if no table here has it.
    pub(crate) fn dropped_name(&self, name: &str) -> Option<ErrorDetail> {
        let state = self.state.read();
        let asked = if name.is_empty() { DEFAULT_TABLE } else { name };
        // A table of that name may have been created since, and not be known here yet: only if all listed tables are
        // here is it gone for good, as of that list.
        let all_known = state.list.tables.iter().all(|table| state.tables.contains_key(table));
        if all_known && state.dropped_names.contains_key(asked) {
            let why = format!("table {asked:?} was dropped, with all that was in it");
            return Some(ErrorDetail::new(ErrorKind::NotFound, why).with_table_version(state.list.version));
        }
        None
    }

    /// Returns the partition that `key` belongs to in a table, if the table is known.
    pub(crate) fn partition_of(&self, table: TableId, key: &[u8]) -> Option<PartitionId> {
        self.state.read().tables.get(&table).map(|table| table.partition_of(key))
    }

    /// Returns the partition that has the first of these keys in this order, if the table is known.
    pub(crate) fn first_of(&self, table: TableId, keys: &KeyRange, order: ScanOrder) -> Option<PartitionId> {
        let state = self.state.read();
        state.tables.get(&table).map(|table| table.first_of(keys, order))
    }

    /// Returns whether the hash of `key` gives it to another partition. For ranges, the row of the copy itself is more
    /// reliable.
    pub(crate) fn is_misrouted(&self, partition: PartitionId, key: &[u8]) -> bool {
        let state = self.state.read();
        let table = state.tables.get(&partition.table).filter(|table| !table.table().keys.is_range());
        table.is_some_and(|table| table.partition_of(key) != partition)
    }

    /// Returns a partition's display name: `orders/7`; its numbers while its table is not known here.
    pub(crate) fn partition_name(&self, id: PartitionId) -> String {
        let state = self.state.read();
        state.tables.get(&id.table).map_or_else(|| id.to_string(), |table| table.partition_name(id))
    }

    /// Returns a table's display name; its number while it is not known here.
    pub(crate) fn table_name(&self, id: TableId) -> String {
        let state = self.state.read();
        state.tables.get(&id).map_or_else(|| id.to_string(), |table| table.table().name.clone())
    }

    /// Returns whether any known table has automatic splits or merges.
    pub(crate) fn limits_any(&self) -> bool {
        !self.state.read().limited.is_empty()
    }

    /// Returns the limits for automatic splits and merges of a table, as far as known.
    pub(crate) fn range_limits(&self, table: TableId) -> RangeLimits {
        self.state.read().limited.get(&table).copied().unwrap_or_default()
    }

    /// Returns the node that leads a partition, as far as known.
    pub(crate) fn leader(&self, partition: PartitionId) -> Option<NodeId> {
        self.state.read().leader(partition)
    }

    /// Reads the row of the node that leads a partition, if it is known.
    pub(crate) fn read_leader<T>(&self, partition: PartitionId, read: impl FnOnce(&Node) -> T) -> Option<T> {
        let state = self.state.read();
        state.rows.get(state.leader(partition)?).map(read)
    }

    /// Returns the nodes that lead the partitions of a table, by number of the partition; those without a known leader
    /// are left out.
    pub(crate) fn leaders(&self, table: TableId) -> Vec<(u32, NodeId)> {
        let state = self.state.read();
        let Some(table) = state.tables.get(&table) else { return Vec::new() };
        let leader = |row: &Partition| Some((row.id.index, row.leader_placement()?.node));
        table.partitions().filter_map(leader).collect()
    }

    /// Returns the nodes with an in-sync replica of each partition of a table that do not lead it, by number of the
    /// partition.
    pub(crate) fn followers(&self, table: TableId) -> Vec<(u32, Vec<NodeId>)> {
        let state = self.state.read();
        let Some(table) = state.tables.get(&table) else { return Vec::new() };
        let followers = |row: &Partition| {
            let leader = row.leader_placement().map(|placement| placement.node);
            row.live().map(|placement| placement.node).filter(|node| Some(*node) != leader).collect()
        };
        table.partitions().map(|row| (row.id.index, followers(row))).collect()
    }

    /// Returns the placements of a table that a node leads, as far as known.
    pub(crate) fn led_placements(&self, table: TableId, node: NodeId) -> Vec<PlacementId> {
        let state = self.state.read();
        let Some(table) = state.tables.get(&table) else { return Vec::new() };
        let leaders = table.partitions().filter_map(Partition::leader_placement);
        leaders.filter(|placement| placement.node == node).map(|placement| placement.id).collect()
    }

    /// Returns the number of in-sync replicas of a partition; of the one with the fewest in its table without one.
    pub(crate) fn live_replicas(&self, table: TableId, partition: Option<PartitionId>) -> usize {
        let state = self.state.read();
        let Some(held) = state.tables.get(&table) else { return 0 };
        let live = |row: &Partition| row.live().count();
        match partition.filter(|partition| partition.table == table) {
            Some(partition) => held.partition(partition.index).map_or(0, live),
            None => held.partitions().map(live).min().unwrap_or(0),
        }
    }

    /// Returns the rows of all nodes that are not lost.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let state = self.state.read();
        state.rows.all().filter(|node| node.status != NodeStatus::Lost).cloned().collect()
    }

    /// Returns the address of the node that leads a partition, as far as known.
    pub(crate) fn leader_address(&self, partition: PartitionId) -> Option<String> {
        let state = self.state.read();
        state.rows.get(state.leader(partition)?).map(|node| node.address.clone())
    }

    /// Returns the number of nodes alive, as far as known.
    pub(crate) fn nodes_alive(&self) -> usize {
        self.state.read().rows.alive().count()
    }

    /// Returns the relays for this node's heartbeats, given the number of relays (PROTOCOL rule 69), with the version
    /// of the rows used.
    pub(crate) fn relays_of(&self, member: Member, count: usize) -> (Version, Vec<RelayAddress>) {
        let state = self.state.read();
        let relays = state.rows.relays_of(member.cluster, member.node, count);
        (state.rows.version(), relays.map(RelayAddress::of).collect())
    }

    /// Returns the nodes that this one probes (PROTOCOL rule 73), with the version of the rows used.
    pub(crate) fn probed_by(&self, member: Member) -> (Version, Vec<Node>) {
        let state = self.state.read();
        (state.rows.version(), state.rows.probed_by(member.cluster, member.node).cloned().collect())
    }

    /// Returns the version of the nodes' rows.
    pub(crate) fn nodes_version(&self) -> Version {
        self.state.read().rows.version()
    }

    /// Returns a watch that changes whenever rows of nodes came, or nodes were removed.
    pub(crate) fn node_changes(&self) -> watch::Receiver<Version> {
        self.nodes.subscribe()
    }

    /// Returns the report that an incarnation of a node is fenced, according to the rows.
    pub(crate) fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<FencingProof> {
        self.state.read().rows.over(node, incarnation)
    }

    /// Returns the newest known row of a node.
    pub(crate) fn node(&self, id: NodeId) -> Option<Node> {
        self.state.read().rows.get(id).cloned()
    }
}

impl State {
    fn leader(&self, partition: PartitionId) -> Option<NodeId> {
        self.tables.get(&partition.table)?.route_partition(partition).leader
    }

    fn named(&self, name: &str) -> Option<&PartitionTable> {
        let name = if name.is_empty() { DEFAULT_TABLE } else { name };
        self.tables.values().find(|table| table.table().name == name)
    }

    /// Records that everything is held up to here, also rows unchanged since their own version. Newer rows are no gap.
    fn hold(&mut self, complete: Version) {
        if complete <= self.complete {
            return;
        }
        self.complete = complete;
        self.rows.hold(complete);
        for table in self.tables.values_mut().filter(|table| table.version() < complete) {
            let (row, since) = (table.table().clone(), table.version());
            let (partitions, nodes) = (Vec::new(), Vec::new());
            table.merge(TableDelta { table: row, since, version: complete, partitions, nodes, removed: None });
        }
    }

    /// Returns the version up to which a table and the nodes are known: updates in pieces count once both are here.
    fn claim(&self, table: &PartitionTable) -> Version {
        self.complete.max(table.version().min(self.rows.version()))
    }

    /// Removes dropped tables. A list is never replaced by an older one.
    fn take_list(&mut self, list: TableList) {
        if (list.version, list.last) <= (self.list.version, self.list.last) {
            return;
        }
        for (id, table) in self.tables.extract_if(.., |table, _| list.lacks(*table)) {
            self.dropped_names.insert(table.table().name.clone(), id);
            self.limited.remove(&id);
        }
        if let Some(more) = self.dropped_names.len().checked_sub(DROPPED_NAMES_MAX).filter(|more| *more > 0) {
            let mut numbers: Vec<TableId> = self.dropped_names.values().copied().collect();
            let (.., kept, _) = numbers.select_nth_unstable(more);
            let kept = *kept;
            self.dropped_names.retain(|_, table| *table >= kept);
        }
        self.arriving.take_if(|begun| list.lacks(begun.table()));
        self.list = list;
    }

    /// Returns whether there was no gap between the held rows and the delta.
    fn merge_table(&mut self, delta: TableDelta) -> bool {
        let id = delta.table.id;
        let whole = self.take_delta(delta);
        let limits = self.tables.get(&id).map(|table| table.table().keys.limits()).unwrap_or_default();
        match limits.is_set() {
            true => drop(self.limited.insert(id, limits)),
            false => drop(self.limited.remove(&id)),
        }
        whole
    }

    fn take_delta(&mut self, delta: TableDelta) -> bool {
        match self.tables.get_mut(&delta.table.id) {
            Some(table) => table.merge(delta),
            None => match PartitionTable::from_whole(delta) {
                Some(table) => {
                    self.dropped_names.remove(&table.table().name);
                    self.tables.insert(table.table().id, table);
                    true
                }
                None => false,
            },
        }
    }
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
