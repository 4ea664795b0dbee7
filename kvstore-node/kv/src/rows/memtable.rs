//! Memtable: effects not yet known to be in the engine, uncommitted ones by entry, committed ones by row.
//!
//! Conditions see the newest entry, even if uncommitted, since the entry they decide on goes after it. Reads see the
//! newest version at or below the commit position. Truncation cuts the end, when another leader's log replaces it.
//!
//! Only the newest version of a committed row is kept: rows are set blindly, so nothing older is ever needed. From time to
//! time the committed rows are frozen and given to the flusher, which sorts them; they leave once the engine holds
//! them. So a row overwritten often costs the engine one write per freeze, and a row set and removed in between costs
//! it none.
//!
//! Entries are slices of the log's memory, charged by the bytes of their rows. A committed row that is a small part of its
//! entry is copied out of it: otherwise a small row would keep the memory of a large entry, and no budget would count it.
//!
//! Records of operations change no rows here: committed ones are gathered as one piece per client, which the flusher joins
//! with the client's row in the engine (docs/design/adr/0091-exactly-once-windows.md).
//!
//! An entry that clears a range hides older rows in it from readers that see the entry: rows of earlier entries, frozen
//! rows, and rows that the engine holds until the flusher has cleared them.

#[cfg(test)]
mod count_tests;
#[cfg(test)]
mod model_tests;
mod read;
#[cfg(test)]
mod tests;
mod windows;

use super::cleared_ranges::{ClearedRanges, clear_cost};
use super::frozen_rows::FrozenRows;
use super::growth::{Growth, GrowthTracker};
use super::memtable_budget::MemtableBudget;
use super::row;
use super::row_map::{RowMap, is_value};
use crate::exactly_once::window::{Piece, Pieces, Record};
use crate::mutant::Mutant;
use crate::operations::effect::{Effect, RowChange};
use archon_types::{ClientId, KeyRange, Millis, Seq};
use bytes::Bytes;
use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;

/// Cost of a row beside its key and value, in bytes.
const ROW_OVERHEAD_BYTES: usize = 128;
/// Cost of an uncommitted entry beside its rows, in bytes: also in the index of entries by client.
const OPEN_BYTES: usize = size_of::<UncommittedEntry>() + 2 * size_of::<(ClientId, Seq)>();

/// Reason for refusing a change to the memtable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemtableError {
    /// Positions only rise.
    #[error("position {found} does not come after {last}")]
    NotNext {
        /// The position given.
        found: Seq,
        /// The last position held.
        last: Seq,
    },
    /// A committed entry is never cut (invariant P).
    #[error("cutting after {after} would remove committed entries up to {commit}; this replica has lost data")]
    CutBelowCommit {
        /// The requested cut.
        after: Seq,
        /// The commit position.
        commit: Seq,
    },
}

/// An uncommitted entry.
#[derive(Debug)]
struct UncommittedEntry {
    seq: Seq,
    at: Millis,
    clear: Option<KeyRange>,
    changes: Vec<RowChange>,
    forget: Vec<ClientId>,
    record: Option<Record>,
}

impl UncommittedEntry {
    /// Adds this entry's writes to the newest versions: user rows, or the others.
    fn note(&self, newest: &mut RowMap<UncommittedRow>, values: bool) {
        if let Some(range) = self.clear.as_ref().filter(|_| values) {
            newest.remove_values(range, |_, _| {});
        }
        for change in self.changes.iter().filter(|change| is_value(&change.key) == values) {
            let row = UncommittedRow { seq: self.seq, value: change.value.clone() };
            newest.update(change.key.clone(), |_, _| Some(row));
        }
    }

    /// Returns its cost to the budget.
    fn cost(&self) -> usize {
        let forgets = self.forget.len() * (size_of::<ClientId>() + 2 * size_of::<(ClientId, Seq)>());
        OPEN_BYTES + self.clear.as_ref().map_or(0, clear_cost) + self.changes.iter().map(cost).sum::<usize>() + forgets
    }

    /// Returns the bytes of its entry in the log, less a few: those of its rows and of the clients that it forgets.
    fn entry_bytes(&self) -> usize {
        self.changes.iter().map(RowChange::bytes).sum::<usize>() + self.forget.len() * size_of::<ClientId>()
    }

