//! Shared helpers: a naive model of the log, and pseudo-random numbers.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::collections::BTreeMap;

use archon_wal::disk::MemoryDisk;
use archon_wal::{Bounds, RecoveredLog, StreamId, StreamState, Wal, WalBatch};
use bytes::Bytes;

/// A small generator: equal seeds give equal numbers.
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }
}

/// Block sizes of disks: separate write and sync, one sector, and the usual size.
pub const BLOCK_BYTES: [usize; 3] = [1, 512, 4096];

/// Returns a disk in memory with a block size chosen by the seed.
pub fn memory_disk(seed: u64) -> MemoryDisk {
    MemoryDisk::with_block_bytes(BLOCK_BYTES[(seed % 3) as usize])
}

/// A generated step. Numbers are relative, so that most steps are valid.
#[derive(Debug, Clone)]
pub enum Step {
    /// Puts the next record of the stream, skipping `skip` numbers.
    Put {
        stream: u64,
        skip: u64,
        bytes: usize,
        fill: u8,
    },
    /// Cuts the newest `back` records.
    Cut {
        stream: u64,
        back: u64,
    },
    CutAll {
        stream: u64,
    },
    Meta {
        stream: u64,
        key: u32,
        bytes: usize,
        fill: u8,
    },
    /// Trims all but the newest `back` records.
    Trim {
        stream: u64,
        back: u64,
    },
    Drop {
        stream: u64,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelStream {
    pub records: BTreeMap<u64, Vec<u8>>,
    pub metas: BTreeMap<u32, Vec<u8>>,
    pub floor: u64,
}

/// Expected content of the log, in plain maps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub streams: BTreeMap<u64, ModelStream>,
}

impl Model {
    fn next(&self, stream: u64) -> u64 {
        let Some(stream) = self.streams.get(&stream) else { return 1 };
        stream.records.keys().next_back().map_or(stream.floor.max(1), |last| last + 1)
    }

    /// Adds the steps to a batch; returns the model after the batch if the log accepts it.
    pub fn prepare(&self, steps: &[Step], batch: &mut WalBatch) -> Option<Model> {
        let mut after = self.clone();
        let mut valid = true;
        for step in steps {
            match step {
                Step::Put { stream, skip, bytes, fill } => {
                    let seq = after.next(*stream) + skip;
                    let data = vec![*fill; *bytes];
                    batch.put(StreamId(*stream), seq, Bytes::from(data.clone()));
                    let empty = after.streams.get(stream).is_none_or(|s| s.records.is_empty());
                    valid &= *skip == 0 || empty;
                    after.streams.entry(*stream).or_default().records.insert(seq, data);
                }
                Step::Cut { stream, back } => {
                    let keep = (after.next(*stream) - 1).saturating_sub(*back);
                    batch.cut(StreamId(*stream), keep);
                    if let Some(stream) = after.streams.get_mut(stream) {
                        stream.records.retain(|seq, _| *seq <= keep);
                    }
                }
                Step::CutAll { stream } => {
                    batch.cut_all(StreamId(*stream));
                    if let Some(stream) = after.streams.get_mut(stream) {
                        stream.records.clear();
                    }
                }
                Step::Meta { stream, key, bytes, fill } => {
                    batch.meta(StreamId(*stream), *key, Bytes::from(vec![*fill; *bytes]));
                    let metas = &mut after.streams.entry(*stream).or_default().metas;
                    if *bytes == 0 {
                        metas.remove(key);
                    } else {
                        metas.insert(*key, vec![*fill; *bytes]);
                    }
                }
                Step::Trim { stream, back } => {
                    let upto = (after.next(*stream) - 1).saturating_sub(*back);
                    batch.trim(StreamId(*stream), upto);
                    after.trim(*stream, upto);
                }
                Step::Drop { stream } => {
                    batch.drop_stream(StreamId(*stream));
                    after.streams.remove(stream);
                }
            }
        }
        valid.then_some(after)
    }

