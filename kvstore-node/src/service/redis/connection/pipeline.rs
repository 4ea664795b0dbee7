//! Requests of one connection that are in progress at once, in the order in which they arrived.
//!
//! Requests on keys of one slot take effect in that order. Reads of different keys of a slot may overlap, and so may
//! writes; a read and a write, or two requests on the same key, never do. Requests on different slots have no order, as in a
//! Redis Cluster, where another node may serve each.

use archon_resp::{Command, CommandKind, find_command, key_positions};
use archon_types::slot_of;
use bytes::Bytes;
use std::collections::VecDeque;

/// Most requests of one connection in progress at once.
pub(super) const WINDOW_MAX: usize = 128;
/// Requests for which a window has room at its begin.
const WINDOW_FIRST: usize = 4;
/// Bytes of replies, present and expected, that requests in progress at once may have. One request always goes on.
const REPLY_BYTES_MAX: usize = 512 * 1024;
/// Expected bytes of the reply to a read before there was one.
pub(super) const REPLY_BYTES_FIRST: usize = 64 * 1024;
/// Least bytes that are expected of a reply.
const REPLY_BYTES_MIN: usize = 1024;

/// Access of a request to its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// Reads one key.
    Read,
    /// Writes one key by one operation.
    Write,
    /// Several operations, or several keys.
    Exclusive,
}

/// Slot and key of a request, and its access to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    command: &'static Command,
    slot: u16,
    access: Access,
    key: Bytes,
}

impl Place {
    /// Returns the place of a request that may be in progress beside others; `None` if it depends on the state of the
    /// connection or changes that, or is malformed. Such requests are executed alone.
    pub(super) fn of(request: &[Bytes]) -> Option<Self> {
        let command = find_command(request.first()?).filter(|command| command.takes(request.len()))?;
        let access = access(command, request)?;
        let mut positions = key_positions(command, request.len());
        let key = request.get(positions.next()?)?.clone();
        let slot = slot_of(&key);
        let mut access = access;
        for other in positions {
            access = Access::Exclusive;
            if request.get(other).is_none_or(|other| slot_of(other) != slot) {
                return None;
            }
        }
        Some(Self { command, slot, access, key })
    }
}

fn access(command: &Command, request: &[Bytes]) -> Option<Access> {
    match command.kind {
        CommandKind::Get
        | CommandKind::MGet
        | CommandKind::Exists
        | CommandKind::Touch
        | CommandKind::StrLen
        | CommandKind::GetRange
        | CommandKind::Substr
        | CommandKind::Digest
        | CommandKind::Type
        | CommandKind::Ttl
        | CommandKind::PTtl
        | CommandKind::ExpireTime
        | CommandKind::PExpireTime => Some(Access::Read),
        CommandKind::Del
        | CommandKind::Unlink
        | CommandKind::SetNx
        | CommandKind::SetEx
        | CommandKind::PSetEx
        | CommandKind::MSet
        | CommandKind::Incr
        | CommandKind::IncrBy
        | CommandKind::Decr
        | CommandKind::DecrBy => Some(Access::Write),
        // Those that depend on the value before read it first.
        CommandKind::Set => {
            let reads = |option: &Bytes| {
                ["GET", "XX", "IFEQ", "IFNE", "IFDEQ", "IFDNE"]
                    .iter()
                    .any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
            };
            Some(if request.iter().skip(3).any(reads) { Access::Exclusive } else { Access::Write })
        }
        // Transactions of their own.
        CommandKind::MSetNx
        | CommandKind::Rename
        | CommandKind::RenameNx
        | CommandKind::Copy
        | CommandKind::Append
        | CommandKind::DelEx
        | CommandKind::GetDel
        | CommandKind::GetEx
        | CommandKind::GetSet
        | CommandKind::IncrByFloat
        | CommandKind::SetRange
        | CommandKind::Expire
        | CommandKind::ExpireAt
        | CommandKind::PExpire
        | CommandKind::PExpireAt
        | CommandKind::Persist => Some(Access::Exclusive),
        _ => None,
    }
}

