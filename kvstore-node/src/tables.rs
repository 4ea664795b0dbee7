//! The node's cache of the partition tables: routes, leader hints and the answers to `GetTable`.

use archon_types::{
    Assembled, Assembly, DEFAULT_TABLE, ErrorDetail, ErrorKind, Node, NodeDelta, NodeId, PartitionId, PartitionTable,
    Table, TableDelta, TableId, TableList, TablePiece, Version,
};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use tokio::sync::watch;

#[derive(Debug, Default)]
struct State {
    /// Without nodes: these stand below, once for all tables.
    tables: BTreeMap<TableId, PartitionTable>,
    nodes: BTreeMap<NodeId, Node>,
    nodes_version: Version,
    /// Which tables there are, as of the last drop that was told of.
    list: TableList,
    /// Everything is held up to here, as the coordinator said.
    complete: Version,
    /// A table of which only the first pieces are here. Nothing of it counts before the last one is.
    arriving: Option<Assembly>,
    coordinators: Vec<String>,
}

/// What a push brings besides duties.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) pieces: Vec<TablePiece>,
    pub(crate) nodes: Option<NodeDelta>,
    /// Which tables there are, if one was dropped.
    pub(crate) tables: Option<TableList>,
    /// With this, everything is held up to here.
    pub(crate) complete: Option<Version>,
    pub(crate) coordinators: Vec<String>,
}

impl News {
    /// Whether there is anything new about tables or nodes.
    pub(crate) fn any(&self) -> bool {
        !self.pieces.is_empty() || self.nodes.is_some() || self.tables.is_some()
    }
}

/// Every table, as far as the coordinator has told. Newer is never replaced by older.
#[derive(Debug)]
pub(crate) struct Tables {
    state: RwLock<State>,
    version: watch::Sender<Version>,
}

impl Tables {
    /// No table yet; `coordinators` are the configured addresses.
    pub(crate) fn new(coordinators: Vec<String>) -> Self {
        Self {
            state: RwLock::new(State { coordinators, ..State::default() }),
            version: watch::Sender::new(Version::ZERO),
        }
    }

    /// Takes in what one push brings. Returns whether there was no gap; with a gap everything is needed from the start.
    pub(crate) fn merge(&self, news: News) -> bool {
        let mut state = self.state.write();
        let mut whole = true;
        if let Some(delta) = news.nodes {
            whole &= state.merge_nodes(delta);
        }
        if let Some(list) = news.tables {
            state.take_list(list);
        }
        for piece in news.pieces {
            if state.list.lacks(piece.delta.table.id) {
                continue; // It was late.
            }
            whole &= match Assembly::take(&mut state.arriving, piece) {
                Assembled::Whole(delta) => state.merge_table(delta),
                Assembled::More(_) => true,
                Assembled::Gap => false,
            };
        }
        if !news.coordinators.is_empty() {
            state.coordinators = news.coordinators;
        }
        if let Some(complete) = news.complete.filter(|_| whole) {
            state.complete = state.complete.max(complete);
        }
        let claims = state.tables.values().map(|table| state.claim(table));
        let newest = claims.max().unwrap_or_default().max(state.complete);
        drop(state);
        // Also when the newest is the same: another table may have become newer.
        self.version.send_modify(|version| *version = newest.max(*version));
        whole
    }

    /// The newest version up to which any table is held whole.
    pub(crate) fn version(&self) -> Version {
        *self.version.borrow()
    }

    /// A watch of [`Tables::version`], for long polls.
    pub(crate) fn watch(&self) -> watch::Receiver<Version> {
        self.version.subscribe()
    }

    /// Addresses of the coordinators, as last told.
    pub(crate) fn coordinators(&self) -> Vec<String> {
        self.state.read().coordinators.clone()
    }

    /// The piece at `from` of the rows of the table with this name that are newer than `since`, and of the nodes that are,
    /// or `None` if there is no such table.
    pub(crate) fn newer_than(&self, name: &str, since: Version, from: u64) -> Option<TablePiece> {
        let state = self.state.read();
        let table = state.named(name)?;
        let rows = table.partitions().filter(|row| row.version > since);
        let nodes = state.nodes.values().filter(|node| node.version > since);
        Some(TablePiece::cut(table.table().clone(), since, state.claim(table), rows, nodes, from))
    }

