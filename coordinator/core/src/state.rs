//! What the cluster is: the state that the Raft log builds and a snapshot holds.

use crate::condemned::Condemned;
use crate::controls::Controls;
use crate::coordinators::Coordinators;
use crate::departed::Departed;
use crate::events::{Event, EventKind};
use crate::former_leaders::FormerLeaders;
use crate::migration::{Migration, Migrations};
use crate::mutant::Mutant;
use crate::node_row::NodeRow;
use crate::nodes::Nodes;
use crate::partitions::Partitions;
use crate::recovery::Recovery;
use crate::response::Response;
pub use archon_types::limits::{CONDEMNED_MAX, PARTITIONS_MAX};
use archon_types::{
    Access, ClusterId, Epoch, ErrorDetail, ErrorKind, GenerationKey, Holds, Incarnation, LeaseTiming, Millis, NodeId,
    NodeStatus, Partition, PartitionId, PlacementId, RangeLimits, RemovedNodes, RequestId, Settings, StorageId, Table,
    TableId, TableList, Version,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Most events kept; older ones are forgotten.
pub const EVENTS_MAX: usize = 4_096;
/// Most first answers kept for repeated requests.
pub const ANSWERS_MAX: usize = 1_024;
/// How long a first answer is kept, in milliseconds of the proposers' wall clocks.
pub const ANSWER_AGE_MS: u64 = 600_000;
/// Most nodes known at once, lost ones included.
pub const NODES_MAX: usize = 20_000;
/// Most participants known at once, those that are gone and not forgotten yet included.
pub const PARTICIPANTS_MAX: usize = 20_000;
/// Most strangers remembered ([`ClusterState::is_stranger`]); the newest of them stay. Far more than nodes that are set up at
/// once, and far fewer than [`NODES_MAX`], so that nobody can keep new nodes out by registering and going away.
pub const STRANGERS_MAX: usize = 1_000;
/// How long a stranger is remembered, in milliseconds: longer than anybody who sets a node up looks for it in vain. As long is a
/// participant that is gone, unless something is ordered of it.
pub const STRANGER_AGE_MS: u64 = 3_600_000;
/// Most moves in one plan that is carried out.
pub const MOVES_MAX: usize = 65_536;
/// Migrations that are over and still kept for people to look at.
pub const MIGRATIONS_KEPT: usize = 4_096;

/// The first answer to a request, kept for its repetition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptAnswer {
    /// The request.
    pub request: RequestId,
    /// The proposer's time.
    pub at: Millis,
    /// What was answered.
    pub responses: Vec<Response>,
}

