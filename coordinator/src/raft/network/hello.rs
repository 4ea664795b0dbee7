//! Questions to other coordinators: identity, standing, round trip.

use super::connect;
use super::wire::LocalVoter;
use crate::quorum::timing::TooFar;
use archon_proto::convert::ids::uuid_bytes;
use archon_proto::v1::raft_client::RaftClient;
use archon_proto::v1::{HelloRequest, HelloResponse, hello_request};
use archon_security::{ExpectedPeer, Transport};
use archon_types::{ClusterId, GenerationKey};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tonic::Status;
use uuid::Uuid;

/// Deadline of an answer including the connection: TCP, TLS and the answer take four round trips, and name resolution
/// may be slow.
const HELLO_DEADLINE: Duration = Duration::from_millis(2_500);
/// Measurements after which a round trip counts as too long. A single one is unreliable under load.
const MEASUREMENTS_MAX: usize = 12;

/// Answer of each coordinator that was asked.
pub(crate) type Answers = BTreeMap<u64, Result<HelloResponse, Status>>;

/// Returns the incarnation that answers at an address: of this coordinator's process, or of one with a copy of its
/// directory; `None` if none does.
pub(crate) async fn boot_at(transport: &Transport, local_voter: &LocalVoter, address: &str) -> Option<Uuid> {
    let mut client = RaftClient::new(connect(transport, address, ExpectedPeer::Coordinator(local_voter.id))?);
    let answer = tokio::time::timeout(HELLO_DEADLINE, client.hello(local_voter.hello(local_voter.id))).await;
    Uuid::from_slice(&answer.ok()?.ok()?.into_inner().boot).ok()
}

/// Questions asked beside the identity.
#[derive(Clone, Default)]
pub(crate) struct HelloQuestions {
    /// A question about another coordinator.
    pub(in crate::raft) subject: Option<hello_request::Subject>,
    /// Asks for a generation of this cluster later than this one, which has this key.
    pub(in crate::raft) lived: Option<(ClusterId, u64, GenerationKey)>,
    /// True if this coordinator works with a majority of its quorum.
    pub(in crate::raft) works: bool,
    /// Address at which former coordinators are to ask this one; empty: they are not to.
    pub(in crate::raft) address: String,
}

/// Asks all of these except this coordinator itself, concurrently.
pub(crate) async fn ask_all(
    transport: &Transport,
    local_voter: &LocalVoter,
    addresses: &BTreeMap<u64, String>,
    what: &HelloQuestions,
) -> Answers {
    let others = addresses.iter().filter(|(id, _)| **id != local_voter.id);
    let others = others.map(|(id, address)| (*id, address.as_str()));
    ask_each(transport, local_voter, others, what).await.into_iter().map(|(id, _, answer)| (id, answer)).collect()
}

/// Asks each coordinator at its address, concurrently. One number can have several addresses.
pub(in crate::raft) async fn ask_each<'a>(
    transport: &Transport,
    local_voter: &LocalVoter,
    addresses: impl Iterator<Item = (u64, &'a str)>,
    what: &HelloQuestions,
) -> Vec<(u64, String, Result<HelloResponse, Status>)> {
    let lived = what.lived;
    let cluster = lived.map(|(cluster, _, _)| uuid_bytes(cluster.get())).unwrap_or_default();
    let generation = lived.map_or(0, |(_, generation, _)| generation);
    let generation_key = lived.map(|(_, _, key)| uuid_bytes(key.get()));
    let works = what.works;
    let mut asked = JoinSet::new();
    for (id, address) in addresses {
        let (subject, cluster, generation_key) = (what.subject.clone(), cluster.clone(), generation_key.clone());
        let own = what.address.clone();
        let hello = local_voter.hello(id);
        let hello = HelloRequest { subject, cluster, generation, generation_key, works, address: own, ..hello };
        let channel = connect(transport, address, ExpectedPeer::Coordinator(id));
        let address = address.to_owned();
        asked.spawn(async move {
            let Some(channel) = channel else { return (id, address, Err(Status::from_error("not an address".into()))) };
            let mut client = RaftClient::new(channel);
            let answer = tokio::time::timeout(HELLO_DEADLINE, client.hello(hello)).await;
            let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
            (id, address, answer.map(tonic::Response::into_inner))
        });
    }
    let mut answers = Vec::new();
    while let Some(answer) = asked.join_next().await {
        answers.extend(answer.ok());
    }
    answers
}

/// Measures the round trip to a coordinator, until one measurement fits the timing. Returns true if it answered.
///
/// # Errors
/// [`TooFar`] if no measurement fits.
pub(crate) async fn check_distance(
    transport: &Transport,
    local_voter: &LocalVoter,
    id: u64,
    address: &str,
) -> Result<bool, TooFar> {
    let timing = local_voter.timing;
    match round_trip(transport, local_voter, id, address).await {
        Some(round_trip) if round_trip > timing.round_trip_max() => {
            Err(TooFar { id, address: address.to_owned(), round_trip, timing })
        }
        answered => Ok(answered.is_some()),
    }
}

/// Returns the shortest of several round trips to a coordinator, or the first that fits the timing; `None` if it does
/// not answer.
async fn round_trip(transport: &Transport, local_voter: &LocalVoter, id: u64, address: &str) -> Option<Duration> {
    let mut client = RaftClient::new(connect(transport, address, ExpectedPeer::Coordinator(id))?);
    let mut shortest: Option<Duration> = None;
    // The first one makes the connection.
    for measurement in 0..=MEASUREMENTS_MAX {
        let began = Instant::now();
        let answer = tokio::time::timeout(HELLO_DEADLINE, client.hello(local_voter.hello(id))).await;
        answer.ok()?.ok()?;
        let took = began.elapsed();
        if measurement > 0 {
            shortest = Some(shortest.map_or(took, |shortest| shortest.min(took)));
        }
        if shortest.is_some_and(|shortest| shortest <= local_voter.timing.round_trip_max()) {
            break;
        }
    }
    shortest
}
