//! What administration shows. The field names are a contract with scripts (JSON output): fields are only ever added.

use archon_proto::v1;
use archon_types::text::into_plain;
use archon_types::{NodeGoal, NodeStatus, PartitionTable};
use serde::{Deserialize, Serialize};

/// The cluster at a glance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The cluster's UUID; empty while it is not bootstrapped.
    pub cluster_id: String,
    /// The leading coordinator's id, if there is one.
    pub leader: Option<u64>,
    /// The Raft term.
    pub term: u64,
    /// The voters.
    pub coordinators: Vec<CoordinatorStatus>,
    /// The version of the newest row.
    pub table_version: u64,
    /// Nodes that heartbeat.
    pub nodes_live: u32,
    /// Nodes that fell silent.
    pub nodes_failed: u32,
    /// Partitions of all tables.
    pub partitions: u32,
    /// Those that are served.
    pub partitions_online: u32,
    /// Assigned partitions of which fewer copies count than are wanted.
    #[serde(default)]
    pub partitions_under_replicated: u32,
    /// Copies of dropped tables that are not deleted yet.
    #[serde(default)]
    pub copies_condemned: u32,
    /// Moves under way.
    pub migrations_running: u32,
    /// Nodes that must be live before the first assignment.
    pub nodes_min: u32,
    /// Why something waits, most urgent first.
    pub reasons: Vec<Reason>,
}

/// One voter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CoordinatorStatus {
    /// Its id.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// `leader`, `follower`, `candidate` or `unreachable`.
    pub role: String,
    /// Log entries behind the leader, if known.
    pub entries_behind: Option<u64>,
    /// Why it takes nothing new into its log, if so.
    #[serde(default)]
    pub lack: Option<String>,
}

/// Why something waits or is as it is: data, not prose.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// What kind of reason.
    pub code: String,
    /// What it is about.
    pub subject: String,
    /// The reason, for people.
    pub message: String,
    /// Since when, Unix time in milliseconds; zero if unknown.
    pub since_ms: u64,
    /// What would help.
    pub remedy: String,
}

/// One node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeSummary {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// `Live`, `Failed` or `Lost`.
    pub status: String,
    /// Log index of its last registration.
    pub incarnation: u64,
    /// Copies it holds.
    pub partitions: u32,
    /// Partitions it leads.
    pub leaders: u32,
    /// Its failure zone, if one was said.
    pub zone: Option<String>,
    /// `Serve`, `Cordon` or `Drain`.
    pub goal: String,
    /// Its share relative to other nodes; 100 is ordinary.
    pub weight: u32,
    /// Most copies it takes, if limited.
    pub partitions_max: Option<u32>,
    /// Bytes it stores, as it last said; absent if the leading coordinator was not told.
    pub bytes_stored: Option<u64>,
    /// Keys it stores, about; absent as `bytes_stored`.
    pub keys: Option<u64>,
    /// Operations it answered in its last second; absent as `bytes_stored`.
    pub operations_per_second: Option<u64>,
    /// Milliseconds since its last heartbeat, as the leading coordinator saw it; absent if it heard none.
    pub silent_ms: Option<u64>,
    /// It takes no writes, for want of room on its disk.
    pub disk_full: bool,
    /// When its status last changed, Unix time in milliseconds.
    pub since_ms: u64,
}

/// One table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableSummary {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Number of partitions.
    pub partitions: u32,
    /// Copies wanted of each.
    pub replication: u32,
    /// Log index of its last change.
    pub version: u64,
}

/// One partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionSummary {
    /// The table's name.
    pub table: String,
    /// Its number.
    pub id: u16,
    /// Generation of its leadership.
    pub epoch: u64,
    /// Log index of its row's last change.
    pub version: u64,
    /// `Unassigned`, `Assigned`, `Online` or `Unavailable`.
    pub status: String,
    /// The leading node's name, if one leads.
    pub leader: Option<String>,
    /// Its copies.
    pub replicas: Vec<ReplicaSummary>,
}

