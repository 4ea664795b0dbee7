//! The replicated state that the Raft log builds and a snapshot holds.

pub(crate) mod actor;
pub(crate) mod controls;
pub(crate) mod coordinators;
pub(crate) mod events;
pub(crate) mod former_leaders;
pub(crate) mod image;
pub(crate) mod members;
pub(crate) mod migration;
pub(crate) mod migrations;
pub(crate) mod names;
pub(crate) mod node_row;
pub(crate) mod nodes;
pub(crate) mod out_of_sync_copy;
pub(crate) mod partitions;
pub(crate) mod protocols;
pub(crate) mod recovery;
pub(crate) mod response;
pub(crate) mod tally;
pub(crate) mod tombstones;

use crate::mutant::Mutant;
use crate::state::controls::Controls;
use crate::state::coordinators::Coordinators;
use crate::state::events::{Event, EventKind};
use crate::state::former_leaders::FormerLeaders;
use crate::state::migration::Migration;
use crate::state::migrations::Migrations;
use crate::state::nodes::Nodes;
use crate::state::out_of_sync_copy::OutOfSyncCopy;
use crate::state::partitions::Partitions;
use crate::state::protocols::WRITTEN_BOUNDS_SINCE;
use crate::state::recovery::Recovery;
use crate::state::response::Response;
use crate::state::tombstones::Tombstones;
use archon_types::limits::SPLIT_KEYS_BYTES_MAX;
pub(crate) use archon_types::limits::{CONDEMNED_MAX, PARTITIONS_MAX};
use archon_types::{
    Access, ClusterId, Epoch, ErrorDetail, ErrorKind, GenerationKey, Millis, NodeId, Partition, PartitionId,
    PlacementId, RangeLimits, RequestId, Settings, Table, TableContent, TableId, TableList, Version,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Maximum number of events; older ones are dropped.
pub(crate) const EVENTS_MAX: usize = 4_096;
/// Maximum number of first answers kept for repeated requests.
pub(crate) const ANSWERS_MAX: usize = 1_024;
/// Time for which a first answer is kept, in milliseconds of the proposers' wall clocks.
pub(crate) const ANSWER_AGE_MS: u64 = 600_000;
/// Maximum number of nodes, including lost ones.
pub const NODES_MAX: usize = 20_000;
/// Maximum number of participants, including those that are gone and not yet forgotten.
pub(crate) const PARTICIPANTS_MAX: usize = 20_000;
/// Maximum number of strangers remembered ([`ClusterState::is_stranger`]); the newest ones stay. Far more than nodes
/// that are set up at once, and far fewer than [`NODES_MAX`], so that registering and leaving cannot keep new nodes
/// out.
pub const STRANGERS_MAX: usize = 1_000;
/// Time for which a stranger is remembered, in milliseconds: longer than an operator looks for a failing new node.
/// Participants that are gone are kept as long, unless an order names them.
pub const STRANGER_AGE_MS: u64 = 3_600_000;
/// Number of finished migrations kept for display.
pub(crate) const MIGRATIONS_KEPT: usize = 4_096;

/// The first answer to a request, kept for its repetition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptAnswer {
    /// The request.
    pub request: RequestId,
    /// The proposer's time.
    pub at: Millis,
    /// The responses.
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
    /// Rights of clients to tables.
    #[serde(default)]
    pub access: Arc<Access>,
    /// Log index of the last change of it.
    #[serde(default)]
    pub access_version: Version,
    /// The protocol that the cluster speaks, zero before there is one; a member that does not speak it is refused.
    #[serde(rename = "feature_level")]
    pub protocol: u32,
    /// True if an operator holds the protocol, so that members can go back to the previous version. Not written while
    /// false: the first protocol does not know it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protocol_held: bool,
    /// Number of generations: recoveries from less than a majority, plus one (`quorum::recovery`).
    #[serde(default = "first_generation")]
    pub generation: u64,
    /// The keys of the generations that this state continues, including its own. Those without one are left out, so
    /// nothing is written while all are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub generation_keys: BTreeMap<u64, GenerationKey>,
    /// Reports received so far, while a recovery is in progress.
    #[serde(default)]
    pub recovery: Option<Box<Recovery>>,
    /// The coordinators of the generations before this one, once its recovery has settled, each with its address: this
    /// generation greets them, so that they end when they come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_coordinators: Vec<(u64, String)>,
    /// The members of the quorum.
    #[serde(default)]
    pub coordinators: Coordinators,
    /// Every node, including lost ones, in order of registration.
    pub nodes: Nodes,
    /// Every participant: a member that owns partitions of lease tables for another service, in order of registration.
    /// Nodes and participants share one series of numbers.
    #[serde(default)]
    pub participants: Nodes,
    /// Every table.
    pub tables: BTreeMap<TableId, Table>,
    /// Every partition.
    pub partitions: Partitions,
    /// Copies that left sync: the version at which they did, and the data they may still hold. Of the whole ones the
    /// last that left has most of the data.
    pub departed: BTreeMap<PlacementId, OutOfSyncCopy>,
    /// Partitions that were assigned and have not been Online since: their copies need not exist yet.
    pub untouched: BTreeSet<PartitionId>,
    /// Partitions of which a copy knew this epoch without a grant, until they serve above it.
    pub surpassed: BTreeMap<PartitionId, Epoch>,
    /// Ended leaderships whose holders may not know it yet.
    pub former_leaders: FormerLeaders,
    /// Condemned copies of dropped and merged partitions and abandoned splits, until their nodes report their deletion.
    #[serde(default)]
    pub condemned: Tombstones,
    /// Standing orders of operators about partitions and members.
    #[serde(default)]
    pub controls: Controls,
    /// Present and past moves.
    pub migrations: Migrations,
    /// First answers, oldest first.
    pub answers: VecDeque<KeptAnswer>,
    /// Events, oldest first.
    pub events: VecDeque<Event>,
    /// The last assigned node number.
    pub node_last: NodeId,
    /// The last assigned table number.
    pub table_last: TableId,
    /// The last assigned placement number; numbers may be skipped, never reused.
    pub placement_last: PlacementId,
    /// The last assigned migration number.
    pub migration_last: u64,
    /// Version of the newest node row.
    pub nodes_version: Version,
    /// Version of the newest participant's row.
    #[serde(default)]
    pub participants_version: Version,
    /// Log index of the last removal of a node: its row is gone, and only this records the removal.
    #[serde(default)]
    pub removed_version: Version,
    /// The same for participants.
    #[serde(default)]
    pub participants_removed_version: Version,
    /// Log index of the last drop of a table: its rows, with lower versions, are gone.
    #[serde(default)]
    pub dropped_version: Version,
    /// Log index of the last activation, which other members need not learn.
    #[serde(default)]
    pub activated_version: Version,
    /// Log index of the last change of a migration's record.
    #[serde(default)]
    pub moves_version: Version,
    /// Log index of the last order of an operator.
    #[serde(default)]
    pub controls_version: Version,
    /// Index of the last applied log entry.
    pub applied: u64,
    /// The rule that a test disables.
    #[cfg(any(test, feature = "mutants"))]
    #[serde(skip)]
    pub mutant: Option<Mutant>,
}

