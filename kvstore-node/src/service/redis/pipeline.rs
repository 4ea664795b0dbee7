//! Requests of one connection that are in progress at once, in the order in which they arrived.
//!
//! Requests on keys of one slot take effect in that order. Reads of different keys of a slot may overlap, and so may
//! writes; a read and a write, or two requests on the same key, never do. Requests on different slots have no order, as in a
//! Redis Cluster, where another node may serve each.

use archon_resp::{Command, CommandKind, find_command, key_positions};
use archon_types::slot_of;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most requests of one connection in progress at once.
pub(super) const WINDOW_MAX: usize = 128;
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

/// Requests of one slot in progress, and those that wait for them.
#[derive(Debug)]
struct Lane {
    /// Access of those in progress.
    access: Access,
    keys: Vec<Bytes>,
    waiting: VecDeque<(u64, Place)>,
}

impl Lane {
    /// Returns whether a request may be in progress beside those that are.
    fn admits(&self, place: &Place) -> bool {
        self.keys.is_empty()
            || self.access == place.access && place.access != Access::Exclusive && !self.keys.contains(&place.key)
    }
}

/// A request in the window.
#[derive(Debug)]
struct Entry<D> {
    place: Place,
    state: State<D>,
    /// Bytes of its reply: expected while it is in progress, and known once it is done.
    bytes: usize,
}

#[derive(Debug)]
enum State<D> {
    /// Not begun.
    Waiting(Vec<Bytes>),
    Running,
    /// Refused for lack of room beside others. It is executed again once it is the first, and others of its slot wait.
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
    lanes: BTreeMap<u16, Lane>,
    /// Requests that may begin.
    startable: BTreeSet<u64>,
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
    pub(super) const fn new(expected_bytes: usize) -> Self {
        Self {
            first: 0,
            entries: VecDeque::new(),
            lanes: BTreeMap::new(),
            startable: BTreeSet::new(),
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
        let number = self.first + self.entries.len() as u64;
        let lane = self.lanes.entry(place.slot).or_insert_with(|| Lane {
            access: place.access,
            keys: Vec::new(),
            waiting: VecDeque::new(),
        });
        if lane.waiting.is_empty() && lane.admits(&place) {
            lane.access = place.access;
            lane.keys.push(place.key.clone());
            self.startable.insert(number);
        } else {
            lane.waiting.push_back((number, place.clone()));
        }
        self.entries.push_back(Entry { place, state: State::Waiting(request), bytes: 0 });
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
            _ => *self.startable.first().filter(|number| **number < self.halted_at)?,
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
                self.startable.remove(&number);
                Some((command, number, request))
            }
            other => {
                entry.state = other;
                None
            }
        }
    }

    /// Records the outcome of a request, and the bytes of its reply.
    pub(super) fn finish(&mut self, number: u64, outcome: D, bytes: usize) {
        self.running = self.running.saturating_sub(1);
        let Some(entry) = self.entry(number) else { return };
        entry.state = State::Done(outcome);
        let expected = std::mem::replace(&mut entry.bytes, bytes);
        let Place { slot, access, key, .. } = entry.place.clone();
        self.bytes = self.bytes.saturating_sub(expected).saturating_add(bytes);
        if access != Access::Write {
            self.expected_bytes = bytes.max(self.expected_bytes / 2).max(REPLY_BYTES_MIN);
        }
        self.leave(slot, &key);
    }

    /// Records that a request was refused for lack of room, so that it is executed again once it is the first. Returns the
    /// request if it is not: it was alone, or a later write of its slot has begun, which it must not follow.
    pub(super) fn retry(&mut self, number: u64, request: Vec<Bytes>) -> Option<Vec<Bytes>> {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some((at, place)) = at.and_then(|at| Some((at, self.entries.get(at)?.place.clone()))) else {
            return Some(request);
        };
        let may_begin =
            |number: u64, state: &State<D>| !matches!(state, State::Waiting(_)) || self.startable.contains(&number);
        let mut later = (number + 1..).zip(self.entries.iter().skip(at + 1));
        let is_overtaken = place.access == Access::Write
            && later.any(|(number, later)| later.place.slot == place.slot && may_begin(number, &later.state));
        if is_overtaken || self.running <= 1 && at == 0 {
            return Some(request);
        }
        self.running = self.running.saturating_sub(1);
        if let Some(entry) = self.entries.get_mut(at) {
            entry.state = State::Again(request);
            self.bytes = self.bytes.saturating_sub(std::mem::take(&mut entry.bytes));
        }
        // Later writes of its slot wait for it.
        if place.access == Access::Write
            && let Some(lane) = self.lanes.get_mut(&place.slot)
        {
            lane.access = Access::Exclusive;
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

    /// Ends the access to a key, and lets the next requests of its slot begin.
    fn leave(&mut self, slot: u16, key: &Bytes) {
        let Some(lane) = self.lanes.get_mut(&slot) else { return };
        if let Some(at) = lane.keys.iter().position(|other| other == key) {
            lane.keys.swap_remove(at);
        }
        while let Some((number, place)) = lane.waiting.pop_front() {
            if !lane.admits(&place) {
                lane.waiting.push_front((number, place));
                break;
            }
            lane.access = place.access;
            lane.keys.push(place.key);
            self.startable.insert(number);
        }
        if lane.keys.is_empty() {
            self.lanes.remove(&slot);
        }
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
