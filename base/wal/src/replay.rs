//! Replay of a log's steps, and tracking of possible losses by damage.
//!
//! Pure: bytes in, index and damage out.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::batch::StreamId;
use crate::format::{
    FRAME_HEADER_BYTES, Frame, KIND_CUT, KIND_DROP, KIND_META, KIND_PUT, KIND_STREAM, KIND_TRIM, OP_HEADER_BYTES, Step,
    Steps,
};
use crate::index::{Change, Index, Location, StreamIndex, decode_stream};

/// A place where durable data is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Generation of the segment, as in its file name.
    pub segment: u64,
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Streams that lost data here, in order.
    pub streams: Vec<StreamId>,
    /// False if other streams may have lost data too: every stream that later records do not prove whole is then
    /// reported as damaged.
    pub streams_known: bool,
    /// The mismatch.
    pub what: String,
}

/// Doubt about a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// Data may be lost; the next step of the stream decides.
    Suspect,
    /// Data is lost.
    Broken,
}

#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) index: Index,
    pub(crate) damages: Vec<Damage>,
    /// Set if no snapshot was read since the last damage.
    pub(crate) unsettled: bool,
    doubts: BTreeMap<u64, Doubt>,
    has_base: bool,
}

impl Replay {
    /// Records damage of an unknown set of streams.
    pub(crate) fn damage_unknown(&mut self, segment: u64, offset: u64, what: String) {
        for stream in self.index.streams.keys() {
            self.doubts.entry(*stream).or_insert(Doubt::Suspect);
        }
        self.report(Damage { segment, offset, streams: Vec::new(), streams_known: false, what });
    }

    /// Records that the batches after the replayed ones, up to and including `upto`, were durable and are lost.
    pub(crate) fn damage_missing(&mut self, segment: u64, offset: u64, upto: u64) {
        let what = format!("batches {} to {upto} are missing", self.index.batch.saturating_add(1));
        self.damage_unknown(segment, offset, what);
        self.index.batch = upto;
    }

    fn report(&mut self, damage: Damage) {
        self.unsettled = true;
        self.damages.push(damage);
    }

    /// Records the loss of a segment's snapshot. It repeats replayed data, except in the oldest segment.
    pub(crate) fn damage_snapshot(&mut self, segment: u64, offset: u64) {
        let what = "the snapshot at the start fails its checksum".to_owned();
        if !self.has_base {
            return self.damage_unknown(segment, offset, what);
        }
        let (streams, streams_known) = (Vec::new(), true);
        self.report(Damage { segment, offset, streams, streams_known, what });
    }