    /// Returns the clients that it records or forgets.
    fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.forget.iter().copied().chain(self.record.map(|record| record.client))
    }

    /// Adds what it contains of a client to the piece of the entries before it.
    fn add_to(&self, piece: &mut Piece, client: ClientId) {
        if self.forget.contains(&client) {
            piece.forget();
        }
        if let Some(record) = self.record.as_ref().filter(|record| record.client == client) {
            piece.record(record, self.at);
        }
    }
}

/// An uncommitted row and the position that wrote it.
#[derive(Debug)]
struct UncommittedRow {
    seq: Seq,
    value: Option<Bytes>,
}

/// One partition's memtable.
#[derive(Debug)]
pub struct Memtable {
    /// Uncommitted entries, oldest first.
    open: VecDeque<UncommittedEntry>,
    /// Newest version of each row in `open`, user rows and others apart, built at the first lookup of such a row.
    /// Lookups happen only where operations are evaluated: a follower's memtable has none, and a leader of plain puts
    /// has none of user rows.
    newest_values: OnceCell<RowMap<UncommittedRow>>,
    newest_others: OnceCell<RowMap<UncommittedRow>>,
    /// Ranges that `open` clears: readers of the newest version see no older row there.
    open_clears: ClearedRanges,
    /// Ranges cleared since the last freeze: frozen and engine rows there are hidden.
    clears: ClearedRanges,
    /// Newest committed version of each row written since the last freeze; `None` for a removed row.
    rows: RowMap<Option<Bytes>>,
    /// Bytes of `rows`, `clears` and `pieces`.
    rows_bytes: usize,
    /// Committed records since the last freeze.
    pieces: Pieces,
    /// Newest windows that were looked up, uncommitted records included.
    newest_windows: RefCell<windows::NewestWindows>,
    frozen: Option<FrozenRows>,
    last: Seq,
    commit: Seq,
    /// Position up to which the engine may hold rows that it is not known to hold.
    engine_ahead: Seq,
    /// Position in the engine's own position row, once the frozen rows are written. Never falls.
    engine_position: Seq,
    /// Bytes of everything.
    bytes: usize,
    /// Bytes charged to the budget.
    charged: usize,
    budget: MemtableBudget,
    growing: GrowthTracker,
}

impl Memtable {
    /// Creates an empty memtable over an engine that holds everything up to `flushed`.
    pub fn new(flushed: Seq, budget: MemtableBudget) -> Self {
        Self {
            open: VecDeque::new(),
            newest_values: OnceCell::new(),
            newest_others: OnceCell::new(),
            open_clears: ClearedRanges::default(),
            clears: ClearedRanges::default(),
            rows: RowMap::default(),
            rows_bytes: 0,
            pieces: Pieces::default(),
            newest_windows: RefCell::new(windows::NewestWindows::new(budget.clone())),
            frozen: None,
            last: flushed,
            commit: flushed,
            engine_ahead: Seq::ZERO,
            engine_position: flushed,
            bytes: 0,
            charged: 0,
            budget,
            growing: GrowthTracker::default(),
        }
    }

    /// Records that the engine may also hold rows of positions up to `upto`: [`Seq::new`]`(u64::MAX)` while a copy
    /// brings rows of unknown positions, and after a restart, which may have interrupted one.
    pub fn set_engine_ahead(&mut self, upto: Seq) {
        self.engine_ahead = upto;
    }

    /// Records the engine's own position ([`engine_position`](crate::engine_position)): a copy brought rows up to there, and writing this
    /// memtable's rows, of lower positions, must not lower it.
    pub fn set_engine_position(&mut self, position: Seq) {
        self.engine_position = self.engine_position.max(position);
    }

    /// Returns the position up to which the engine holds rows by its own record, once the frozen rows are written.
    pub const fn engine_position(&self) -> Seq {
        self.engine_position
    }

    /// Returns the position up to which the engine may hold rows that it is not known to hold.
    pub const fn engine_ahead(&self) -> Seq {
        self.engine_ahead
    }

    /// Adds the effect at `seq`.
    ///
    /// # Errors
    /// [`MemtableError::NotNext`] unless `seq` is above every position seen.
    pub fn push(&mut self, seq: Seq, effect: Effect) -> Result<(), MemtableError> {
        if seq <= self.last {
            return Err(MemtableError::NotNext { found: seq, last: self.last });
        }
        let Effect { at, clear, changes, forget, record } = effect;
        let open = UncommittedEntry { seq, at, clear, changes, forget, record };
        self.bytes += open.cost();
        self.charge();
        if let Some(range) = &open.clear {
            self.open_clears.add(seq, range.clone());
        }
        for values in [true, false] {
            if let Some(newest) = self.newest_mut(values) {
                open.note(newest, values);
            }
        }
        self.newest_windows.get_mut().push(&open);
        self.open.push_back(open);
        self.last = seq;
        Ok(())
    }

