//! The protocol of the cluster, and the members that keep it from a newer one.

use crate::method::Document;
use archon_types::{MemberKind, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The protocol of the cluster, and what each member speaks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeSummary {
    /// The protocol that the cluster speaks.
    pub protocol: u32,
    /// The newest one that any member speaks; above `protocol` while an upgrade is under way.
    pub protocol_newest: u32,
    /// True if it rises only by an operator's request.
    pub held: bool,
    /// Coordinators, nodes and participants.
    pub spoken_by: Vec<UpgradeMember>,
}

/// Somebody who must speak a protocol before the cluster does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeMember {
    /// Coordinator, node or participant.
    pub kind: Word<MemberKind>,
    /// Its number, among coordinators or among nodes and participants.
    pub id: u64,
    /// Its name; of a coordinator its address.
    pub name: String,
    /// The oldest protocol that it supports, by its last report; absent for a coordinator that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_min: Option<u32>,
    /// The newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_max: Option<u32>,
    /// True if it is alive, or answers the leading coordinator.
    pub answers: bool,
}

/// The effect of a request about the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeChanged {
    /// False: it was so already.
    pub changed: bool,
    /// The protocol that the cluster speaks now.
    pub protocol: u32,
    /// True if that is newer than before.
    pub raised: bool,
}

impl UpgradeSummary {
    /// Members that keep the cluster from the newest protocol.
    pub fn waits_for(&self) -> impl Iterator<Item = &UpgradeMember> {
        let spoken = |member: &UpgradeMember| {
            let range = member.protocol_min.zip(member.protocol_max);
            range.is_some_and(|(oldest, newest)| (oldest..=newest).contains(&self.protocol_newest))
        };
        self.spoken_by.iter().filter(move |member| self.protocol_newest > self.protocol && !spoken(member))
    }
}

/// Asks for the protocol of the cluster and of each member.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ShowUpgrade {}

/// Changes when the protocol of the cluster rises.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChangeUpgrade {
    /// The change.
    pub action: UpgradeAction,
}

/// A change of when the protocol rises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeAction {
    /// It rises now, if every member supports a newer one.
    Finalize,
    /// It stays as it is.
    Hold,
    /// It rises by itself again.
    Release,
}

impl Document for ShowUpgrade {}

impl Document for ChangeUpgrade {
    fn subject(&self) -> String {
        "protocol".to_owned()
    }

    fn wanted(&self) -> Option<String> {
        let word = match self.action {
            UpgradeAction::Finalize => "finalize",
            UpgradeAction::Hold => "hold",
            UpgradeAction::Release => "release",
        };
        Some(word.to_owned())
    }
}
