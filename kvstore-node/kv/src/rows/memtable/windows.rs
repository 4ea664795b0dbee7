//! Windows of clients as a memtable's readers see them.

use super::{Memtable, UncommittedEntry};
use crate::exactly_once::window::{Piece, Window};
use crate::mutant::Mutant;
use crate::rows::memtable_budget::MemtableBudget;
use crate::rows::view::{Reader, ViewError};
use archon_types::{ClientId, Millis, Seq};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of cached windows of one partition. The windows of all partitions have a bound of their own
/// ([`MemtableBudget::is_cache_beyond_part`]).
const CACHE_BYTES_MAX: usize = 1024 * 1024;
/// Interval at which windows that were not looked up meanwhile are dropped without a freeze, in milliseconds.
const REVIEW_MS: u64 = 60_000;
/// The same while the windows of all memtables take more than their share: busy memtables then have no room for theirs.
const REVIEW_FULL_MS: u64 = 1_000;
/// Cost of a cached window beside its outcomes, in bytes.
const CACHED_OVERHEAD_BYTES: usize = 128;

/// Cache of newest windows: each equals the committed window after the uncommitted entries. Only windows that were
/// looked up are here, so a follower has none. Neither a commit nor a freeze changes a newest window.
#[derive(Debug)]
pub(super) struct NewestWindows {
    windows: BTreeMap<ClientId, CachedWindow>,
    /// Client of the latest look-up that found no window: its next record begins one. Other absent windows are not
    /// noted, or arbitrary client numbers would fill the cache.
    absent: Option<ClientId>,
    /// Uncommitted entries that record or forget a client. Built at the first look-up.
    entries: Option<BTreeSet<(ClientId, Seq)>>,
    /// A window was looked up since the last freeze.
    is_used: bool,
    /// Time of the last review without a freeze, or of the first look after a freeze.
    reviewed_at: Millis,
    /// A freeze has dropped unused windows since then.
    is_reviewed: bool,
    /// Client after which the search for a window to evict continues.
    hand: Bound<ClientId>,
    bytes: usize,
    budget: MemtableBudget,
}

#[derive(Debug)]
struct CachedWindow {
    window: Arc<Window>,
    /// It was looked up since the last freeze or search for a window to evict.
    is_used: bool,
}

impl NewestWindows {
    /// Creates an empty cache that is charged to this budget.
    pub(super) fn new(budget: MemtableBudget) -> Self {
        Self {
            windows: BTreeMap::new(),
            absent: None,
            entries: None,
            is_used: false,
            reviewed_at: Millis::ZERO,
            is_reviewed: true,
            hand: Bound::Unbounded,
            bytes: 0,
            budget,
        }
    }

    /// Applies an entry that becomes the last one.
    pub(super) fn push(&mut self, open: &UncommittedEntry) {
        if let Some(entries) = &mut self.entries {
            entries.extend(open.clients().map(|client| (client, open.seq)));
        }
        open.forget.iter().for_each(|client| self.remove(*client));
        let Some(record) = &open.record else { return };
        if let Some(cached) = self.windows.get_mut(&record.client) {
            let before = cost(&cached.window);
            Arc::make_mut(&mut cached.window).record(record, open.at);
            let after = cost(&cached.window);
            self.resize(before, after);
        } else if self.absent == Some(record.client) {
            self.insert(record.client, Arc::new(Window::new(record, open.at)));
        }
    }

    /// Handles the commit of the first entry.
    pub(super) fn pop(&mut self, open: &UncommittedEntry) {
        if let Some(entries) = &mut self.entries {
            open.clients().for_each(|client| {
                entries.remove(&(client, open.seq));
            });
        }
    }

    /// Drops everything, as the last entries were cut.
    pub(super) fn cut(&mut self) {
        self.entries = None;
        self.absent = None;
        if !self.budget.breaks(Mutant::WindowOutlivesCut) {
            self.windows.clear();
            self.resize(self.bytes, 0);
        }
    }

