//! A status while most coordinators are away: no leader can be waited for, so the answer is what those say that are there.

use crate::exit::Failure;
use crate::output::{Output, count_text};
use archon_client::{Admin, ErrorDetail, ErrorKind, Quorum, Status};
use futures::future::join_all;
use std::time::Duration;

/// When the coordinators are asked one by one: a leader has answered by then.
const LOOK_AFTER: Duration = Duration::from_millis(300);
/// How long each of them may take.
const COORDINATOR_DEADLINE: Duration = Duration::from_secs(1);
/// How long a node may take.
const NODE_DEADLINE: Duration = Duration::from_millis(500);
/// Most nodes that are asked.
const NODES_MAX: usize = 32;
/// What a node counts that it serves.
const SERVED: &str = "archon_node_partitions_led";

/// Asks for the status, but no longer than until a look at each coordinator finds that no majority is there. What they
/// say then, and the nodes, is printed for people, and comes with the failure for programs.
///
/// # Errors
/// As [`Admin::status`].
pub(super) async fn asked(admin: &Admin, output: &Output) -> Result<Status, Failure> {
    let status = admin.status();
    tokio::pin!(status);
    let look = async {
        tokio::time::sleep(LOOK_AFTER).await;
        Found::new(admin.quorum_of_each(COORDINATOR_DEADLINE).await)
    };
    let found = tokio::select! {
        status = &mut status => return Ok(status?),
        found = look => found,
    };
    // With a majority, or nobody who could say how many there are, it is only a matter of time.
    let Some(found) = found.filter(Found::lacks_majority) else { return Ok(status.await?) };
    let nodes = nodes(admin).await;
    if !output.is_json() && !output.watching {
        output.line(found.screen(&nodes))?;
    }
    Err(archon_client::Error::from(found.error(&nodes)).into())
}

/// What each coordinator said.
struct Found {
    /// How many there are.
    voters: usize,
    answers: Vec<Quorum>,
    /// Who said nothing.
    silent: Vec<String>,
}

impl Found {
    /// `None` if nobody knows how many there are.
    fn new(said: Vec<(String, Result<Quorum, archon_client::Error>)>) -> Option<Self> {
        let (mut answers, mut silent) = (Vec::new(), Vec::new());
        for (address, answer) in said {
            match answer {
                Ok(quorum) => answers.push(quorum),
                // It waits for its peers, and there is no quorum to speak of yet.
                Err(error) if error.kind() == ErrorKind::NoQuorum => return None,
                Err(_) => silent.push(address),
            }
        }
        let voters = answers.iter().map(|quorum| quorum.coordinators.len()).max()?;
        Some(Self { voters, answers, silent })
    }

    fn lacks_majority(&self) -> bool {
        self.answers.len() * 2 <= self.voters
    }

    fn screen(&self, nodes: &[Served]) -> String {
        let mut lines = vec![format!("quorum      no leader, {} of {} answer", self.answers.len(), self.voters)];
        // All of them hold the same list.
        for voter in self.answers.first().map_or(&[][..], |quorum| &quorum.coordinators) {
            let says = match self.answers.iter().find(|quorum| quorum.id == voter.id) {
                Some(quorum) => format!("{} in term {}", quorum.role.as_str(), quorum.term),
                None => "does not answer".to_owned(),
            };
            lines.push(format!("            {}  {}  {says}", voter.id, voter.address));
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

    fn error(&self, nodes: &[Served]) -> ErrorDetail {
        let answering = self.answers.iter().map(|quorum| quorum.id.to_string());
        let mut message = format!(
            "no coordinator can lead: of {} only {} ({}); not answering: {}",
            self.voters,
            if self.answers.len() == 1 { "one answers".to_owned() } else { format!("{} answer", self.answers.len()) },
            answering.collect::<Vec<_>>().join(", "),
            self.silent.join(", "),
        );
        if !nodes.is_empty() {
            let served: Vec<usize> = nodes.iter().filter_map(|node| node.partitions).collect();
            let (answer, sum) = (served.len(), served.iter().sum());
            let serve = count_text(sum, "partition", "partitions");
            message.push_str(&format!("; of {} nodes {answer} answer and serve {serve}", nodes.len()));
        }
        ErrorDetail::new(ErrorKind::NoQuorum, message)
    }
}

/// What a node says of itself.
struct Served {
    name: String,
    address: String,
    /// How many partitions it serves; `None` if it does not answer.
    partitions: Option<usize>,
}

/// The nodes that whoever answers knows of, each asked what it serves. None if nobody knows any.
async fn nodes(admin: &Admin) -> Vec<Served> {
    let known = tokio::time::timeout(NODE_DEADLINE, admin.node_addresses()).await;
    let Ok(Ok(known)) = known else { return Vec::new() };
    join_all(known.into_iter().take(NODES_MAX).map(async |(name, address)| {
        let asked = tokio::time::timeout(NODE_DEADLINE, admin.node_stats(&address)).await;
        let stats = asked.ok().and_then(Result::ok);
        let partitions = stats.map(|stats| usize::try_from(stats.get(SERVED)).unwrap_or(usize::MAX));
        Served { name, address, partitions }
    }))
    .await
}
