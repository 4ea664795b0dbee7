//! Coordinators, each queried separately: the leader, the tolerated failures, and lag.

use crate::admin::quorum::spare_text;
use crate::doctor::subjects::CLUSTER;
use crate::documents::{Finding, FindingCode};
use archon_client::{CoordinatorRole, Error, ErrorKind, Quorum};
use archon_security::{COMPARE, is_of_certificates};

/// Same threshold as the alert `ArchonCoordinatorBehind`: a coordinator this many entries behind would get a snapshot.
const BEHIND_MAX: u64 = 10_000;

/// Answers of the coordinators, with their addresses.
type QuorumAnswers = [(String, Result<Quorum, Error>)];

/// Returns true if one of them leads.
pub(super) fn leads(each: &QuorumAnswers) -> bool {
    leader(each).is_some()
}

/// Returns the leader that a majority answers: a leader that is cut off still reports that it leads.
fn leader(each: &QuorumAnswers) -> Option<&Quorum> {
    let mut leading = answers(each).filter(|quorum| quorum.leader_id == Some(quorum.id));
    leading.find(|quorum| {
        let (heard, voters) = heard(quorum);
        heard * 2 > voters
    })
}

fn answers(each: &QuorumAnswers) -> impl Iterator<Item = &Quorum> {
    each.iter().filter_map(|(_, said)| said.as_ref().ok())
}

/// Returns the number of voters that answer this leader, including itself, and the number of voters.
fn heard(quorum: &Quorum) -> (usize, usize) {
    let answers = quorum.voters().filter(|member| member.role != CoordinatorRole::Unreachable);
    (answers.count(), quorum.voters().count())
}

/// Judges the answers.
pub(super) fn judge(each: &QuorumAnswers) -> Vec<Finding> {
    const CODE: FindingCode = FindingCode::Quorum;
    let mut findings = Vec::new();
    if let Some(quorum) = leader(each) {
        let message = format!("coordinator {} leads in term {}; {}", quorum.id, quorum.term, spare_text(quorum));
        let voters = quorum.voters().count();
        findings.push(match quorum.spare_voters {
            Some(0) => Finding::warning(CODE, CLUSTER, message, more(voters)),
            _ if voters.is_multiple_of(2) => Finding::warning(CODE, CLUSTER, message, more(voters)),
            _ => Finding::ok(CODE, CLUSTER, message),
        });
        let behind = quorum.coordinators.iter().filter(|member| member.entries_behind > Some(BEHIND_MAX));
        findings.extend(behind.map(|member| {
            let message = format!("it is {} entries behind", member.entries_behind.unwrap_or(0));
            let remedy = "check its log, its disk and the network to it; `archon quorum list` shows its progress";
            Finding::warning(CODE, &format!("coordinator/{}", member.id), message, remedy)
        }));
        return findings;
    }
    let refused =
        each.iter().find_map(|(_, said)| said.as_ref().err().filter(|error| error.kind() == ErrorKind::Refused));
    if let (Some(error), None) = (refused, answers(each).next()) {
        if is_of_certificates(&error.to_string()) {
            let message = format!("these credentials are of another cluster, or revoked: {error}");
            return vec![Finding::error(CODE, CLUSTER, message, COMPARE)];
        }
        let message = format!(
            "these credentials have no right to ask ({error}); give those of an operator or admin with \
                     --tls-dir"
        );
        return vec![Finding::not_checked(CODE, CLUSTER, message)];
    }
    let majority = "start a majority of the coordinators, each with its own data directory; they then elect a leader";
    let cut_off = answers(each).find(|quorum| quorum.leader_id == Some(quorum.id));
    let message = match (cut_off, answers(each).map(|quorum| heard(quorum).1).max()) {
        (Some(quorum), _) => {
            let (heard, voters) = heard(quorum);
            format!("coordinator {} claims to lead without a majority: {heard} of {voters} voters answer it", quorum.id)
        }
        (None, Some(voters)) => format!("no coordinator leads: {} of {voters} voters answer", answers(each).count()),
        (None, None) => match each {
            [(address, _)] => format!("no coordinator answers at {address}"),
            each => format!("none of the coordinators at {} addresses answers", each.len()),
        },
    };
    findings.push(Finding::error(CODE, CLUSTER, message, majority));
    findings.extend(each.iter().filter_map(|(address, said)| {
        let error = said.as_ref().err()?;
        let remedy = "check that it is running there, and that this machine reaches it";
        Some(Finding::error(CODE, address, error.to_string(), remedy))
    }));
    findings
}