    /// Commits everything up to `seq`. Never goes back, nor beyond the last entry.
    pub fn commit(&mut self, seq: Seq) {
        self.commit = self.commit.max(seq.min(self.last));
        let mut time = None;
        while let Some(open) = self.open.pop_front_if(|open| open.seq <= self.commit) {
            time = Some(open.at);
            self.bytes -= open.cost();
            self.newest_windows.get_mut().pop(&open);
            // Its rows may stay for long after others of the same entry were overwritten.
            let entry_bytes = open.entry_bytes();
            if let Some(range) = open.clear {
                self.open_clears.settled(open.seq);
                self.clear(open.seq, detached(&range));
            }
            for change in open.changes {
                if let Some(newest) = self.newest_mut(is_value(&change.key)) {
                    newest.remove_if(&change.key, |row| row.seq == open.seq);
                }
                self.settle(change.detach(entry_bytes));
            }
            self.settle_records(&open.forget, open.record.as_ref(), open.at);
        }
        if let Some(at) = time {
            self.settle(RowChange::set(Bytes::from_static(row::LOG_TIME_KEY), row::encode_millis(at)));
            self.charge();
        }
    }

    /// Removes the rows of a range from the committed ones, and hides those below.
    fn clear(&mut self, seq: Seq, range: KeyRange) {
        let mut freed = 0;
        let growing = &mut self.growing;
        self.rows.remove_values(&range, |key, value| {
            freed += row_cost(key, value.as_ref());
            growing.note(key, Growth::of(key, Some(value.as_ref()), None));
        });
        growing.clear();
        let cost = clear_cost(&range);
        self.clears.add(seq, range);
        self.rows_bytes = self.rows_bytes + cost - freed;
        self.bytes = self.bytes + cost - freed;
    }

    /// Adds a change to the committed rows.
    fn settle(&mut self, change: RowChange) {
        let after = cost(&change);
        let RowChange { key, value } = change;
        let mut before = 0;
        let growing = &mut self.growing;
        if key == row::MERGED_KEY {
            // The rows of another partition have arrived, in order of their keys.
            growing.forget_trend();
        }
        self.rows.update(key, |key, held| {
            before = held.map_or(0, |held| row_cost(key, held.as_ref()));
            growing.note(key, Growth::of(key, held.map(Option::as_ref), value.as_ref()));
            Some(value)
        });
        self.rows_bytes = self.rows_bytes + after - before;
        self.bytes = self.bytes + after - before;
    }

    /// Adds what an entry forgets and records to the committed pieces.
    fn settle_records(&mut self, forget: &[ClientId], record: Option<&Record>, at: Millis) {
        let before = self.pieces.bytes();
        if !self.budget.breaks(Mutant::ForgottenKept) {
            forget.iter().for_each(|client| self.pieces.forget(*client));
        }
        record.into_iter().for_each(|record| self.pieces.record(record, at));
        let after = self.pieces.bytes();
        self.rows_bytes = self.rows_bytes + after - before;
        self.bytes = self.bytes + after - before;
    }

    /// Returns the growth of the committed rows since the last count. `None` once an entry has cleared some: only those
    /// still in the memtable are known, so the size is unknown until the next count.
    pub const fn grown(&self) -> Option<Growth> {
        self.growing.since()
    }

    /// Starts a count of all rows. `known` is the last user row a moment ago, in the engine or here. Returns the last
    /// user row to count: later writes beyond it are growth, so the count need not chase them.
    pub fn begin_count(&mut self, known: Option<Bytes>) -> Option<Bytes> {
        let last = known.max(self.last_value(&KeyRange::ALL));
        self.growing.begin(last.clone());
        last
    }

    /// Returns whether user rows grow at their end, like a time series: since the last count began, nearly all new rows
    /// have keys beyond those present then.
    pub const fn grows_at_the_end(&self) -> bool {
        self.growing.is_at_the_end()
    }

    /// Records that the count includes rows up to this key.
    pub fn count_reached(&mut self, key: Bytes) {
        self.growing.reached(key);
    }

