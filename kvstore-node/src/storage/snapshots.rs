//! Snapshots of placements over an engine without any: rows as they were at one moment, while the flusher keeps
//! writing.
//!
//! A snapshot begins when the engine holds exactly what was committed up to a position, and is read once, in order of
//! keys. Before the flusher changes an unread row, its old state is kept here. So a snapshot costs a read per row that
//! is overwritten meanwhile, and memory for those rows until the reader has passed them; it ends, with a reason, if
//! that is too much, or if rows are removed by a clear.

use crate::engine::{Change, Engine, EngineError, PageLimit, Row};
use archon_security::{Caller, Identity, Role};
use archon_types::{KeyRange, PlacementId};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Snapshots of a node at once.
const OPEN_MAX: usize = 8;
/// Snapshots of clients with certificates among them, so that administrators always find room.
const CLIENTS_MAX: usize = 4;
/// Snapshots of one such client.
const CLIENT_MAX: usize = 2;
/// Snapshots of one address, where certificates are not used.
const ADDRESS_MAX: usize = 4;
/// Bytes of changed rows kept by all snapshots of a node.
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes among them that are kept for clients.
const CLIENTS_KEPT_BYTES_MAX: usize = KEPT_BYTES_MAX / 2;
/// Cost of a kept row beside its key and value, in bytes.
const KEPT_OVERHEAD_BYTES: usize = 128;

/// The reader of a snapshot, for limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SnapshotOwner {
    /// A member or an administrator, by certificate.
    Trusted,
    /// A client, by certificate.
    Client(Identity),
    /// A process without a certificate.
    Address(IpAddr),
}

impl SnapshotOwner {
    pub(crate) fn of(caller: &Caller) -> Self {
        match caller.identity.as_deref() {
            Some(identity) => match identity.role() {
                Role::Admin | Role::Coordinator | Role::Node => Self::Trusted,
                Role::Client | Role::Participant | Role::Operator => Self::Client(identity.clone()),
            },
            None => Self::Address(caller.from),
        }
    }

    const fn is_client(&self) -> bool {
        matches!(self, Self::Client(_))
    }
}

/// Reason why a snapshot has ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// The limit of the node is reached.
    #[error("this node gives {OPEN_MAX} snapshots already; try again later")]
    TooMany,
    /// The limit of its reader, or of all clients, is reached.
    #[error("this node gives {open} snapshots to {reader} already, which is the limit; try again later")]
    TooManyOf {
        /// The reader or readers.
        reader: String,
        /// The limit.
        open: usize,
    },
    /// More was overwritten than there is room for.
    #[error(
        "more than {0} bytes of rows were overwritten before they were read; read faster, or while less is written"
    )]
    TooMuchChanged(usize),
    /// Rows were cleared: they belong to another partition, or the copy is deleted.
    #[error("its rows were cleared, for the partition was split or has moved")]
    Cleared,
    /// They cannot be read.
    #[error("its rows cannot be read: {0}")]
    Unreadable(String),
}

/// The snapshots of a node.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    open: Mutex<Vec<Arc<Inner>>>,
    kept_bytes: AtomicUsize,
    /// Bytes among them that are kept for clients.
    clients_kept_bytes: AtomicUsize,
}

#[derive(Debug)]
struct Inner {
    space: PlacementId,
    owner: SnapshotOwner,
    /// The rows from there on are not read yet.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    from: Bound<Bytes>,
    /// End of the range, exclusive.
    end: Bytes,
    /// Old states of unread rows that were changed since: `None` where there was no row.
    kept: BTreeMap<Bytes, Option<Bytes>>,
    kept_bytes: usize,
    over: Option<SnapshotError>,
}

/// A snapshot being read; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    all: Arc<Snapshots>,
    inner: Arc<Inner>,
}

impl Snapshots {
    /// Begins a snapshot of the rows of a space from `begin` on and before `end`. Call it while the engine holds
    /// exactly the rows of the snapshot, with nothing on its way there.
    ///
    /// # Errors
    /// [`SnapshotError::TooMany`] or [`SnapshotError::TooManyOf`].
    pub(crate) fn open(
        self: &Arc<Self>,
        space: PlacementId,
        (begin, end): (Bytes, Bytes),
        owner: SnapshotOwner,
    ) -> Result<Snapshot, SnapshotError> {
        let from = Bound::Included(begin);
        let state = Mutex::new(State { from, end, kept: BTreeMap::new(), kept_bytes: 0, over: None });
        let inner = Arc::new(Inner { space, owner, state });
        let mut open = self.open.lock();
        check_room(&open, &inner.owner)?;
        open.push(Arc::clone(&inner));
        Ok(Snapshot { all: Arc::clone(self), inner })
    }

