//! The protocol of the cluster, and the members that keep it from a newer one.

use crate::method::Document;
use archon_types::{MemberKind, OpenEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Protocol of the cluster, and the protocols that each member supports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeSummary {
    /// Protocol that the cluster uses.
    pub protocol: u32,
    /// Newest protocol that any member supports; above `protocol` during an upgrade.
    pub protocol_newest: u32,
    /// True if only an operator's request raises it.
    pub held: bool,
    /// Coordinators, nodes and participants.
    pub spoken_by: Vec<UpgradeMember>,
}

/// A member that must support a protocol before the cluster uses it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeMember {
    /// Coordinator, node or participant.
    pub kind: OpenEnum<MemberKind>,
    /// Number of the member; coordinators are numbered separately from nodes and participants.
    pub id: u64,
    /// Name of the member; the address of a coordinator.
    pub name: String,
    /// Oldest protocol that it supports, by its last report; absent for a coordinator that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_min: Option<u32>,
    /// Newest protocol that it supports; absent like `protocol_min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_max: Option<u32>,
    /// True if it is alive, or answers the leading coordinator.
    pub answers: bool,
}

/// Effect of a request about the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeChanged {
    /// False if the requested state was already in force.
    pub changed: bool,
    /// Protocol that the cluster uses now.
    pub protocol: u32,
    /// True if this request raised it.
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

/// Returns the protocol of the cluster and of each member.
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
    /// Finalize: the protocol rises now, if every member supports a newer one.
    Finalize,
    /// Hold: the protocol stays as it is.
    Hold,
    /// Release: the protocol rises by itself again.
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