    /// Completes the count. Returns the growth since the previous one; `None` if the count does not apply to this
    /// memtable, which did not exist when it began, or has cleared rows since.
    pub fn counted(&mut self) -> Option<Growth> {
        self.growing.counted()
    }

    /// Removes every entry after `after`.
    ///
    /// # Errors
    /// [`MemtableError::CutBelowCommit`]; nothing is removed then.
    pub fn truncate(&mut self, after: Seq) -> Result<(), MemtableError> {
        if after < self.commit {
            return Err(MemtableError::CutBelowCommit { after, commit: self.commit });
        }
        let mut cut = false;
        while let Some(open) = self.open.pop_back_if(|open| open.seq > after) {
            self.bytes -= open.cost();
            cut = true;
        }
        self.charge();
        if cut {
            self.newest_values.take();
            self.newest_others.take();
            self.newest_windows.get_mut().cut();
            self.open_clears.cut(after);
        }
        self.last = self.last.min(after);
        Ok(())
    }

    /// Drops the cached windows of clients that a quiet partition has not heard of for a while, or, while the windows of
    /// all memtables take more than their share, for a moment. A busy one does with each freeze.
    pub fn review_windows(&mut self, now: Millis) {
        self.newest_windows.get_mut().review(now);
    }

    /// Freezes the committed rows, to be written to the engine. Returns the rows already frozen until
    /// [`Memtable::flushed`] confirms them. `None` if there is nothing to write.
    pub fn freeze(&mut self) -> Option<FrozenRows> {
        if self.frozen.is_none() && !self.rows.is_empty() {
            self.note_position();
            let (rows, clears) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.clears));
            let (pieces, bytes) = (std::mem::take(&mut self.pieces), std::mem::take(&mut self.rows_bytes));
            self.newest_windows.get_mut().drop_unused();
            self.frozen = Some(FrozenRows::new(self.commit, rows, pieces, clears, bytes));
        }
        self.frozen.clone()
    }

    /// Adds the engine's position row to the committed rows.
    fn note_position(&mut self) {
        self.engine_position = self.engine_position.max(self.commit);
        let change = RowChange::set(Bytes::from_static(row::POSITION_KEY), row::encode_position(self.engine_position));
        let cost = cost(&change);
        self.rows.update(change.key, |_, _| Some(change.value));
        self.rows_bytes += cost;
        self.bytes += cost;
        self.charge();
    }

    /// Returns the rows on their way to the engine.
    pub const fn frozen(&self) -> Option<&FrozenRows> {
        self.frozen.as_ref()
    }

    /// Releases the frozen rows if they go up to `upto` at most: the engine holds them now. Dropping the result may
    /// free a million rows.
    pub fn flushed(&mut self, upto: Seq) -> Option<FrozenRows> {
        let frozen = self.frozen.take_if(|frozen| frozen.upto <= upto)?;
        self.bytes -= frozen.bytes();
        self.charge();
        Some(frozen)
    }

    fn newest_mut(&mut self, values: bool) -> Option<&mut RowMap<UncommittedRow>> {
        if values { self.newest_values.get_mut() } else { self.newest_others.get_mut() }
    }

    /// Returns the last position held, or up to which the engine held everything at the start.
    pub const fn last(&self) -> Seq {
        self.last
    }

    /// Returns the commit position, as far as known here.
    pub const fn committed(&self) -> Seq {
        self.commit
    }

    /// Returns the bytes held.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of committed rows that are not frozen.
    pub const fn rows_bytes(&self) -> usize {
        self.rows_bytes
    }

    /// Returns whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.rows.is_empty() && self.frozen.is_none()
    }

    /// Charges all changes to the budget at once, as all threads share it.
    fn charge(&mut self) {
        let before = std::mem::replace(&mut self.charged, self.bytes);
        if self.bytes >= before {
            self.budget.charge(self.bytes - before);
        } else {
            self.budget.release(before - self.bytes);
        }
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.budget.release(self.charged);
    }
}

/// Copies a range out of its entry.
fn detached(range: &KeyRange) -> KeyRange {
    let copy = |bound: &Bytes| Bytes::copy_from_slice(bound);
    KeyRange { begin: copy(&range.begin), end: range.end.as_ref().map(copy) }
}

fn cost(change: &RowChange) -> usize {
    row_cost(&change.key, change.value.as_ref())
}

fn row_cost(key: &Bytes, value: Option<&Bytes>) -> usize {
    ROW_OVERHEAD_BYTES + key.len() + value.map_or(0, Bytes::len)
}
