//! View of a partition for operations: its memtable over its engine space, as one map of rows.

use super::memtable::Memtable;
use super::row::{self, KIND_CLIENT, RowError};
use crate::engine::{Engine, EngineError, Page, PageLimit, Row};
use crate::exactly_once::window::Window;
use archon_types::limits::PAGE_BYTES_MAX;
use archon_types::{ClientId, Millis, PlacementId, ScanOrder, Seq};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;

/// Rows read from the engine at once while merging.
const MERGE_ROWS: usize = 256;

/// Version of a row that a reader sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// The newest, even if uncommitted: for evaluating writes.
    Newest,
    /// The newest at or below the commit position: for answering reads.
    Committed,
}

/// Reason why a row cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A row differs from what was written.
    #[error(transparent)]
    Row(#[from] RowError),
}

impl ViewError {
    /// Returns whether the stored rows are damaged. An I/O error is no evidence for that: declaring the copy damaged
    /// would discard data that is still there.
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_damage(),
            Self::Row(_) => true,
        }
    }
}

/// Returns the position up to which `space` holds rows, by the engine's own record: written with the rows of each
/// memtable, and copied with those of a copy; `None` if it holds no entry's rows.
///
/// It may be ahead of the log's complete position, never behind: an engine that returns a lower one after a restart has
/// lost rows that it had synced, and its placement is damaged. It is ahead of the log's end only while a copy catches
/// up with the rows of its pages: until then the rows match no single position.
///
/// # Errors
/// [`ViewError`] if the row cannot be read.
pub fn engine_position(engine: &dyn Engine, space: PlacementId) -> Result<Option<Seq>, ViewError> {
    let row = engine.get(space, row::POSITION_KEY)?;
    Ok(row.map(|row| row::decode_millis(&row)).transpose()?.map(|position| Seq::new(position.get())))
}

/// A partition's rows at one moment. [`evaluate`](crate::operations::evaluate::evaluate) sees nothing else.
pub trait View {
    /// Returns the row with this key.
    ///
    /// # Errors
    /// [`ViewError`] if it cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError>;

    /// Returns rows from `from` up to and not including `to`, in this order of key; in descending order user rows only.
    /// Windows of clients are not among them.
    ///
    /// # Errors
    /// [`ViewError`] if they cannot be read.
    fn page(&self, from: Bound<&[u8]>, to: &[u8], order: ScanOrder, limit: PageLimit) -> Result<Page, ViewError>;

    /// Returns the window of a client, if it has one.
    ///
    /// # Errors
    /// [`ViewError`] if it cannot be read.
    fn window(&self, client: ClientId) -> Result<Option<Arc<Window>>, ViewError>;

    /// Returns at most `clients_max` clients with a window in committed rows, from this one on in order, each with its last
    /// use, and the client to continue from; `None` after the last one. A page may have fewer clients than there are.
    ///
    /// # Errors
    /// [`ViewError`] if they cannot be read.
    fn clients(&self, from: ClientId, clients_max: usize) -> Result<ClientPage, ViewError>;
}

/// Some clients with their last use, and the client to continue from.
pub type ClientPage = (Vec<(ClientId, Millis)>, Option<ClientId>);

/// Returns the client after this one; `None` for the last one there can be.
pub(crate) fn next_client(client: ClientId) -> Option<ClientId> {
    client.get().as_u128().checked_add(1).map(|next| ClientId::new(uuid::Uuid::from_u128(next)))
}

/// The view of one replica: memtable over engine.
pub struct PartitionView<'a> {
    memtable: &'a Memtable,
    engine: &'a dyn Engine,
    space: PlacementId,
    reader: Reader,
}

impl std::fmt::Debug for PartitionView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionView")
            .field("space", &self.space)
            .field("reader", &self.reader)
            .finish_non_exhaustive()
    }
}

impl<'a> PartitionView<'a> {
    /// Creates the view of `space` for `reader`.
    pub fn new(memtable: &'a Memtable, engine: &'a dyn Engine, space: PlacementId, reader: Reader) -> Self {
        Self { memtable, engine, space, reader }
    }

    /// Returns a client with a cached newest window that differs from that of the rows and entries: a check of simulations.
    ///
    /// # Errors
    /// [`ViewError`] if they cannot be read.
    pub fn differing_cached_window(&self) -> Result<Option<ClientId>, ViewError> {
        self.memtable.differing_cached_window(|client| self.stored_window(client))
    }

    /// Returns the engine's window of a client.
    fn stored_window(&self, client: ClientId) -> Result<Option<Window>, ViewError> {
        let row = self.engine.get(self.space, &row::client_key_bytes(client))?;
        Ok(row.map(|row| Window::decode(&row)).transpose()?)
    }
}

