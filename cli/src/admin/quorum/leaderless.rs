//! List of the coordinators without a leader: a follower's view of the others is then outdated, so each is asked for
//! itself.

use crate::exit::{Exit, Failure};
use crate::output::count_text;
use archon_client::{Admin, CoordinatorRole, Error, Quorum};
use std::time::{Duration, Instant};

/// Maximum time for the answer of each coordinator.
const EACH: Duration = Duration::from_secs(1);
/// Maximum wait for an election, if enough coordinators answer for one.
const ELECTION: Duration = Duration::from_secs(3);

/// Returns the quorum in the leader's view; without a leader, merged from each coordinator's own answer, with the
/// number of voters that answer.
pub(in crate::admin) async fn asked(admin: &Admin) -> Result<(Quorum, Option<usize>), Failure> {
    let begun = Instant::now();
    loop {
        let quorum = admin.quorum_of_leader().await?;
        if leads(&quorum) {
            return Ok((quorum, None));
        }
        let (quorum, answer) = leaderless(quorum, &admin.quorum_of_each(EACH).await);
        let voters = quorum.voters().count();
        if leads(&quorum) {
            return Ok((quorum, None));
        }
        if answer * 2 <= voters || begun.elapsed() >= ELECTION {
            return Ok((quorum, Some(answer)));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Returns true if the answer is of a leader that a majority answers.
fn leads(quorum: &Quorum) -> bool {
    quorum.leader_id == Some(quorum.id) && quorum.spare_voters.is_some()
}

/// Merges the answers into one list, with the number of voters that answer; or returns the answer of a leader elected
/// meanwhile.
fn leaderless(quorum: Quorum, each: &[(String, Result<Quorum, Error>)]) -> (Quorum, usize) {
    let answers: Vec<&Quorum> = each.iter().filter_map(|(_, said)| said.as_ref().ok()).collect();
    if let Some(led) = answers.iter().find(|said| leads(said)) {
        return ((*led).clone(), answers.len());
    }
    // A leader that is cut off from the others still claims to lead.
    let mut quorum = Quorum { leader_id: None, leader_address: None, spare_voters: None, ..quorum };
    let mut answer = 0;
    for member in &mut quorum.coordinators {
        let said = answers.iter().find(|said| said.id == member.id);
        answer += usize::from(said.is_some() && !member.learner);
        member.role = match said {
            Some(said) => said.role.clone(),
            None => CoordinatorRole::Unreachable.into(),
        };
        member.entries_behind = None;
    }
    (quorum, answer)
}

/// Remedy if a majority is away.
pub(in crate::admin) const START_OR_RECOVER: &str = "start a majority of them, each on its own data directory; if more \
                                                     than half are gone for good: `archon quorum recover --help`";

/// Returns the failure for a quorum without a leader.
pub(super) fn without_leader(quorum: &Quorum, answer: usize) -> Failure {
    let voters = quorum.voters().count();
    let message = format!("no coordinator leads: {answer} of {} answer", count_text(voters, "voter", "voters"));
    Failure::new(Exit::Unreachable, message).with_remedy(if answer * 2 > voters {
        "a majority is running: retry; if no leader is elected, check their logs for connection errors"
    } else {
        START_OR_RECOVER
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::quorum::row;
    use crate::admin::quorum::tests::quorum;
    use crate::output::{Format, Output};
    use archon_client::{ErrorKind, OpenEnum};

    #[test]
    fn killed_coordinators_are_shown_as_not_answering() {
        let told =
            Quorum { id: 2, role: OpenEnum::Known(CoordinatorRole::Candidate), leader_id: Some(1), ..quorum(3, None) };
        let killed = |address: &str| {
            let detail = archon_client::ErrorDetail::new(ErrorKind::Unreachable, "refused");
            (address.to_owned(), Err(Error::from(detail)))
        };
        let each =
            [killed("127.0.0.1:7101"), ("127.0.0.1:7102".to_owned(), Ok(told.clone())), killed("127.0.0.1:7103")];
        let (found, answer) = leaderless(told.clone(), &each);
        let plain = Output::plain(Format::Table);
        let shown: Vec<String> =
            found.coordinators.iter().map(|member| row(member, &found, &plain)[2].clone()).collect();
        assert_eq!(
            (answer, &shown[..3]),
            (1, &["does not answer", "candidate", "does not answer"].map(str::to_owned)[..])
        );
        let failed = without_leader(&found, answer);
        assert_eq!(
            (failed.exit, failed.message.as_str()),
            (Exit::Unreachable, "no coordinator leads: 1 of 3 voters answer")
        );
        assert!(format!("{failed:?}").contains("quorum recover"), "{failed:?}");
        let electing = without_leader(&found, 2);
        assert!(!format!("{electing:?}").contains("recover"), "all that is needed is there: {electing:?}");
        // A leader was elected meanwhile.
        let elected = quorum(3, Some(1));
        let (found, _) = leaderless(told, &[("127.0.0.1:7101".to_owned(), Ok(elected.clone()))]);
        assert_eq!((found.clone(), leads(&found)), (elected, true));
    }
}
