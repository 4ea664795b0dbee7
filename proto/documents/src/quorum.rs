//! The quorum of coordinators.

use crate::method::Document;
use archon_types::subject::Cause;
use archon_types::{CoordinatorRole, DoubtKind, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Raft quorum as one coordinator sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Quorum {
    /// The answering coordinator's number.
    #[serde(rename = "coordinator_id")]
    pub id: u64,
    /// Its role.
    pub role: Word<CoordinatorRole>,
    /// The leader's number, if it knows one.
    pub leader_id: Option<u64>,
    /// The leader's address, if it knows one.
    pub leader_address: Option<String>,
    /// Its term.
    pub term: u64,
    /// Its last log entry.
    pub last_log_index: u64,
    /// The last entry it applied.
    pub applied_index: u64,
    /// The members.
    pub coordinators: Vec<CoordinatorStatus>,
    /// Voters that may still fail before nothing can be decided; only a leader that has a majority knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_voters: Option<u32>,
    /// The change under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingQuorumChange>,
    /// Numbers of coordinators that were removed; they are not used again.
    pub retired_ids: Vec<u64>,
    /// The cluster's UUID; empty while it is not bootstrapped.
    pub cluster_id: String,
    /// Number of times the state was started from less than a majority, the first start included.
    pub generation: u64,
    /// Tells it from other generations of that number, as two recoveries begin them; none of the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation_key: Option<String>,
    /// The recovery under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<QuorumRecovery>,
    /// Reason why the leader, which answers, grants no lease: coordinators of another generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

impl Quorum {
    /// Returns the voting members, whether or not they answer.
    pub fn voters(&self) -> impl Iterator<Item = &CoordinatorStatus> {
        self.coordinators.iter().filter(|member| !member.learner)
    }
}

/// The coordinators' state was taken from less than a majority, and is not taken for true yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuorumRecovery {
    /// Unix time of its begin.
    pub began_at_ms: u64,
    /// The last entry of the log that the state holds.
    pub base_index: u64,
    /// Doubts that keep it from ending, the first hundred.
    pub doubts: Vec<RecoveryDoubt>,
    /// Number of doubts.
    pub doubts_total: u32,
}

/// A doubt that keeps a recovery from ending.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryDoubt {
    /// The kind of doubt.
    pub kind: Word<DoubtKind>,
    /// A node, a table or a partition.
    pub about: String,
    /// The doubt, in a sentence.
    pub text: String,
    /// True if an operator may accept the loss of acknowledged writes by it; a silent node is waited for.
    pub may_be_accepted: bool,
}

/// A change of the quorum that is under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PendingQuorumChange {
    /// The requested change, in a sentence.
    pub change: String,
    /// The next step, in a sentence; absent where only the leading coordinator knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Since when. Unix time.
    pub began_at_ms: u64,
    /// The operator.
    pub by: Cause,
}

/// One member of the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CoordinatorStatus {
    /// The coordinator's number.
    #[serde(rename = "coordinator_id")]
    pub id: u64,
    /// Its address.
    pub address: String,
    /// Its role in the quorum.
    pub role: Word<CoordinatorRole>,
    /// True if it has no vote: it only copies the log.
    pub learner: bool,
    /// Log entries behind the leader, if known.
    pub entries_behind: Option<u64>,
    /// The reason why it appends nothing to its log, in a sentence, if so.
    pub lack: Option<String>,
}

/// Asks for the quorum as the answering coordinator sees it, with or without a leader.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ShowQuorum {}

impl Document for ShowQuorum {}
