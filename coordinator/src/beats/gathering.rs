//! Shared quorum rounds: all heartbeats that arrived since the last round began share the next one, with one lock to
//! accept them, one round, and one pass to answer them.

use super::{BATCHES_MAX, Batch, BatchReceiver};
use crate::clock::boot_now;
use crate::leader::session::{LastHeartbeat, Session};
use crate::push::EncodedNews;
use crate::service::check_member;
use crate::statistics::metrics::Metrics;
use archon_coordinator_core::ClusterState;
use archon_coordinator_core::term::{Beat, ConfirmedHeartbeat, Round, UnconfirmedHeartbeat};
use archon_proto::convert::members::beat_proofs::{answer_statement, beat_statement, news_statement};
use archon_proto::convert::members::beats::{
    self, BeatAnswer, ClusterNow, HeartbeatAnswers, LeaseGrant, NEWS_MAX, NewsFor,
};
use archon_security::BeatKey;
use archon_types::{DiskFull, ErrorDetail, ErrorKind, NEWS_SINCE, NodeId, Version};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Deadline of a round, unless the quorum's timing requires a longer one. Nodes wait 150 ms, and accept later answers
/// too.
const ANSWER_DEADLINE: Duration = Duration::from_millis(140);
/// Minimum time between the beginnings of two rounds: heartbeats that arrive meanwhile share the cost of a round.
const PACE: Duration = Duration::from_millis(5);
/// Time after which later heartbeats do not wait for a running round.
const TIMEOUT: Duration = Duration::from_millis(40);
/// Maximum number of concurrent rounds.
const ROUNDS_MAX: usize = 16;

/// Heartbeats of several frames that wait for the same round.
struct PendingRound {
    round: Round,
    batches: Vec<(Batch, Vec<Entry>)>,
}

/// One heartbeat to be answered.
struct Entry {
    /// Its position in the frame.
    place: usize,
    /// Key that proves its answer, if a relay brings it to a member that knows its coordinators.
    key: Option<BeatKey>,
    /// Waits for the round, or was refused at once.
    outcome: Result<UnconfirmedHeartbeat, ErrorDetail>,
}

/// Answers heartbeats until the session ends.
pub(crate) async fn run(session: Arc<Session>, metrics: Arc<Metrics>, mut waiting: BatchReceiver) {
    let mut rounds = FuturesUnordered::new();
    let mut gathered: BTreeMap<Round, PendingRound> = BTreeMap::new();
    // The newest round while it runs, and the time at which it began.
    let (mut running, mut began) = (None::<Round>, None::<Instant>);
    let mut fresh = Vec::new();
    let deadline = session.quorum().timing().round(ANSWER_DEADLINE);
    loop {
        let pause = if running.is_some() { TIMEOUT } else { PACE };
        let free_at = began.map_or_else(Instant::now, |began| began + pause);
        let (may_begin, free) = (rounds.len() < ROUNDS_MAX, Instant::now() >= free_at);
        tokio::select! {
            () = session.stop().cancelled() => break,
            Some((round, led)) = rounds.next(), if !rounds.is_empty() => {
                running = running.filter(|newest| *newest != round);
                if let Some(gathered) = gathered.remove(&round) {
                    match led {
                        Ok(led) => judge(&session, &metrics, gathered, Some(led)),
                        Err(detail) => refuse(&metrics, gathered.batches, &detail),
                    }
                }
            }
            received = waiting.0.recv_many(&mut fresh, BATCHES_MAX), if may_begin && free => {
                if received == 0 {
                    break;
                }
                if let Some(these) = take_in(&session, &metrics, std::mem::take(&mut fresh)) {
                    let (session, round) = (Arc::clone(&session), these.round);
                    (running, began) = (Some(round), Some(Instant::now()));
                    gathered.insert(round, these);
                    rounds.push(async move { (round, session.led(deadline).await) });
                    metrics.heartbeat_rounds.add(1);
                }
            }
            () = sleep_until(free_at), if may_begin && !free => {}
        }
    }
    // Every waiting sender gets an answer, so that it asks another coordinator at once.
    let not_leading = session.quorum().not_leading();
    for gathered in gathered.into_values() {
        refuse(&metrics, gathered.batches, &not_leading);
    }
    waiting.0.close();
    while let Ok(batch) = waiting.0.try_recv() {
        batch.answer(Err(not_leading.clone()));
    }
}

