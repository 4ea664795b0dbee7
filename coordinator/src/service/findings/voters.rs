//! Coordinators in statuses and findings.

use crate::leader::session::Session;
use crate::quorum::timing::TooFar;
use crate::raft::{LowSpace, Quorum, StateDifference, VoterView, read_only, spare};
use archon_coordinator_core::ClusterState;
use archon_documents::CoordinatorStatus;
use archon_types::subject::Subject;
use archon_types::{Facts, Finding};

/// Reports coordinators that do not answer the leader: the quorum continues without them, and tolerates fewer failures.
pub(super) fn unreachable(voters: &[VoterView]) -> Vec<Finding> {
    let spare_voters = spare(voters).unwrap_or(0) as u64;
    let finding = |voter: &VoterView| {
        let facts = Facts::CoordinatorUnreachable {
            address: voter.address.clone(),
            why: voter.too_far.as_ref().map(ToString::to_string).or_else(|| voter.missing.clone()),
            learner: !voter.voter,
            spare_voters,
            quorum_heartbeat_ms: voter.too_far.as_ref().map(TooFar::heartbeat_ms),
        };
        Finding::new(subject(voter), facts)
    };
    voters.iter().filter(|voter| voter.is_away()).map(finding).collect()
}

/// Reports coordinators with differing states.
pub(super) fn differing(quorum: &Quorum) -> Vec<Finding> {
    let finding = |(coordinator_id, differs): (u64, StateDifference)| {
        let StateDifference { index, is_wrong: wrong } = differs;
        Finding::new(Subject::Coordinator { coordinator_id }, Facts::StatesDiffer { index, wrong })
    };
    quorum.differing_states().into_iter().map(finding).collect()
}

/// Reports members that belong to another history of the cluster, and are refused.
pub(super) fn of_other_histories(session: &Session, state: &ClusterState) -> Vec<Finding> {
    let member = |(name, why): (String, String)| {
        let subject = state.node_by_name(&name).map_or(Subject::Cluster, |row| state.node_subject(row.node.id));
        Finding::new(subject, Facts::OtherHistory { member: Some(name), why, generation: None, waits: false })
    };
    let coordinator = |waits: bool| {
        move |(coordinator_id, generation): (u64, u64)| {
            let (generation, why) = (Some(generation), String::new());
            let facts = Facts::OtherHistory { member: None, why, generation, waits };
            Finding::new(Subject::Coordinator { coordinator_id }, facts)
        }
    };
    let others = session.quorum().other_generations().into_iter().map(coordinator(false));
    let waiting = session.quorum().waiting_generations().into_iter().map(coordinator(true));
    session.other_histories.told().into_iter().map(member).chain(others).chain(waiting).collect()
}

/// Reports coordinators that accept nothing new into their logs; before them, that no changes are accepted, if so; and
/// after them those with snapshots that wait for space.
pub(super) fn without_changes(me: u64, voters: &[VoterView]) -> Vec<Finding> {
    let read_only = read_only(me, voters).map(|why| Finding::new(Subject::Coordinators, Facts::ReadOnly { why }));
    let lacking = voters.iter().filter_map(|voter| {
        let address = voter.address.clone();
        let facts = match voter.lack? {
            LowSpace::Full(lack) => Facts::DiskFull { address, lack },
            LowSpace::Fails => Facts::DiskFails { address },
        };
        Some(Finding::new(subject(voter), facts))
    });
    let waiting = voters.iter().filter(|voter| voter.snapshot_waits);
    let waiting =
        waiting.map(|voter| Finding::new(subject(voter), Facts::SnapshotWaits { address: voter.address.clone() }));
    read_only.into_iter().chain(lacking).chain(waiting).collect()
}

fn subject(voter: &VoterView) -> Subject {
    Subject::Coordinator { coordinator_id: voter.id }
}

/// Returns a member of the quorum in its leader's view.
pub(in crate::service) fn voter(voter: VoterView) -> CoordinatorStatus {
    // The backlog of an unheard member is unknown.
    let entries_behind = voter.entries_behind.filter(|_| !voter.is_away());
    CoordinatorStatus {
        id: voter.id,
        address: voter.address,
        role: voter.role.into(),
        entries_behind,
        lack: voter.lack.map(|lack| lack.to_string()),
        learner: !voter.voter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_documents::Reason;
    use archon_types::CoordinatorRole;

    #[test]
    fn unreachable_voter_has_no_known_backlog() {
        let of = |role| VoterView { entries_behind: Some(0), ..VoterView::of(2, role) };
        assert_eq!(voter(of(CoordinatorRole::Unreachable)).entries_behind, None);
        assert_eq!(voter(of(CoordinatorRole::Follower)).entries_behind, Some(0));
    }

    #[test]
    fn dead_learner_is_to_be_removed_not_replaced() {
        let away = |id, voter| VoterView { voter, ..VoterView::of(id, CoordinatorRole::Unreachable) };
        let voters = [
            VoterView::of(1, CoordinatorRole::Leader),
            VoterView::of(2, CoordinatorRole::Follower),
            away(3, true),
            away(4, false),
        ];
        let reasons = unreachable(&voters).into_iter().map(Reason::from);
        let remedies: Vec<String> = reasons.filter_map(|reason| reason.remedy).collect();
        assert!(remedies[0].contains("archon quorum replace 3 NEW"), "{remedies:?}");
        assert!(remedies[1].contains("archon quorum remove 4") && !remedies[1].contains("replace"), "{remedies:?}");
    }

    #[test]
    fn coordinator_too_far_away_is_not_to_be_restarted_alone() {
        let round_trip = std::time::Duration::from_millis(104);
        let far = TooFar { id: 3, address: "c3:1".to_owned(), round_trip, timing: Default::default() };
        let voter = VoterView { too_far: Some(far), ..VoterView::of(3, CoordinatorRole::Unreachable) };
        let reason = Reason::from(unreachable(&[voter]).remove(0));
        assert!(reason.message.contains("coordinator 3 at c3:1 answers after 104 ms"), "{}", reason.message);
        assert_eq!(reason.remedy.as_deref(), Some("start every coordinator with --quorum-heartbeat-ms 250"));
    }
}
