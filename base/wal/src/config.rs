//! Configuration of the log, with defaults and limits.

use crate::error::WalError;
use crate::format::{DATA_BYTES_BITS, FRAME_HEADER_BYTES, OP_HEADER_BYTES};
use crate::relocate::RelocationLimits;
use crate::segment_pool::RESERVE;

/// Minimum segment size; only tests use segments this small.
pub const SEGMENT_BYTES_MIN: u64 = 4 * 1024;
/// Maximum segment size: offsets in a segment have 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Maximum queue size, and thus maximum size of one batch.
pub const QUEUE_BYTES_MAX: usize = 512 * 1024 * 1024;
// The longest batch is shorter than the queue, so the data of each of its steps fits.
const _: () = assert!(QUEUE_BYTES_MAX <= 1 << DATA_BYTES_BITS);

/// Memory and disk use of a [`Wal`](crate::Wal).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalConfig {
    /// Size of a segment file in bytes, 4 KiB to 1 GiB. Segments are filled with zeros ahead of
    /// use, so this much is written when a new one is made. Default 16 MiB.
    pub segment_bytes: u64,
    /// Maximum bytes of queued and unfinished batches, 4 KiB to 512 MiB. Appends beyond it are refused with
    /// [`WalFull`](crate::WalFull). Also limits one batch. Default 64 MiB.
    pub queue_bytes_max: usize,
    /// Maximum bytes per durable write. A larger batch is written alone. Default 4 MiB.
    pub write_bytes_max: usize,
    /// Number of segments kept ready for ordinary batches, 1 to 64. One more is reserved for urgent batches. Default
    /// 1.
    pub spare_segments: usize,
    /// Number of unneeded segments kept for reuse, 0 to 64, if more than `spare_segments`: under load no segment
    /// needs to be filled then. One is removed per minute without use. Default 16, which is 272 MiB with the reserve.
    pub recycled_segments_max: usize,
    /// Bytes of segments, without the newest, that old records may retain. Beyond it, and immediately on a full disk,
    /// streams with records in the oldest segment are rewritten at the end of the log, as long as that frees twice
    /// the written bytes. At least twice the segment size. Default 512 MiB.
    pub kept_bytes_max: u64,
    /// When true, [`Wal::open`](crate::Wal::open) refuses a damaged log with
    /// [`WalError::Corrupt`] and changes nothing; when false it opens, and the streams that
    /// may have lost something are reported and closed for writing. Default false.
    pub refuse_damage: bool,
}

impl Default for WalConfig {
    fn default() -> WalConfig {
        WalConfig {
            segment_bytes: 16 * 1024 * 1024,
            queue_bytes_max: 64 * 1024 * 1024,
            write_bytes_max: 4 * 1024 * 1024,
            spare_segments: 1,
            recycled_segments_max: 16,
            kept_bytes_max: 512 * 1024 * 1024,
            refuse_damage: false,
        }
    }
}

impl WalConfig {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`WalError::Config`] names the field, the value and the range.
    pub fn check(&self) -> Result<(), WalError> {
        within("segment_bytes", self.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)?;
        within("queue_bytes_max", self.queue_bytes_max as u64, 4096, QUEUE_BYTES_MAX as u64)?;
        within("write_bytes_max", self.write_bytes_max as u64, 1, QUEUE_BYTES_MAX as u64)?;
        within("spare_segments", self.spare_segments as u64, 1, 64)?;
        within("recycled_segments_max", self.recycled_segments_max as u64, 0, 64)?;
        within("kept_bytes_max", self.kept_bytes_max, 2 * SEGMENT_BYTES_MIN, u64::MAX)
    }

    /// Returns the maximum number of files kept beside the segments in use.
    pub(crate) fn spares_max(&self) -> usize {
        RESERVE + self.spare_segments.max(self.recycled_segments_max)
    }

    /// Returns the bounds of one relocation of old records; `kept_bytes_max` bytes of segments may stay unchanged.
    pub(crate) fn relocation(&self, kept_bytes_max: u64) -> RelocationLimits {
        RelocationLimits {
            kept_bytes_max,
            moved_bytes_max: self.segment_bytes / 2,
            stream_bytes_max: (2 * self.segment_bytes).min(self.queue_bytes_max as u64 / 2),
        }
    }

    /// Returns the maximum encoded size of a batch.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        self.queue_bytes_max.saturating_sub(FRAME_HEADER_BYTES + OP_HEADER_BYTES)
    }
}

fn within(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), WalError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(WalError::Config { field, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_valid_and_error_names_the_field() {
        WalConfig::default().check().unwrap();
        let config = WalConfig { segment_bytes: 100, ..WalConfig::default() };
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("segment_bytes") && error.contains("4096"), "{error}");
    }
}
