//! The cached partition table: fetched whole once, then kept up to date by deltas. Newer is never replaced by older.

use crate::error::Error;
use crate::retry::Backoff;
use crate::shared::Shared;
use arc_swap::{ArcSwap, Guard};
use archon_proto::convert::error::detail_of;
use archon_proto::convert::ids::{check_address, cluster_id};
use archon_proto::v1::{self, table_client::TableClient};
use archon_types::{
    Assembled, Assembly, ErrorDetail, ErrorKind, NodeStatus, PartitionTable, TableDelta, TablePiece, Version,
};
use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use rand::seq::SliceRandom;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;

/// How long one source may take over a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// After this long without an answer the next source is asked as well.
const HEDGE_AFTER: Duration = Duration::from_millis(150);
/// Most pieces that one table may come in; more is a defect of the sender.
pub(crate) const PIECES_MAX: usize = 1_024;
/// Most sources asked in one fetch.
const SOURCES_MAX: usize = 16;
/// Answers after which a fetch is content although a newer version was hinted at.
const ANSWERS_ENOUGH: usize = 3;
/// How long a server may hold a long poll.
const POLL_WAIT: Duration = Duration::from_secs(5);
/// What a long poll may take beyond that.
const POLL_SLACK: Duration = Duration::from_secs(1);
/// A hint is followed within this long at random, so that many clients do not ask in the same instant.
const HINT_JITTER_MS: u64 = 5;
/// Most coordinators' addresses taken from a server.
const COORDINATORS_MAX: usize = 64;

/// One table's cache.
#[derive(Debug)]
pub(crate) struct TableCache {
    name: String,
    current: ArcSwap<PartitionTable>,
    /// Held while a new value is made from the current one.
    writing: Mutex<()>,
    /// The newest version any server said it holds.
    hinted: AtomicU64,
    /// The newest hint that a refresh has answered, whether or not it brought that version: a version may belong to
    /// another table, and must not be chased for ever.
    followed: AtomicU64,
    /// Asks the background task for a refresh. It runs one at a time, so all who ask meanwhile share the next.
    wanted: Notify,
    /// The version held, for those who wait for a newer one.
    changed: watch::Sender<Version>,
}

/// A server's answer, checked.
struct Fetched {
    delta: TableDelta,
}

impl TableCache {
    /// Fetches the whole table, trying every source until one answers. What stood in the way is left in `last`.
    pub(crate) async fn open(shared: &Shared, name: &str, last: &mut Option<ErrorDetail>) -> Result<Self, Error> {
        archon_types::limits::check_name("table", name).map_err(Error::from)?;
        let mut backoff = Backoff::default();
        loop {
            let sources = shuffled(shared.endpoints.clone(), shared.coordinators().to_vec());
            let detail = match fetch_any(shared, name, Version::ZERO, Version::ZERO, sources).await {
                Ok(fetched) => match PartitionTable::from_whole(fetched.delta) {
                    Some(table) => return Ok(Self::new(name, table)),
                    None => ErrorDetail::new(ErrorKind::Internal, "asked for a whole table, a server sent a part"),
                },
                Err(detail) => detail,
            };
            if shared.stop.is_cancelled() {
                return Err(Error::Closed);
            }
            if !may_pass(detail.kind) {
                return Err(detail.into());
            }
            let pause = backoff.next(true, detail.retry_after_ms.map(Duration::from_millis), rand::random::<f64>());
            *last = Some(detail);
            sleep(pause).await;
        }
    }

    fn new(name: &str, table: PartitionTable) -> Self {
        Self {
            name: name.to_owned(),
            changed: watch::Sender::new(table.version()),
            current: ArcSwap::from_pointee(table),
            writing: Mutex::new(()),
            hinted: AtomicU64::new(0),
            followed: AtomicU64::new(0),
            wanted: Notify::new(),
        }
    }

    /// The table as it is held now.
    pub(crate) fn load(&self) -> Guard<Arc<PartitionTable>> {
        self.current.load()
    }

