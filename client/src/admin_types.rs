//! Documents of the administration. Their JSON names are a contract with scripts, specified in `docs/JSON.md`.

use crate::order_types::BarSummary;
use crate::quorum_types::CoordinatorStatus;
use archon_proto::convert::subject::{cause_of, subject_of};
use archon_proto::convert::words::enum_word;
use archon_proto::v1;
use archon_types::subject::{Cause, NodeName, Subject};
use archon_types::text::into_plain;
use archon_types::{
    DoorState, EventCode, Holds, KeyRange, KeysBy, NodeGoal, NodeStatus, PartitionStatus, PartitionTable, ReasonCode,
    ReplicaState, TransportKind, Word,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cluster at a glance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The cluster's UUID; empty while it is not bootstrapped.
    pub cluster_id: String,
    /// The leading coordinator's number, if there is one.
    pub leader_id: Option<u64>,
    /// The Raft term.
    pub term: u64,
    /// The voters.
    pub coordinators: Vec<CoordinatorStatus>,
    /// How the leading coordinator talks to others.
    pub transport: Word<TransportKind>,
    /// The version of the newest row.
    pub table_version: u64,
    /// Nodes that heartbeat.
    pub nodes_alive: u32,
    /// Nodes that fell silent.
    pub nodes_failed: u32,
    /// Nodes that heartbeat, and that do not answer as clients ask.
    pub nodes_unreached: u32,
    /// Nodes that must be alive before the first assignment.
    pub nodes_min: u32,
    /// Partitions of all tables.
    pub partitions_total: u32,
    /// Those that are served.
    pub partitions_online: u32,
    /// Assigned partitions of which fewer copies count than are wanted.
    pub partitions_under_replicated: u32,
    /// Copies of partitions that are no more (dropped, merged, split in vain), not deleted yet.
    pub copies_condemned: u32,
    /// Moves under way.
    pub moves_running: u32,
    /// Splits and merges of partitions under way.
    pub reshapings_running: u32,
    /// Why something waits, most urgent first.
    pub reasons: Vec<Reason>,
}

/// Why something waits or is as it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// What kind of reason.
    pub code: Word<ReasonCode>,
    /// What it is about.
    pub subject: Subject,
    /// The reason, in a sentence.
    pub message: String,
    /// Since when, if known. Unix time.
    pub began_at_ms: Option<u64>,
    /// What would help, if anybody can do something.
    pub remedy: Option<String>,
}

/// One node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeSummary {
    /// The node's number.
    #[serde(rename = "node_id")]
    pub id: u64,
    /// The node's name.
    #[serde(rename = "node")]
    pub name: String,
    /// Its address.
    pub address: String,
    /// What the coordinators believe of it.
    pub status: Word<NodeStatus>,
    /// When its status last changed. Unix time.
    pub status_changed_at_ms: u64,
    /// What is wanted of it.
    pub goal: Word<NodeGoal>,
    /// Log index of its last registration.
    pub incarnation: u64,
    /// Copies it holds.
    pub copies_held: u32,
    /// Partitions it leads.
    pub partitions_led: u32,
    /// Its failure zone, if one was said.
    pub zone: Option<String>,
    /// Its share relative to other nodes; 100 is ordinary.
    pub weight: u32,
    /// Most copies it takes, if limited.
    pub partitions_max: Option<u32>,
    /// Bytes it stores, as it last said; null if the leading coordinator was not told.
    pub bytes_stored: Option<u64>,
    /// Keys it stores, about; null as `bytes_stored`.
    pub keys_stored: Option<u64>,
    /// Operations it answered in its last second; null as `bytes_stored`.
    pub operations_per_second: Option<u64>,
    /// Time since its last heartbeat, as the leading coordinator saw it; null if that heard none.
    pub silent_for_ms: Option<u64>,
    /// The node that relayed its last heartbeat; null if it came straight.
    pub via: Option<String>,
    /// Whether it answers as clients ask; null if nobody knocks at its door.
    pub door: Option<Door>,
    /// It takes no writes, for its disk is full.
    pub disk_full: bool,
    /// It is failed since it said itself that it has stopped.
    pub stopped: bool,
    /// How often it heartbeats, and what follows from its silence; null if the coordinator did not say.
    pub timing: Option<MemberTiming>,
    /// The tables whose leases it takes, if it is a participant; a node of the key-value store serves none.
    pub serves: Vec<String>,
    /// When its maintenance ends by itself, if it is in one. Unix time.
    pub maintenance_ends_at_ms: Option<u64>,
    /// From what it is barred.
    pub bars: Vec<BarSummary>,
}