    /// The version up to which the table with this name is held whole, with the nodes.
    pub(crate) fn version_of(&self, name: &str) -> Option<Version> {
        let state = self.state.read();
        state.named(name).map(|table| state.claim(table))
    }

    /// The table with this name, with its number of partitions.
    pub(crate) fn table(&self, name: &str) -> Option<Table> {
        self.state.read().named(name).map(|table| table.table().clone())
    }

    /// Up to where everything is known: of a name that no table here has, that there was none by then.
    pub(crate) fn complete(&self) -> Version {
        self.state.read().complete
    }

    /// What to answer about a partition if its table was dropped.
    pub(crate) fn dropped(&self, partition: PartitionId) -> Option<ErrorDetail> {
        let state = self.state.read();
        state.list.lacks(partition.table).then(|| {
            let why = format!("the table of partition {partition} was dropped, with all that was in it");
            ErrorDetail::new(ErrorKind::NotFound, why).with_table_version(state.list.version)
        })
    }

    /// The partition that `key` belongs to in a table, if the table is known.
    pub(crate) fn partition_of(&self, table: TableId, key: &[u8]) -> Option<PartitionId> {
        self.state.read().tables.get(&table).map(|table| table.partition_of(key))
    }

    /// A partition as people name it: `orders/7`; by its numbers while its table is not known here.
    pub(crate) fn partition_name(&self, id: PartitionId) -> String {
        let state = self.state.read();
        state.tables.get(&id.table).map_or_else(|| id.to_string(), |table| table.partition_name(id))
    }

    /// The address of the node that leads a partition, as far as is known.
    pub(crate) fn leader_address(&self, partition: PartitionId) -> Option<String> {
        let state = self.state.read();
        let table = state.tables.get(&partition.table)?;
        let leader = table.route_partition(partition).leader?;
        state.nodes.get(&leader).map(|node| node.address.clone())
    }

    /// A node's row, the newest that came.
    pub(crate) fn node(&self, id: NodeId) -> Option<Node> {
        self.state.read().nodes.get(&id).cloned()
    }
}

impl State {
    fn named(&self, name: &str) -> Option<&PartitionTable> {
        let name = if name.is_empty() { DEFAULT_TABLE } else { name };
        self.tables.values().find(|table| table.table().name == name)
    }

    /// Up to where rows of a table and nodes are known: what came in pieces, or apart, counts as far as both are here.
    fn claim(&self, table: &PartitionTable) -> Version {
        self.complete.max(table.version().min(self.nodes_version))
    }

    /// Forgets the tables that were dropped. A list is never replaced by an older one.
    fn take_list(&mut self, list: TableList) {
        if (list.version, list.last) <= (self.list.version, self.list.last) {
            return;
        }
        self.tables.retain(|table, _| !list.lacks(*table));
        self.arriving.take_if(|begun| list.lacks(begun.table()));
        self.list = list;
    }

    /// Returns whether there was no gap between what is held and the delta.
    fn merge_table(&mut self, delta: TableDelta) -> bool {
        match self.tables.get_mut(&delta.table.id) {
            Some(table) => table.merge(delta),
            None => match PartitionTable::from_whole(delta) {
                Some(table) => {
                    self.tables.insert(table.table().id, table);
                    true
                }
                None => false,
            },
        }
    }

    /// Returns whether there was no gap between what is held and the delta.
    fn merge_nodes(&mut self, delta: NodeDelta) -> bool {
        if delta.since > self.nodes_version {
            return false;
        }
        self.nodes_version = self.nodes_version.max(delta.version);
        delta.nodes.into_iter().for_each(|node| self.merge_node(node));
        true
    }