/// Accepts batches. `None`: no heartbeat of them waits for a round.
fn take_in(session: &Session, metrics: &Metrics, batches: Vec<Batch>) -> Option<PendingRound> {
    let (now, state) = (boot_now(), session.quorum().replicated());
    let (mut turn_due, mut gathered) = (false, Vec::with_capacity(batches.len()));
    let mut term = session.term().lock();
    state.read(|state| {
        for batch in batches {
            if let Err(detail) = check_member(Some(&batch.beats.cluster.into()), state) {
                metrics.heartbeats_refused.add(1);
                batch.answer(Err(detail));
                continue;
            }
            let mut entries = Vec::with_capacity(batch.beats.beats.len());
            for (place, beat) in batch.beats.beats.iter().enumerate() {
                let (node, incarnation, number) = (beat.node, beat.incarnation, beat.number);
                let key = if batch.proven { key_of(state, node) } else { None };
                if batch.proven && !key.as_ref().is_some_and(|key| is_proven(key, beat)) {
                    let why = "a relay brought this heartbeat, and its member did not prove it with the ids that it registered with";
                    entries.push(Entry { place, key, outcome: Err(ErrorDetail::new(ErrorKind::Refused, why)) });
                    continue;
                }
                let (stopping, doors) = (beat.stopping, beat.doors.as_ref());
                match term.heartbeat(state, Beat { node, incarnation, number, stopping, doors }, now) {
                    Ok(Some(unconfirmed)) => {
                        turn_due |= unconfirmed.turn_due();
                        entries.push(Entry { place, key, outcome: Ok(unconfirmed) });
                    }
                    Ok(None) => metrics.heartbeats_overtaken.add(1),
                    Err(detail) => entries.push(Entry { place, key, outcome: Err(detail) }),
                }
            }
            gathered.push((batch, entries));
        }
    });
    let round = term.begin_round();
    drop(term);
    if turn_due {
        session.work.notify_one();
    }
    note(session, &gathered);
    if !session.is_granting() {
        let message =
            "this coordinator stalls and gives leadership away, or asks whether a recovery has taken its place";
        let detail = ErrorDetail::new(ErrorKind::NoQuorum, message).with_retry_after_ms(50);
        refuse(metrics, gathered, &detail);
        return None;
    }
    let anybody_waits = gathered.iter().flat_map(|(_, entries)| entries).any(|entry| entry.outcome.is_ok());
    let gathered = PendingRound { round, batches: gathered };
    if anybody_waits {
        return Some(gathered);
    }
    judge(session, metrics, gathered, None);
    None
}

/// Records the accepted heartbeats with their relays, and the loads of members.
fn note(session: &Session, gathered: &[(Batch, Vec<Entry>)]) {
    let now = boot_now();
    let granted = || {
        let entries = gathered.iter().flat_map(|(batch, entries)| entries.iter().map(move |entry| (batch, entry)));
        let granted = entries.filter(|(_, entry)| entry.outcome.is_ok());
        granted.filter_map(|(batch, entry)| Some((batch.beats.relay, batch.beats.beats.get(entry.place)?)))
    };
    session.note_heartbeats(granted().map(|(relay, beat)| {
        let last = LastHeartbeat {
            incarnation: beat.incarnation,
            at: now,
            table_version: beat.table_version,
            key: beat.push_key,
            via: relay.map(|(relay, _)| relay).filter(|relay| *relay != beat.node),
            carried: relay.is_some(),
        };
        (beat.node, last)
    }));
    let mut turned: Vec<(NodeId, Option<DiskFull>)> = Vec::new();
    {
        let mut loads = session.loads().lock();
        for (_, beat) in granted() {
            if let Some(load) = &beat.load
                && loads.note(beat.node, load)
            {
                turned.push((beat.node, load.disk_full));
            }
        }
    }
    for (node, disk_full) in turned {
        let name = session.quorum().replicated().read(|state| state.node_name(node));
        match disk_full {
            Some(lack) => tracing::warn!(node = name, "a node refuses writes, its disk is full: {lack}"),
            None => tracing::info!(node = name, "a node's disk has space for writes"),
        }
    }
}