/// A request in the window.
#[derive(Debug)]
struct Entry<D> {
    place: Place,
    /// Its access, or exclusive access once it was refused for lack of room: later writes of its slot wait for it.
    access: Access,
    state: State<D>,
    /// An earlier request of its slot has to be done first.
    is_blocked: bool,
    /// Bytes of its reply: expected while it is in progress, and known once it is done.
    bytes: usize,
}

impl<D> Entry<D> {
    /// Returns whether a later request may be in progress beside this one.
    fn admits(&self, later: &Place) -> bool {
        self.place.slot != later.slot
            || matches!(self.state, State::Done(_))
            || !self.is_blocked
                && self.access == later.access
                && later.access != Access::Exclusive
                && self.place.key != later.key
    }
}

#[derive(Debug)]
enum State<D> {
    /// Not begun.
    Waiting(Vec<Bytes>),
    Running,
    /// Refused for lack of room beside others. It is executed again once it is the first.
    Again(Vec<Bytes>),
    Done(D),
}

/// Next step of a window.
#[derive(Debug)]
pub(super) enum Step<D> {
    /// The first request has this outcome; its reply is sent next.
    Reply(D),
    /// A request begins. One that is repeated needs all shares of admission that can be given back.
    Begin { command: &'static Command, number: u64, request: Vec<Bytes>, is_repeated: bool },
    /// No request can begin before one in progress has finished.
    Wait,
    /// No request is left.
    End,
}

/// Requests that have arrived and have no sent reply. `D` is an outcome.
#[derive(Debug)]
pub(super) struct Window<D> {
    /// Number of the first entry.
    first: u64,
    entries: VecDeque<Entry<D>>,
    /// All requests before this one have begun.
    begun_below: u64,
    /// Number of requests that wait for others of their slot.
    blocked: usize,
    running: usize,
    /// Bytes of replies: of those that wait for earlier ones, and expected ones.
    bytes: usize,
    /// Expected bytes of the reply to a read.
    expected_bytes: usize,
    /// Only requests before this one begin.
    halted_at: u64,
}

impl<D> Window<D> {
    /// Creates an empty window. The reply to a read is expected to have so many bytes.
    pub(super) fn new(expected_bytes: usize) -> Self {
        Self {
            first: 0,
            entries: VecDeque::with_capacity(WINDOW_FIRST),
            begun_below: 0,
            blocked: 0,
            running: 0,
            bytes: 0,
            expected_bytes,
            halted_at: u64::MAX,
        }
    }

    /// Returns the expected bytes of the next reply to a read.
    pub(super) const fn expected_bytes(&self) -> usize {
        self.expected_bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= WINDOW_MAX
    }

    /// Adds the next request.
    pub(super) fn push(&mut self, place: Place, request: Vec<Bytes>) {
        let is_blocked = !self.entries.iter().all(|earlier| earlier.admits(&place));
        self.blocked += usize::from(is_blocked);
        let access = place.access;
        let state = State::Waiting(request);
        self.entries.push_back(Entry { place, access, state, is_blocked, bytes: 0 });
    }

    /// Takes the next step.
    pub(super) fn step(&mut self) -> Step<D> {
        if let Some(outcome) = self.pop() {
            return Step::Reply(outcome);
        }
        if self.entries.is_empty() {
            return Step::End;
        }
        let is_repeated = matches!(self.entries.front(), Some(Entry { state: State::Again(_), .. }));
        match self.start() {
            Some((command, number, request)) => {
                Step::Begin { command, number, request, is_repeated: is_repeated && number == self.first }
            }
            None => Step::Wait,
        }
    }

    /// Takes a request to begin now, with its command and number: the earliest of those that may.
    fn start(&mut self) -> Option<(&'static Command, u64, Vec<Bytes>)> {
        let number = match self.entries.front()?.state {
            // It is executed again only once no other is in progress.
            State::Again(_) if self.running == 0 => self.first,
            _ => self.next_startable().filter(|number| *number < self.halted_at)?,
        };
        let (bytes, is_busy, expected_bytes) = (self.bytes, self.running > 0, self.expected_bytes);
        let entry = self.entry(number)?;
        let expected = if entry.place.access == Access::Write { 0 } else { expected_bytes };
        if is_busy && bytes.saturating_add(expected) > REPLY_BYTES_MAX {
            return None;
        }
        match std::mem::replace(&mut entry.state, State::Running) {
            State::Waiting(request) | State::Again(request) => {
                entry.bytes = expected;
                let command = entry.place.command;
                self.bytes = bytes.saturating_add(expected);
                self.running += 1;
                Some((command, number, request))
            }
            other => {
                entry.state = other;
                None
            }
        }
    }

