//! Status while most coordinators are away: waiting for a leader is useless, so the answer is merged from those that
//! respond.

use crate::admin::quorum::leaderless::START_OR_RECOVER;
use crate::exit::Failure;
use crate::output::{Output, count_text};
use archon_client::{Admin, CoordinatorRole, CoordinatorStatus, ErrorDetail, ErrorKind, Quorum, Status};
use futures::future::join_all;
use std::time::Duration;

/// Time after which the coordinators are asked one by one: a leader has answered by then.
const LOOK_AFTER: Duration = Duration::from_millis(300);
/// Maximum time for the answer of each coordinator.
const COORDINATOR_DEADLINE: Duration = Duration::from_secs(1);
/// Maximum time for the answer of a node.
const NODE_DEADLINE: Duration = Duration::from_millis(500);
/// Maximum number of nodes asked.
const NODES_MAX: usize = 32;
/// Metric of a node's served partitions.
const SERVED: &str = "archon_node_partitions_led";

/// Requests the status until a query of each coordinator finds that no majority is there. Their answers and the nodes'
/// are printed for people, and accompany the failure for programs.
///
/// # Errors
/// As [`Admin::status`].
pub(super) async fn asked(admin: &Admin, output: &Output) -> Result<Status, Failure> {
    let status = admin.status();
    tokio::pin!(status);
    let look = async {
        tokio::time::sleep(LOOK_AFTER).await;
        CoordinatorAnswers::new(admin.quorum_of_each(COORDINATOR_DEADLINE).await)
    };
    let found = tokio::select! {
        status = &mut status => return Ok(status?),
        found = look => found,
    };
    // With a majority, or if the number of voters is unknown, it is only a matter of time.
    let Some(found) = found.filter(CoordinatorAnswers::lacks_majority) else { return Ok(status.await?) };
    let nodes = nodes(admin).await;
    if !output.is_json() && !output.watching {
        output.line(found.screen(&nodes))?;
    }
    Err(Failure::from(archon_client::Error::from(found.error(&nodes))).with_remedy(START_OR_RECOVER))
}

/// Answers of the coordinators.
struct CoordinatorAnswers {
    /// All members, including learners: every member holds the same list.
    members: Vec<CoordinatorStatus>,
    /// The answers.
    answers: Vec<Quorum>,
    /// Addresses without an answer.
    silent: Vec<String>,
}

impl CoordinatorAnswers {
    /// Returns `None` if the number of members is unknown.
    fn new(said: Vec<(String, Result<Quorum, archon_client::Error>)>) -> Option<Self> {
        let (mut answers, mut silent) = (Vec::new(), Vec::new());
        for (address, answer) in said {
            match answer {
                Ok(quorum) => answers.push(quorum),
                // It waits for its peers, and there is no quorum yet.
                Err(error) if error.kind() == ErrorKind::NoQuorum => return None,
                Err(_) => silent.push(address),
            }
        }
        let members = answers.iter().map(|quorum| &quorum.coordinators).max_by_key(|members| members.len())?.clone();
        Some(Self { members, answers, silent })
    }

    fn answer_of(&self, member: &CoordinatorStatus) -> Option<&Quorum> {
        self.answers.iter().find(|quorum| quorum.id == member.id)
    }

    fn voters(&self) -> impl Iterator<Item = &CoordinatorStatus> {
        self.members.iter().filter(|member| !member.learner)
    }

    /// Returns the voters that answer.
    fn answering(&self) -> Vec<u64> {
        self.voters().filter(|voter| self.answer_of(voter).is_some()).map(|voter| voter.id).collect()
    }

    fn lacks_majority(&self) -> bool {
        self.answering().len() * 2 <= self.voters().count()
    }

