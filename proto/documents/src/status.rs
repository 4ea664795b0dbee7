//! The state of the cluster at a glance, reasons and events.

use crate::findings::Reason;
use crate::method::{Document, invalid};
use crate::quorum::CoordinatorStatus;
use archon_types::subject::{Cause, Subject};
use archon_types::{ErrorDetail, EventCode, OpenEnum, Severity, TransportKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Most events or reasons in an answer.
pub const LIST_MAX: u32 = 10_000;

/// Overview of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// UUID of the cluster; empty until the cluster is bootstrapped.
    pub cluster_id: String,
    /// Number of the leading coordinator, if there is one.
    pub leader_id: Option<u64>,
    /// The Raft term.
    pub term: u64,
    /// The voters.
    pub coordinators: Vec<CoordinatorStatus>,
    /// Transport of the leading coordinator.
    pub transport: OpenEnum<TransportKind>,
    /// Version of the newest row of the tables.
    pub table_version: u64,
    /// Number of nodes that send heartbeats.
    pub nodes_alive: u32,
    /// Number of nodes that stopped sending heartbeats.
    pub nodes_failed: u32,
    /// Number of nodes that send heartbeats and that clients cannot reach.
    pub nodes_unreached: u32,
    /// Number of live nodes required before the first assignment.
    pub nodes_min: u32,
    /// Number of partitions of all tables.
    pub partitions_total: u32,
    /// Number of partitions with a serving leader or owner.
    pub partitions_online: u32,
    /// Number of assigned partitions with fewer in-sync replicas than required.
    pub partitions_under_replicated: u32,
    /// Number of replicas of deleted partitions (dropped, merged, abandoned splits) that are not deleted yet.
    pub copies_condemned: u32,
    /// Number of running moves.
    pub moves_running: u32,
    /// Number of running splits and merges.
    pub reshapings_running: u32,
    /// Reasons for waits, most urgent first.
    pub reasons: Vec<Reason>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Log index of the event.
    pub index: u64,
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// The kind of event.
    pub code: OpenEnum<EventCode>,
    /// Severity of the code.
    #[serde(default = "severity_of_older_versions")]
    pub severity: OpenEnum<Severity>,
    /// The cause.
    pub by: Cause,
    /// The object.
    pub subject: Subject,
    /// Facts of the code, as listed there.
    #[serde(default)]
    pub facts: BTreeMap<String, Value>,
    /// The event, in a sentence that follows the name of the object.
    pub message: String,
}

/// Returns the severity of an event from a coordinator that names none.
fn severity_of_older_versions() -> OpenEnum<Severity> {
    Severity::Notice.into()
}

/// Returns an overview of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ShowStatus {}

/// Lists the reasons for the states of partitions and nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Explain {
    /// Maximum number of reasons, up to 10,000; absent or 0: 100.
    #[serde(default)]
    pub most: u32,
}

/// Reasons, most urgent first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReasonList {
    /// The reasons.
    pub reasons: Vec<Reason>,
}

/// Lists the newest events.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListEvents {
    /// Maximum number of events, up to 10,000; absent or 0: 100.
    #[serde(default)]
    pub most: u32,
}

/// Events, newest last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventList {
    /// The events.
    pub events: Vec<Event>,
}

impl Document for ShowStatus {}

impl Document for Explain {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_most("Explain.most", self.most)
    }
}

impl Document for ListEvents {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_most("ListEvents.most", self.most)
    }
}

fn check_most(field: &str, most: u32) -> Result<(), ErrorDetail> {
    if most > LIST_MAX { Err(invalid(field, format!("{most}; the limit is {LIST_MAX}"))) } else { Ok(()) }
}