    /// Drops unused windows if the last time is long ago.
    pub(super) fn review(&mut self, now: Millis) {
        let interval_ms = if self.budget.is_cache_full() { REVIEW_FULL_MS } else { REVIEW_MS };
        if !self.is_reviewed && now.since(self.reviewed_at) < interval_ms {
            return;
        }
        if !self.is_reviewed {
            self.drop_unused();
        }
        (self.reviewed_at, self.is_reviewed) = (now, false);
    }

    /// Drops what was not looked up since the last call: a leader that lost its leadership keeps nothing.
    pub(super) fn drop_unused(&mut self) {
        self.is_reviewed = true;
        if !std::mem::take(&mut self.is_used) {
            self.entries = None;
        }
        let mut freed = 0;
        self.windows.retain(|_, cached| {
            let is_used = std::mem::take(&mut cached.is_used);
            freed += if is_used { 0 } else { cost(&cached.window) };
            is_used
        });
        self.resize(freed, 0);
    }

    fn get(&mut self, client: ClientId) -> Option<Arc<Window>> {
        self.is_used = true;
        // Also if all windows in use are cached: other partitions need room, too.
        self.shrink();
        let cached = self.windows.get_mut(&client)?;
        cached.is_used = true;
        Some(Arc::clone(&cached.window))
    }

    fn insert(&mut self, client: ClientId, window: Arc<Window>) {
        self.absent.take_if(|absent| *absent == client);
        let after = cost(&window);
        let before = self.windows.insert(client, CachedWindow { window, is_used: true });
        self.resize(before.map_or(0, |before| cost(&before.window)), after);
    }

    fn remove(&mut self, client: ClientId) {
        if let Some(cached) = self.windows.remove(&client) {
            self.resize(cost(&cached.window), 0);
        }
    }

    /// Charges a change in size, and evicts windows beyond the bounds.
    fn resize(&mut self, before: usize, after: usize) {
        if before != after {
            self.charge(self.bytes + after - before);
            self.shrink();
        }
    }

    fn charge(&mut self, bytes: usize) {
        self.budget.charge_cache(self.bytes, bytes);
        self.bytes = bytes;
    }

    /// Evicts windows beyond the bounds: first those not used since the search last passed them.
    fn shrink(&mut self) {
        while !self.windows.is_empty() && (self.bytes > CACHE_BYTES_MAX || self.budget.is_cache_beyond_part(self.bytes))
        {
            let mut rest = self.windows.range_mut((self.hand, Bound::Unbounded));
            let Some((client, cached)) = rest.next() else {
                self.hand = Bound::Unbounded;
                continue;
            };
            let client = *client;
            self.hand = Bound::Excluded(client);
            if !std::mem::take(&mut cached.is_used) {
                let freed = cost(&cached.window);
                self.windows.remove(&client);
                self.charge(self.bytes - freed);
            }
        }
    }
}

impl Drop for NewestWindows {
    fn drop(&mut self) {
        self.charge(0);
    }
}

fn cost(window: &Window) -> usize {
    CACHED_OVERHEAD_BYTES + window.bytes()
}

impl Memtable {
    /// Returns a client's window as `reader` sees it; `stored` reads the engine's.
    pub(crate) fn window(
        &self,
        client: ClientId,
        reader: Reader,
        stored: impl FnOnce() -> Result<Option<Window>, ViewError>,
    ) -> Result<Option<Arc<Window>>, ViewError> {
        if reader == Reader::Newest
            && let Some(window) = self.newest_windows.borrow_mut().get(client)
        {
            return Ok(Some(window));
        }
        let base = if self.is_reset(client) { None } else { stored()? };
        let committed = self.committed_window(client, base);
        if reader == Reader::Committed {
            return Ok(committed.map(Arc::new));
        }
        let mut newest = self.newest_windows.borrow_mut();
        let window = self.open_piece(client, &mut newest).over(committed).map(Arc::new);
        match &window {
            Some(window) => newest.insert(client, Arc::clone(window)),
            None => newest.absent = Some(client),
        }
        Ok(window)
    }