    /// Returns the earliest request that may begin.
    fn next_startable(&mut self) -> Option<u64> {
        let skipped = self.begun_below.saturating_sub(self.first);
        let waiting = self.entries.iter().skip(usize::try_from(skipped).ok()?);
        let mut waiting =
            (self.first + skipped..).zip(waiting).filter(|(_, entry)| matches!(entry.state, State::Waiting(_)));
        let (first, entry) = waiting.next()?;
        self.begun_below = first;
        if entry.is_blocked {
            waiting.find(|(_, entry)| !entry.is_blocked).map(|(number, _)| number)
        } else {
            Some(first)
        }
    }

    /// Records the outcome of a request, and the bytes of its reply.
    pub(super) fn finish(&mut self, number: u64, outcome: D, bytes: usize) {
        self.running = self.running.saturating_sub(1);
        let Some(entry) = self.entry(number) else { return };
        entry.state = State::Done(outcome);
        let expected = std::mem::replace(&mut entry.bytes, bytes);
        let (slot, access) = (entry.place.slot, entry.place.access);
        self.bytes = self.bytes.saturating_sub(expected).saturating_add(bytes);
        if access != Access::Write {
            self.expected_bytes = bytes.max(self.expected_bytes / 2).max(REPLY_BYTES_MIN);
        }
        if self.blocked > 0 {
            self.unblock(slot);
        }
    }

    /// Records that a request was refused for lack of room, so that it is executed again once it is the first. Returns the
    /// request if it is not: it was alone, or a later write of its slot has begun, which it must not follow.
    pub(super) fn retry(&mut self, number: u64, request: Vec<Bytes>) -> Option<Vec<Bytes>> {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some((at, place)) = at.and_then(|at| Some((at, self.entries.get(at)?.place.clone()))) else {
            return Some(request);
        };
        let may_begin = |later: &Entry<D>| !matches!(later.state, State::Waiting(_)) || !later.is_blocked;
        let mut later = self.entries.iter().skip(at + 1);
        let is_overtaken =
            place.access == Access::Write && later.any(|later| later.place.slot == place.slot && may_begin(later));
        if is_overtaken || self.running <= 1 && at == 0 {
            return Some(request);
        }
        self.running = self.running.saturating_sub(1);
        if let Some(entry) = self.entries.get_mut(at) {
            entry.state = State::Again(request);
            if entry.access == Access::Write {
                entry.access = Access::Exclusive;
            }
            self.bytes = self.bytes.saturating_sub(std::mem::take(&mut entry.bytes));
        }
        None
    }

    /// Lets no request behind this one begin: the connection ends with its outcome.
    pub(super) fn halt(&mut self, number: u64) {
        self.halted_at = self.halted_at.min(number);
    }

    /// Takes the outcome of the first request, once it is there.
    fn pop(&mut self) -> Option<D> {
        match self.entries.front()?.state {
            State::Done(_) => {}
            _ => return None,
        }
        self.first += 1;
        let Entry { state, bytes, .. } = self.entries.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes);
        match state {
            State::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    fn entry(&mut self, number: u64) -> Option<&mut Entry<D>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(at)
    }

    /// Lets those requests of a slot begin that no earlier one of it blocks.
    fn unblock(&mut self, slot: u16) {
        let of_slot = |entry: &Entry<D>| entry.place.slot == slot;
        for at in 0..self.entries.len() {
            let Some(entry) = self.entries.get(at).filter(|entry| of_slot(entry) && entry.is_blocked) else { continue };
            if !self.entries.range(..at).all(|earlier| earlier.admits(&entry.place)) {
                // Later ones wait for this one.
                return;
            }
            if let Some(entry) = self.entries.get_mut(at) {
                entry.is_blocked = false;
                self.blocked = self.blocked.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
