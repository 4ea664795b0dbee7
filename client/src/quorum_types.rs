//! Documents about the quorum. Their JSON names are a contract, as in `admin_types`.

use archon_proto::convert::subject::cause_of;
use archon_proto::v1;
use archon_types::subject::Cause;
use archon_types::text::into_plain;
use archon_types::{CoordinatorRole, DoubtKind, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Raft quorum as one coordinator sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Quorum {
    /// Who answers.
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
    /// How often the state began anew from less than a majority, the first time included.
    pub generation: u64,
    /// Tells it from other generations of that number, as two recoveries begin them; none of the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation_key: Option<String>,
    /// What is known of the recovery under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<QuorumRecovery>,
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
    /// When it began. Unix time.
    pub began_at_ms: u64,
    /// The last entry of the log that the state holds.
    pub base_index: u64,
    /// What keeps it from ending, the first hundred.
    pub doubts: Vec<RecoveryDoubt>,
    /// How many there are.
    pub doubts_total: u32,
}

/// What keeps a recovery from ending.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryDoubt {
    /// Of which kind.
    pub kind: Word<DoubtKind>,
    /// A node, a table or a partition.
    pub about: String,
    /// What is not known, in a sentence.
    pub text: String,
    /// Whether an operator may accept that acknowledged writes are lost by it; a node that is not heard is waited for.
    pub may_be_accepted: bool,
}

impl From<v1::QuorumRecovery> for QuorumRecovery {
    fn from(wire: v1::QuorumRecovery) -> Self {
        let doubt = |wire: v1::RecoveryDoubt| RecoveryDoubt {
            kind: Word::read(&wire.kind),
            about: into_plain(wire.subject),
            text: into_plain(wire.text),
            may_be_accepted: wire.may_be_accepted,
        };
        Self {
            began_at_ms: wire.began_at_ms,
            base_index: wire.base,
            doubts: wire.doubts.into_iter().map(doubt).collect(),
            doubts_total: wire.doubts_total,
        }
    }
}

/// A change of the quorum that is under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PendingQuorumChange {
    /// What is wanted, in a sentence.
    pub change: String,
    /// What happens next, in a sentence; absent where only the leading coordinator knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Since when. Unix time.
    pub began_at_ms: u64,
    /// Who asked for it.
    pub by: Cause,
}

impl From<v1::PendingQuorumChange> for PendingQuorumChange {
    fn from(wire: v1::PendingQuorumChange) -> Self {
        Self {
            change: into_plain(wire.change),
            next: Some(into_plain(wire.next)).filter(|what| !what.is_empty()),
            began_at_ms: wire.began_at_ms,
            by: cause_of(wire.by),
        }
    }
}

/// One member of the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CoordinatorStatus {
    /// The coordinator's number.
    #[serde(rename = "coordinator_id")]
    pub id: u64,
    /// Its address.
    pub address: String,
    /// What it is to the quorum.
    pub role: Word<CoordinatorRole>,
    /// Whether its vote does not count: it only copies the log.
    pub learner: bool,
    /// Log entries behind the leader, if known.
    pub entries_behind: Option<u64>,
    /// Why it takes nothing new into its log, in a sentence, if so.
    pub lack: Option<String>,
}

impl From<v1::CoordinatorStatus> for CoordinatorStatus {
    fn from(wire: v1::CoordinatorStatus) -> Self {
        let v1::CoordinatorStatus { id, address, role, entries_behind, lack, learner } = wire;
        Self { id, address, role: Word::read(&role), learner, entries_behind, lack: lack.map(into_plain) }
    }
}
