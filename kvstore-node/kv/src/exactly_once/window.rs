//! Windows of the exactly-once table: the records that a partition keeps of its clients
//! (docs/design/adr/0091-exactly-once-windows.md).
//!
//! A replica derives windows by applying the records of committed entries in order. Applying is a join, and forgetting
//! is a reset: an entry that is applied again, or to a window that contains later entries already, leads to the same
//! window once all entries up to the later position are applied. Replay and copies depend on that.

use crate::numbers::{put_number, take_number};
use crate::rows::row::{Outcome, RowError};
use archon_types::{ClientId, Millis};
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeMap;
use std::collections::VecDeque;

const FORMAT: u8 = 2;
/// Bytes of a window without outcomes.
const HEAD_BYTES: usize = 1 + 3 * 8;
/// Cost of a piece beside its outcomes, in bytes.
const PIECE_OVERHEAD_BYTES: usize = 192;
/// Cost of an outcome, in bytes.
const OUTCOME_BYTES: usize = size_of::<(u64, Outcome)>();
/// Capacity kept for a client's outcomes, in outcomes: it is soon used again.
const OUTCOMES_KEPT: usize = 64;

/// An operation that its entry records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The client.
    pub client: ClientId,
    /// The number of the operation.
    pub number: u64,
    /// The client has confirmed every operation below this number; at most `number`.
    pub done_below: u64,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Record that a partition keeps of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// Log time at which this window was begun. An operation stamped at or after it would be recorded if it had been
    /// applied, since the window has been kept ever since.
    pub created: Millis,
    /// Log time of the last operation recorded.
    pub last: Millis,
    /// The client has confirmed every operation below this number.
    pub done_below: u64,
    /// Outcomes of operations from `done_below` on, in order of number.
    outcomes: VecDeque<(u64, Outcome)>,
}

impl Window {
    /// Begins a window with the first operation of a client.
    pub fn new(record: &Record, at: Millis) -> Self {
        let mut window = Self { created: at, last: at, done_below: 0, outcomes: VecDeque::new() };
        window.record(record, at);
        window
    }

    /// Applies the record of an entry with log time `at`.
    pub fn record(&mut self, record: &Record, at: Millis) {
        self.last = self.last.max(at);
        self.confirm(record.done_below);
        self.insert(record.number, record.outcome);
    }

    /// Adds what another window of the same client contains; `created` and `last` span both.
    pub fn join(&mut self, other: &Self) {
        self.created = self.created.min(other.created);
        self.last = self.last.max(other.last);
        self.confirm(other.done_below);
        other.outcomes.iter().for_each(|(number, outcome)| self.insert(*number, *outcome));
    }

    /// Raises the done mark, and drops the outcomes below it.
    fn confirm(&mut self, done_below: u64) {
        self.done_below = self.done_below.max(done_below);
        while self.outcomes.pop_front_if(|(number, _)| *number < self.done_below).is_some() {}
        // Excess capacity after a burst.
        let kept = self.outcomes.len().max(OUTCOMES_KEPT);
        if kept < self.outcomes.capacity() / 4 {
            self.outcomes.shrink_to(2 * kept);
        }
    }

    fn insert(&mut self, number: u64, outcome: Outcome) {
        if number < self.done_below {
            return;
        }
        // Clients number upwards, so nearly every operation comes after all others.
        match self.outcomes.back() {
            Some((last, _)) if *last >= number => {
                if let Err(at) = self.place(number) {
                    self.outcomes.insert(at, (number, outcome));
                }
            }
            _ => self.outcomes.push_back((number, outcome)),
        }
    }

    /// Returns the index of an outcome, or its insertion point.
    fn place(&self, number: u64) -> Result<usize, usize> {
        self.outcomes.binary_search_by_key(&number, |(number, _)| *number)
    }

    /// Returns the outcome of an operation, if it is recorded.
    pub fn outcome(&self, number: u64) -> Option<Outcome> {
        // Most operations are above everything recorded.
        if self.outcomes.back().is_none_or(|(last, _)| *last < number) {
            return None;
        }
        self.place(number).ok().and_then(|at| self.outcomes.get(at)).map(|(_, outcome)| *outcome)
    }

    /// Returns the number of outcomes from this number on.
    pub fn outcomes_from(&self, number: u64) -> usize {
        match self.outcomes.front() {
            Some((first, _)) if *first < number => self.outcomes.len() - self.place(number).unwrap_or_else(|at| at),
            _ => self.outcomes.len(),
        }
    }

    /// Returns the cost of its outcomes to a budget, in bytes: that of the memory reserved for them.
    pub fn bytes(&self) -> usize {
        self.outcomes.capacity() * OUTCOME_BYTES
    }

