//! Coordinators in statuses and reasons.

use super::subjects;
use crate::leader::session::Session;
use crate::quorum::timing::TooFar;
use crate::raft::{Differs, Lack, Quorum, VoterView, read_only, spare};
use crate::service::findings::reason::reason_now;
use archon_coordinator_core::{ClusterState, unheard};
use archon_documents::{CoordinatorStatus, Reason};
use archon_types::subject::Subject;
use archon_types::{OTHER_HISTORY_REMEDY, ReasonCode};

/// Returns reasons for a temporary state of the quorum: a recovery first, and a change of its members.
pub(super) fn unsettled(state: &ClusterState) -> Vec<Reason> {
    let recovery = state.recovery.as_deref().map(|recovery| {
        let message = match unheard(state, recovery).count() {
            0 => "the coordinators are being recovered, and wait for an operator to accept the open \
                  questions"
                .to_owned(),
            unheard => {
                format!("the coordinators are being recovered, and wait for the reports of {unheard} nodes")
            }
        };
        let remedy = "`archon quorum list` shows what it waits for and the next step; no partition is available until \
                      the recovery ends";
        reason_now(ReasonCode::BeingRecovered, Subject::Coordinators, message, remedy)
    });
    let pending = state.coordinators.pending.as_ref().map(|pending| {
        let remedy =
            "it continues automatically: `archon quorum list` shows what it waits for, `archon quorum cancel` cancels \
             it";
        reason_now(ReasonCode::QuorumChanging, Subject::Coordinators, format!("running: {}", pending.wish), remedy)
    });
    recovery.into_iter().chain(pending).collect()
}

/// Reports coordinators that do not answer the leader: the quorum continues without them, and tolerates fewer failures.
pub(super) fn unreachable(voters: &[VoterView]) -> Vec<Reason> {
    let away = |voter: &&VoterView| voter.is_away();
    let spare = spare(voters).unwrap_or(0);
    let reason = |voter: &VoterView| {
        let far = voter.too_far.as_ref().map(ToString::to_string);
        let silent = far.or_else(|| voter.missing.clone());
        let silent = silent.unwrap_or_else(|| format!("{} does not answer", voter.address));
        let message = match spare {
            _ if !voter.voter => format!("{silent}; it is a learner, so availability is not affected"),
            0 => format!("{silent}; if another one fails, the majority is lost"),
            spare => format!("{silent}; {spare} more may fail"),
        };
        let id = voter.id;
        let lost = match voter.voter {
            true => format!("start a new one with --join, then run `archon quorum replace {id} NEW`"),
            false => format!("`archon quorum remove {id}`"),
        };
        let moved = format!("if it runs at another address, `archon quorum set-address {id} ADDRESS`");
        let remedy = format!("start coordinator {id} again with its data directory; if that is lost, {lost}; {moved}");
        let remedy = voter.too_far.as_ref().map_or(remedy, TooFar::remedy);
        reason_now(ReasonCode::CoordinatorUnreachable, subject(voter), message, remedy)
    };
    voters.iter().filter(away).map(reason).collect()
}

/// Reports coordinators with differing states.
pub(super) fn differing(quorum: &Quorum) -> Vec<Reason> {
    let reason = |(coordinator_id, differs): (u64, Differs)| {
        let Differs { index, is_wrong } = differs;
        let (message, remedy) = match is_wrong {
            true => (
                format!("as of log entry {index} its state differs from that of the majority; it exits by itself"),
                format!(
                    "restart it, so that it reads its disk again; if the error repeats, start a new one with --join, \
                     then run `archon quorum replace {coordinator_id} NEW`"
                ),
            ),
            false => (
                format!("as of log entry {index} its state differs from that of others, and there is no majority for \
                         one state"),
                "do not change tables or members; stop the coordinators, copy their data directories, and recover from \
                 the correct one (`archon quorum recover`)"
                    .to_owned(),
            ),
        };
        reason_now(ReasonCode::StatesDiffer, Subject::Coordinator { coordinator_id }, message, remedy)
    };
    quorum.differing_states().into_iter().map(reason).collect()
}

/// Remedy if a recovery was begun while the coordinators work.
const WAITING_RECOVERY_REMEDY: &str = "stop the recovered coordinator if it is a trial; to keep it, stop these \
                                       coordinators: docs/operate/runbooks/majority-lost.md";

