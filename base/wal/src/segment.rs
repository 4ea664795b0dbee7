//! Segment files: names and activation.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;

use crate::disk::{BLOCK_ALIGNMENT, Disk, DiskFile, DurableFile, WriteThenSync};
use crate::error::WalError;
use crate::format::{FRAME_HEADER_BYTES, Frame, SEGMENT_HEADER_BYTES, SegmentHeader, padded, seal_frame};
use crate::index::Index;
use crate::segment_pool::SegmentPool;

/// The segment in use by the writer.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) header: SegmentHeader,
    /// Handle for readers.
    pub(crate) file: Arc<dyn DiskFile>,
    /// Handle for the writer.
    pub(crate) out: Arc<dyn DurableFile>,
    /// Bytes before `end` in the same block of `out`.
    pub(crate) tail: Vec<u8>,
    /// Offset of the next frame.
    pub(crate) end: u32,
    /// Checksum of the last frame.
    pub(crate) chain: u32,
}

impl Active {
    /// Returns the number of bytes before `end` in the same block.
    pub(crate) fn tail_bytes(out: &dyn DurableFile, end: usize) -> usize {
        end % out.block_bytes()
    }

    pub(crate) fn fits(&self, bytes: usize) -> bool {
        u64::from(self.end) + bytes as u64 <= self.header.size
    }

    /// Returns the remaining bytes for frames.
    pub(crate) fn left(&self) -> u64 {
        self.header.size.saturating_sub(u64::from(self.end))
    }
}

pub(crate) fn segment_name(generation: u64) -> String {
    format!("wal-{generation:016x}.seg")
}

pub(crate) fn spare_name(id: u64) -> String {
    format!("spare-{id:016x}.free")
}

pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    parse_name(name, "wal-", ".seg")
}

pub(crate) fn parse_spare_name(name: &str) -> Option<u64> {
    parse_name(name, "spare-", ".free")
}

fn parse_name(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    // Numbers count up from one and stay below half of the range; others are not ours.
    (digits.len() == 16 && number <= u64::MAX / 2).then_some(number)
}

/// Reason why no new segment was activated.
#[derive(Debug)]
pub(crate) enum ActivateError {
    /// Nothing changed; the caller may continue with the current segment.
    Refused(WalError),
    /// A write or sync failed halfway.
    Fatal(&'static str, io::Error),
}

/// Start of a segment, not yet sealed: the state of the log up to there.
pub(crate) struct SegmentStart {
    buffer: Vec<u8>,
    batch: u64,
}

impl SegmentStart {
    /// Copies the required parts of `index`, which must be durable completely.
    pub(crate) fn new(index: &Index) -> SegmentStart {
        let mut buffer = vec![0u8; SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES];
        index.encode_snapshot(&mut buffer);
        SegmentStart { buffer, batch: index.batch }
    }

    /// Returns the bytes that it takes in a segment.
    pub(crate) fn bytes(&self) -> u64 {
        (SEGMENT_HEADER_BYTES + padded(self.buffer.len() - SEGMENT_HEADER_BYTES)) as u64
    }
}

/// Activates a segment with space for `need` bytes of frames. Header and snapshot are durable before the file gets
/// its name, so a named segment always has both; the name is durable before this returns, and so before any frame is
/// written.
pub(crate) fn activate(
    disk: &dyn Disk,
    pool: &SegmentPool,
    beginning: SegmentStart,
    generation: u64,
    need: usize,
    urgent: bool,
) -> Result<Active, ActivateError> {
    let start = SEGMENT_HEADER_BYTES;
    let SegmentStart { mut buffer, batch } = beginning;
    let payload_bytes = buffer.len() - start - FRAME_HEADER_BYTES;

    let least = (start + padded(buffer.len() - start) + need) as u64;
    let (spare, size) = if least <= pool.segment_bytes() {
        (pool.take(urgent).map_err(ActivateError::Refused)?, pool.segment_bytes())
    } else {
        let size = least.saturating_add(pool.segment_bytes()).next_multiple_of(BLOCK_ALIGNMENT as u64);
        if size > u64::from(u32::MAX) {
            let (bytes, max) = (need, (u32::MAX as usize).saturating_sub(buffer.len()));
            return Err(ActivateError::Refused(WalError::BatchTooLarge { bytes, max }));
        }
        (pool.make_large(size)?, size)
    };

    let out = disk.open_durable(&spare.name).unwrap_or_else(|error| {
        // Without a free descriptor: the spare is open already, and can be written through the page cache.
        tracing::debug!(%error, name = spare.name, "a log segment is written through the page cache");
        Arc::new(WriteThenSync(spare.file.clone()))
    });

    let header = SegmentHeader { generation, salt: salt(), base_batch: batch, size };
    buffer[..start].copy_from_slice(&header.encode());
    let frame = Frame { snapshot: true, payload_bytes, group: start as u32, batch, chain: 0 };
    let chain = seal_frame(&mut buffer, start, start as u32, frame, &header);

    let fatal = |action| move |error| ActivateError::Fatal(action, error);
    spare.file.write_at(0, &buffer).map_err(fatal("write the header of a new segment"))?;
    spare.file.sync().map_err(fatal("sync the header of a new segment"))?;
    disk.rename(&spare.name, &segment_name(generation)).map_err(fatal("name a new segment"))?;
    disk.sync_directory().map_err(fatal("sync the directory"))?;
    let tail = buffer.split_off(buffer.len() - Active::tail_bytes(&*out, buffer.len()));
    let end = (buffer.len() + tail.len()) as u32;
    Ok(Active { header, file: spare.file, out, tail, end, chain })
}

/// Returns a number that is unlikely to repeat for the same generation: the standard library seeds its hashers
/// randomly.
fn salt() -> u64 {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_foreign_names_are_rejected() {
        assert_eq!(parse_segment_name(&segment_name(0xabc)), Some(0xabc));
        assert_eq!(parse_spare_name(&spare_name(7)), Some(7));
        for name in
            ["wal-1.seg", "wal-000000000000000g.seg", "wal-0000000000000001.seg~", "wal-ffffffffffffffff.seg", "x"]
        {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }
}