const fn first_generation() -> u64 {
    1
}

impl Default for ClusterState {
    fn default() -> Self {
        Self::new()
    }
}

impl ClusterState {
    /// Returns the state before the first log entry: nothing is bootstrapped.
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
            former_coordinators: Vec::new(),
            coordinators: Coordinators::default(),
            nodes: Nodes::default(),
            participants: Nodes::default(),
            tables: BTreeMap::new(),
            partitions: Partitions::default(),
            departed: BTreeMap::new(),
            untouched: BTreeSet::new(),
            surpassed: BTreeMap::new(),
            former_leaders: FormerLeaders::default(),
            condemned: Tombstones::default(),
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

    /// Returns true if a test disables this rule.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn breaks(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    #[cfg(not(any(test, feature = "mutants")))]
    #[allow(clippy::unused_self)]
    pub(crate) const fn breaks(&self, _: Mutant) -> bool {
        false
    }

    /// Returns the key of a generation that this state continues, or of its own; nil if that has none, or is later.
    pub fn generation_key(&self, generation: u64) -> GenerationKey {
        self.generation_keys.get(&generation).copied().unwrap_or(GenerationKey::NIL)
    }

    /// Returns the number from which its generation counts.
    pub fn begins_at(&self) -> u64 {
        archon_types::begins_at(self.generation, self.generation_key(self.generation))
    }