    pub fn trim(&mut self, stream: u64, upto: u64) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        let Some(last) = stream.records.keys().next_back().copied() else { return };
        stream.floor = stream.floor.max(upto.min(last) + 1);
        stream.records.retain(|seq, _| *seq > upto);
    }

    /// Compares every stream, record and meta with the log.
    pub fn check(&self, wal: &Wal) -> Result<(), String> {
        let names: Vec<_> = wal.streams().into_iter().map(|stream| stream.0).collect();
        let ours: Vec<_> = self.streams.keys().copied().collect();
        if names != ours {
            return Err(format!("streams {names:?}, the model has {ours:?}"));
        }
        for (&id, stream) in &self.streams {
            let bounds = stream.records.keys().next().zip(stream.records.keys().next_back());
            let bounds = bounds.map(|(&first, &last)| Bounds { first, last });
            if wal.bounds(StreamId(id)) != bounds {
                let found = wal.bounds(StreamId(id));
                return Err(format!("stream {id} has {found:?}, the model {bounds:?}"));
            }
            let records = read_all(wal, id)?;
            if records != stream.records {
                let found: Vec<_> = records.keys().collect();
                return Err(format!("stream {id}: records differ, the log has {found:?}"));
            }
            for key in 0..8 {
                let found = wal.meta(StreamId(id), key).map(|value| value.to_vec());
                if found.as_ref() != stream.metas.get(&key) {
                    return Err(format!("stream {id}: meta {key} is {found:?}"));
                }
            }
        }
        Ok(())
    }

    /// Checks that the log holds this state, except that trimmed records may be back.
    pub fn matches_untrimmed(&self, recovered: &RecoveredLog, wal: &Wal) -> Result<(), String> {
        let names: Vec<_> = recovered.streams.keys().map(|stream| stream.0).collect();
        let ours: Vec<_> = self.streams.keys().copied().collect();
        if names != ours {
            return Err(format!("streams {names:?}, the model has {ours:?}"));
        }
        for (&id, stream) in &self.streams {
            let state: &StreamState = &recovered.streams[&StreamId(id)];
            if state.damaged {
                return Err(format!("stream {id} is reported as damaged"));
            }
            let metas: BTreeMap<_, _> = state.metas.iter().map(|(key, value)| (*key, value.to_vec())).collect();
            if metas != stream.metas {
                return Err(format!("stream {id}: metas differ"));
            }
            let mut found = read_all(wal, id)?;
            if let Some(first) = stream.records.keys().next() {
                found.retain(|seq, _| seq >= first);
            } else {
                found.retain(|seq, _| *seq >= stream.floor);
            }
            if found != stream.records {
                let ours: Vec<_> = stream.records.keys().collect();
                let found: Vec<_> = found.keys().collect();
                return Err(format!("stream {id} holds {found:?}, the model {ours:?}"));
            }
        }
        Ok(())
    }
}

pub fn read_all(wal: &Wal, stream: u64) -> Result<BTreeMap<u64, Vec<u8>>, String> {
    let mut records = BTreeMap::new();
    let Some(bounds) = wal.bounds(StreamId(stream)) else { return Ok(records) };
    let mut from = bounds.first;
    while from <= bounds.last {
        let page = wal.read(StreamId(stream), from, 700).map_err(|e| e.to_string())?;
        if page.is_empty() {
            return Err(format!("stream {stream}: nothing at {from}"));
        }
        for record in page {
            if record.seq != from {
                return Err(format!("stream {stream}: {} instead of {from}", record.seq));
            }
            from += 1;
            records.insert(record.seq, record.data.to_vec());
        }
    }
    Ok(records)
}

/// Limit of waits for the log's own threads.
pub const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// Puts one record and waits until it is durable.
pub fn put(wal: &Wal, stream: u64, seq: u64, data: &[u8]) -> Result<(), archon_wal::WalError> {
    let mut batch = WalBatch::new();
    batch.put(StreamId(stream), seq, Bytes::copy_from_slice(data));
    wal.append_wait(batch)
}
