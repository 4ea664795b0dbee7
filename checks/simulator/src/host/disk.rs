//! A machine's disk: durable data, and data known to the kernel only. A killed process leaves the latter behind; a
//! power loss does not.

use super::engine::SimEngine;
use crate::random::Random;
use archon_host::{Completions, LogWrite};
use archon_replica::{Entry, Position, RecoveredState, Run};
use archon_types::{
    Epoch, GenerationKey, Incarnation, PROTOCOL_FIRST, PartitionId, PlacementId, Seq, StorageId, Version,
};
use std::collections::{BTreeMap, VecDeque};
use uuid::Uuid;

/// Log content of one placement.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) partition: PartitionId,
    pub(crate) epoch: Epoch,
    pub(crate) base: Position,
    /// The engine is known to be complete up to here.
    pub(crate) complete: Position,
    /// Entries after `base`.
    pub(crate) entries: VecDeque<Entry>,
    /// Rises whenever entries were removed or the log restarted, so that comparisons are repeated.
    pub(crate) revision: u64,
}

impl Stream {
    pub(crate) fn new(partition: PartitionId) -> Self {
        Self {
            partition,
            epoch: Epoch::ZERO,
            base: Position::ZERO,
            complete: Position::ZERO,
            entries: VecDeque::new(),
            revision: 0,
        }
    }

    pub(crate) fn last(&self) -> Seq {
        self.entries.back().map_or(self.base.seq, |entry| entry.at.seq)
    }

    /// Returns the entry at `seq`, if present.
    pub(crate) fn entry(&self, seq: Seq) -> Option<&Entry> {
        let number = seq.get().checked_sub(self.base.seq.get() + 1)?;
        usize::try_from(number).ok().and_then(|number| self.entries.get(number))
    }

    /// Returns the initial state of a replica.
    pub(crate) fn recovered(&self) -> RecoveredState {
        let mut runs: Vec<Run> = Vec::new();
        for entry in &self.entries {
            if runs.last().is_none_or(|run| run.epoch != entry.at.epoch) {
                runs.push(Run { epoch: entry.at.epoch, first: entry.at.seq });
            }
        }
        let complete = self.complete.max(self.base);
        RecoveredState { epoch: self.epoch, base: self.base, runs, last: self.last(), commit: complete.seq }
    }
}

/// One write to the log.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) placement: PlacementId,
    pub(crate) write: LogWrite,
}

/// Writes of one turn of a process: durable as a whole or not at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) writes: Vec<Write>,
    pub(crate) completes: Completions,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.completes.tokens.is_empty()
    }
}

/// A data directory.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) storage: StorageId,
    /// The last stored registration.
    pub(crate) incarnation: Option<Incarnation>,
    /// Key of its generation.
    pub(crate) generation_key: GenerationKey,
    /// The highest version it was sent.
    pub(crate) told: Version,
    /// Protocol of its format.
    pub(crate) protocol: u32,
    pub(crate) streams: BTreeMap<PlacementId, Stream>,
    /// Written to the kernel by a killed process, and never synced.
    pub(crate) cached: VecDeque<Batch>,
    pub(crate) engine: SimEngine,
}

impl Disk {
    pub(crate) fn new(number: u128) -> Self {
        Self {
            storage: StorageId::new(Uuid::from_u128(number)),
            incarnation: None,
            generation_key: GenerationKey::NIL,
            told: Version::ZERO,
            protocol: PROTOCOL_FIRST,
            streams: BTreeMap::new(),
            cached: VecDeque::new(),
            engine: SimEngine::default(),
        }
    }

    /// Makes a batch durable.
    pub(crate) fn store(&mut self, batch: &Batch) {
        write_to(&mut self.streams, batch);
    }

    /// Makes everything known to the kernel durable.
    pub(crate) fn sync(&mut self) {
        for batch in std::mem::take(&mut self.cached) {
            self.store(&batch);
        }
    }

    /// Returns the log as a reading process sees it: durable or not.
    pub(crate) fn readable(&self) -> BTreeMap<PlacementId, Stream> {
        let mut streams = self.streams.clone();
        self.cached.iter().for_each(|batch| write_to(&mut streams, batch));
        streams
    }

    /// Handles a kill while these batches were in flight: a prefix of them reached the kernel.
    pub(crate) fn killed(&mut self, under_way: impl IntoIterator<Item = Batch>, random: &mut Random) {
        let under_way: Vec<Batch> = under_way.into_iter().collect();
        let kept = random.index(under_way.len() + 1);
        self.cached.extend(under_way.into_iter().take(kept));
        self.engine.crash(random);
    }

    /// Handles a power loss: a prefix of the kernel's data may have reached the disk.
    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        let kept = match random.below(3) {
            0 => random.index(self.cached.len() + 1),
            _ => 0,
        };
        for batch in std::mem::take(&mut self.cached).into_iter().take(kept) {
            self.store(&batch);
        }
        self.engine.crash(random);
    }
}

fn write_to(streams: &mut BTreeMap<PlacementId, Stream>, batch: &Batch) {
    for Write { placement, write } in &batch.writes {
        match write {
            LogWrite::Open(partition) => {
                streams.entry(*placement).or_insert_with(|| Stream::new(*partition));
            }
            LogWrite::Drop => {
                streams.remove(placement);
            }
            // That of a newly formed copy does not exist yet.
            write @ LogWrite::Begin { partition, .. } => {
                store(streams.entry(*placement).or_insert_with(|| Stream::new(*partition)), write);
            }
            write => {
                if let Some(stream) = streams.get_mut(placement) {
                    store(stream, write);
                }
            }
        }
    }
}

fn store(stream: &mut Stream, write: &LogWrite) {
    match write {
        LogWrite::Epoch(epoch) => stream.epoch = *epoch,
        LogWrite::Entries(entries) => {
            for entry in entries {
                assert_eq!(stream.last().next(), Some(entry.at.seq), "the log takes contiguous entries only");
                stream.entries.push_back(entry.clone());
            }
        }
        LogWrite::Cut { after } => {
            while stream.entries.pop_back_if(|entry| entry.at.seq > *after).is_some() {}
            stream.revision += 1;
        }
        LogWrite::Begin { partition, epoch, base } => {
            (stream.partition, stream.epoch) = (*partition, *epoch);
            stream.entries.clear();
            stream.base = *base;
            stream.complete = *base;
            stream.revision += 1;
        }
        LogWrite::Complete(at) => stream.complete = stream.complete.max(*at),
        LogWrite::Base(at) if at.seq > stream.base.seq => {
            while stream.entries.pop_front_if(|entry| entry.at.seq <= at.seq).is_some() {}
            stream.base = *at;
        }
        LogWrite::Commit(_) | LogWrite::Base(_) | LogWrite::Open(_) | LogWrite::Drop => {}
    }
}