    /// Keeps the old states of rows before these changes go to the engine.
    pub(crate) fn before_write(&self, engine: &dyn Engine, changes: &[Change]) {
        for snapshot in self.open_now(|space| changes.iter().any(|change| change.space == space)) {
            let mut state = snapshot.state.lock();
            let own = changes.iter().filter(|change| change.space == snapshot.space);
            for change in own {
                if let Err(error) = self.keep(&mut state, engine, &snapshot, &change.key) {
                    self.end(&mut state, &snapshot.owner, error);
                    break;
                }
            }
        }
    }

    /// Ends snapshots with unread rows among these keys, which are about to be cleared.
    pub(crate) fn before_clear(&self, space: PlacementId, (from, to): (&[u8], &[u8])) {
        for snapshot in self.open_now(|of| of == space) {
            let mut state = snapshot.state.lock();
            let unread = match &state.from {
                Bound::Included(first) => to > &first[..],
                Bound::Excluded(last) => to > &last[..],
                Bound::Unbounded => true,
            };
            if unread && from < &state.end[..] {
                self.end(&mut state, &snapshot.owner, SnapshotError::Cleared);
            }
        }
    }

    /// Ends snapshots of a space that is about to be cleared.
    pub(crate) fn before_clear_all(&self, space: PlacementId) {
        let (from, to) = archon_kv::row::value_bounds(&KeyRange::ALL);
        self.before_clear(space, (&from, &to));
    }

