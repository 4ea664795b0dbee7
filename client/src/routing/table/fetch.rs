//! Fetches of a table's changes, from the first server that answers with a version that is new enough.

use super::PIECES_MAX;
use super::dropped::says_dropped;
use crate::state::ClientState;
use archon_proto::convert::error::detail_of;
use archon_proto::convert::ids::{check_address, cluster_id, generation_key};
use archon_proto::trace::TracedChannel;
use archon_proto::v1::{self, table_client::TableClient};
use archon_security::{ExpectedPeer, is_refused_for_good};
use archon_types::{Assembly, AssemblyResult, ErrorDetail, ErrorKind, GenerationKey, TableDelta, TablePiece, Version};
use futures::stream::{FuturesUnordered, StreamExt};
use rand::seq::SliceRandom;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Time limit for a fetch from one source.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without an answer after which the next source is asked as well.
const HEDGE_AFTER: Duration = Duration::from_millis(150);
/// Maximum number of sources asked in one fetch.
const SOURCES_MAX: usize = 16;
/// Number of answers after which a fetch ends, even if a hint named a newer version.
const ANSWERS_ENOUGH: usize = 3;
/// Maximum number of coordinators' addresses taken from a server.
const COORDINATORS_MAX: usize = 64;

/// A server's validated answer.
pub(super) struct ServerAnswer {
    pub(super) delta: TableDelta,
    /// Key of the server's generation.
    pub(super) generation_key: GenerationKey,
    /// Set if the server is a coordinator, or the only server that is asked: its answer decides which history of the
    /// cluster is valid.
    pub(super) decides: bool,
}

/// Returns both lists, each in random order, the first before the second, without duplicates.
pub(super) fn shuffled(mut first: Vec<String>, mut second: Vec<String>) -> Vec<String> {
    first.shuffle(&mut rand::rng());
    second.retain(|address| !first.contains(address));
    second.shuffle(&mut rand::rng());
    first.extend(second);
    first.truncate(SOURCES_MAX);
    first
}

/// Asks one source after the other, the next as soon as one fails or is slow, until an answer has version `at_least`
/// or several answers do not. Returns the newest answer.
pub(super) async fn fetch_any(
    shared: &ClientState,
    name: &str,
    since: Version,
    at_least: Version,
    sources: Vec<String>,
) -> Result<ServerAnswer, ErrorDetail> {
    let mut tried = sources.clone();
    let mut waiting = VecDeque::from(sources);
    let mut running = FuturesUnordered::new();
    let mut failure: Option<ErrorDetail> = None;
    let mut best: Option<ServerAnswer> = None;
    let mut answers = 0;
    loop {
        if running.is_empty() && waiting.is_empty() {
            return best.ok_or_else(|| {
                failure.unwrap_or_else(|| ErrorDetail::new(ErrorKind::Unreachable, "no endpoint is known"))
            });
        }
        if running.is_empty()
            && let Some(source) = waiting.pop_front()
        {
            running.push(fetch_owned(shared, source, name, since));
        }
        let result = tokio::select! {
            Some(result) = running.next() => result,
            () = sleep(HEDGE_AFTER), if !waiting.is_empty() => {
                if let Some(source) = waiting.pop_front() {
                    running.push(fetch_owned(shared, source, name, since));
                }
                continue;
            }
        };
        match result {
            Ok(fetched) => {
                answers += 1;
                if best.as_ref().is_none_or(|best| fetched.delta.version > best.delta.version) {
                    best = Some(fetched);
                }
                if let Some(best) = best.take_if(|best| best.delta.version >= at_least || answers >= ANSWERS_ENOUGH) {
                    return Ok(best);
                }
            }
            // A source that still has a table of this name is at an older version.
            Err(detail) if says_dropped(&detail, since) => return Err(detail),
            Err(detail) => {
                if shared.via.is_none()
                    && let Some(leader) = detail.leader.as_ref()
                    && !tried.contains(leader)
                    && tried.len() < 2 * SOURCES_MAX
                    && check_address(leader, "leader").is_ok()
                {
                    tried.push(leader.clone());
                    waiting.push_front(leader.clone());
                }
                let replaces = |held: &ErrorDetail| match (weight(held), weight(&detail)) {
                    // The last failed connection, but the first answer.
                    (held, new) if held == new => new < ANSWER,
                    (held, new) => new > held,
                };
                if failure.as_ref().is_none_or(replaces) {
                    failure = Some(detail);
                }
            }
        }
    }
}

