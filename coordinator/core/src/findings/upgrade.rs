//! Upgrades that wait for members or for an operator.

use crate::quorum::upgrade::{CoordinatorsSpeak, UpgradeMember, UpgradeName, laggards, newest_spoken, upgrade_members};
use crate::state::ClusterState;
use archon_types::subject::Subject;
use archon_types::{Facts, Finding, MemberKind, OutdatedMember};

/// Maximum number of outdated members that are named.
const NAMED_MAX: usize = 3;

/// Reports an upgrade that waits: there is a newer protocol than the cluster's, and it does not rise automatically now.
pub fn upgrade_waits(state: &ClusterState, speak: &CoordinatorsSpeak) -> Option<Finding> {
    let members = upgrade_members(state, speak);
    let newest = newest_spoken(&members);
    let (outdated, others) = outdated_members(state, &members, newest);
    // Otherwise it rises in a moment, as in every new cluster: no action is needed.
    let waits = newest > state.protocol && (!outdated.is_empty() || state.protocol_held);
    let facts = Facts::Upgrading { protocol: state.protocol, newest, outdated, members_more: others };
    waits.then(|| Finding::new(Subject::Cluster, facts))
}

/// Returns the first members that do not support this protocol, and the number of the others.
pub fn outdated_members(state: &ClusterState, members: &[UpgradeMember], protocol: u32) -> (Vec<OutdatedMember>, u64) {
    let outdated = |member: &UpgradeMember| {
        let (kind, name) = match member.name {
            UpgradeName::Coordinator(id) => (MemberKind::Coordinator, id.to_string()),
            UpgradeName::Node(node) => (MemberKind::Node, state.node_name(node)),
            UpgradeName::Participant(node) => (MemberKind::Participant, state.node_name(node)),
        };
        let supports = member.speaks.map(|speaks| speaks.to_string());
        OutdatedMember { kind: kind.into(), name, supports, answers: member.answers }
    };
    let named: Vec<OutdatedMember> = laggards(members, protocol).take(NAMED_MAX).map(outdated).collect();
    let others = laggards(members, protocol).count() - named.len();
    (named, others as u64)
}