/// Whether a node answers as clients ask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Door {
    /// How its door is.
    pub state: Word<DoorState>,
    /// For how long, if it is not just open.
    pub state_for_ms: Option<u64>,
    /// The nodes that find it shut.
    pub shut_to: Vec<String>,
}

impl From<v1::Door> for Door {
    fn from(wire: v1::Door) -> Self {
        let v1::Door { state, for_ms, by } = wire;
        let shut_to = by.into_iter().map(|keeper| NodeName::from(keeper).node).collect();
        Self { state: Word::read(&state), state_for_ms: for_ms, shut_to }
    }
}

/// How often a member heartbeats, and what follows from its silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemberTiming {
    /// Time between two heartbeats.
    pub heartbeat_for_ms: u64,
    /// So long it may serve after a heartbeat that was answered.
    pub lease_for_ms: u64,
    /// After so much silence it is failed, and others take over.
    pub failure_timeout_for_ms: u64,
}

impl From<v1::LeaseTiming> for MemberTiming {
    fn from(wire: v1::LeaseTiming) -> Self {
        Self {
            heartbeat_for_ms: wire.heartbeat_ms,
            lease_for_ms: wire.lease_ms,
            failure_timeout_for_ms: wire.failure_timeout_ms,
        }
    }
}

impl NodeSummary {
    /// Returns whether it is a participant, which owns leases for another service and holds no data.
    pub fn is_participant(&self) -> bool {
        !self.serves.is_empty()
    }
}

/// One table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableSummary {
    /// The table's number.
    #[serde(rename = "table_id")]
    pub id: u64,
    /// The table's name.
    #[serde(rename = "table")]
    pub name: String,
    /// Number of its partitions.
    pub partitions_total: u32,
    /// By what its keys are shared among them.
    pub keys: Word<KeysBy>,
    /// Bytes of keys and values above which a partition is split by itself; none: never.
    pub split_above_bytes: Option<u64>,
    /// Operations per second above which a partition is split by itself; none: never.
    pub split_above_rate: Option<u64>,
    /// Bytes up to which two neighbours are merged by themselves if they have them together; none: never.
    pub merge_below_bytes: Option<u64>,
    /// Copies wanted of each.
    pub replication: u32,
    /// What they are.
    pub holds: Word<Holds>,
    /// Log index of its last change.
    pub version: u64,
}

/// One partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionSummary {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    #[serde(rename = "partition")]
    pub id: u32,
    /// Generation of its leadership.
    pub epoch: u64,
    /// Log index of its row's last change.
    pub version: u64,
    /// In a table by ranges, the keys that it has.
    pub range: Option<RangeSummary>,
    /// Where it stands.
    pub status: Word<PartitionStatus>,
    /// The leading node's number, if one leads.
    pub leader_id: Option<u64>,
    /// The leading node's name, if one leads.
    pub leader: Option<String>,
    /// The number of the partition that is being split off it, if it is being split.
    pub splits_into: Option<u32>,
    /// The number of the neighbour with which it is being merged, if it is.
    pub merges_with: Option<u32>,
    /// Its copies.
    pub copies: Vec<CopySummary>,
}

/// A range of keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RangeSummary {
    /// The least key in it; empty: from the first one on.
    pub begin: String,
    /// The least key beyond it, if it does not go up to the last one.
    pub end: Option<String>,
}