/// One copy of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaSummary {
    /// The node's name.
    pub node: String,
    /// The placement's number.
    pub placement: u64,
    /// `Load`, `Live` or `Unload`.
    pub state: String,
}

/// Where a key lives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Located {
    /// The key.
    pub key: String,
    /// Its slot, `0..16384`.
    pub slot: u16,
    /// Its partition.
    pub partition: PartitionSummary,
    /// The leading node's address, if one leads.
    pub leader_address: Option<String>,
}

/// The Raft quorum as one coordinator sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Quorum {
    /// Who answers.
    pub id: u64,
    /// Its role.
    pub role: String,
    /// The leader's id, if it knows one.
    pub leader: Option<u64>,
    /// The leader's address, if it knows one.
    pub leader_address: Option<String>,
    /// Its term.
    pub term: u64,
    /// Its last log entry.
    pub last_log_index: u64,
    /// The last entry it applied.
    pub applied_index: u64,
    /// The voters.
    pub voters: Vec<CoordinatorStatus>,
    /// The cluster's UUID; empty while it is not bootstrapped.
    pub cluster_id: String,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Its log index.
    pub index: u64,
    /// When, Unix time in milliseconds.
    pub at_ms: u64,
    /// Who did it.
    pub who: String,
    /// What.
    pub what: String,
    /// To what.
    pub subject: String,
}

pub(crate) fn node_status(status: i32) -> String {
    let known = v1::NodeStatus::try_from(status).ok().and_then(|wire| NodeStatus::try_from(wire).ok());
    known.map_or_else(|| format!("Unknown({status})"), |status| status.to_string())
}

pub(crate) fn node_goal(goal: i32) -> String {
    let known = v1::NodeGoal::try_from(goal).ok().and_then(|wire| NodeGoal::try_from(wire).ok());
    known.map_or_else(|| format!("Unknown({goal})"), |goal| format!("{goal:?}"))
}

impl From<v1::CoordinatorStatus> for CoordinatorStatus {
    fn from(wire: v1::CoordinatorStatus) -> Self {
        let v1::CoordinatorStatus { id, address, role, entries_behind, lack } = wire;
        Self { id, address, role, entries_behind, lack }
    }
}

impl From<v1::Reason> for Reason {
    fn from(wire: v1::Reason) -> Self {
        Self {
            code: wire.code,
            subject: into_plain(wire.subject),
            message: into_plain(wire.message),
            since_ms: wire.since_ms,
            remedy: into_plain(wire.remedy),
        }
    }
}

impl From<v1::TableInfo> for TableSummary {
    fn from(wire: v1::TableInfo) -> Self {
        Self {
            id: wire.id,
            name: wire.name,
            partitions: wire.partitions,
            replication: wire.replication,
            version: wire.version,
        }
    }
}

impl From<v1::Event> for Event {
    fn from(wire: v1::Event) -> Self {
        let (who, what, subject) = (into_plain(wire.who), into_plain(wire.what), into_plain(wire.subject));
        Self { index: wire.index, at_ms: wire.at_ms, who, what, subject }
    }
}

/// A partition's row with names instead of numbers; a node that the table does not name is shown by its number.
pub(crate) fn partition_summary(table: &PartitionTable, row: &archon_types::Partition) -> PartitionSummary {
    let name = |id| table.node(id).map_or_else(|| format!("node-{id}"), |node| node.name.clone());
    PartitionSummary {
        table: table.table().name.clone(),
        id: row.id.index,
        epoch: row.epoch.get(),
        version: row.version.get(),
        status: row.status.to_string(),
        leader: row.leader_placement().map(|placement| name(placement.node)),
        replicas: row
            .placements
            .iter()
            .map(|placement| ReplicaSummary {
                node: name(placement.node),
                placement: placement.id.get(),
                state: placement.state.to_string(),
            })
            .collect(),
    }
}