    /// Encodes it as a row: format, begin, last use, done mark, and per outcome the distance of its number from the
    /// previous one (from the done mark for the first), and the outcome.
    pub fn encode(&self) -> Bytes {
        let mut row = Vec::with_capacity(HEAD_BYTES + self.outcomes.len() * 12);
        row.put_u8(FORMAT);
        row.put_u64(self.created.get());
        row.put_u64(self.last.get());
        row.put_u64(self.done_below);
        let mut before = self.done_below;
        for (number, outcome) in &self.outcomes {
            put_number(&mut row, number - before);
            outcome.put(&mut row);
            before = *number;
        }
        Bytes::from(row)
    }

    /// Decodes the last use in a row.
    ///
    /// # Errors
    /// [`RowError`] for a row without the head of a window. Its outcomes are not read.
    pub(crate) fn decode_last(row: &[u8]) -> Result<Millis, RowError> {
        head(row).map(|(_, last, _)| last)
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`RowError`] for anything [`Window::encode`] does not write.
    pub fn decode(row: &[u8]) -> Result<Self, RowError> {
        let error = || RowError { what: "client", bytes: row.len() };
        let (created, last, done_below) = head(row)?;
        let mut rest = &row[HEAD_BYTES..];
        let mut window = Self { created, last, done_below, outcomes: VecDeque::new() };
        let mut before = done_below;
        while !rest.is_empty() {
            let distance = take_number(&mut rest).map_err(|_| error())?;
            if distance == 0 && !window.outcomes.is_empty() {
                return Err(error());
            }
            let number = before.checked_add(distance).ok_or_else(error)?;
            window.outcomes.push_back((number, Outcome::take(&mut rest).ok_or_else(error)?));
            before = number;
        }
        Ok(window)
    }
}

/// Returns the begin, last use and done mark of an encoded window. The outcomes are not read.
fn head(row: &[u8]) -> Result<(Millis, Millis, u64), RowError> {
    let mut rest = row;
    if rest.len() < HEAD_BYTES || rest.get_u8() != FORMAT {
        return Err(RowError { what: "client", bytes: row.len() });
    }
    Ok((Millis::new(rest.get_u64()), Millis::new(rest.get_u64()), rest.get_u64()))
}

/// Window of some consecutive entries, to be joined with the one before them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// One of them forgets the client: nothing from before counts.
    pub reset: bool,
    /// Their window, begun after the reset if there is one; `None` if they record nothing since.
    pub window: Option<Window>,
}

impl Piece {
    /// Applies the record of an entry with log time `at`.
    pub fn record(&mut self, record: &Record, at: Millis) {
        match &mut self.window {
            Some(window) => window.record(record, at),
            None => self.window = Some(Window::new(record, at)),
        }
    }

    /// Applies an entry that forgets the client.
    pub fn forget(&mut self) {
        *self = Self { reset: true, window: None };
    }

    /// Returns the window after these entries, with `before` as the window before them.
    pub fn over(&self, before: Option<Window>) -> Option<Window> {
        match (before.filter(|_| !self.reset), &self.window) {
            (Some(mut before), Some(window)) => {
                before.join(window);
                Some(before)
            }
            (before, window) => before.or_else(|| window.clone()),
        }
    }

    fn bytes(&self) -> usize {
        PIECE_OVERHEAD_BYTES + self.window.as_ref().map_or(0, Window::bytes)
    }
}

/// The pieces of some consecutive entries, by client.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: BTreeMap<ClientId, Piece>,
    bytes: usize,
}

impl Pieces {
    /// Returns whether the entries contain nothing of any client.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns their cost to a budget, in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the piece of a client.
    pub fn get(&self, client: ClientId) -> Option<&Piece> {
        self.pieces.get(&client)
    }

    /// Returns the pieces from this client on, in order.
    pub fn from(&self, client: ClientId) -> impl Iterator<Item = (ClientId, &Piece)> {
        self.pieces.range(client..).map(|(client, piece)| (*client, piece))
    }

    /// Applies the record of an entry with log time `at`.
    pub fn record(&mut self, record: &Record, at: Millis) {
        self.change(record.client, |piece| piece.record(record, at));
    }

    /// Applies an entry that forgets a client.
    pub fn forget(&mut self, client: ClientId) {
        self.change(client, Piece::forget);
    }

    fn change(&mut self, client: ClientId, change: impl FnOnce(&mut Piece)) {
        let mut before = 0;
        let piece = self.pieces.entry(client).and_modify(|piece| before = piece.bytes()).or_default();
        change(piece);
        self.bytes = self.bytes + piece.bytes() - before;
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
pub(crate) mod tests;