/// The whole replicated state. Only [`crate::apply()`] changes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterState {
    /// The cluster's id; nil before bootstrap.
    pub cluster: ClusterId,
    /// Cluster-wide settings.
    pub settings: Settings,
    /// Log index of the last change of the settings.
    #[serde(default)]
    pub settings_version: Version,
    /// What clients may do to which tables.
    #[serde(default)]
    pub access: Arc<Access>,
    /// Log index of the last change of it.
    #[serde(default)]
    pub access_version: Version,
    /// The protocol that the cluster speaks, zero before there is one; a member that does not speak it is refused.
    #[serde(rename = "feature_level")]
    pub protocol: u32,
    /// Whether an operator wants the protocol to stay as it is, so that members can go back to the version before. Not written while
    /// that is not so: the first protocol does not know it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protocol_held: bool,
    /// How often the state began anew from less than a majority, the first time included ([`crate::recovery`]).
    #[serde(default = "first_generation")]
    pub generation: u64,
    /// The keys of the generations that this state continues, its own included. Those without one are left out; so nothing is written
    /// while all are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub generation_keys: BTreeMap<u64, GenerationKey>,
    /// What is known meanwhile, if it has begun anew and is not taken for true yet.
    #[serde(default)]
    pub recovery: Option<Box<Recovery>>,
    /// The members of the quorum.
    #[serde(default)]
    pub coordinators: Coordinators,
    /// Every node, lost ones included, in order of registration.
    pub nodes: Nodes,
    /// Every member that owns partitions of lease tables for a service of its own, in order of registration. Their numbers are
    /// of the same series as those of nodes.
    #[serde(default)]
    pub participants: Nodes,
    /// Every table.
    pub tables: BTreeMap<TableId, Table>,
    /// Every partition.
    pub partitions: Partitions,
    /// Copies that counted once and do not now: when they ceased to, and what they can still hold. Of those that are
    /// whole the one that ceased last has most of the data.
    pub departed: BTreeMap<PlacementId, Departed>,
    /// Partitions that were assigned and have not been Online since: no copy of theirs needs to exist yet.
    pub untouched: BTreeSet<PartitionId>,
    /// Partitions of which a copy knew this epoch though nobody had granted it, until they serve above it.
    pub surpassed: BTreeMap<PartitionId, Epoch>,
    /// Ended leaderships whose holders may not know it yet.
    pub former_leaders: FormerLeaders,
    /// Copies of partitions that are no more, dropped, merged or split in vain: until their nodes say that they are deleted.
    #[serde(default)]
    pub condemned: Condemned,
    /// What operators have ordered of partitions and members.
    #[serde(default)]
    pub controls: Controls,
    /// Moves under way and past.
    pub migrations: Migrations,
    /// First answers, oldest first.
    pub answers: VecDeque<KeptAnswer>,
    /// What happened, oldest first.
    pub events: VecDeque<Event>,
    /// The last node number given out.
    pub node_last: NodeId,
    /// The last table number given out.
    pub table_last: TableId,
    /// The last placement number given out; numbers may be skipped, never reused.
    pub placement_last: PlacementId,
    /// The last migration number given out.
    pub migration_last: u64,
    /// Version of the newest node row.
    pub nodes_version: Version,
    /// Version of the newest participant's row.
    #[serde(default)]
    pub participants_version: Version,
    /// Log index of the last removal of a node: its row is gone, and nothing else remembers it.
    #[serde(default)]
    pub removed_version: Version,
    /// The same of participants.
    #[serde(default)]
    pub participants_removed_version: Version,
    /// Log index of the last drop of a table: its rows, whose versions were below, are gone.
    #[serde(default)]
    pub dropped_version: Version,
    /// Log index of the last activation, which is nothing that others need to hear of.
    #[serde(default)]
    pub activated_version: Version,
    /// Log index of the last change of a migration's record.
    #[serde(default)]
    pub moves_version: Version,
    /// Log index of the last order of an operator.
    #[serde(default)]
    pub controls_version: Version,
    /// Index of the last log entry taken in.
    pub applied: u64,
    /// The rule that a test takes away.
    #[cfg(any(test, feature = "mutants"))]
    #[serde(skip)]
    pub mutant: Option<Mutant>,
}

/// So far ahead of what is applied nobody's log is.
const AHEAD_MAX: u64 = 1_000_000;

const fn first_generation() -> u64 {
    1
}

impl Default for ClusterState {
    fn default() -> Self {
        Self::new()
    }
}

impl ClusterState {
    /// The state before the first log entry: nothing is bootstrapped.
    pub fn new() -> Self {
        Self {
            cluster: ClusterId::NIL,
            settings: Settings::default(),
            settings_version: Version::ZERO,
            access: Arc::default(),
            access_version: Version::ZERO,
            protocol: 0,
            protocol_held: false,
            generation: first_generation(),
            generation_keys: BTreeMap::new(),
            recovery: None,
            coordinators: Coordinators::default(),
            nodes: Nodes::default(),
            participants: Nodes::default(),
            tables: BTreeMap::new(),
            partitions: Partitions::default(),
            departed: BTreeMap::new(),
            untouched: BTreeSet::new(),
            surpassed: BTreeMap::new(),
            former_leaders: FormerLeaders::default(),
            condemned: Condemned::default(),
            controls: Controls::default(),
            migrations: Migrations::default(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            node_last: NodeId::ZERO,
            table_last: TableId::ZERO,
            placement_last: PlacementId::ZERO,
            migration_last: 0,
            nodes_version: Version::ZERO,
            participants_version: Version::ZERO,
            removed_version: Version::ZERO,
            participants_removed_version: Version::ZERO,
            dropped_version: Version::ZERO,
            activated_version: Version::ZERO,
            moves_version: Version::ZERO,
            controls_version: Version::ZERO,
            applied: 0,
            #[cfg(any(test, feature = "mutants"))]
            mutant: None,
        }
    }

    /// Whether a test takes this rule away.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn breaks(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    #[cfg(not(any(test, feature = "mutants")))]
    #[allow(clippy::unused_self)]
    pub(crate) const fn breaks(&self, _: Mutant) -> bool {
        false
    }

    /// The key of a generation that this state continues, or of its own; nil if that has none, or is later.
    pub fn generation_key(&self, generation: u64) -> GenerationKey {
        self.generation_keys.get(&generation).copied().unwrap_or(GenerationKey::NIL)
    }

    /// The number from which its generation counts.
    pub fn begins_at(&self) -> u64 {
        archon_types::begins_at(self.generation, self.generation_key(self.generation))
    }

    /// Whether the cluster has been bootstrapped.
    pub fn is_bootstrapped(&self) -> bool {
        !self.cluster.is_nil()
    }

    /// The version of the newest row of all tables that hold data and of all nodes, those that are gone included: what a plan is
    /// valid for.
    pub fn table_version(&self) -> Version {
        let newest = self.data_tables().map(|table| self.version_of(table.id)).max().unwrap_or(self.nodes_version);
        newest.max(self.dropped_version)
    }

    /// The tables whose partitions have copies on nodes.
    pub fn data_tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values().filter(|table| table.holds == Holds::Data)
    }

