//! A machine's disk: what is durable, and what only the kernel knows. A killed process leaves the latter behind; a loss
//! of power does not.

use super::engine::SimEngine;
use crate::random::Random;
use archon_host::{Completes, LogWrite};
use archon_replica::{Entry, Position, Recovered, Run};
use archon_types::{
    Epoch, GenerationKey, Incarnation, PROTOCOL_FIRST, PartitionId, PlacementId, Seq, StorageId, Version,
};
use std::collections::{BTreeMap, VecDeque};
use uuid::Uuid;

/// What the log holds of one placement.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) partition: PartitionId,
    pub(crate) epoch: Epoch,
    pub(crate) base: Position,
    /// Up to here the engine is known to be complete.
    pub(crate) complete: Position,
    /// The entries after `base`.
    pub(crate) entries: VecDeque<Entry>,
    /// Rises whenever entries went or the log began anew, so that whoever compares them looks again.
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

    /// The entry at `seq`, if it is held.
    pub(crate) fn entry(&self, seq: Seq) -> Option<&Entry> {
        let number = seq.get().checked_sub(self.base.seq.get() + 1)?;
        usize::try_from(number).ok().and_then(|number| self.entries.get(number))
    }

    /// What a replica begins with.
    pub(crate) fn recovered(&self) -> Recovered {
        let mut runs: Vec<Run> = Vec::new();
        for entry in &self.entries {
            if runs.last().is_none_or(|run| run.epoch != entry.at.epoch) {
                runs.push(Run { epoch: entry.at.epoch, first: entry.at.seq });
            }
        }
        let complete = self.complete.max(self.base);
        Recovered { epoch: self.epoch, base: self.base, runs, last: self.last(), commit: complete.seq }
    }
}

/// One write to the log.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) placement: PlacementId,
    pub(crate) write: LogWrite,
}

/// What one turn of a process wrote: durable as a whole or not at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) writes: Vec<Write>,
    pub(crate) completes: Completes,
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
    /// The last registration stored.
    pub(crate) incarnation: Option<Incarnation>,
    /// The key of the generation in which that was.
    pub(crate) generation_key: GenerationKey,
    /// The highest version that it was told of.
    pub(crate) told: Version,
    /// By which protocol it is written.
    pub(crate) protocol: u32,
    pub(crate) streams: BTreeMap<PlacementId, Stream>,
    /// Written to the kernel by a process that was killed, and never synced.
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

    /// A batch is durable.
    pub(crate) fn store(&mut self, batch: &Batch) {
        write_to(&mut self.streams, batch);
    }

    /// Everything that the kernel knows is durable now.
    pub(crate) fn sync(&mut self) {
        for batch in std::mem::take(&mut self.cached) {
            self.store(&batch);
        }
    }

    /// What a process sees that reads the log: durable or not.
    pub(crate) fn readable(&self) -> BTreeMap<PlacementId, Stream> {
        let mut streams = self.streams.clone();
        self.cached.iter().for_each(|batch| write_to(&mut streams, batch));
        streams
    }

    /// The process was killed while these batches were on their way: a first part of them reached the kernel.
    pub(crate) fn killed(&mut self, under_way: impl IntoIterator<Item = Batch>, random: &mut Random) {
        let under_way: Vec<Batch> = under_way.into_iter().collect();
        let kept = random.index(under_way.len() + 1);
        self.cached.extend(under_way.into_iter().take(kept));
        self.engine.crash(random);
    }

    /// The power went: a first part of what the kernel knew may have reached the disk.
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
            // That of a copy that was formed is not there yet.
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
