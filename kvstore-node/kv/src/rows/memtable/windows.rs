//! Windows of clients as a memtable's readers see them.

use super::{Memtable, Open};
use crate::exactly_once::window::{Piece, Window};
use crate::mutant::Mutant;
use crate::rows::view::{Reader, ViewError};
use archon_types::ClientId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of cached windows of one partition, beyond which all are dropped and read again.
const CACHE_BYTES_MAX: usize = 1024 * 1024;
/// Cost of a cached window beside its outcomes, in bytes.
const CACHED_OVERHEAD_BYTES: usize = 128;

/// Cache of newest windows: each equals the committed window after the uncommitted entries. Only windows that were
/// looked up are here, so a follower has none; absent windows are not, or arbitrary client numbers would fill it.
#[derive(Debug, Default)]
pub(super) struct Newest {
    windows: BTreeMap<ClientId, Arc<Window>>,
    bytes: usize,
}

impl Newest {
    /// Applies an entry that becomes the last one.
    pub(super) fn apply(&mut self, open: &Open) {
        for client in &open.forget {
            if let Some(window) = self.windows.remove(client) {
                self.bytes -= cost(&window);
            }
        }
        if let Some(record) = &open.record
            && let Some(window) = self.windows.get_mut(&record.client)
        {
            let before = cost(window);
            Arc::make_mut(window).record(record, open.at);
            self.bytes = self.bytes + cost(window) - before;
        }
    }

    fn keep(&mut self, client: ClientId, window: &Arc<Window>) {
        if self.bytes > CACHE_BYTES_MAX {
            *self = Self::default();
        }
        self.bytes += cost(window);
        self.windows.insert(client, Arc::clone(window));
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
            && let Some(window) = self.newest_windows.borrow().windows.get(&client)
        {
            return Ok(Some(Arc::clone(window)));
        }
        let base = if self.is_reset(client) { None } else { stored()? };
        let committed = self.committed_window(client, base);
        if reader == Reader::Committed {
            return Ok(committed.map(Arc::new));
        }
        let window = self.open_piece(client).over(committed).map(Arc::new);
        window.iter().for_each(|window| self.newest_windows.borrow_mut().keep(client, window));
        Ok(window)
    }

    /// Returns a client's committed window, with `stored` as the engine's.
    pub(crate) fn committed_window(&self, client: ClientId, stored: Option<Window>) -> Option<Window> {
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.pieces().get(client));
        let pieces = frozen.into_iter().chain(self.pieces.get(client));
        let later = self.budget.breaks(Mutant::WindowBegunLater);
        pieces.fold(stored, |window, piece| match piece.over(window) {
            Some(mut window) if later => {
                window.created = piece.window.as_ref().map_or(window.created, |newer| newer.created);
                Some(window)
            }
            window => window,
        })
    }

    /// Returns the clients with committed records here, from this one on and in order.
    pub(crate) fn clients_from(&self, client: ClientId) -> impl Iterator<Item = ClientId> {
        let frozen = self.frozen.iter().flat_map(|frozen| frozen.pieces().from(client));
        let all: BTreeSet<ClientId> = frozen.chain(self.pieces.from(client)).map(|(client, _)| client).collect();
        all.into_iter()
    }

    /// Returns whether a committed entry here forgets the client, so that the engine's row does not count.
    fn is_reset(&self, client: ClientId) -> bool {
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.pieces().get(client));
        frozen.into_iter().chain(self.pieces.get(client)).any(|piece| piece.reset)
    }

    /// Returns what the uncommitted entries contain of a client. Walks over them.
    fn open_piece(&self, client: ClientId) -> Piece {
        let mut piece = Piece::default();
        for open in &self.open {
            if open.forget.contains(&client) {
                piece.forget();
            }
            open.record
                .iter()
                .filter(|record| record.client == client)
                .for_each(|record| piece.record(record, open.at));
        }
        piece
    }
}