    /// The partitions that have copies on nodes.
    pub fn data_rows(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(|row| !self.is_lease(row.id.table))
    }

    /// The tables whose partitions are leases.
    pub fn lease_tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values().filter(|table| table.holds == Holds::Lease)
    }

    /// Whether the partitions of this table are leases.
    pub fn is_lease(&self, table: TableId) -> bool {
        self.tables.get(&table).is_some_and(|table| table.holds == Holds::Lease)
    }

    /// Whether the keys of this table are in ranges.
    pub fn is_range(&self, table: TableId) -> bool {
        self.tables.get(&table).is_some_and(|table| table.keys.is_range())
    }

    /// What has partitions of a table split and merged by themselves; nothing in a table whose keys are hashed.
    pub(crate) fn range_limits(&self, table: TableId) -> RangeLimits {
        self.tables.get(&table).map(|table| table.keys.limits()).unwrap_or_default()
    }

    /// Which tables there are.
    pub fn table_list(&self) -> TableList {
        let tables = self.tables.keys().copied().collect();
        TableList { version: self.dropped_version, last: self.table_last, tables }
    }

    /// Which nodes are gone, if one was removed after `since`.
    pub fn removed_since(&self, since: Version) -> Option<RemovedNodes> {
        let list = || {
            // A participant is no node that is gone: whoever carries its heartbeats would tell it that its life is over.
            let mut there: Vec<NodeId> = self.members().map(|row| row.node.id).collect();
            there.sort_unstable();
            RemovedNodes::all_but(there.into_iter(), self.node_last, self.removed_version)
        };
        (self.removed_version > since).then(list)
    }

    /// Which members of a table are gone, if one was removed after `since`.
    pub fn removed_of_since(&self, table: TableId, since: Version) -> Option<RemovedNodes> {
        if !self.is_lease(table) {
            return self.removed_since(since);
        }
        let version = self.participants_removed_version;
        (version > since).then(|| RemovedNodes::all_but(self.participants.keys().copied(), self.node_last, version))
    }

    /// Rises whenever a node's life begins, acts or ends, or its row changes otherwise.
    pub fn lives_version(&self) -> Version {
        self.nodes_version.max(self.participants_version).max(self.activated_version)
    }

    /// The version of one table's newest row, its members included.
    pub fn version_of(&self, table: TableId) -> Version {
        let members = if self.is_lease(table) { self.participants_version } else { self.nodes_version };
        self.rows_version_of(table).max(members)
    }

    /// The version of one table's newest row, nodes aside.
    pub fn rows_version_of(&self, table: TableId) -> Version {
        let own = self.tables.get(&table).map_or(Version::ZERO, |row| row.version);
        own.max(self.partitions.newest(table))
    }

    /// The row of a node or a participant.
    pub fn node(&self, id: NodeId) -> Option<&NodeRow> {
        self.nodes.get(&id).or_else(|| self.participants.get(&id))
    }

    /// The rows of all nodes and participants.
    pub fn members(&self) -> impl Iterator<Item = &NodeRow> {
        self.nodes.values().chain(self.participants.values())
    }

    /// The members of a table: its participants if it is of leases, else all nodes.
    pub fn members_of(&self, table: TableId) -> &Nodes {
        if self.is_lease(table) { &self.participants } else { &self.nodes }
    }

    /// Whether partitions of this table may be placed on this member.
    pub fn serves(&self, member: NodeId, table: TableId) -> bool {
        let Some(table) = self.tables.get(&table) else { return false };
        match self.participants.get(&member).and_then(|row| row.participant.as_ref()) {
            Some(participant) => table.holds == Holds::Lease && participant.serves(&table.name),
            None => table.holds == Holds::Data,
        }
    }

    /// The heartbeats and leases of one member.
    pub fn timing_of(&self, member: NodeId) -> LeaseTiming {
        let own = self.participants.get(&member).and_then(|row| row.participant.as_ref()?.timing);
        own.unwrap_or(self.settings.timing)
    }

    /// The node or participant with this name that is not lost.
    pub fn node_by_name(&self, name: &str) -> Option<&NodeRow> {
        let named = self.nodes.named(name).chain(self.participants.named(name));
        named.into_iter().find(|row| row.node.status != NodeStatus::Lost)
    }

    /// The node with this data directory.
    pub fn node_by_storage(&self, storage: StorageId) -> Option<&NodeRow> {
        self.nodes.with_storage(storage)
    }

    /// The table with this name.
    pub fn table_by_name(&self, name: &str) -> Option<&Table> {
        self.tables.values().find(|table| table.name == name)
    }

    /// A partition's row.
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(id)
    }

    /// The migration that moves a copy of this partition now.
    pub fn running_migration(&self, partition: PartitionId) -> Option<&Migration> {
        self.migrations.running(partition)
    }

    /// Whether the node is alive and acts in its present life.
    pub fn is_active(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(NodeRow::is_active)
    }

    /// Whether the node is believed alive.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(|row| row.node.status == NodeStatus::Alive)
    }

    /// Whether the node registered, never said that it acts, and failed, without a copy on it: nothing is lost with it.
    pub fn is_stranger(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|row| {
            row.node.status == NodeStatus::Failed && row.activated.is_none() && self.partitions.count_on(node) == 0
        })
    }

    /// The present incarnation of a node.
    pub fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.node(node).map(|row| row.node.incarnation)
    }

    /// Nodes believed alive.
    pub fn nodes_alive(&self) -> usize {
        self.nodes.len() - self.nodes.down().count()
    }

    /// Checks that a message comes from a node's present life.
    ///
    /// # Errors
    /// `StaleIncarnation` when its row says that this life is over: the node is removed, failed, lost or registered anew since, and
    /// should register again. `Unavailable` (retryable) when its life is newer than this state.
    pub fn check_sender(&self, node: NodeId, incarnation: Incarnation) -> Result<&NodeRow, ErrorDetail> {
        let stale = |why: String| Err(ErrorDetail::new(ErrorKind::StaleIncarnation, why));
        let row = self.node(node);
        let known = row.map_or(Incarnation::ZERO, |row| row.node.incarnation);
        // One of an earlier generation, or of another one of this number, is none that this state is about to learn of.
        let coming = self.applied.saturating_add(1)..self.applied.saturating_add(AHEAD_MAX);
        if incarnation > known && coming.contains(&incarnation.get()) {
            let message = format!("incarnation {incarnation} of node {node} is not applied here yet; try again");
            return Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(50));
        }
        let Some(row) = row else {
            return stale(format!("node {node} is not registered here; register first"));
        };
        if incarnation != known {
            return stale(format!(
                "incarnation {incarnation} of {} was replaced by {known}; register again",
                row.node.name
            ));
        }
        if row.node.status != NodeStatus::Alive {
            return stale(format!("{} counts as {}; register again to come back", row.node.name, row.node.status));
        }
        Ok(row)
    }

    /// Changes the row of a node or a participant. Returns whether there is one. Whoever holds the row learns of it only if the
    /// change gave it this version.
    pub(crate) fn update_member(&mut self, id: NodeId, version: Version, change: impl FnOnce(&mut NodeRow)) -> bool {
        let (members, newest) = match self.participants.get(&id) {
            Some(_) => (&mut self.participants, &mut self.participants_version),
            None => (&mut self.nodes, &mut self.nodes_version),
        };
        let mut renewed = false;
        let changed = members.update(id, |row| {
            change(row);
            renewed = row.node.version == version;
        });
        if renewed {
            *newest = version;
        }
        changed
    }

    /// Forgets a node or a participant. Whoever holds its row learns so by the version.
    pub(crate) fn remove_node(&mut self, node: NodeId, version: Version) {
        if self.participants.remove(node).is_some() {
            (self.participants_version, self.participants_removed_version) = (version, version);
        }
        if self.nodes.remove(node).is_some() {
            (self.nodes_version, self.removed_version) = (version, version);
        }
    }

    pub(crate) fn record(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(crate) fn note(&mut self, at: Millis, index: u64, who: &crate::command::Actor, what: EventKind) {
        self.record(Event { at, index, who: who.clone(), what });
    }
}
