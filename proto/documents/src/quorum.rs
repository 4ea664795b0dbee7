//! The quorum of coordinators.

use crate::method::{Document, invalid};
use archon_types::limits::check_address;
use archon_types::subject::Cause;
use archon_types::{CoordinatorRole, DoubtKind, ErrorDetail, OpenEnum, QuorumChange};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of the Raft quorum, as seen by one coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Quorum {
    /// The answering coordinator's number.
    #[serde(rename = "coordinator_id")]
    pub id: u64,
    /// Its role.
    pub role: OpenEnum<CoordinatorRole>,
    /// Number of the leader, if known.
    pub leader_id: Option<u64>,
    /// Address of the leader, if known.
    pub leader_address: Option<String>,
    /// Its term.
    pub term: u64,
    /// Index of its last log entry.
    pub last_log_index: u64,
    /// Index of the last log entry that it applied.
    pub applied_index: u64,
    /// The members.
    pub coordinators: Vec<CoordinatorStatus>,
    /// Number of voters that may fail without losing the majority; known only to a leader with a majority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_voters: Option<u32>,
    /// The running change, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingQuorumChange>,
    /// Numbers of removed coordinators, which are never reused.
    pub retired_ids: Vec<u64>,
    /// UUID of the cluster; empty until the cluster is bootstrapped.
    pub cluster_id: String,
    /// Generation of the coordinators' state: 1 at first, and one more after each recovery from less than a majority.
    pub generation: u64,
    /// Key that distinguishes it from other generations with the same number, as created by two recoveries; absent for
    /// the first generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation_key: Option<String>,
    /// The running recovery, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<QuorumRecovery>,
    /// Reason why the leader grants no leases: coordinators of another generation exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

impl Quorum {
    /// Returns the voting members, whether or not they answer.
    pub fn voters(&self) -> impl Iterator<Item = &CoordinatorStatus> {
        self.coordinators.iter().filter(|member| !member.learner)
    }
}

/// A recovery of the coordinators' state from less than a majority that is not finished yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuorumRecovery {
    /// Unix time in milliseconds of its begin.
    pub began_at_ms: u64,
    /// Index of the last log entry that the state includes.
    pub base_index: u64,
    /// Open questions that block its end, the first 100.
    pub doubts: Vec<RecoveryDoubt>,
    /// Number of open questions.
    pub doubts_total: u32,
}

/// An open question that blocks the end of a recovery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryDoubt {
    /// Kind of question.
    pub kind: OpenEnum<DoubtKind>,
    /// A node, a table or a partition.
    pub about: String,
    /// The question, in a sentence.
    pub text: String,
    /// True if an operator may accept the possible loss of acknowledged writes; false for a node that has not reported.
    pub may_be_accepted: bool,
}

/// A running change of the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PendingQuorumChange {
    /// The requested change, in a sentence.
    pub change: String,
    /// Next step, in a sentence; absent if the answering coordinator is not the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Unix time in milliseconds of its begin.
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
    /// Address as HOST:PORT.
    pub address: String,
    /// Its role in the quorum.
    pub role: OpenEnum<CoordinatorRole>,
    /// True if it has no vote: it only copies the log.
    pub learner: bool,
    /// Log entries behind the leader, if known.
    pub entries_behind: Option<u64>,
    /// Reason why it appends nothing to its log, if so.
    pub lack: Option<String>,
}

/// Returns the quorum as seen by the answering coordinator, with or without a leader.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ShowQuorum {}

/// Changes the members of the quorum, cancels the running change, or ends a recovery. The answer is sent once the
/// change has started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChangeQuorum {
    /// The requested action.
    #[serde(flatten)]
    pub action: QuorumAction,
    /// Accepts that no other voter may fail afterwards, or the possible loss of acknowledged writes.
    #[serde(default)]
    pub force: bool,
}

/// An action on the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum QuorumAction {
    /// A learner becomes a voter.
    Promote {
        /// The learner's number.
        coordinator_id: u64,
    },
    /// A voter becomes a learner.
    Demote {
        /// The voter's number.
        coordinator_id: u64,
    },
    /// A coordinator leaves permanently.
    Remove {
        /// The coordinator's number.
        coordinator_id: u64,
    },
    /// A learner replaces another coordinator in one step.
    Replace {
        /// The number of the leaving coordinator.
        coordinator_id: u64,
        /// The number of the new voter.
        new_id: u64,
    },
    /// A coordinator has a new address.
    SetAddress {
        /// The coordinator's number.
        coordinator_id: u64,
        /// `host:port`.
        address: String,
    },
    /// Cancels the running change.
    Cancel,
    /// Ends a recovery, so that partitions continue from the reported replicas.
    Settle,
}

impl QuorumAction {
    /// Returns the requested change of the members, if it is one.
    pub fn change(&self) -> Option<QuorumChange> {
        Some(match *self {
            Self::Promote { coordinator_id: id } => QuorumChange::Promote { id },
            Self::Demote { coordinator_id: id } => QuorumChange::Demote { id },
            Self::Remove { coordinator_id: id } => QuorumChange::Remove { id },
            Self::Replace { coordinator_id: old, new_id: new } => QuorumChange::Replace { old, new },
            Self::SetAddress { coordinator_id: id, ref address } => {
                QuorumChange::SetAddress { id, address: address.clone() }
            }
            Self::Cancel | Self::Settle => return None,
        })
    }
}

