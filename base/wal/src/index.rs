//! In-memory index of durable data: for every stream its numbers, metas and record locations.
//!
//! Recovery fills it from the log, the writer extends it after each durable write, and readers use it for lookups.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::disk::DiskFile;
use crate::format::{KIND_STREAM, push_step, u32_at, u64_at};
use crate::tail::{Refusal, Tail};

/// Location of a record's step, and length of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: u64,
    pub(crate) offset: u32,
    pub(crate) data_bytes: u32,
}

/// One durable step to apply.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Put {
        stream: u64,
        seq: u64,
        location: Location,
    },
    Cut {
        stream: u64,
        from: u64,
    },
    Meta {
        stream: u64,
        key: u32,
        data: Bytes,
    },
    Drop {
        stream: u64,
    },
    Trim {
        stream: u64,
        floor: u64,
    },
    /// All records of the stream, from `first` on, have new locations.
    Move {
        stream: u64,
        first: u64,
        locations: VecDeque<Location>,
    },
}

/// One stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamIndex {
    pub(crate) tail: Tail,
    /// Number of the first entry. Above `tail.first` only where records were lost.
    pub(crate) base: u64,
    pub(crate) entries: VecDeque<Location>,
    pub(crate) metas: BTreeMap<u32, Bytes>,
    /// Last batch that changed the stream.
    pub(crate) touched: u64,
    /// Trim mark set by the user but not yet written to the log.
    pub(crate) hidden: u64,
}

/// A segment file in use.
#[derive(Debug)]
pub(crate) struct SegmentEntry {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size: u64,
    /// Number of entries of all streams in it.
    pub(crate) live: u64,
}

/// The index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) streams: HashMap<u64, StreamIndex>,
    pub(crate) segments: BTreeMap<u64, SegmentEntry>,
    /// Last durable batch.
    pub(crate) batch: u64,
}

impl StreamIndex {
    /// Returns the first number visible to readers.
    pub(crate) fn visible_first(&self) -> u64 {
        self.tail.first.max(self.hidden).max(self.base)
    }

    pub(crate) fn lost_records(&self) -> bool {
        !self.tail.is_empty() && self.tail.first < self.base
    }

    fn put(&mut self, seq: u64, location: Location) -> Result<(), Refusal> {
        let was_empty = self.tail.is_empty();
        self.tail.put(seq)?;
        if was_empty {
            self.base = seq;
        }
        self.entries.push_back(location);
        Ok(())
    }

    /// Drops the entries that the tail no longer covers, and passes each to `gone`.
    fn settle(&mut self, mut gone: impl FnMut(Location)) {
        while self.base < self.tail.first
            && let Some(entry) = self.entries.pop_front()
        {
            self.base += 1;
            gone(entry);
        }
        let keep = if self.tail.is_empty() { 0 } else { self.tail.next.saturating_sub(self.base) };
        while self.entries.len() as u64 > keep
            && let Some(entry) = self.entries.pop_back()
        {
            gone(entry);
        }
        self.base = if self.tail.is_empty() { self.tail.next } else { self.base.min(self.tail.next) };
        self.hidden = self.hidden.min(self.tail.next);
    }
}