    fn merge_node(&mut self, node: Node) {
        if self.nodes.get(&node.id).is_none_or(|held| held.version < node.version) {
            self.nodes.insert(node.id, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Epoch, Partition, PartitionStatus};

    const TABLE: TableId = TableId::new(1);

    fn delta(since: u64, version: u64) -> TableDelta {
        let (name, first) = ("default".to_owned(), Version::new(1));
        TableDelta {
            table: Table { id: TABLE, name, partitions: 4, replication: 1, version: first },
            since: Version::new(since),
            version: Version::new(version),
            partitions: vec![],
            nodes: vec![],
        }
    }

    fn row(index: u16, version: u64) -> Partition {
        Partition {
            id: PartitionId::new(TABLE, index),
            epoch: Epoch::new(1),
            version: Version::new(version),
            leader: None,
            placements: vec![],
            status: PartitionStatus::Online,
            min_in_sync: 1,
        }
    }

    fn node(id: u64, version: u64) -> Node {
        Node {
            id: NodeId::new(id),
            name: format!("n{id}"),
            address: format!("n{id}:{version}"),
            incarnation: archon_types::Incarnation::new(version),
            status: archon_types::NodeStatus::Live,
            goal: archon_types::NodeGoal::Serve,
            zone: None,
            weight: 100,
            partitions_max: None,
            version: Version::new(version),
            since: archon_types::Millis::ZERO,
        }
    }

    fn table(delta: TableDelta) -> News {
        News { pieces: vec![TablePiece::whole(delta)], ..News::default() }
    }

    fn nodes(since: u64, version: u64, nodes: Vec<Node>) -> News {
        let delta = NodeDelta { since: Version::new(since), version: Version::new(version), nodes };
        News { nodes: Some(delta), ..News::default() }
    }

    fn piece(from: u64, next: Option<u64>, version: u64, rows: Vec<Partition>) -> News {
        let delta = TableDelta { partitions: rows, ..delta(0, version) };
        News { pieces: vec![TablePiece { delta, from, next }], ..News::default() }
    }

    #[test]
    fn an_empty_name_is_the_default_table() {
        let tables = Tables::new(vec![]);
        assert_eq!(tables.table(""), None);
        assert!(tables.merge(table(delta(0, 5))));
        assert_eq!(tables.table("").map(|table| table.name), Some("default".to_owned()));
        assert_eq!(tables.table(""), tables.table("default"));
        assert_eq!(tables.table("other"), None);
        assert_eq!(tables.partition_name(PartitionId::new(TableId::new(1), 3)), "default/3");
        assert_eq!(tables.partition_name(PartitionId::new(TableId::new(2), 3)), "2/3");
    }

    #[test]
    fn nodes_come_once_for_all_tables_and_a_gap_among_them_is_noticed() {
        let tables = Tables::new(vec![]);
        assert!(!tables.merge(nodes(3, 5, vec![node(1, 5)])), "nodes before 3 are missing");
        assert_eq!(tables.node(NodeId::new(1)), None);
        assert!(tables.merge(News { pieces: table(delta(0, 5)).pieces, ..nodes(0, 5, vec![node(1, 5), node(2, 4)]) }));
        assert!(tables.merge(nodes(5, 7, vec![node(2, 7)])));
        assert!(tables.merge(nodes(0, 4, vec![node(2, 4)])), "an older one that was late");
        assert_eq!(tables.node(NodeId::new(2)), Some(node(2, 7)));
        let since_five = tables.newer_than("", Version::new(5), 0).map(|piece| piece.delta.nodes);
        assert_eq!(since_five, Some(vec![node(2, 7)]), "whoever asks for a table gets the nodes with it");
    }

    #[test]
    fn a_partial_delta_of_an_unknown_table_is_a_gap() {
        let tables = Tables::new(vec!["a:1".into()]);
        assert!(!tables.merge(News { complete: Some(Version::new(5)), ..table(delta(3, 5)) }));
        assert_eq!(tables.version(), Version::ZERO, "with a gap nothing is complete");
        let coordinators = vec!["b:1".to_owned()];
        assert!(tables.merge(News { coordinators, complete: Some(Version::new(5)), ..table(delta(0, 5)) }));
        assert!(!tables.merge(table(delta(9, 12))));
        assert_eq!((tables.version(), tables.coordinators()), (Version::new(5), vec!["b:1".to_owned()]));
    }

    #[test]
    fn half_a_table_is_no_table_and_half_a_delta_changes_nothing() {
        let tables = Tables::new(vec![]);
        assert!(tables.merge(piece(0, Some(2), 5, vec![row(0, 5), row(1, 5)])));
        assert_eq!((tables.table(""), tables.version()), (None, Version::ZERO), "its second half is missing");
        assert!(!tables.merge(piece(3, None, 5, vec![row(3, 5)])), "row 2 is missing");
        assert!(tables.merge(piece(2, None, 6, vec![row(2, 6), row(3, 5)])));
        let held = |from| tables.newer_than("", Version::ZERO, from).map(|piece| piece.delta.partitions.len());
        assert_eq!((held(0), held(3)), (Some(4), Some(1)));
        assert_eq!(tables.version(), Version::ZERO, "rows without nodes say nothing about what is known of both");
        assert!(tables.merge(nodes(0, 4, vec![node(1, 4)])));
        assert_eq!(tables.version(), Version::new(4));
        assert!(tables.merge(News { complete: Some(Version::new(6)), ..News::default() }));
        assert_eq!(tables.version_of(""), Some(Version::new(6)));
        // A change in two pieces, of which the second never comes.
        let mut change = piece(0, Some(1), 9, vec![row(0, 9)]);
        change.pieces[0].delta.since = Version::new(6);
        assert!(tables.merge(change));
        let rows = tables.newer_than("", Version::new(6), 0).map(|piece| piece.delta.partitions);
        assert_eq!((rows, tables.version()), (Some(vec![]), Version::new(6)));
    }

    #[test]
    fn a_node_change_that_has_not_come_yet_is_not_claimed_with_a_newer_table() {
        let tables = Tables::new(vec![]);
        assert!(tables.merge(News { pieces: table(delta(0, 8)).pieces, ..nodes(0, 5, vec![node(1, 5)]) }));
        let answer = tables.newer_than("", Version::ZERO, 0).map(|piece| piece.delta.version);
        assert_eq!(answer, Some(Version::new(5)), "a node that changed at 6 would never be asked for again");
    }

    fn list(version: u64, last: u64, tables: &[u64]) -> News {
        let tables = tables.iter().copied().map(TableId::new).collect();
        let list = TableList { version: Version::new(version), last: TableId::new(last), tables };
        News { tables: Some(list), ..News::default() }
    }

    #[test]
    fn a_dropped_table_is_forgotten_and_a_late_row_of_it_does_not_bring_it_back() {
        let tables = Tables::new(vec![]);
        let gone = PartitionId::new(TABLE, 1);
        assert!(tables.merge(News { complete: Some(Version::new(5)), ..table(delta(0, 5)) }));
        assert!(tables.merge(piece(0, Some(2), 6, vec![row(0, 6), row(1, 6)])), "more is to follow");
        assert!(tables.merge(list(3, 1, &[1])), "another one was dropped");
        assert_eq!((tables.table("").is_some(), tables.dropped(gone)), (true, None));
        let version = Some(Version::new(7));
        assert!(tables.merge(News { complete: version, ..list(7, 2, &[2]) }));
        assert_eq!((tables.table(""), tables.version()), (None, Version::new(7)), "the version does not fall");
        assert_eq!(tables.dropped(gone).map(|why| (why.kind, why.table_version)), Some((ErrorKind::NotFound, version)));
        assert_eq!(tables.dropped(PartitionId::new(TableId::new(2), 0)), None, "it has not come yet");
        assert_eq!(tables.dropped(PartitionId::new(TableId::new(3), 0)), None, "it was made since");
        // From before, and late: no gap, for there is nothing to ask for.
        assert!(tables.merge(table(delta(0, 6))) && tables.merge(piece(2, None, 6, vec![row(2, 6)])));
        assert!(tables.merge(list(3, 1, &[1])));
        assert_eq!((tables.table(""), tables.dropped(gone).is_some()), (None, true));
    }
}