    /// Changes of the version held.
    pub(crate) fn changes(&self) -> watch::Receiver<Version> {
        self.changed.subscribe()
    }

    /// Notes that a server holds `version`; if it is news, a refresh follows soon.
    pub(crate) fn hint(&self, version: Version) {
        let version = version.get();
        if version <= self.load().version().get() || version <= self.followed.load(Ordering::Relaxed) {
            return;
        }
        if self.hinted.fetch_max(version, Ordering::Relaxed) < version {
            self.wanted.notify_one();
        }
    }

    /// Asks for a refresh without waiting for it; [`Self::changes`] tells what it brought.
    pub(crate) fn want_refresh(&self) {
        self.wanted.notify_one();
    }

    /// Fetches what is newer. A failure leaves what is held: whoever needs more asks again.
    async fn refresh(&self, shared: &Shared) {
        let hinted = self.hinted.load(Ordering::Relaxed);
        let followed = self.followed.load(Ordering::Relaxed);
        let at_least = if hinted > followed { Version::new(hinted) } else { Version::ZERO };
        let since = self.load().version();
        let sources = self.sources(shared);
        match fetch_any(shared, &self.name, since, at_least, sources).await {
            Ok(fetched) => {
                if !self.merge(shared, fetched.delta)
                    && let Ok(whole) =
                        fetch_any(shared, &self.name, Version::ZERO, Version::ZERO, self.sources(shared)).await
                {
                    self.merge(shared, whole.delta);
                }
                self.followed.fetch_max(hinted, Ordering::Relaxed);
            }
            Err(detail) => tracing::debug!(table = self.name, %detail, "refreshing the table failed"),
        }
    }