/// Returns the remedy if no coordinator may fail, or one of them is redundant.
fn more(voters: usize) -> String {
    match voters {
        1 => "a single coordinator tolerates no failure: start two more with --join, and wait until they are voters",
        _ => "start the coordinators that are down; use an odd number of voters (`archon quorum promote`, `remove`)",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::quorum::tests::quorum as healthy_quorum;
    use crate::documents::Verdict;
    use archon_client::{CoordinatorStatus, ErrorDetail, OpenEnum};

    fn quorum(id: u64, leader_id: Option<u64>, behind: &[u64], spare_voters: Option<u32>) -> Quorum {
        let member = |(index, behind): (usize, &u64)| CoordinatorStatus {
            id: index as u64 + 1,
            address: format!("127.0.0.1:710{index}"),
            role: OpenEnum::Known(CoordinatorRole::Follower),
            learner: false,
            entries_behind: Some(*behind),
            lack: None,
        };
        let coordinators = behind.iter().enumerate().map(member).collect();
        Quorum { id, leader_id, term: 4, coordinators, ..healthy_quorum(0, spare_voters) }
    }

    fn judged(each: Vec<Result<Quorum, Error>>) -> Vec<(String, Verdict)> {
        let each: Vec<_> = each.into_iter().enumerate().map(|(place, said)| (format!("a{place}"), said)).collect();
        judge(&each).into_iter().map(|finding| (finding.about, finding.verdict)).collect()
    }

    #[test]
    fn quorum_is_judged_by_tolerated_failures_and_lag() {
        let the_cluster = |verdict| (CLUSTER.to_owned(), verdict);
        let well = quorum(2, Some(2), &[0, 0, 3], Some(1));
        assert_eq!(judged(vec![Ok(quorum(1, Some(2), &[0, 0, 0], None)), Ok(well)]), [the_cluster(Verdict::Ok)]);
        assert_eq!(judged(vec![Ok(quorum(1, Some(1), &[0, 0], Some(0)))]), [the_cluster(Verdict::Warning)]);
        assert_eq!(judged(vec![Ok(quorum(1, Some(1), &[0; 4], Some(1)))]), [the_cluster(Verdict::Warning)]);
        let lags = judged(vec![Ok(quorum(1, Some(1), &[0, 10_001, 0], Some(1)))]);
        assert_eq!(lags, [the_cluster(Verdict::Ok), ("coordinator/2".to_owned(), Verdict::Warning)]);
    }

    #[test]
    fn silent_coordinators_are_named_if_there_is_no_leader() {
        let silent = || Err(ErrorDetail::new(ErrorKind::Unreachable, "nobody there").into());
        let found = judged(vec![Ok(quorum(1, None, &[0; 3], None)), silent(), silent()]);
        assert_eq!(found.iter().map(|(about, _)| about.as_str()).collect::<Vec<_>>(), [CLUSTER, "a1", "a2"]);
        assert!(found.iter().all(|(_, verdict)| *verdict == Verdict::Error));
        assert_eq!(judged(vec![silent()]).len(), 2);
        let refused = || Err(ErrorDetail::new(ErrorKind::Refused, "node/athens may not").into());
        assert_eq!(judged(vec![refused(), refused(), silent()]), [(CLUSTER.to_owned(), Verdict::NotChecked)]);
        let foreign = || Err(ErrorDetail::new(ErrorKind::Refused, "it refuses this process's certificate: x").into());
        assert_eq!(judged(vec![foreign(), silent()]), [(CLUSTER.to_owned(), Verdict::Error)]);
        let mut cut_off = quorum(1, Some(1), &[0; 3], Some(0));
        cut_off.coordinators[1..].iter_mut().for_each(|member| member.role = CoordinatorRole::Unreachable.into());
        let found = judged(vec![Ok(cut_off), silent(), silent()]);
        assert!(
            found.len() == 3 && found[0].1 == Verdict::Error,
            "one that was cut off passed for a leader: {found:?}"
        );
    }
}
