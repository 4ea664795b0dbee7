//! A table's news, fetched from whoever answers first and knows enough.

use super::PIECES_MAX;
use super::dropped::says_dropped;
use crate::shared::Shared;
use archon_proto::convert::error::detail_of;
use archon_proto::convert::ids::{check_address, cluster_id, generation_key};
use archon_proto::trace::TracedChannel;
use archon_proto::v1::{self, table_client::TableClient};
use archon_security::{Expected, is_refused_for_good};
use archon_types::{Assembled, Assembly, ErrorDetail, ErrorKind, GenerationKey, TableDelta, TablePiece, Version};
use futures::stream::{FuturesUnordered, StreamExt};
use rand::seq::SliceRandom;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long one source may take over a fetch.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// After this long without an answer the next source is asked as well.
const HEDGE_AFTER: Duration = Duration::from_millis(150);
/// Most sources asked in one fetch.
const SOURCES_MAX: usize = 16;
/// Answers after which a fetch is content although a newer version was hinted at.
const ANSWERS_ENOUGH: usize = 3;
/// Most coordinators' addresses taken from a server.
const COORDINATORS_MAX: usize = 64;

/// A server's answer, checked.
pub(super) struct Fetched {
    pub(super) delta: TableDelta,
    /// Of the generation in which the server lives.
    pub(super) generation_key: GenerationKey,
    /// The server is a coordinator, or the only one who is asked: it says which history of the cluster counts.
    pub(super) decides: bool,
}

/// Both lists, each in random order, the first before the second, without doubles.
pub(super) fn shuffled(mut first: Vec<String>, mut second: Vec<String>) -> Vec<String> {
    first.shuffle(&mut rand::rng());
    second.retain(|address| !first.contains(address));
    second.shuffle(&mut rand::rng());
    first.extend(second);
    first.truncate(SOURCES_MAX);
    first
}

/// Asks one source after the other, the next as soon as one fails or is slow, until an answer holds `at_least`, or
/// several answers do not. The newest answer counts.
pub(super) async fn fetch_any(
    shared: &Shared,
    name: &str,
    since: Version,
    at_least: Version,
    sources: Vec<String>,
) -> Result<Fetched, ErrorDetail> {
    let mut tried = sources.clone();
    let mut waiting = VecDeque::from(sources);
    let mut running = FuturesUnordered::new();
    let mut failure: Option<ErrorDetail> = None;
    let mut best: Option<Fetched> = None;
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
            // Whoever names the table still knows less.
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
                // An answer says more than a connection that could not be made, and a certificate that is refused more than nobody.
                let weight = |detail: &ErrorDetail| match is_refused_for_good(&detail.message) {
                    true => 1,
                    false => 2 * u8::from(detail.kind != ErrorKind::Unreachable),
                };
                if failure.as_ref().is_none_or(|held| weight(held) < 2 && weight(&detail) >= weight(held)) {
                    failure = Some(detail);
                }
            }
        }
    }
}

async fn fetch_owned(shared: &Shared, source: String, name: &str, since: Version) -> Result<Fetched, ErrorDetail> {
    fetch(shared, &source, name, since, Duration::ZERO, FETCH_TIMEOUT).await
}

/// A table's news from one source, however many pieces they come in.
pub(super) async fn fetch(
    shared: &Shared,
    source: &str,
    name: &str,
    since: Version,
    wait: Duration,
    limit: Duration,
) -> Result<Fetched, ErrorDetail> {
    let channel = shared.links.channel(source, Expected::Servers)?;
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
            Assembled::Whole(delta) => {
                let decides = shared.via.is_some() || shared.coordinators().iter().any(|address| address == source);
                return Ok(Fetched { delta, generation_key, decides });
            }
            Assembled::More(next) => (request.from, request.wait_ms, limit) = (next, 0, FETCH_TIMEOUT),
            Assembled::Gap => {
                let message = format!("{source} sent pieces of table {name:?} that do not go together");
                return Err(ErrorDetail::new(ErrorKind::Internal, message));
            }
        }
    }
    let message = format!("{source} sent more than {PIECES_MAX} pieces of table {name:?}");
    Err(ErrorDetail::new(ErrorKind::Internal, message))
}

/// One piece of a table, and the key of the generation in which whoever sent it lives.
async fn fetch_piece(
    shared: &Shared,
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
