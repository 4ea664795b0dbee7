//! The writer: takes the queued batches, makes one durable write, and completes them. Runs on its own thread, or for
//! one batch on a caller's.

mod freeing;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::batch::{CompletionCallback, META_BYTES_MAX, Op, StreamId, WalBatch};
use crate::blocks::Blocks;
use crate::config::WalConfig;
use crate::disk::Disk;
use crate::error::WalError;
use crate::format::{
    FRAME_HEADER_BYTES, Frame, KIND_CUT, KIND_DROP, KIND_META, KIND_PUT, KIND_TRIM, push_headed_step, push_step,
    seal_frame,
};
use crate::index::{Change, Index, Location, SegmentEntry};
use crate::mark::Mark;
use crate::progress::Counters;
use crate::queue::{Item, Queue, Turn};
use crate::segment::{ActivateError, Active, SegmentStart, activate};
use crate::segment_pool::SegmentPool;
use crate::tail::{Refusal, Tail};

/// State shared by the writer and callers.
pub(crate) struct LogState {
    pub(crate) config: WalConfig,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) index: RwLock<Index>,
    pub(crate) queue: Queue,
    pub(crate) pool: SegmentPool,
    pub(crate) counters: Counters,
    /// Remaining bytes of the segment in use; never more than there are.
    pub(crate) active_left: AtomicU64,
}

/// Reason why the writer stops silently; occurs only with test disks.
#[derive(Debug)]
pub(crate) enum HaltReason {
    /// The simulated power is off.
    #[cfg(feature = "testing")]
    PoweredOff,
}

impl HaltReason {
    #[cfg(feature = "testing")]
    fn check(disk: &dyn Disk) -> Result<(), HaltReason> {
        if crate::disk::powered_off(disk) { Err(HaltReason::PoweredOff) } else { Ok(()) }
    }

    #[cfg(not(feature = "testing"))]
    fn check(_: &dyn Disk) -> Result<(), HaltReason> {
        Ok(())
    }
}

/// Accepted state of a stream, durable or pending.
#[derive(Debug, Clone, Copy, Default)]
struct StreamProgress {
    tail: Tail,
    touched: u64,
}

struct FinishedBatch {
    done: CompletionCallback,
    result: Result<(), WalError>,
    bytes: usize,
}

pub(crate) struct Writer {
    shared: Arc<LogState>,
    active: Active,
    mark: Mark,
    next_batch: u64,
    accepted: HashMap<u64, StreamProgress>,
    /// Frames of the group under construction; the first unwritten byte belongs at `active.end`.
    blocks: Blocks,
    changes: Vec<(u64, Change)>,
    finished: Vec<FinishedBatch>,
    batches: u64,
    scratch: HashMap<u64, Option<Tail>>,
    /// Per producer: the first ordered batch that was refused for lack of space and must be appended again.
    owed: HashMap<u32, u64>,
    /// The simulated power failed during a write by a caller.
    halted: bool,
    /// Old records may retain more than allowed: a segment was started, streams were trimmed, or a batch was refused
    /// for lack of space.
    relocation_due: bool,
    /// Space retained by old records is needed.
    space_wanted: bool,
    /// Streams with unreadable records.
    immovable: BTreeSet<u64>,
    /// Time when a large stream could not be moved for lack of space.
    large_refused: Option<Instant>,
}

/// Runs the writer thread until the queue is closed and drained, then drops the writer.
pub(crate) fn run(shared: &LogState, place: &Mutex<Option<Writer>>) {
    let bytes_max = shared.config.write_bytes_max;
    while shared.queue.wait() {
        // Locked before anything is taken, so that batches are written in queue order.
        let mut held = place.lock();
        let Some(writer) = held.as_mut().filter(|writer| !writer.halted) else { break };
        // Only on this thread: a writing caller must not wait for it.
        if writer.turn(shared.queue.take(bytes_max)).and_then(|()| writer.relocate()).is_err() {
            break;
        }
    }
    let writer = place.lock().take();
    if let Some(writer) = writer {
        writer.end();
    }
}