    /// Returns a client's committed window, with `stored` as the engine's.
    pub(crate) fn committed_window(&self, client: ClientId, stored: Option<Window>) -> Option<Window> {
        let later = self.budget.breaks(Mutant::WindowBegunLater);
        self.committed_pieces(client).fold(stored, |window, piece| match piece.over(window) {
            Some(mut window) if later => {
                window.created = piece.window.as_ref().map_or(window.created, |newer| newer.created);
                Some(window)
            }
            window => window,
        })
    }

    /// Returns the last use in a client's committed window, with `stored` as that in the engine's.
    pub(crate) fn committed_last(&self, client: ClientId, stored: Option<Millis>) -> Option<Millis> {
        self.committed_pieces(client).fold(stored, |last, piece| {
            last.filter(|_| !piece.reset).max(piece.window.as_ref().map(|window| window.last))
        })
    }

    /// Returns the clients with committed records here, from this one on and in order.
    pub(crate) fn clients_from(&self, client: ClientId) -> impl Iterator<Item = ClientId> {
        let frozen = self.frozen.iter().flat_map(move |frozen| frozen.pieces().from(client));
        let mut frozen = frozen.map(|(client, _)| client).peekable();
        let mut newer = self.pieces.from(client).map(|(client, _)| client).peekable();
        std::iter::from_fn(move || {
            let next = frozen.peek().into_iter().chain(newer.peek()).min().copied()?;
            frozen.next_if_eq(&next);
            newer.next_if_eq(&next);
            Some(next)
        })
    }

    /// Returns a client with a cached window that differs from that of the rows and entries, `stored` reading the engine's.
    /// Uses nothing that the cache keeps.
    pub(crate) fn differing_cached_window(
        &self,
        stored: impl Fn(ClientId) -> Result<Option<Window>, ViewError>,
    ) -> Result<Option<ClientId>, ViewError> {
        let newest = self.newest_windows.borrow();
        let cached = newest.windows.iter().map(|(client, cached)| (*client, Some(&*cached.window)));
        for (client, cached) in cached.chain(newest.absent.map(|client| (client, None))) {
            let mut piece = Piece::default();
            self.open.iter().for_each(|open| open.add_to(&mut piece, client));
            if piece.over(self.committed_window(client, stored(client)?)).as_ref() != cached {
                return Ok(Some(client));
            }
        }
        Ok(None)
    }

    fn committed_pieces(&self, client: ClientId) -> impl Iterator<Item = &Piece> {
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.pieces().get(client));
        frozen.into_iter().chain(self.pieces.get(client))
    }

    /// Returns whether a committed entry here forgets the client, so that the engine's row does not count.
    fn is_reset(&self, client: ClientId) -> bool {
        self.committed_pieces(client).any(|piece| piece.reset)
    }

    /// Returns what the uncommitted entries contain of a client.
    fn open_piece(&self, client: ClientId, newest: &mut NewestWindows) -> Piece {
        let entries = newest.entries.get_or_insert_with(|| indexed(&self.open));
        let mut piece = Piece::default();
        for (_, seq) in entries.range((client, Seq::ZERO)..=(client, Seq::new(u64::MAX))) {
            let place = self.open.binary_search_by_key(seq, |open| open.seq);
            debug_assert!(place.is_ok(), "an entry leaves the index with its commit or cut");
            place.into_iter().for_each(|at| self.open[at].add_to(&mut piece, client));
        }
        piece
    }
}

fn indexed(open: &VecDeque<UncommittedEntry>) -> BTreeSet<(ClientId, Seq)> {
    open.iter().flat_map(|open| open.clients().map(|client| (client, open.seq))).collect()
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