    fn screen(&self, nodes: &[NodeAnswer]) -> String {
        let (answering, voters) = (self.answering().len(), self.voters().count());
        let mut lines = vec![format!("quorum      no leader, {answering} of {voters} answer")];
        for member in &self.members {
            let says = match self.answer_of(member) {
                None => "does not answer".to_owned(),
                // A former leader is the last one to learn that it has lost its followers.
                Some(quorum) if quorum.role == CoordinatorRole::Leader => format!("led in term {}", quorum.term),
                Some(quorum) => format!("{} in term {}", quorum.role.as_str(), quorum.term),
            };
            let votes = if member.learner { ", has no vote" } else { "" };
            lines.push(format!("            {}  {}  {says}{votes}", member.id, member.address));
        }
        for (at, node) in nodes.iter().enumerate() {
            let serves = match node.partitions {
                Some(served) => format!("serves {}", count_text(served, "partition", "partitions")),
                None => "does not answer".to_owned(),
            };
            let word = if at == 0 { "nodes" } else { "" };
            lines.push(format!("{word:<12}{}  {}  {serves}", node.name, node.address));
        }
        lines.join("\n")
    }

    fn error(&self, nodes: &[NodeAnswer]) -> ErrorDetail {
        let voters = count_text(self.voters().count(), "voter", "voters");
        let answering = self.answering();
        let ids: Vec<String> = answering.iter().map(u64::to_string).collect();
        let answer = match &ids[..] {
            [] => "none answers".to_owned(),
            [one] => format!("only one answers ({one})"),
            _ => format!("only {} answer ({})", ids.len(), ids.join(", ")),
        };
        let mut message =
            format!("no coordinator can lead: of {voters} {answer}; not answering: {}", self.silent.join(", "));
        if !nodes.is_empty() {
            let served: Vec<usize> = nodes.iter().filter_map(|node| node.partitions).collect();
            let (answer, sum) = (served.len(), served.iter().sum());
            let serve = count_text(sum, "partition", "partitions");
            message.push_str(&format!("; of {} nodes {answer} answer and serve {serve}", nodes.len()));
        }
        ErrorDetail::new(ErrorKind::NoQuorum, message)
    }
}

/// Answer of a node.
struct NodeAnswer {
    name: String,
    address: String,
    /// Number of partitions that it serves; `None` if it does not answer.
    partitions: Option<usize>,
}

/// Asks the nodes known to the answering coordinators for their served partitions. Empty if none is known.
async fn nodes(admin: &Admin) -> Vec<NodeAnswer> {
    let known = tokio::time::timeout(NODE_DEADLINE, admin.node_addresses()).await;
    let Ok(Ok(known)) = known else { return Vec::new() };
    join_all(known.into_iter().take(NODES_MAX).map(async |(name, address)| {
        let asked = tokio::time::timeout(NODE_DEADLINE, admin.node_stats(&address)).await;
        let stats = asked.ok().and_then(Result::ok);
        let partitions = stats.map(|stats| usize::try_from(stats.get(SERVED)).unwrap_or(usize::MAX));
        NodeAnswer { name, address, partitions }
    }))
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::quorum::tests::quorum;

    #[test]
    fn learners_do_not_count_and_lone_leader_is_past() {
        let mut told = Quorum { id: 1, role: CoordinatorRole::Leader.into(), term: 7, ..quorum(4, None) };
        told.coordinators[3].learner = true;
        let learner = Quorum { id: 4, role: CoordinatorRole::Learner.into(), term: 7, ..told.clone() };
        let away = |id| (format!("127.0.0.1:{id}"), Err(ErrorDetail::new(ErrorKind::Unreachable, "away").into()));
        let said = vec![("a".to_owned(), Ok(told)), away(2), away(3), ("d".to_owned(), Ok(learner))];
        let found = CoordinatorAnswers::new(said).expect("two answer");
        assert!(found.lacks_majority());
        let screen = found.screen(&[]);
        assert!(screen.starts_with("quorum      no leader, 1 of 3 answer\n"), "{screen}");
        assert!(screen.contains("led in term 7\n") && screen.contains("learner in term 7, has no vote"), "{screen}");
        let error = found.error(&[]);
        assert!(error.message.starts_with("no coordinator can lead: of 3 voters only one answers (1);"), "{error:?}");
    }
}