impl Index {
    /// Applies one durable step of `batch`. A refusal leaves the stream unchanged.
    pub(crate) fn apply(&mut self, batch: u64, change: Change) -> Result<(), Refusal> {
        let segments = &mut self.segments;
        let mut gone = |location: Location| {
            if let Some(segment) = segments.get_mut(&location.segment) {
                segment.live = segment.live.saturating_sub(1);
            }
        };
        match change {
            Change::Put { stream, seq, location } => {
                let entry = self.streams.entry(stream).or_default();
                entry.put(seq, location)?;
                entry.touched = batch;
                if let Some(segment) = segments.get_mut(&location.segment) {
                    segment.live += 1;
                }
            }
            Change::Cut { stream, from } => {
                let entry = self.streams.entry(stream).or_default();
                entry.tail.cut(from)?;
                entry.settle(gone);
                entry.touched = batch;
            }
            Change::Trim { stream, floor } => {
                let entry = self.streams.entry(stream).or_default();
                entry.tail.trim(floor);
                entry.settle(gone);
                entry.touched = batch;
            }
            Change::Meta { stream, key, data } => {
                let entry = self.streams.entry(stream).or_default();
                if data.is_empty() {
                    entry.metas.remove(&key);
                } else {
                    entry.metas.insert(key, data);
                }
                entry.touched = batch;
            }
            Change::Move { stream, first, locations } => {
                let entry = self.streams.entry(stream).or_default();
                debug_assert_eq!((entry.base, entry.entries.len()), (first, locations.len()), "all records are moved");
                std::mem::replace(&mut entry.entries, locations).into_iter().for_each(&mut gone);
                for location in &entry.entries {
                    if let Some(segment) = segments.get_mut(&location.segment) {
                        segment.live += 1;
                    }
                }
                entry.touched = batch;
            }
            Change::Drop { stream } => {
                if let Some(entry) = self.streams.remove(&stream) {
                    entry.entries.into_iter().for_each(&mut gone);
                }
            }
        }
        Ok(())
    }

    /// Forgets the locations of a stream's records; keeps the rest.
    pub(crate) fn forget_entries(&mut self, stream: u64) {
        let Some(entry) = self.streams.get_mut(&stream) else { return };
        for location in entry.entries.drain(..) {
            if let Some(segment) = self.segments.get_mut(&location.segment) {
                segment.live = segment.live.saturating_sub(1);
            }
        }
        entry.base = entry.tail.next;
    }

    /// Removes and returns the oldest segments without live entries, never the newest one. Only a prefix is removed,
    /// so a missing generation between two others is always damage.
    pub(crate) fn take_unneeded(&mut self) -> Vec<(u64, SegmentEntry)> {
        let mut taken = Vec::new();
        while self.has_unneeded() {
            taken.extend(self.segments.pop_first());
        }
        taken
    }

    pub(crate) fn has_unneeded(&self) -> bool {
        self.segments.len() > 1 && self.segments.first_key_value().is_some_and(|(_, segment)| segment.live == 0)
    }

    /// Encodes every stream's numbers and metas as the payload of a snapshot frame.
    pub(crate) fn encode_snapshot(&self, buffer: &mut Vec<u8>) {
        let mut streams: Vec<_> = self.streams.iter().collect();
        streams.sort_unstable_by_key(|(stream, _)| **stream);
        let mut data = Vec::new();
        for (stream, entry) in streams {
            data.clear();
            let tail = entry.tail;
            for number in [tail.floor, tail.first, tail.next] {
                data.extend_from_slice(&number.to_le_bytes());
            }
            data.extend_from_slice(&u32::from(tail.frozen).to_le_bytes());
            for (key, value) in &entry.metas {
                data.extend_from_slice(&key.to_le_bytes());
                data.extend_from_slice(&(value.len() as u32).to_le_bytes());
                data.extend_from_slice(value);
            }
            push_step(buffer, KIND_STREAM, *stream, entry.touched, 0, &data);
        }
    }
}

/// Decodes one stream of a snapshot. Its entries are not in the snapshot: `base` says that none is known.
pub(crate) fn decode_stream(touched: u64, data: &[u8]) -> Option<StreamIndex> {
    let tail = Tail {
        floor: u64_at(data, 0)?,
        first: u64_at(data, 8)?,
        next: u64_at(data, 16)?,
        frozen: u32_at(data, 24)? != 0,
    };
    if tail.floor > tail.first || tail.first > tail.next {
        return None;
    }
    let mut metas = BTreeMap::new();
    let mut at = 28;
    while at < data.len() {
        let key = u32_at(data, at)?;
        let bytes = u32_at(data, at + 4)? as usize;
        metas.insert(key, Bytes::copy_from_slice(data.get(at + 8..(at + 8).checked_add(bytes)?)?));
        at += 8 + bytes;
    }
    Some(StreamIndex { tail, base: tail.next, metas, touched, ..StreamIndex::default() })
}