    /// Records the loss of the batch in `payload`; names its streams if they are readable.
    pub(crate) fn damage_frame(&mut self, segment: u64, offset: u64, frame: Frame, payload: &[u8]) {
        if frame.snapshot {
            return self.damage_snapshot(segment, offset);
        }
        let steps: Option<Vec<_>> = Steps::new(payload).collect();
        let Some(steps) = steps else {
            let what = format!("batch {} fails its checksum", frame.batch);
            return self.damage_unknown(segment, offset, what);
        };
        let mut streams: Vec<u64> = steps.iter().map(|(_, step, _)| step.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in &streams {
            self.index.streams.entry(*stream).or_default();
            self.doubts.insert(*stream, Doubt::Broken);
        }
        self.index.batch = self.index.batch.max(frame.batch);
        let streams = streams.into_iter().map(StreamId).collect();
        let what = format!("batch {} fails its checksum", frame.batch);
        self.report(Damage { segment, offset, streams, streams_known: true, what });
    }

    /// Applies a snapshot. It has the state of every stream at this point, so it resolves doubts and reveals earlier
    /// losses.
    pub(crate) fn snapshot(&mut self, segment: u64, offset: usize, frame: Frame, payload: &[u8]) {
        let mut streams: BTreeMap<u64, StreamIndex> = BTreeMap::new();
        for found in Steps::new(payload) {
            let stream = found.and_then(|(_, step, data)| {
                let decoded = (step.kind == KIND_STREAM).then(|| decode_stream(step.prev, data));
                Some((step.stream, decoded??))
            });
            match stream {
                Some((id, stream)) => drop(streams.insert(id, stream)),
                None => {
                    let what = "the snapshot cannot be understood".to_owned();
                    return self.damage_unknown(segment, offset as u64, what);
                }
            }
        }
        let mut gone: Vec<u64> = self.index.streams.keys().copied().collect();
        gone.retain(|stream| !streams.contains_key(stream));
        for stream in gone {
            let applied = self.index.apply(frame.batch, Change::Drop { stream });
            debug_assert!(applied.is_ok(), "a drop is never refused");
        }
        for (id, found) in streams {
            self.adopt(id, found);
        }
        self.doubts.clear();
        self.has_base = true;
        self.unsettled = false;
        self.index.batch = self.index.batch.max(frame.batch);
    }

    fn adopt(&mut self, stream: u64, found: StreamIndex) {
        let broken = self.doubts.get(&stream) == Some(&Doubt::Broken);
        if let Some(ours) = self.index.streams.get_mut(&stream) {
            let frozen = found.tail.frozen;
            ours.tail.frozen = frozen;
            if !broken && ours.touched == found.touched && ours.tail == found.tail {
                return;
            }
            // A stream closed in an earlier run keeps the data found then.
            if !frozen || ours.tail != found.tail {
                ours.tail = found.tail;
                ours.metas = found.metas;
                self.index.forget_entries(stream);
            }
            if let Some(ours) = self.index.streams.get_mut(&stream) {
                ours.touched = found.touched;
            }
        } else {
            self.index.streams.insert(stream, found);
        }
    }

    /// Applies the batch of the frame at `offset`.
    pub(crate) fn batch(&mut self, segment: u64, offset: usize, frame: Frame, payload: &[u8]) {
        let mut lost: Vec<StreamId> = Vec::new();
        for found in Steps::new(payload) {
            let Some((at, step, data)) = found else {
                let what = format!("batch {} cannot be understood", frame.batch);
                self.damage_unknown(segment, offset as u64, what);
                break;
            };
            let step_offset = offset + FRAME_HEADER_BYTES + at;
            if !self.step(segment, step_offset, frame.batch, &step, data) {
                lost.push(StreamId(step.stream));
            }
        }
        self.index.batch = self.index.batch.max(frame.batch);
        if !lost.is_empty() {
            lost.dedup();
            let what = "records before this batch are missing".to_owned();
            let offset = offset as u64;
            self.report(Damage { segment, offset, streams: lost, streams_known: true, what });
        }
    }

    /// Applies a step; returns false if it first reveals an earlier loss of the stream.
    fn step(&mut self, segment: u64, offset: usize, batch: u64, step: &Step, data: &[u8]) -> bool {
        let stream = step.stream;
        let Some(change) = decode_change(segment, offset, step, data) else {
            return self.break_stream(stream);
        };
        if let Change::Drop { .. } = change {
            self.doubts.remove(&stream);
            return self.index.apply(batch, change).is_ok();
        }
        if self.doubts.get(&stream) == Some(&Doubt::Broken) {
            // Metas are still useful; records behind a gap are not.
            if let Change::Meta { .. } = change {
                return self.index.apply(batch, change).is_ok();
            }
            return true;
        }
        let touched = self.index.streams.get(&stream).map_or(0, |entry| entry.touched);
        if touched != step.prev || self.index.apply(batch, change).is_err() {
            return self.break_stream(stream);
        }
        self.doubts.remove(&stream);
        true
    }

    fn break_stream(&mut self, stream: u64) -> bool {
        self.index.streams.entry(stream).or_default();
        self.doubts.insert(stream, Doubt::Broken) == Some(Doubt::Broken)
    }

    /// Resolves the remaining doubts: such streams are closed for writing.
    pub(crate) fn finish(mut self) -> (Index, Vec<Damage>) {
        for (stream, entry) in &mut self.index.streams {
            if self.doubts.contains_key(stream) || entry.lost_records() {
                entry.tail.frozen = true;
            }
        }
        (self.index, self.damages)
    }
}

fn decode_change(segment: u64, offset: usize, step: &Step, data: &[u8]) -> Option<Change> {
    let stream = step.stream;
    Some(match step.kind {
        KIND_PUT => {
            let location = Location {
                segment,
                offset: u32::try_from(offset).ok()?,
                data_bytes: u32::try_from(step.data_bytes).ok()?,
            };
            debug_assert!(location.offset as usize >= OP_HEADER_BYTES);
            Change::Put { stream, seq: step.arg, location }
        }
        KIND_CUT => Change::Cut { stream, from: step.arg },
        KIND_TRIM => Change::Trim { stream, floor: step.arg },
        KIND_META => {
            let key = u32::try_from(step.arg).ok()?;
            Change::Meta { stream, key, data: Bytes::copy_from_slice(data) }
        }
        KIND_DROP => Change::Drop { stream },
        _ => return None,
    })
}