/// Reports members that belong to another history of the cluster, and are refused.
pub(super) fn of_other_histories(session: &Session, state: &ClusterState) -> Vec<Reason> {
    let reason = |(name, why): (String, String)| {
        let subject = state.node_by_name(&name).map_or(Subject::Cluster, |row| subjects::node(state, row.node.id));
        reason_now(ReasonCode::OtherHistory, subject, format!("{name} is refused: {why}"), OTHER_HISTORY_REMEDY)
    };
    let coordinator = |(coordinator_id, generation): (u64, u64)| {
        let message = format!(
            "a coordinator of generation {generation} answers at its address, which was recovered from a different \
             state than these coordinators"
        );
        let subject = Subject::Coordinator { coordinator_id };
        reason_now(ReasonCode::OtherHistory, subject, message, OTHER_HISTORY_REMEDY)
    };
    let waiting = |(coordinator_id, generation): (u64, u64)| {
        let message = format!(
            "a recovery of these coordinators (generation {generation}) answers at its address; it accepts no member \
             and grants nothing while they have a majority"
        );
        reason_now(ReasonCode::OtherHistory, Subject::Coordinator { coordinator_id }, message, WAITING_RECOVERY_REMEDY)
    };
    let coordinators = session.quorum().other_generations().into_iter().map(coordinator);
    let coordinators = coordinators.chain(session.quorum().waiting_generations().into_iter().map(waiting));
    session.other_histories.told().into_iter().map(reason).chain(coordinators).collect()
}

/// Reports coordinators that accept nothing new into their logs; before them, that no changes are accepted, if so; and
/// after them those with snapshots that wait for space.
pub(super) fn without_changes(me: u64, voters: &[VoterView]) -> Vec<Reason> {
    let told = read_only(me, voters).map(|why| {
        let message = format!("changes are refused because disks of coordinators lack space: {why}");
        let remedy = "free disk space there; changes then resume automatically; meanwhile nodes keep their leases and \
                      serve keys, but failed nodes are not replaced";
        reason_now(ReasonCode::ReadOnly, Subject::Coordinators, message, remedy)
    });
    let lacking = voters.iter().filter_map(|voter| {
        let lack = voter.lack?;
        let message = format!("{voter} appends nothing to its log, {lack}");
        let (code, remedy) = match lack {
            Lack::Full(_) => (
                ReasonCode::DiskFull,
                format!("free disk space for coordinator {}; it then resumes automatically", voter.id),
            ),
            Lack::Fails => (
                ReasonCode::DiskFails,
                format!("check the log and the disk of coordinator {}; it then resumes automatically", voter.id),
            ),
        };
        Some(reason_now(code, subject(voter), message, remedy))
    });
    let waiting = voters.iter().filter(|voter| voter.snapshot_waits).map(|voter| {
        let message = format!(
            "{voter} has no space on its disk for a snapshot: until it has one, it cannot truncate its log or catch up"
        );
        let remedy = format!("free disk space for coordinator {}; it retries every second", voter.id);
        reason_now(ReasonCode::SnapshotWaits, subject(voter), message, remedy)
    });
    told.into_iter().chain(lacking).chain(waiting).collect()
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
        let remedies: Vec<String> = unreachable(&voters).into_iter().filter_map(|reason| reason.remedy).collect();
        assert!(remedies[0].contains("archon quorum replace 3 NEW"), "{remedies:?}");
        assert!(remedies[1].contains("archon quorum remove 4") && !remedies[1].contains("replace"), "{remedies:?}");
    }

    #[test]
    fn coordinator_too_far_away_is_not_to_be_restarted_alone() {
        let round_trip = std::time::Duration::from_millis(104);
        let far = TooFar { id: 3, address: "c3:1".to_owned(), round_trip, timing: Default::default() };
        let voter = VoterView { too_far: Some(far), ..VoterView::of(3, CoordinatorRole::Unreachable) };
        let reason = unreachable(&[voter]).remove(0);
        assert!(reason.message.contains("coordinator 3 at c3:1 answers after 104 ms"), "{}", reason.message);
        assert_eq!(reason.remedy.as_deref(), Some("start every coordinator with --quorum-heartbeat-ms 250"));
    }
}