impl From<&KeyRange> for RangeSummary {
    fn from(range: &KeyRange) -> Self {
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        Self { begin: text(&range.begin), end: range.end.as_ref().map(|end| text(end)) }
    }
}

/// One copy of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CopySummary {
    /// The copy's number.
    pub placement_id: u64,
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
    /// What the coordinators believe of the node.
    pub node_status: Word<NodeStatus>,
    /// What it is to its partition.
    pub state: Word<ReplicaState>,
}

/// Where a key lives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Located {
    /// The key.
    pub key: String,
    /// Its slot, `0..16384`, where keys are hashed.
    pub slot: Option<u16>,
    /// Its partition.
    #[serde(flatten)]
    pub partition: PartitionSummary,
    /// The leading node's address, if one leads.
    pub leader_address: Option<String>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its log index.
    pub index: u64,
    /// When. Unix time.
    pub at_ms: u64,
    /// What.
    pub code: Word<EventCode>,
    /// Who caused it.
    pub by: Cause,
    /// What it is about.
    pub subject: Subject,
    /// What happened, in a sentence.
    pub message: String,
}

impl From<v1::Reason> for Reason {
    fn from(wire: v1::Reason) -> Self {
        Self {
            code: Word::read(&wire.code),
            subject: subject_of(wire.subject),
            message: into_plain(wire.message),
            began_at_ms: wire.began_at_ms,
            remedy: wire.remedy.map(into_plain),
        }
    }
}

impl From<v1::TableInfo> for TableSummary {
    fn from(wire: v1::TableInfo) -> Self {
        Self {
            id: wire.id,
            name: wire.name,
            partitions_total: wire.partitions,
            keys: match wire.keys {
                Some(v1::table_info::Keys::RangeNext(_)) => Word::Known(KeysBy::Range),
                _ => Word::Known(KeysBy::Hash),
            },
            split_above_bytes: wire.limits.and_then(|limits| limits.split_above_bytes),
            split_above_rate: wire.limits.and_then(|limits| limits.split_above_rate),
            merge_below_bytes: wire.limits.and_then(|limits| limits.merge_below_bytes),
            replication: wire.replication,
            holds: enum_word::<v1::TableHolds, Holds>(wire.holds),
            version: wire.version,
        }
    }
}

impl From<v1::Event> for Event {
    fn from(wire: v1::Event) -> Self {
        Self {
            index: wire.index,
            at_ms: wire.at_ms,
            code: Word::read(&wire.code),
            by: cause_of(wire.by),
            subject: subject_of(wire.subject),
            message: into_plain(wire.message),
        }
    }
}

/// Returns the summary of a partition's row with names; nodes missing in the table are shown by number.
pub(crate) fn partition_summary(table: &PartitionTable, row: &archon_types::Partition) -> PartitionSummary {
    let name = |id| table.node(id).map_or_else(|| format!("node-{id}"), |node| node.name.clone());
    let leader = row.leader_placement().map(|placement| placement.node);
    let copies = row.placements.iter().map(|placement| CopySummary {
        placement_id: placement.id.get(),
        node_id: placement.node.get(),
        node: name(placement.node),
        // The data of a forgotten node is unknown.
        node_status: table.node(placement.node).map_or(NodeStatus::Lost, |node| node.status).into(),
        state: placement.state.into(),
    });
    PartitionSummary {
        table_id: row.id.table.get(),
        table: table.table().name.clone(),
        id: row.id.index,
        epoch: row.epoch.get(),
        version: row.version.get(),
        range: table.table().keys.is_range().then(|| (&row.range).into()),
        splits_into: row.split.as_ref().map(|split| split.right),
        merges_with: row.absorbs().or_else(|| row.yields()).map(|(_, neighbour)| neighbour.index),
        status: row.status.into(),
        leader_id: leader.map(archon_types::NodeId::get),
        leader: leader.map(name),
        copies: copies.collect(),
    }
}