/// Ends a round in which a majority confirmed that this coordinator leads in term `led`: answers the waiting heartbeats
/// and the immediately refused ones.
fn judge(session: &Session, metrics: &Metrics, gathered: PendingRound, led: Option<u64>) {
    let mut term = session.term().lock();
    let judged = session.quorum().replicated().read(|state| {
        let waiting = gathered.batches.iter().flat_map(|(_, entries)| entries);
        let waiting = waiting.filter_map(|entry| entry.outcome.as_ref().ok());
        let confirmed = waiting.map(|unconfirmed| term.confirmed(state, *unconfirmed, gathered.round, led));
        let confirmed: Vec<ConfirmedHeartbeat> = confirmed.collect::<Option<_>>()?;
        let replication_timeout_ms = state.settings.replication_timeout_ms;
        let relays = u32::try_from(state.relay_count()).unwrap_or(u32::MAX);
        let (protocol, term_number) = (state.protocol, led.unwrap_or(0));
        let door_every_ms = state.settings.doors_every_ms(protocol);
        let now = ClusterNow { replication_timeout_ms, protocol, term: term_number, relays, door_every_ms };
        Some((term.answers(state, confirmed, boot_now()), now))
    });
    drop(term);
    let Some((answers, now)) = judged else {
        return refuse(metrics, gathered.batches, &session.quorum().not_leading());
    };
    let (mut answers, lacking) = (answers.into_iter(), lacking(session, &gathered.batches));
    let (mut granted, mut refused) = (0, 0);
    for (batch, entries) in gathered.batches {
        let mut judged = HeartbeatAnswers::new(Vec::with_capacity(entries.len()), now);
        let mut places = BTreeMap::new();
        for Entry { place, key, outcome } in entries {
            let Some(beat) = batch.beats.beats.get(place) else { continue };
            let outcome = outcome.and_then(|_| answers.next().unwrap_or_else(|| Err(session.quorum().not_leading())));
            let outcome = outcome.map(|answer| LeaseGrant { lease_ms: answer.lease_ms, withdrawn: answer.withdrawn });
            match &outcome {
                Ok(_) => {
                    granted += 1;
                    metrics.heartbeat_seconds.observe(batch.came.elapsed());
                }
                Err(_) => refused += 1,
            }
            let (node, incarnation, number) = (beat.node, beat.incarnation, beat.number);
            let mut answer = BeatAnswer::new(node, incarnation, number, outcome);
            if let Some(key) = &key {
                answer.proof = key.prove(&answer_statement(&answer, &now));
            }
            let lacks =
                lacking.get(&beat.table_version).filter(|_| batch.beats.relay.is_some() && answer.outcome.is_ok());
            if let Some(news) = lacks
                && let Some(place) = place_of(news, beat.table_version, &mut places, &mut judged.news)
            {
                let proof = key.map(|key| key.prove(&news_statement(node, incarnation, &news.digest)));
                answer.news = Some(NewsFor { place, proof: proof.unwrap_or_default() });
                metrics.news.add(1);
            }
            judged.answers.push(answer);
        }
        batch.answer(Ok(judged));
    }
    metrics.heartbeats.add(granted);
    metrics.heartbeats_refused.add(refused);
}

/// Returns the news for the members of these batches whose heartbeats are relayed, by held version (rule 77).
fn lacking(session: &Session, batches: &[(Batch, Vec<Entry>)]) -> BTreeMap<Version, EncodedNews> {
    let carried = batches.iter().filter(|(batch, _)| batch.beats.relay.is_some());
    let held: BTreeSet<Version> =
        carried.flat_map(|(batch, _)| &batch.beats.beats).map(|beat| beat.table_version).collect();
    if held.is_empty() {
        return BTreeMap::new();
    }
    session.quorum().replicated().read(|state| {
        let newest = state.table_version();
        if state.protocol < NEWS_SINCE || held.first().is_none_or(|oldest| *oldest >= newest) {
            return BTreeMap::new();
        }
        let coordinators = session.quorum().coordinators();
        held.into_iter().filter_map(|since| Some((since, session.news.of(state, since, &coordinators)?))).collect()
    })
}

/// Returns the position of news in an answer, which has limited room: news that do not fit follow with the next one.
fn place_of(
    news: &EncodedNews,
    since: Version,
    places: &mut BTreeMap<Version, usize>,
    all: &mut Vec<Bytes>,
) -> Option<usize> {
    if let Some(place) = places.get(&since) {
        return Some(*place);
    }
    if all.len() >= NEWS_MAX {
        return None;
    }
    places.insert(since, all.len());
    all.push(news.bytes.clone());
    places.get(&since).copied()
}

/// Returns the key that proves a member's messages, and by which it knows a coordinator.
fn key_of(state: &ClusterState, node: NodeId) -> Option<BeatKey> {
    state.node(node).map(|row| BeatKey::new(row.storage, row.boot))
}

fn is_proven(key: &BeatKey, beat: &beats::Beat) -> bool {
    key.proves(&beat_statement(beat), &beat.proof)
}

fn refuse(metrics: &Metrics, batches: Vec<(Batch, Vec<Entry>)>, detail: &ErrorDetail) {
    for (batch, entries) in batches {
        metrics.heartbeats_refused.add(entries.len() as u64);
        batch.answer(Err(detail.clone()));
    }
}