    /// Returns the coordinators of the generations before this one, each with its address.
    pub fn former(&self) -> &[(u64, String)] {
        self.recovery.as_ref().map_or(&self.former_coordinators, |recovery| &recovery.former)
    }

    /// Returns true while this generation waits for those before it and does nothing ([`Recovery::has_taken_over`]).
    pub fn stands_by(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| !recovery.has_taken_over())
    }

    /// Returns true if the cluster has been bootstrapped.
    pub fn is_bootstrapped(&self) -> bool {
        !self.cluster.is_nil()
    }

    /// Returns the version of the newest row of all tables that hold data and of all nodes, including removed ones: the
    /// version for which a plan is valid.
    pub fn table_version(&self) -> Version {
        let newest = self.data_tables().map(|table| self.version_of(table.id)).max().unwrap_or(self.nodes_version);
        newest.max(self.dropped_version)
    }

    /// Returns the tables with copies on nodes.
    pub fn data_tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values().filter(|table| table.holds == TableContent::Data)
    }

    /// Returns the partitions that have copies on nodes.
    pub fn data_rows(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(|row| !self.is_lease(row.id.table))
    }

    /// Returns the tables of leases.
    pub fn lease_tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values().filter(|table| table.holds == TableContent::Lease)
    }

    /// Returns true if the partitions of this table are leases.
    pub fn is_lease(&self, table: TableId) -> bool {
        self.tables.get(&table).is_some_and(|table| table.holds == TableContent::Lease)
    }

    /// Returns true if the table is by ranges.
    pub fn is_range(&self, table: TableId) -> bool {
        self.tables.get(&table).is_some_and(|table| table.keys.is_range())
    }

    /// Returns the limits of automatic splits and merges of a table; none for a table with hashed keys.
    pub(crate) fn range_limits(&self, table: TableId) -> RangeLimits {
        self.tables.get(&table).map(|table| table.keys.limits()).unwrap_or_default()
    }

    /// Returns the existing tables.
    pub fn table_list(&self) -> TableList {
        let tables = self.tables.keys().copied().collect();
        TableList { version: self.dropped_version, last: self.table_last, tables }
    }

    /// Returns the version of one table's newest row, including its members.
    pub fn version_of(&self, table: TableId) -> Version {
        let members = if self.is_lease(table) { self.participants_version } else { self.nodes_version };
        self.rows_version_of(table).max(members)
    }

    /// Returns the version of one table's newest row, without members.
    pub fn rows_version_of(&self, table: TableId) -> Version {
        let own = self.tables.get(&table).map_or(Version::ZERO, |row| row.version);
        own.max(self.partitions.newest(table))
    }

    /// Checks that split keys of `more` bytes may be added, beside those of splits in progress.
    ///
    /// # Errors
    /// `Refused`, with the bound.
    pub(crate) fn check_split_keys(&self, more: usize) -> Result<(), ErrorDetail> {
        let splits = self.partitions.splitting().filter_map(|row| row.split.as_ref());
        let bytes = self.partitions.split_keys_bytes() + splits.map(|split| split.at.len()).sum::<usize>() + more;
        if more == 0 || self.protocol < WRITTEN_BOUNDS_SINCE || bytes <= SPLIT_KEYS_BYTES_MAX {
            return Ok(());
        }
        let message = format!(
            "the split keys of all tables would have {bytes} bytes; the limit is {SPLIT_KEYS_BYTES_MAX}; choose \
             shorter \
             split keys, or merge partitions"
        );
        Err(ErrorDetail::new(ErrorKind::Refused, message))
    }

    /// Returns the table with this name.
    pub fn table_by_name(&self, name: &str) -> Option<&Table> {
        self.tables.values().find(|table| table.name == name)
    }

    /// Returns a partition's row.
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(id)
    }

    /// Returns the running migration of a copy of this partition.
    pub fn running_migration(&self, partition: PartitionId) -> Option<&Migration> {
        self.migrations.running(partition)
    }

    pub(crate) fn record(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(crate) fn note(&mut self, at: Millis, index: u64, who: &crate::state::actor::Actor, what: EventKind) {
        self.record(Event { at, index, who: who.clone(), what });
    }
}