/// Weight of an error that answers the question.
const ANSWER: u8 = 3;

/// Returns how informative a failure is: an answer is more informative than a failed connection, and a rejected
/// certificate is more informative than an unreachable server. A coordinator that does not lead has not answered yet. The
/// absence of the table is the answer of a confirmed leader, so no other source can add to it.
fn weight(detail: &ErrorDetail) -> u8 {
    match detail.kind {
        _ if is_refused_for_good(&detail.message) => 1,
        ErrorKind::Unreachable => 0,
        ErrorKind::NotCoordinatorLeader => 2,
        ErrorKind::NotFound => ANSWER + 1,
        _ => ANSWER,
    }
}

async fn fetch_owned(
    shared: &ClientState,
    source: String,
    name: &str,
    since: Version,
) -> Result<ServerAnswer, ErrorDetail> {
    fetch(shared, &source, name, since, Duration::ZERO, FETCH_TIMEOUT).await
}

/// Fetches a table's changes from one source, in any number of pieces.
pub(super) async fn fetch(
    shared: &ClientState,
    source: &str,
    name: &str,
    since: Version,
    wait: Duration,
    limit: Duration,
) -> Result<ServerAnswer, ErrorDetail> {
    let channel = shared.links.channel(source, ExpectedPeer::Servers)?;
    let mut client = TableClient::new(channel);
    let mut request = v1::GetTableRequest {
        cluster: shared.cluster_ref(),
        table: name.to_owned(),
        since: since.get(),
        wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
        from: 0,
        unassigned: false,
    };
    let (mut held, mut limit) = (None, limit);
    for _ in 0..PIECES_MAX {
        let (piece, generation_key) = fetch_piece(shared, &mut client, source, request.clone(), limit).await?;
        if piece.delta.table.name != name {
            let message = format!("{source} was asked for table {name:?} and sent {:?}", piece.delta.table.name);
            return Err(ErrorDetail::new(ErrorKind::Internal, message));
        }
        match Assembly::take(&mut held, piece) {
            AssemblyResult::Whole(delta) => {
                let decides = shared.via.is_some() || shared.coordinators().iter().any(|address| address == source);
                return Ok(ServerAnswer { delta, generation_key, decides });
            }
            AssemblyResult::More(next) => (request.from, request.wait_ms, limit) = (next, 0, FETCH_TIMEOUT),
            AssemblyResult::Gap => {
                let message = format!("{source} sent pieces of table {name:?} that do not go together");
                return Err(ErrorDetail::new(ErrorKind::Internal, message));
            }
        }
    }
    let message = format!("{source} sent more than {PIECES_MAX} pieces of table {name:?}");
    Err(ErrorDetail::new(ErrorKind::Internal, message))
}

/// Fetches one piece of a table, and the key of the sender's generation.
async fn fetch_piece(
    shared: &ClientState,
    client: &mut TableClient<TracedChannel>,
    source: &str,
    request: v1::GetTableRequest,
    limit: Duration,
) -> Result<(TablePiece, GenerationKey), ErrorDetail> {
    let response = match timeout(limit, client.get_table(request)).await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => {
            let mut detail = detail_of(&status);
            detail.message = format!("{source}: {}", detail.message);
            return Err(detail);
        }
        Err(_) => {
            let message = format!("{source} did not send the table within {} ms", limit.as_millis());
            return Err(ErrorDetail::new(ErrorKind::Unreachable, message));
        }
    };
    let cluster = cluster_id(response.cluster.as_ref())?
        .ok_or_else(|| ErrorDetail::new(ErrorKind::Internal, format!("{source} names no cluster in its table")))?;
    let delta = response
        .delta
        .ok_or_else(|| ErrorDetail::new(ErrorKind::Internal, format!("{source} sent an answer without a table")))?;
    let unreadable =
        |error| ErrorDetail::new(ErrorKind::Internal, format!("{source} sent a table that cannot be read: {error}"));
    let piece = TablePiece::try_from(delta).map_err(unreadable)?;
    let key = generation_key(&response.generation_key, "GetTableResponse.generation_key").map_err(unreadable)?;
    shared.check_cluster(cluster)?;
    let mut coordinators = response.coordinators;
    coordinators.retain(|address| check_address(address, "coordinator").is_ok());
    coordinators.truncate(COORDINATORS_MAX);
    shared.learn_coordinators(coordinators);
    Ok((piece, key))
}