impl From<QuorumChange> for QuorumAction {
    fn from(change: QuorumChange) -> Self {
        match change {
            QuorumChange::Promote { id } => Self::Promote { coordinator_id: id },
            QuorumChange::Demote { id } => Self::Demote { coordinator_id: id },
            QuorumChange::Remove { id } => Self::Remove { coordinator_id: id },
            QuorumChange::Replace { old, new } => Self::Replace { coordinator_id: old, new_id: new },
            QuorumChange::SetAddress { id, address } => Self::SetAddress { coordinator_id: id, address },
        }
    }
}

/// The effect of a request about the quorum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuorumChanged {
    /// False if the requested state was already in force, or the change was already running.
    pub changed: bool,
}

/// Transfers the leadership of the quorum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TransferLead {
    /// The number of the next leader; absent: the voter with the longest log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator_id: Option<u64>,
}

/// The leadership was transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LeadTransferred {
    /// The number of the present leader, if that is known yet.
    pub leader_id: Option<u64>,
}

impl Document for ShowQuorum {}

impl Document for ChangeQuorum {
    fn check(&self) -> Result<(), ErrorDetail> {
        match &self.action {
            QuorumAction::SetAddress { address, .. } => {
                check_address(address).map_err(|problem| invalid("ChangeQuorum.address", problem))
            }
            _ => Ok(()),
        }
    }

    fn subject(&self) -> String {
        match &self.action {
            QuorumAction::Promote { coordinator_id }
            | QuorumAction::Demote { coordinator_id }
            | QuorumAction::Remove { coordinator_id }
            | QuorumAction::Replace { coordinator_id, .. }
            | QuorumAction::SetAddress { coordinator_id, .. } => coordinator(*coordinator_id),
            QuorumAction::Cancel | QuorumAction::Settle => "quorum".to_owned(),
        }
    }

    fn wanted(&self) -> Option<String> {
        let action = match &self.action {
            QuorumAction::Promote { .. } => "promote".to_owned(),
            QuorumAction::Demote { .. } => "demote".to_owned(),
            QuorumAction::Remove { .. } => "remove".to_owned(),
            QuorumAction::Replace { new_id, .. } => format!("replace by {}", coordinator(*new_id)),
            QuorumAction::SetAddress { address, .. } => format!("reached at {address}"),
            QuorumAction::Cancel => "cancel".to_owned(),
            QuorumAction::Settle => "end the recovery".to_owned(),
        };
        let accepted = match &self.action {
            _ if !self.force => "",
            QuorumAction::Settle => ", also if acknowledged writes are lost",
            _ => ", also without a spare",
        };
        Some(action + accepted)
    }
}

impl Document for TransferLead {
    fn subject(&self) -> String {
        self.coordinator_id.map_or_else(|| "quorum".to_owned(), coordinator)
    }

    fn wanted(&self) -> Option<String> {
        Some("lead".to_owned())
    }
}

fn coordinator(id: u64) -> String {
    format!("coordinator {id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ChangeQuorum, ErrorDetail> {
        let request: ChangeQuorum = crate::read_request(text.as_bytes())?;
        request.check()?;
        Ok(request)
    }

    #[test]
    fn quorum_change_round_trips() {
        let changes = [
            QuorumChange::Promote { id: 4 },
            QuorumChange::Demote { id: 4 },
            QuorumChange::Remove { id: 4 },
            QuorumChange::Replace { old: 1, new: 4 },
            QuorumChange::SetAddress { id: 4, address: "127.0.0.1:7104".into() },
        ];
        for change in changes {
            assert_eq!(QuorumAction::from(change.clone()).change(), Some(change));
        }
        assert_eq!((QuorumAction::Cancel.change(), QuorumAction::Settle.change()), (None, None));
    }

    #[test]
    fn quorum_request_needs_a_known_action_and_a_usable_address() {
        let request = read(r#"{"action": "promote", "coordinator_id": 4}"#).unwrap();
        assert_eq!(request, ChangeQuorum { action: QuorumAction::Promote { coordinator_id: 4 }, force: false });
        assert!(read(r#"{"force": true}"#).unwrap_err().message.contains("action"));
        assert!(read(r#"{"action": "melt"}"#).unwrap_err().message.contains("melt"));
        let error = read(r#"{"action": "set_address", "coordinator_id": 1, "address": "nowhere"}"#).unwrap_err();
        assert!(error.message.starts_with("ChangeQuorum.address: "), "{error}");
        let error = read(r#"{"action": "cancel", "forse": true}"#).unwrap_err();
        assert!(error.message.contains("unknown field `forse`"), "{error}");
    }

    #[test]
    fn audit_names_the_coordinator_and_the_accepted_risk() {
        let promote = ChangeQuorum { action: QuorumAction::Promote { coordinator_id: 4 }, force: true };
        assert_eq!(promote.subject(), "coordinator 4");
        assert_eq!(promote.wanted().as_deref(), Some("promote, also without a spare"));
        let settle = ChangeQuorum { action: QuorumAction::Settle, force: true };
        assert_eq!(settle.subject(), "quorum");
        assert_eq!(settle.wanted().as_deref(), Some("end the recovery, also if acknowledged writes are lost"));
        assert_eq!(TransferLead::default().subject(), "quorum");
        assert_eq!(TransferLead { coordinator_id: Some(4) }.subject(), "coordinator 4");
    }
}
