//! Asking other coordinators whom they know.

use super::network::connect;
use super::wire::LocalVoter;
use archon_proto::v1::raft_client::RaftClient;
use archon_proto::v1::{HelloRequest, HelloResponse, hello_request};
use archon_security::{Expected, Transport};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::Status;
use uuid::Uuid;

/// A coordinator that is up answers at once.
const HELLO_DEADLINE: Duration = Duration::from_millis(500);

/// What each of those that were asked said.
pub(crate) type Answers = BTreeMap<u64, Result<HelloResponse, Status>>;

/// Which life of this coordinator's own process, or of one with a copy of its directory, answers at an address; `None` if none does.
pub(crate) async fn boot_at(transport: &Transport, local_voter: &LocalVoter, address: &str) -> Option<Uuid> {
    let mut client = RaftClient::new(connect(transport, address, Expected::Coordinator(local_voter.id))?);
    let answer = tokio::time::timeout(HELLO_DEADLINE, client.hello(local_voter.hello(local_voter.id))).await;
    Uuid::from_slice(&answer.ok()?.ok()?.into_inner().boot).ok()
}

/// Asks all of these but this coordinator itself, at once; about `subject` as well, if there is one.
pub(crate) async fn ask_all(
    transport: &Transport,
    local_voter: &LocalVoter,
    addresses: &BTreeMap<u64, String>,
    subject: Option<&hello_request::Subject>,
) -> Answers {
    let mut asked = JoinSet::new();
    for (id, address) in addresses.iter().filter(|(id, _)| **id != local_voter.id) {
        let id = *id;
        let hello = HelloRequest { subject: subject.cloned(), ..local_voter.hello(id) };
        let channel = connect(transport, address, Expected::Coordinator(id));
        asked.spawn(async move {
            let Some(channel) = channel else { return (id, Err(Status::unavailable("not an address"))) };
            let mut client = RaftClient::new(channel);
            let answer = tokio::time::timeout(HELLO_DEADLINE, client.hello(hello)).await;
            let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
            (id, answer.map(tonic::Response::into_inner))
        });
    }
    let mut answers = Answers::new();
    while let Some(answer) = asked.join_next().await {
        if let Ok((id, answer)) = answer {
            answers.insert(id, answer);
        }
    }
    answers
}