impl Writer {
    pub(crate) fn new(shared: Arc<LogState>, active: Active, mark: Mark) -> Writer {
        let blocks = Blocks::new(active.out.block_bytes(), &active.tail);
        shared.active_left.store(active.left(), Ordering::Release);
        let (accepted, next_batch) = {
            let index = shared.index.read();
            let accepted = index
                .streams
                .iter()
                .map(|(stream, entry)| (*stream, StreamProgress { tail: entry.tail, touched: entry.touched }));
            (accepted.collect(), index.batch + 1)
        };
        Writer {
            shared,
            active,
            mark,
            next_batch,
            accepted,
            blocks,
            changes: Vec::new(),
            finished: Vec::new(),
            batches: 0,
            scratch: HashMap::new(),
            owed: HashMap::new(),
            halted: false,
            relocation_due: true,
            space_wanted: false,
            immovable: BTreeSet::new(),
            large_refused: None,
        }
    }

    /// Writes one batch on the caller's thread.
    pub(crate) fn write_one(&mut self, item: Item) {
        if self.turn(Turn { items: vec![item], trims: BTreeMap::new(), space_wanted: false }).is_err() {
            self.halted = true;
            // The writer thread does the rest.
            self.shared.queue.close();
        }
    }

    /// Returns whether a batch of this size fits without starting another segment, which may take long.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        !self.halted && self.active.fits(self.blocks.len() + bytes)
    }

    fn end(mut self) {
        for finished in self.finished.drain(..) {
            (finished.done)(Err(WalError::Closed));
        }
        self.mark.close(&*self.shared.disk);
        for item in self.shared.queue.finish() {
            (item.done)(Err(WalError::Closed));
        }
    }

    fn turn(&mut self, turn: Turn) -> Result<(), HaltReason> {
        self.space_wanted |= turn.space_wanted;
        self.write_trims(turn.trims)?;
        let mut items = turn.items.into_iter();
        while let Some(item) = items.next() {
            let bytes = item.batch.bytes();
            match self.accept(&item.batch) {
                Ok(result) => self.finished.push(FinishedBatch { done: item.done, result, bytes }),
                Err(halt) => {
                    for item in std::iter::once(item).chain(items) {
                        let bytes = item.batch.bytes();
                        let result = Err(WalError::Closed);
                        self.finished.push(FinishedBatch { done: item.done, result, bytes });
                    }
                    return Err(halt);
                }
            }
        }
        self.flush()
    }

    /// Checks a batch and adds it to the group, or returns the reason for its refusal without any change.
    fn accept(&mut self, batch: &WalBatch) -> Result<Result<(), WalError>, HaltReason> {
        let Some((producer, number)) = batch.order else { return self.take(batch) };
        if self.owed.get(&producer).is_some_and(|owed| number > *owed) {
            return Ok(Err(WalError::NoSpace { bytes: self.shared.config.segment_bytes }));
        }
        let result = self.take(batch)?;
        match &result {
            Err(WalError::NoSpace { .. }) => self.owed.insert(producer, number),
            _ => self.owed.remove(&producer),
        };
        Ok(result)
    }

    fn take(&mut self, batch: &WalBatch) -> Result<Result<(), WalError>, HaltReason> {
        if let Err(error) = self.check(batch) {
            return Ok(Err(error));
        }
        if batch.is_empty() {
            return Ok(Ok(()));
        }
        let need = batch.bytes();
        if !batch.urgent
            && let Some(error) = self.shared.pool.refusal()
        {
            self.relocation_due = true;
            return Ok(Err(error));
        }
        if !self.active.fits(self.blocks.len() + need) {
            self.flush()?;
            if let Err(error) = self.roll(need, batch.urgent)? {
                return Ok(Err(error));
            }
        }
        self.encode(batch);
        Ok(Ok(()))
    }

    /// Checks the steps on copies of the streams' numbers.
    fn check(&mut self, batch: &WalBatch) -> Result<(), WalError> {
        self.scratch.clear();
        for op in &batch.ops {
            let stream = op.stream();
            if let Op::Meta { key, data, .. } = op
                && data.len() > META_BYTES_MAX
            {
                let (stream, bytes, max) = (StreamId(stream), data.len(), META_BYTES_MAX);
                return Err(WalError::MetaTooLarge { stream, key: *key, bytes, max });
            }
            let tail =
                self.scratch.entry(stream).or_insert_with(|| self.accepted.get(&stream).map(|accepted| accepted.tail));
            step(tail, op).map_err(|refusal| refused(op, refusal))?;
        }
        Ok(())
    }

    fn encode(&mut self, batch: &WalBatch) {
        let number = self.next_batch;
        self.next_batch += 1;
        self.batches += 1;
        let group = self.active.end;
        let segment = self.active.header.generation;
        // Start of the group in the buffer; positions of its frames in the segment count from there.
        let first = self.blocks.start();
        let buffer = self.blocks.buffer();
        let start = buffer.len();
        buffer.resize(start + FRAME_HEADER_BYTES, 0);
        for op in &batch.ops {
            let stream = op.stream();
            let known = self.accepted.get(&stream).copied();
            let prev = known.map_or(0, |known| known.touched);
            let mut tail = known.map(|known| known.tail);
            let applied = step(&mut tail, op);
            debug_assert!(applied.is_ok(), "the batch was checked before");
            let change = match op {
                Op::Put { seq, head, data, .. } => {
                    let head = head.bytes();
                    let at = push_headed_step(buffer, (KIND_PUT, stream, prev, *seq), head, data);
                    let offset = group + (at - first) as u32;
                    let location = Location { segment, offset, data_bytes: (head.len() + data.len()) as u32 };
                    Change::Put { stream, seq: *seq, location }
                }
                Op::Meta { key, data, .. } => {
                    push_step(buffer, KIND_META, stream, prev, u64::from(*key), data);
                    Change::Meta { stream, key: *key, data: data.clone() }
                }
                // Nothing to cut, trim or drop.
                Op::Cut { .. } | Op::Trim { .. } | Op::Drop { .. } if known.is_none() => continue,
                Op::Cut { from, .. } => {
                    push_step(buffer, KIND_CUT, stream, prev, *from, &[]);
                    Change::Cut { stream, from: *from }
                }
                Op::Trim { floor, .. } => {
                    push_step(buffer, KIND_TRIM, stream, prev, *floor, &[]);
                    Change::Trim { stream, floor: *floor }
                }
                Op::Drop { .. } => {
                    push_step(buffer, KIND_DROP, stream, prev, 0, &[]);
                    Change::Drop { stream }
                }
            };
            self.changes.push((number, change));
            match tail {
                Some(tail) => self.accepted.insert(stream, StreamProgress { tail, touched: number }),
                None => self.accepted.remove(&stream),
            };
        }
        let payload_bytes = buffer.len() - start - FRAME_HEADER_BYTES;
        let frame = Frame { snapshot: false, payload_bytes, group, batch: number, chain: self.active.chain };
        let offset = group + (start - first) as u32;
        self.active.chain = seal_frame(buffer, start, offset, frame, &self.active.header);
    }

    /// Writes the group durably, publishes it, and calls back in order.
    fn flush(&mut self) -> Result<(), HaltReason> {
        let bytes = self.blocks.len();
        if bytes > 0 {
            self.shared.counters.begin();
            let Active { out, end, header, .. } = &self.active;
            if let Err(error) = self.blocks.write(&**out, *end, header.size) {
                return self.fatal("write", &error);
            }
            self.shared.counters.end(bytes, self.batches);
            self.active.end += bytes as u32;
            // Before the written bytes leave the queue's count.
            self.shared.active_left.store(self.active.left(), Ordering::Release);
            // Before callers are notified.
            if let Err(error) = self.mark.note(&*self.shared.disk, self.next_batch - 1) {
                return self.fatal("note the end of", &error);
            }
            self.batches = 0;
            self.blocks.shrink_to(2 * self.shared.config.write_bytes_max);
            self.publish();
        }
        self.complete();
        self.retire_unneeded();
        Ok(())
    }

    fn publish(&mut self) {
        let mut index = self.shared.index.write();
        for (batch, change) in self.changes.drain(..) {
            // A trim requested before this moment refers to the records that are removed now.
            match &change {
                Change::Cut { stream, from } => self.shared.queue.limit_trim(*stream, *from),
                Change::Drop { stream } => {
                    self.immovable.remove(stream);
                    self.shared.queue.limit_trim(*stream, 0);
                }
                Change::Put { .. } | Change::Meta { .. } | Change::Trim { .. } | Change::Move { .. } => {}
            }
            let applied = index.apply(batch, change);
            debug_assert!(applied.is_ok(), "{applied:?}");
        }
        index.batch = self.next_batch - 1;
    }

    fn retire_unneeded(&self) {
        if self.shared.index.read().has_unneeded() {
            let unneeded = self.shared.index.write().take_unneeded();
            self.shared.pool.retire_later(unneeded);
        }
    }

    fn complete(&mut self) {
        let bytes = self.finished.iter().map(|finished| finished.bytes).sum();
        self.shared.queue.release(bytes);
        for finished in self.finished.drain(..) {
            (finished.done)(finished.result);
        }
    }

    /// Continues in a new segment. Everything before must be durable.
    fn roll(&mut self, need: usize, urgent: bool) -> Result<Result<(), WalError>, HaltReason> {
        self.shared.counters.begin();
        let generation = self.active.header.generation + 1;
        let beginning = SegmentStart::new(&self.shared.index.read());
        let (disk, pool) = (&*self.shared.disk, &self.shared.pool);
        let result = match activate(disk, pool, beginning, generation, need, urgent) {
            Ok(active) => {
                let entry = SegmentEntry { file: active.file.clone(), size: active.header.size, live: 0 };
                self.shared.index.write().segments.insert(generation, entry);
                self.shared.counters.end(active.end as usize, 0);
                self.blocks.restart(active.out.block_bytes(), &active.tail);
                self.active = active;
                // After the file no longer counts as a spare.
                self.shared.active_left.store(self.active.left(), Ordering::Release);
                // The previous segment may already hold no live records.
                self.retire_unneeded();
                self.relocation_due = true;
                Ok(())
            }
            Err(ActivateError::Refused(error)) => {
                HaltReason::check(&*self.shared.disk)?;
                self.shared.counters.end(0, 0);
                self.relocation_due = true;
                Err(error)
            }
            Err(ActivateError::Fatal(action, error)) => return self.fatal(action, &error),
        };
        Ok(result)
    }

    /// Ends the process: after a failed write or sync the content of the disk is unknown, and a retry may be answered
    /// with success although the pages were dropped.
    fn fatal<T>(&self, action: &str, error: &io::Error) -> Result<T, HaltReason> {
        HaltReason::check(&*self.shared.disk)?;
        let segment = self.active.header.generation;
        tracing::error!(%error, action, segment, "the log failed: ending the process");
        std::process::abort()
    }
}

/// Applies one step to a stream's numbers; `None` is a stream that does not exist.
fn step(tail: &mut Option<Tail>, op: &Op) -> Result<(), Refusal> {
    match op {
        Op::Put { seq, .. } => {
            let mut next = tail.unwrap_or_default();
            next.put(*seq)?;
            *tail = Some(next);
        }
        Op::Cut { from, .. } => {
            if let Some(tail) = tail {
                tail.cut(*from)?;
            }
        }
        Op::Trim { floor, .. } => {
            if let Some(tail) = tail {
                tail.trim(*floor);
            }
        }
        Op::Meta { .. } => {
            if tail.get_or_insert_default().frozen {
                return Err(Refusal::Frozen);
            }
        }
        Op::Drop { .. } => *tail = None,
    }
    Ok(())
}

fn refused(op: &Op, refusal: Refusal) -> WalError {
    let stream = StreamId(op.stream());
    match (refusal, op) {
        (Refusal::Sequence { expected, or_above }, Op::Put { seq, .. }) => {
            WalError::Sequence { stream, seq: *seq, expected, or_above }
        }
        _ => WalError::StreamDamaged { stream },
    }
}
