//! The cached partition table: fetched whole once, then kept up to date by deltas. An older version never replaces a
//! newer one.

mod dropped;
mod fetch;
mod history;

use self::dropped::says_dropped;
use self::fetch::{FETCH_TIMEOUT, ServerAnswer, fetch, fetch_any, shuffled};
use self::history::History;
use crate::error::Error;
use crate::net::retry::Backoff;
use crate::state::ClientState;
use arc_swap::{ArcSwap, Guard};
use archon_security::is_refused_for_good;
use archon_types::{
    ErrorDetail, ErrorKind, GenerationKey, NodeStatus, PartitionTable, TableContent, TableDelta, Version,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

/// Maximum number of pieces of one table; more is an error of the sender.
pub(crate) const PIECES_MAX: usize = 1_024;
/// Time that a server may hold a long poll.
const POLL_WAIT: Duration = Duration::from_secs(5);
/// Pause before a client that may not read the table's routes asks for them again.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// Time that a long poll may take beyond [`POLL_WAIT`].
const POLL_SLACK: Duration = Duration::from_secs(1);
/// Maximum random delay in milliseconds before a hint is followed, so that many clients do not ask at the same
/// instant.
const HINT_JITTER_MS: u64 = 5;

/// One table's cache.
#[derive(Debug)]
pub(crate) struct TableCache {
    name: String,
    current: ArcSwap<PartitionTable>,
    /// Key of the table's generation. Locked while a new value is made from the current one.
    generation_key: Mutex<GenerationKey>,
    /// Newest version that any server has reported.
    hinted: AtomicU64,
    /// Newest hint that a refresh has answered, even if the refresh did not bring that version: a version may belong
    /// to another table, and must not be requested repeatedly.
    followed: AtomicU64,
    /// Requests a refresh from the background task. Refreshes run one at a time, so all callers that ask meanwhile
    /// share the next one.
    wanted: Notify,
    /// The cached version, for callers that wait for a newer one.
    changed: watch::Sender<Version>,
    /// Set once the table has been dropped.
    dropped: AtomicBool,
}

impl TableCache {
    /// Fetches the whole table, trying every source until one answers. Leaves the last failure in `last`.
    pub(crate) async fn open(shared: &ClientState, name: &str, last: &mut Option<ErrorDetail>) -> Result<Self, Error> {
        archon_types::limits::check_name("table", name).map_err(Error::from)?;
        let mut backoff = Backoff::default();
        loop {
            let sources = match &shared.via {
                Some(via) => shuffled(via.endpoints().to_vec(), Vec::new()),
                None => shuffled(shared.endpoints.clone(), shared.coordinators().to_vec()),
            };
            let fetching = fetch_any(shared, name, Version::ZERO, Version::ZERO, sources);
            let detail = match shared.measures.fetching(fetching).await {
                Ok(ServerAnswer { delta, generation_key, .. }) => match PartitionTable::from_whole(delta) {
                    Some(table) => {
                        shared.measures.refreshed(table.version());
                        return Ok(Self::new(name, table, generation_key));
                    }
                    None => ErrorDetail::new(ErrorKind::Internal, "asked for a whole table, a server sent a part"),
                },
                Err(detail) => detail,
            };
            if shared.stop.is_cancelled() {
                return Err(Error::Closed);
            }
            if is_refused_for_good(&detail.message) {
                return Err(ErrorDetail::new(ErrorKind::Refused, detail.message).into());
            }
            if !may_pass(detail.kind) {
                return Err(detail.into());
            }
            let pause = backoff.next(true, detail.retry_after_ms.map(Duration::from_millis), rand::random::<f64>());
            *last = Some(detail);
            sleep(pause).await;
        }
    }

    fn new(name: &str, table: PartitionTable, generation_key: GenerationKey) -> Self {
        Self {
            name: name.to_owned(),
            changed: watch::Sender::new(table.version()),
            current: ArcSwap::from_pointee(table),
            generation_key: Mutex::new(generation_key),
            hinted: AtomicU64::new(0),
            followed: AtomicU64::new(0),
            wanted: Notify::new(),
            dropped: AtomicBool::new(false),
        }
    }

    /// Returns the cached table.
    pub(crate) fn load(&self) -> Guard<Arc<PartitionTable>> {
        self.current.load()
    }

    /// Returns the cached table with the key of its generation, as of one moment.
    pub(crate) fn load_with_key(&self) -> (Arc<PartitionTable>, GenerationKey) {
        let key = self.generation_key.lock();
        (self.current.load_full(), *key)
    }

    /// Returns a receiver of the changes of the cached version.
    pub(crate) fn changes(&self) -> watch::Receiver<Version> {
        self.changed.subscribe()
    }

    /// Records that a server holds `version`. A version newer than the cached one causes a refresh soon after.
    pub(crate) fn hint(&self, version: Version) {
        let version = version.get();
        if version <= self.load().version().get() || version <= self.followed.load(Ordering::Relaxed) {
            return;
        }
        if self.hinted.fetch_max(version, Ordering::Relaxed) < version {
            self.wanted.notify_one();
        }
    }

    /// Requests a refresh without waiting for it; [`Self::changes`] reports the result.
    pub(crate) fn want_refresh(&self) {
        self.wanted.notify_one();
    }

    /// Fetches newer versions. A failure keeps the cached table: a caller that needs a newer one asks again.
    async fn refresh(&self, shared: &ClientState) {
        let hinted = self.hinted.load(Ordering::Relaxed);
        let followed = self.followed.load(Ordering::Relaxed);
        let at_least = if hinted > followed { Version::new(hinted) } else { Version::ZERO };
        let since = self.load().version();
        let sources = self.sources(shared);
        match shared.measures.fetching(fetch_any(shared, &self.name, since, at_least, sources)).await {
            Ok(fetched) => {
                if !self.take(shared, fetched)
                    && let Ok(whole) =
                        fetch_any(shared, &self.name, Version::ZERO, Version::ZERO, self.sources(shared)).await
                {
                    self.take(shared, whole);
                }
                // Hints of a history that was just abandoned are not valid in the other one.
                if self.hinted.load(Ordering::Relaxed) >= hinted {
                    self.followed.fetch_max(hinted, Ordering::Relaxed);
                }
            }
            Err(detail) if says_dropped(&detail, since) => self.note_dropped(shared),
            Err(detail) => tracing::debug!(table = self.name, %detail, "refreshing the table failed"),
        }
    }

    /// Applies an answer. Returns `false` if the whole table is needed instead: deltas before it are missing, it
    /// belongs to another table, or another history of the cluster is now valid.
    fn take(&self, shared: &ClientState, fetched: ServerAnswer) -> bool {
        let mut key = self.generation_key.lock();
        let ServerAnswer { delta, generation_key, decides } = fetched;
        let held = self.current.load_full();
        match History::of((held.version(), *key), (delta.version, generation_key), decides) {
            History::Same => self.merge(shared, &held, delta),
            History::Left => true,
            History::Replaces => {
                let replaced = self.replace(shared, &held, delta);
                if replaced {
                    *key = generation_key;
                }
                replaced
            }
        }
    }

    /// Switches to another history of the cluster and drops everything received in the previous one. Returns `false`
    /// if the answer is not a whole table.
    fn replace(&self, shared: &ClientState, held: &PartitionTable, delta: TableDelta) -> bool {
        let Some(table) = PartitionTable::from_whole(delta) else { return false };
        let version = table.version();
        tracing::info!(table = self.name, %version, before = %held.version(), "the cluster has begun a new generation");
        if table.table().id != held.table().id {
            self.note_dropped(shared);
            return true;
        }
        self.hinted.store(0, Ordering::Relaxed);
        self.followed.store(0, Ordering::Relaxed);
        shared.measures.refreshed(version);
        self.store(shared, table);
        true
    }

    fn store(&self, shared: &ClientState, table: PartitionTable) {
        let version = table.version();
        self.current.store(Arc::new(table));
        self.changed.send_replace(version);
        shared.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Applies a delta. Returns `false` if deltas before it are missing, or it belongs to another table.
    fn merge(&self, shared: &ClientState, held: &PartitionTable, delta: TableDelta) -> bool {
        if delta.table.id > held.table().id {
            // Another table has this name: this one has been dropped.
            self.note_dropped(shared);
            return true;
        }
        if delta.table.id < held.table().id {
            return false;
        }
        if delta.since <= held.version() {
            shared.measures.refreshed(held.version().max(delta.version));
        }
        let news = delta.version > held.version() || !delta.partitions.is_empty() || !delta.nodes.is_empty();
        if !news {
            return true;
        }
        let mut next = held.clone();
        let removed = delta.removed.clone();
        if !next.merge(delta) {
            return false;
        }
        if next != *held {
            if let Some(removed) = removed {
                shared.connections.forget(&removed);
            }
            self.store(shared, next);
        }
        true
    }

    /// Returns the servers to ask: the coordinators, live nodes, and the addresses that the caller gave. For lease
    /// tables only the coordinators: nodes do not learn the owners of leases, and the owners are other kinds of
    /// services. A client that contacts only its endpoints asks those.
    fn sources(&self, shared: &ClientState) -> Vec<String> {
        if let Some(via) = &shared.via {
            return shuffled(via.endpoints().to_vec(), Vec::new());
        }
        let table = self.load();
        let coordinators = shared.coordinators();
        if table.table().holds == TableContent::Lease && !coordinators.is_empty() {
            return shuffled(coordinators.to_vec(), Vec::new());
        }
        let nodes = table.nodes().filter(|node| node.status == NodeStatus::Alive).map(|node| node.address.clone());
        let mut others: Vec<String> = coordinators.iter().cloned().chain(nodes).collect();
        others.sort_unstable();
        others.dedup();
        shuffled(others, shared.endpoints.clone())
    }

    /// Runs the background task: a long poll for newer versions, interrupted by hints. Ends when the client stops, or
    /// the table is dropped.
    pub(crate) async fn keep_fresh(self: Arc<Self>, shared: Arc<ClientState>) {
        let mut backoff = Backoff::default();
        while !self.is_dropped() {
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
                pause = self.poll(&shared) => pause,
            };
            if let Some(least) = pause {
                let pause = backoff.pause(shared.budget.allows_quick(), None).max(least);
                tokio::select! {
                    () = shared.stop.cancelled() => return,
                    // An operation needs the table now: that is more important than sparing a source.
                    () = self.wanted.notified() => self.wanted.notify_one(),
                    () = sleep(pause) => {}
                }
            } else {
                backoff.reset();
            }
        }
    }

    /// Runs one long poll at a source chosen at random. Returns the minimum pause before the next one if this one
    /// failed, or if a server without support for long polls answered immediately.
    async fn poll(&self, shared: &ClientState) -> Option<Duration> {
        let Some(source) = self.sources(shared).into_iter().next() else { return Some(Duration::ZERO) };
        let (since, began) = (self.load().version(), Instant::now());
        let fetched = fetch(shared, &source, &self.name, since, POLL_WAIT, POLL_WAIT + POLL_SLACK).await;
        let gap = match fetched {
            Ok(fetched) => !self.take(shared, fetched),
            Err(detail) if says_dropped(&detail, since) => {
                self.note_dropped(shared);
                return None;
            }
            Err(detail) => {
                tracing::debug!(table = self.name, source, %detail, "long poll for the table failed");
                // Each rejected request is logged, hence the long pause; an operation that learns that it is
                // permitted by now asks immediately.
                return Some(if detail.kind == ErrorKind::Refused { REFUSED_PAUSE } else { Duration::ZERO });
            }
        };
        if gap && let Ok(whole) = fetch(shared, &source, &self.name, Version::ZERO, Duration::ZERO, FETCH_TIMEOUT).await
        {
            self.take(shared, whole);
        }
        (self.load().version() == since && began.elapsed() < POLL_WAIT / 2).then_some(Duration::ZERO)
    }
}

/// Returns `true` if waiting may help: for every error but those of a request that stays wrong.
fn may_pass(kind: ErrorKind) -> bool {
    kind.is_retryable() || matches!(kind, ErrorKind::DeadlineExceeded | ErrorKind::Internal)
}