impl View for PartitionView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        match self.memtable.get(key, self.reader) {
            Some(found) => Ok(found.cloned()),
            None => Ok(self.engine.get(self.space, key)?),
        }
    }

    fn page(&self, from: Bound<&[u8]>, to: &[u8], order: ScanOrder, limit: PageLimit) -> Result<Page, ViewError> {
        let mut merged = Page::default();
        let mut bytes = 0;
        let mut from: Bound<Bytes> = from.map(Bytes::copy_from_slice);
        let mut to: Bound<Bytes> = Bound::Excluded(Bytes::copy_from_slice(to));
        loop {
            // One row more than requested, so that most short scans need one page of the engine.
            let rows_max = limit.rows_max.saturating_add(1).min(MERGE_ROWS);
            let ask = PageLimit { rows_max, bytes_max: limit.bytes_max };
            let (low, high) = (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]));
            let page = self.engine.page(self.space, (low, high), order, ask)?;
            // Beyond the last row of a partial page, the engine may hold rows that the memtable lacks.
            let last = page.rows.last().filter(|_| page.more).map(|row| row.key.clone());
            let end = last.as_ref().map(|last| Bound::Included(&last[..]));
            let overlay: Box<dyn Iterator<Item = _>> = match order {
                ScanOrder::Ascending => Box::new(self.memtable.range(low, end.unwrap_or(high), self.reader)),
                ScanOrder::Descending => Box::new(self.memtable.values_back(end.unwrap_or(low), high, self.reader)),
            };
            let shown =
                |row: &Row| row.key.first() != Some(&KIND_CLIENT) && !self.memtable.hides(&row.key, self.reader);
            let stored = page.rows.into_iter().filter(shown);
            for row in overlaid(stored, overlay, order) {
                let size = row.key.len() + row.value.len();
                if limit.is_full(merged.rows.len(), bytes, size) {
                    merged.more = true;
                    return Ok(merged);
                }
                bytes += size;
                merged.rows.push(row);
            }
            match (last, order) {
                (Some(last), ScanOrder::Ascending) => from = Bound::Excluded(last),
                (Some(last), ScanOrder::Descending) => to = Bound::Excluded(last),
                (None, _) => return Ok(merged),
            }
        }
    }

    fn window(&self, client: ClientId) -> Result<Option<Arc<Window>>, ViewError> {
        self.memtable.window(client, self.reader, || self.stored_window(client))
    }

    fn clients(&self, from: ClientId, clients_max: usize) -> Result<ClientPage, ViewError> {
        let clients_max = clients_max.max(1);
        let limit = PageLimit { rows_max: clients_max, bytes_max: PAGE_BYTES_MAX };
        let (low, high) = (row::client_key_bytes(from), [KIND_CLIENT + 1]);
        let keys = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        let page = self.engine.page(self.space, keys, ScanOrder::Ascending, limit)?;
        let stored = page.rows.into_iter().map(|row| Ok((row::decode_client_key(&row.key)?, row.value)));
        let stored = stored.collect::<Result<Vec<_>, RowError>>()?;
        // Beyond the last row of a partial page, the engine may hold clients that the memtable lacks.
        let end = stored.last().filter(|_| page.more).map(|(client, _)| *client);
        let mut stored = stored.into_iter().peekable();
        let here = self.memtable.clients_from(from);
        let mut here = here.take_while(|client| end.is_none_or(|end| *client <= end)).peekable();
        let mut found = Vec::new();
        let mut last_read = None;
        for _ in 0..clients_max {
            let next = match (stored.peek(), here.peek()) {
                (Some((one, _)), Some(other)) => *one.min(other),
                (Some((one, _)), None) => *one,
                (None, Some(other)) => *other,
                (None, None) => break,
            };
            let row = stored.next_if(|(client, _)| *client == next);
            here.next_if_eq(&next);
            let last = row.map(|(_, row)| Window::decode_last(&row)).transpose()?;
            found.extend(self.memtable.committed_last(next, last).map(|last| (next, last)));
            last_read = Some(next);
        }
        let is_cut = stored.peek().is_some() || here.peek().is_some();
        let end = if is_cut { last_read } else { end };
        Ok((found, end.and_then(next_client)))
    }
}

/// Merges two lists in the same order of key; for keys in both, the overlay's row is used, and a removed one hides the
/// other.
fn overlaid<'a>(
    stored: impl Iterator<Item = Row>,
    overlay: impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)>,
    order: ScanOrder,
) -> impl Iterator<Item = Row> {
    let mut stored = stored.peekable();
    let mut overlay = overlay.peekable();
    std::iter::from_fn(move || {
        loop {
            let from_overlay = match (stored.peek(), overlay.peek()) {
                (None, None) => return None,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some(row), Some((key, _))) if order == ScanOrder::Descending => *key >= &row.key,
                (Some(row), Some((key, _))) => *key <= &row.key,
            };
            if !from_overlay {
                return stored.next();
            }
            let (key, value) = overlay.next()?;
            if stored.peek().is_some_and(|row| row.key == *key) {
                stored.next();
            }
            if let Some(value) = value {
                return Some(Row { key: key.clone(), value: value.clone() });
            }
        }
    })
}
