//! Reads the log back at a start.

use super::memory::Memory;
use super::{COMMITTED, FACTS, LOG, PURGED, StoreError, VOTE};
use crate::raft::log::codec;
use crate::raft::types::{Entry, LogId};
use archon_wal::{Wal, WalBatch};
use std::io;

const READ_BACK_BYTES: usize = 4 * 1024 * 1024;

/// Reads the content of the log. `floor`: the number below which its stream was trimmed, zero if unknown. `covered`
/// returns the position of the newest snapshot, and is called only if needed.
pub(super) fn read(
    wal: &Wal,
    floor: u64,
    covered: impl FnOnce() -> io::Result<Option<LogId>>,
) -> Result<Memory, StoreError> {
    let fact = |key| wal.meta(FACTS, key);
    let mut memory = Memory {
        vote: fact(VOTE).map(|bytes| codec::decode("vote", &bytes)).transpose()?,
        committed: fact(COMMITTED).map(|bytes| codec::decode("committed position", &bytes)).transpose()?,
        purged: fact(PURGED).map(|bytes| codec::decode("purged position", &bytes)).transpose()?,
        ..Memory::default()
    };
    let start = memory.purged.map_or(0, |purged| purged.index + 1);
    let first = wal.bounds(LOG).map_or(floor, |bounds| bounds.first);
    if first > start + 1 {
        let missing = start..first - 1;
        let covered = covered()?.filter(|covered| covered.index + 1 >= missing.end);
        let Some(covered) = covered else {
            return Err(invalid(format!("entries {} to {} are missing", missing.start, missing.end - 1)));
        };
        tracing::warn!(?missing, %covered, "log entries covered by a snapshot are missing: continuing from the \
                                            snapshot");
        go_on_from(wal, covered)?;
        memory.purged = Some(covered);
    }
    read_entries(wal, &mut memory)?;
    Ok(memory)
}

/// Makes a snapshot's position the beginning of a log that has lost entries before it.
///
/// This is safe. Earlier versions trimmed the log before the record of that was durable; a power loss in between left
/// such a log. They trimmed only entries in a durable snapshot, and nothing else that was acknowledged can be missing:
/// votes, entries and cuts are one sequence on the disk, of which a crash removes the end and not the middle. So
/// everything this voter ever confirmed is in the snapshot or in the rest of the log, and it breaks no promise by
/// continuing.
fn go_on_from(wal: &Wal, covered: LogId) -> Result<(), StoreError> {
    let mut batch = WalBatch::new();
    batch.meta(FACTS, PURGED, codec::encode("purged position", &covered)?).urgent();
    let seq = covered.index + 1;
    match wal.bounds(LOG) {
        Some(bounds) if bounds.last > seq => {
            if bounds.first <= seq {
                let found = wal.read(LOG, seq, 1)?.into_iter().next();
                let entry: Option<Entry> = found.map(|record| codec::decode("log entry", &record.data)).transpose()?;
                let found = entry.map(|entry| entry.log_id);
                if found != Some(covered) {
                    return Err(invalid(format!("the log holds {found:?} where the snapshot ends with {covered}")));
                }
            }
            batch.trim(LOG, seq);
        }
        // The rest of it is in the snapshot.
        _ => drop(batch.drop_stream(LOG)),
    }
    wal.append_wait(batch)?;
    Ok(())
}

fn read_entries(wal: &Wal, memory: &mut Memory) -> Result<(), StoreError> {
    let start = memory.purged.map_or(0, |purged| purged.index + 1);
    let Some(bounds) = wal.bounds(LOG) else { return Ok(()) };
    let mut next = (start + 1).max(bounds.first);
    while next <= bounds.last {
        let records = wal.read(LOG, next, READ_BACK_BYTES)?;
        if records.is_empty() {
            return Err(invalid(format!("entry {} is missing", next - 1)));
        }
        for record in records {
            let entry: Entry = codec::decode("log entry", &record.data)?;
            if entry.log_id.index + 1 != record.seq {
                return Err(invalid(format!("record {} holds entry {}", record.seq, entry.log_id.index)));
            }
            memory.push(entry, record.data.len());
            next = record.seq + 1;
        }
    }
    Ok(())
}

fn invalid(what: String) -> StoreError {
    io::Error::new(io::ErrorKind::InvalidData, what).into()
}