    /// Takes in a delta. `false` if there is a gap before it, or it is another table's.
    fn merge(&self, shared: &Shared, delta: TableDelta) -> bool {
        let _writing = self.writing.lock();
        let held = self.current.load_full();
        if delta.table.id != held.table().id {
            return false;
        }
        let news = delta.version > held.version() || !delta.partitions.is_empty() || !delta.nodes.is_empty();
        if !news {
            return true;
        }
        let mut next = (*held).clone();
        if !next.merge(delta) {
            return false;
        }
        if next != *held {
            let version = next.version();
            self.current.store(Arc::new(next));
            self.changed.send_replace(version);
            shared.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
        true
    }

    /// Whom to ask: the coordinators, live nodes, and the addresses the caller gave.
    fn sources(&self, shared: &Shared) -> Vec<String> {
        let table = self.load();
        let nodes = table.nodes().filter(|node| node.status == NodeStatus::Live).map(|node| node.address.clone());
        let mut others: Vec<String> = shared.coordinators().iter().cloned().chain(nodes).collect();
        others.sort_unstable();
        others.dedup();
        shuffled(others, shared.endpoints.clone())
    }

    /// The background task: a long poll for what is newer, interrupted by hints. Ends when the client stops.
    pub(crate) async fn keep_fresh(self: Arc<Self>, shared: Arc<Shared>) {
        let mut backoff = Backoff::default();
        loop {
            let pause = tokio::select! {
                () = shared.stop.cancelled() => return,
                () = self.wanted.notified() => {
                    let refresh = async {
                        sleep(Duration::from_millis(rand::random_range(0..=HINT_JITTER_MS))).await;
                        self.refresh(&shared).await;
                    };
                    if shared.stop.run_until_cancelled(refresh).await.is_none() {
                        return;
                    }
                    continue;
                }
                idle = self.poll(&shared) => idle,
            };
            if pause {
                let pause = backoff.pause(shared.budget.allows_quick(), None);
                tokio::select! {
                    () = shared.stop.cancelled() => return,
                    // Somebody needs the table now: that counts more than sparing a source.
                    () = self.wanted.notified() => self.wanted.notify_one(),
                    () = sleep(pause) => {}
                }
            } else {
                backoff.reset();
            }
        }
    }

    /// One long poll at a source chosen at random. Returns whether to pause before the next: it failed, or a server
    /// that knows no long poll answered at once.
    async fn poll(&self, shared: &Shared) -> bool {
        let Some(source) = self.sources(shared).into_iter().next() else { return true };
        let (since, began) = (self.load().version(), Instant::now());
        let fetched = fetch(shared, &source, &self.name, since, POLL_WAIT, POLL_WAIT + POLL_SLACK).await;
        let gap = match fetched {
            Ok(fetched) => !self.merge(shared, fetched.delta),
            Err(detail) => {
                tracing::debug!(table = self.name, source, %detail, "long poll for the table failed");
                return true;
            }
        };
        if gap && let Ok(whole) = fetch(shared, &source, &self.name, Version::ZERO, Duration::ZERO, FETCH_TIMEOUT).await
        {
            self.merge(shared, whole.delta);
        }
        self.load().version() == since && began.elapsed() < POLL_WAIT / 2
    }
}

/// Whether waiting may help: everything but a request that will be wrong for ever.
fn may_pass(kind: ErrorKind) -> bool {
    kind.is_retryable() || matches!(kind, ErrorKind::DeadlineExceeded | ErrorKind::Internal)
}

/// Both lists, each in random order, the first before the second, without doubles.
fn shuffled(mut first: Vec<String>, mut second: Vec<String>) -> Vec<String> {
    first.shuffle(&mut rand::rng());
    second.retain(|address| !first.contains(address));
    second.shuffle(&mut rand::rng());
    first.extend(second);
    first.truncate(SOURCES_MAX);
    first
}

/// Asks one source after the other, the next as soon as one fails or is slow, until an answer holds `at_least`, or
/// several answers do not. The newest answer counts.
async fn fetch_any(
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
            Err(detail) => {
                if let Some(leader) = detail.leader.as_ref()
                    && !tried.contains(leader)
                    && tried.len() < 2 * SOURCES_MAX
                    && check_address(leader, "leader").is_ok()
                {
                    tried.push(leader.clone());
                    waiting.push_front(leader.clone());
                }
                // An answer says more than a connection that could not be made.
                if failure.as_ref().is_none_or(|held| held.kind == ErrorKind::Unreachable) {
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
async fn fetch(
    shared: &Shared,
    source: &str,
    name: &str,
    since: Version,
    wait: Duration,
    limit: Duration,
) -> Result<Fetched, ErrorDetail> {
    let channel = shared.links.channel(source)?;
    let mut client = TableClient::new(channel);
    let mut request = v1::GetTableRequest {
        cluster: shared.cluster_ref(),
        table: name.to_owned(),
        since: since.get(),
        wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
        from: 0,
    };
    let (mut held, mut limit) = (None, limit);
    for _ in 0..PIECES_MAX {
        let piece = fetch_piece(shared, &mut client, source, request.clone(), limit).await?;
        if piece.delta.table.name != name {
            let message = format!("{source} was asked for table {name:?} and sent {:?}", piece.delta.table.name);
            return Err(ErrorDetail::new(ErrorKind::Internal, message));
        }
        match Assembly::take(&mut held, piece) {
            Assembled::Whole(delta) => return Ok(Fetched { delta }),
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

/// One piece of a table.
async fn fetch_piece(
    shared: &Shared,
    client: &mut TableClient<Channel>,
    source: &str,
    request: v1::GetTableRequest,
    limit: Duration,
) -> Result<TablePiece, ErrorDetail> {
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
    let piece = TablePiece::try_from(delta).map_err(|error| {
        ErrorDetail::new(ErrorKind::Internal, format!("{source} sent a table that cannot be read: {error}"))
    })?;
    shared.check_cluster(cluster)?;
    let mut coordinators = response.coordinators;
    coordinators.retain(|address| check_address(address, "coordinator").is_ok());
    coordinators.truncate(COORDINATORS_MAX);
    shared.learn_coordinators(coordinators);
    Ok(piece)
}
