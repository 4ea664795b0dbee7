//! The protocol of the cluster, and the members that block a newer one.

use archon_proto::v1;
use archon_types::text::into_plain;
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
    /// Whether it rises only when an operator says so.
    pub held: bool,
    /// Coordinators, nodes and participants.
    pub spoken_by: Vec<UpgradeMember>,
}

/// Somebody who must speak a protocol before the cluster does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeMember {
    /// What it is.
    pub kind: Word<MemberKind>,
    /// Its number, among coordinators or among nodes and participants.
    pub id: u64,
    /// Its name; of a coordinator its address.
    pub name: String,
    /// The oldest protocol that it speaks, as it said last; absent for a coordinator that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_min: Option<u32>,
    /// The newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_max: Option<u32>,
    /// Whether it is alive, or answers the coordinator that leads.
    pub answers: bool,
}

/// What became of a request about the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeChanged {
    /// Whether it was not so already.
    pub changed: bool,
    /// The protocol that the cluster speaks now.
    pub protocol: u32,
    /// Whether that is a newer one than before.
    pub raised: bool,
}

impl UpgradeSummary {
    /// Returns the members that keep the cluster from using the newest protocol.
    pub fn waits_for(&self) -> impl Iterator<Item = &UpgradeMember> {
        let spoken = |member: &UpgradeMember| {
            let range = member.protocol_min.zip(member.protocol_max);
            range.is_some_and(|(oldest, newest)| (oldest..=newest).contains(&self.protocol_newest))
        };
        self.spoken_by.iter().filter(move |member| self.protocol_newest > self.protocol && !spoken(member))
    }
}

impl From<v1::ShowUpgradeResponse> for UpgradeSummary {
    fn from(wire: v1::ShowUpgradeResponse) -> Self {
        let said = |protocol: u32| Some(protocol).filter(|protocol| *protocol > 0);
        let member = |wire: v1::UpgradeMember| UpgradeMember {
            kind: Word::read(&wire.kind),
            id: wire.id,
            name: into_plain(wire.name),
            protocol_min: said(wire.protocol_min),
            protocol_max: said(wire.protocol_max),
            answers: wire.answers,
        };
        let v1::ShowUpgradeResponse { protocol, newest, held, members } = wire;
        Self { protocol, protocol_newest: newest, held, spoken_by: members.into_iter().map(member).collect() }
    }
}
