//! The state of the cluster at a glance, reasons and events.

use crate::method::{Document, invalid};
use crate::quorum::CoordinatorStatus;
use archon_types::subject::{Cause, Subject};
use archon_types::{ErrorDetail, EventCode, ReasonCode, TransportKind, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most events or reasons in an answer.
pub const LIST_MAX: u32 = 10_000;

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
    /// The transport of the leading coordinator.
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
    /// Partitions that are served.
    pub partitions_online: u32,
    /// Assigned partitions of which fewer copies count than are wanted.
    pub partitions_under_replicated: u32,
    /// Copies of deleted partitions (dropped, merged, abandoned splits) that are still to be deleted.
    pub copies_condemned: u32,
    /// Moves under way.
    pub moves_running: u32,
    /// Splits and merges of partitions under way.
    pub reshapings_running: u32,
    /// Reasons why something waits, most urgent first.
    pub reasons: Vec<Reason>,
}

/// A reason why something waits or is as it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// The kind of reason.
    pub code: Word<ReasonCode>,
    /// The object.
    pub subject: Subject,
    /// The reason, in a sentence.
    pub message: String,
    /// Since when, if known. Unix time.
    pub began_at_ms: Option<u64>,
    /// The remedy, if there is one.
    pub remedy: Option<String>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its log index.
    pub index: u64,
    /// Unix time.
    pub at_ms: u64,
    /// The kind of event.
    pub code: Word<EventCode>,
    /// The cause.
    pub by: Cause,
    /// The object.
    pub subject: Subject,
    /// The event, in a sentence.
    pub message: String,
}

/// Asks for the state of the cluster at a glance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ShowStatus {}

/// Asks for reasons why partitions and nodes are as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Explain {
    /// Most reasons, up to 10,000; absent or 0: 100.
    #[serde(default)]
    pub most: u32,
}

/// Reasons, most urgent first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReasonList {
    /// The reasons.
    pub reasons: Vec<Reason>,
}

/// Asks for the newest events.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListEvents {
    /// Most events, up to 10,000; absent or 0: 100.
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