    /// Returns the number of snapshots.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.open.lock().len()
    }

    fn open_now(&self, wanted: impl Fn(PlacementId) -> bool) -> Vec<Arc<Inner>> {
        let open = self.open.lock();
        open.iter().filter(|snapshot| wanted(snapshot.space)).cloned().collect()
    }

    fn keep(&self, state: &mut State, engine: &dyn Engine, snapshot: &Inner, key: &Bytes) -> Result<(), SnapshotError> {
        let unread = match &state.from {
            Bound::Included(first) => key >= first,
            Bound::Excluded(last) => key > last,
            Bound::Unbounded => true,
        };
        if state.over.is_some() || !unread || *key >= state.end || state.kept.contains_key(key) {
            return Ok(());
        }
        let before = engine.get(snapshot.space, key).map_err(|error| SnapshotError::Unreadable(error.to_string()))?;
        let bytes = kept_cost(key, before.as_ref());
        for (kept, max) in self.kept_for(&snapshot.owner) {
            // Only the flusher adds.
            if kept.load(Ordering::Relaxed) + bytes > max {
                return Err(SnapshotError::TooMuchChanged(max));
            }
        }
        for (kept, _) in self.kept_for(&snapshot.owner) {
            kept.fetch_add(bytes, Ordering::Relaxed);
        }
        state.kept_bytes += bytes;
        state.kept.insert(key.clone(), before);
        Ok(())
    }

    /// Returns the counts of kept bytes that a snapshot of this owner adds to, each with its limit.
    fn kept_for(&self, owner: &SnapshotOwner) -> impl Iterator<Item = (&AtomicUsize, usize)> {
        let clients = owner.is_client().then_some((&self.clients_kept_bytes, CLIENTS_KEPT_BYTES_MAX));
        std::iter::once((&self.kept_bytes, KEPT_BYTES_MAX)).chain(clients)
    }

    fn give_back(&self, owner: &SnapshotOwner, bytes: usize) {
        for (kept, _) in self.kept_for(owner) {
            kept.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn end(&self, state: &mut State, owner: &SnapshotOwner, why: SnapshotError) {
        self.give_back(owner, std::mem::take(&mut state.kept_bytes));
        state.kept.clear();
        state.over.get_or_insert(why);
    }
}

impl Snapshot {
    /// Returns the next rows, in order of key; `None` after the last ones.
    ///
    /// # Errors
    /// [`SnapshotError`]; nothing more follows.
    pub(crate) fn next(&self, engine: &dyn Engine, limit: PageLimit) -> Result<Option<Vec<Row>>, SnapshotError> {
        // The flusher waits meanwhile: it must neither overwrite rows being read, nor keep their old states.
        let mut state = self.inner.state.lock();
        if let Some(why) = &state.over {
            return Err(why.clone());
        }
        if matches!(&state.from, Bound::Included(first) | Bound::Excluded(first) if *first >= state.end) {
            return Ok(None);
        }
        let rows = self.read(&mut state, engine, limit);
        let rows = rows.map_err(|error| SnapshotError::Unreadable(error.to_string()));
        rows.inspect_err(|why| self.all.end(&mut state, &self.inner.owner, why.clone())).map(Some)
    }

    fn read(&self, state: &mut State, engine: &dyn Engine, limit: PageLimit) -> Result<Vec<Row>, EngineError> {
        let keys = (state.from.as_ref().map(|key| &key[..]), Bound::Excluded(&state.end[..]));
        let page = engine.page(self.inner.space, keys, archon_types::ScanOrder::Ascending, limit)?;
        let page_end = page.rows.last().filter(|_| page.more).map(|row| row.key.clone());
        let mut stored = page.rows.into_iter().peekable();
        let (mut rows, mut bytes, mut reached): (Vec<Row>, usize, Option<Bytes>) = (Vec::new(), 0, None);
        loop {
            let kept = state.kept.first_key_value().map(|(key, _)| key.clone());
            let kept = kept.filter(|key| page_end.as_ref().is_none_or(|end| key <= end));
            let from_kept = match (&kept, stored.peek()) {
                (None, None) => break,
                (Some(key), Some(row)) => *key <= row.key,
                (kept, None) => kept.is_some(),
                (None, Some(_)) => false,
            };
            let row = match (kept, from_kept) {
                (Some(key), true) => state.kept.get(&key).cloned().flatten().map(|value| Row { key, value }),
                _ => stored.peek().cloned(),
            };
            let size = row.as_ref().map_or(0, |row| row.key.len() + row.value.len());
            if limit.is_full(rows.len(), bytes, size) {
                // The rest is read again.
                state.from = reached.map_or_else(|| state.from.clone(), Bound::Excluded);
                return Ok(rows);
            }
            if from_kept && let Some((key, value)) = state.kept.pop_first() {
                let cost = kept_cost(&key, value.as_ref());
                state.kept_bytes -= cost;
                self.all.give_back(&self.inner.owner, cost);
                // The present state must not be seen.
                stored.next_if(|row| row.key == key);
                reached = Some(key);
            } else {
                reached = stored.next().map(|row| row.key);
            }
            bytes += size;
            rows.extend(row);
        }
        state.from = page_end.map_or_else(|| Bound::Included(state.end.clone()), Bound::Excluded);
        Ok(rows)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.all.open.lock().retain(|open| !Arc::ptr_eq(open, &self.inner));
        self.all.end(&mut self.inner.state.lock(), &self.inner.owner, SnapshotError::Cleared);
    }
}

/// Refuses a snapshot above the limit of its owner, or of the node.
fn check_room(open: &[Arc<Inner>], owner: &SnapshotOwner) -> Result<(), SnapshotError> {
    if open.len() >= OPEN_MAX {
        return Err(SnapshotError::TooMany);
    }
    let own = open.iter().filter(|other| other.owner == *owner).count();
    let clients = open.iter().filter(|other| other.owner.is_client()).count();
    let full = match owner {
        SnapshotOwner::Trusted => None,
        SnapshotOwner::Client(identity) if own >= CLIENT_MAX => Some((identity.to_string(), CLIENT_MAX)),
        SnapshotOwner::Client(_) => (clients >= CLIENTS_MAX).then(|| ("clients".to_owned(), CLIENTS_MAX)),
        SnapshotOwner::Address(from) => (own >= ADDRESS_MAX).then(|| (from.to_string(), ADDRESS_MAX)),
    };
    full.map_or(Ok(()), |(reader, open)| Err(SnapshotError::TooManyOf { reader, open }))
}

fn kept_cost(key: &Bytes, value: Option<&Bytes>) -> usize {
    KEPT_OVERHEAD_BYTES + key.len() + value.map_or(0, Bytes::len)
}

#[cfg(test)]
#[path = "snapshots_tests.rs"]
mod tests;
