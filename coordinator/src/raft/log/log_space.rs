//! Admission to this voter's log by space. openraft ends when its log refuses a write, so writes are admitted before
//! openraft receives them, against prepared space that a full disk cannot take away. Writes that admission cannot stop
//! are small: a vote, the first entry of a term. A part of the space is reserved for them.

use super::low_space::LowSpace;
use archon_wal::Wal;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval of checks while waiting for space.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Overhead of one request in bytes: headers in the log, and accompanying facts.
const REQUEST_BYTES: u64 = 512;
/// Overhead of one entry beside its encoding, in bytes.
const ENTRY_BYTES: u64 = 64;

/// Reason for which something is not admitted to the log now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogRefusal {
    /// The log is short of space.
    Lack(LowSpace),
    /// Its next file is still being made.
    Busy,
    /// It exceeds the size of any record of the log.
    TooLarge {
        /// Its size, in bytes.
        bytes: u64,
        /// The largest accepted.
        max: u64,
    },
}

/// Purpose of space in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Changes of the state, which no voter has stored yet.
    Change,
    /// Entries of a leader. It learns that this voter lacks space and stops making changes if others do too; entries
    /// made until then should be on all voters, because another one could not lead without them.
    Entries,
    /// Entries that a quorum needs to have a leader: they may use space that is reserved from changes.
    Leading,
}

/// Bytes that were admitted and may not be in the log yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReservedBytes {
    /// Bytes of changes and entries.
    changes: u64,
    leading: u64,
}

/// Space that is available regardless of the disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AvailableSpace {
    /// For records of any accepted size.
    any: u64,
    /// For small records only.
    small: u64,
}

/// Sizes derived from the size of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// The largest record.
    largest: u64,
    /// Space that changes leave free.
    kept: u64,
    /// Space that the first entries of terms leave free, for votes; also the largest record that counts as small.
    last: u64,
}

impl Sizes {
    const fn of(segment_bytes: u64) -> Self {
        Self { largest: segment_bytes / 2, kept: segment_bytes / 16, last: segment_bytes / 256 }
    }

    /// Checks that `bytes` more may be admitted.
    fn judge(
        self,
        purpose: Purpose,
        bytes: u64,
        available: AvailableSpace,
        reserved: ReservedBytes,
        lack: Option<LowSpace>,
    ) -> Result<(), LogRefusal> {
        let all = reserved.changes + reserved.leading + bytes;
        match purpose {
            Purpose::Change => match lack {
                Some(lack) => Err(LogRefusal::Lack(lack)),
                None if available.any >= all + self.kept => Ok(()),
                None => Err(LogRefusal::Busy),
            },
            Purpose::Entries if available.any >= all + self.kept => Ok(()),
            // Space promised to changes stays reserved.
            Purpose::Leading if available.any >= all + self.last => Ok(()),
            Purpose::Leading if reserved.changes == 0 && bytes <= self.last && available.small >= all + self.last => {
                Ok(())
            }
            Purpose::Entries | Purpose::Leading => Err(lack.map_or(LogRefusal::Busy, LogRefusal::Lack)),
        }
    }
}

/// The space of one log; clones share it.
#[derive(Clone)]
pub(crate) struct LogSpace {
    wal: Wal,
    directory: Arc<Path>,
    sizes: Sizes,
    reserved: Arc<Mutex<ReservedBytes>>,
}

/// Space that is held until the record is in the log.
#[derive(Debug)]
pub(crate) struct LogReservation {
    reserved: Arc<Mutex<ReservedBytes>>,
    purpose: Purpose,
    bytes: u64,
}

impl Drop for LogReservation {
    fn drop(&mut self) {
        let mut reserved = self.reserved.lock();
        match self.purpose {
            Purpose::Change | Purpose::Entries => reserved.changes -= self.bytes,
            Purpose::Leading => reserved.leading -= self.bytes,
        }
    }
}

impl LogSpace {
    /// The space of the log `wal` in `directory`.
    pub(crate) fn new(wal: Wal, directory: PathBuf) -> Self {
        let sizes = Sizes::of(wal.segment_bytes());
        Self { wal, directory: directory.into(), sizes, reserved: Arc::default() }
    }

    /// The log's directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the shortage because of which the log accepts no changes.
    pub(crate) fn lack(&self) -> Option<LowSpace> {
        self.wal.shortage().map(LowSpace::from)
    }

    /// Admits `entries` entries of `bytes` encoded bytes.
    ///
    /// # Errors
    /// [`LogRefusal`].
    pub(crate) fn admit(&self, purpose: Purpose, entries: usize, bytes: usize) -> Result<LogReservation, LogRefusal> {
        let bytes = bytes as u64 + REQUEST_BYTES + ENTRY_BYTES * entries as u64;
        let mut reserved = self.reserved.lock();
        let lack = self.lack();
        self.sizes.judge(purpose, bytes, self.available(), *reserved, lack)?;
        match purpose {
            Purpose::Change | Purpose::Entries => reserved.changes += bytes,
            Purpose::Leading => reserved.leading += bytes,
        }
        Ok(LogReservation { reserved: Arc::clone(&self.reserved), purpose, bytes })
    }

    /// As [`admit`](LogSpace::admit), but waits until `deadline` for a file that is being made.
    ///
    /// # Errors
    /// [`LogRefusal`]; `Busy` only after the deadline.
    pub(crate) async fn admitted(
        &self,
        purpose: Purpose,
        entries: usize,
        bytes: usize,
        deadline: Instant,
    ) -> Result<LogReservation, LogRefusal> {
        loop {
            match self.admit(purpose, entries, bytes) {
                Err(LogRefusal::Busy) if Instant::now() < deadline => tokio::time::sleep(LOOK_INTERVAL).await,
                outcome => return outcome,
            }
        }
    }

    /// Checks that one entry of `bytes` encoded bytes fits into the log at all.
    ///
    /// # Errors
    /// [`LogRefusal::TooLarge`].
    pub(crate) fn check_size(&self, bytes: usize) -> Result<(), LogRefusal> {
        let (bytes, max) = (bytes as u64, self.sizes.largest.saturating_sub(REQUEST_BYTES));
        if bytes <= max { Ok(()) } else { Err(LogRefusal::TooLarge { bytes, max }) }
    }

    /// Returns true if there is space for votes. Without it this voter votes for no candidate, itself included.
    pub(crate) fn may_vote(&self) -> bool {
        let reserved = *self.reserved.lock();
        self.available().small >= reserved.changes + reserved.leading + self.sizes.last / 2
    }

    /// Returns true if cutting the log would free files that it lacks.
    pub(super) fn is_freed_by_a_cut(&self) -> bool {
        self.wal.shortage().is_some() && self.wal.oldest_pinned().is_some()
    }

    fn available(&self) -> AvailableSpace {
        AvailableSpace { any: self.wal.sure_space(self.sizes.largest), small: self.wal.sure_space(self.sizes.last) }
    }
}

/// Returns the largest batch of entries that is written as one, in bytes.
pub(super) fn batch_bytes_max(wal: &Wal) -> usize {
    let largest = Sizes::of(wal.segment_bytes()).largest;
    usize::try_from(largest).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{DiskFull, DiskLimit};

    const SIZES: Sizes = Sizes::of(16_384);
    const LACK: LowSpace = LowSpace::Full(DiskFull { free_bytes: 0, needed_bytes: 16_384, limit: DiskLimit::Bytes });

    fn available(any: u64) -> AvailableSpace {
        AvailableSpace { any, small: any + 4_096 }
    }

    #[test]
    fn change_is_admitted_only_with_guaranteed_space() {
        assert_eq!(SIZES, Sizes { largest: 8_192, kept: 1_024, last: 64 });
        let judge = |bytes, any, reserved, lack| SIZES.judge(Purpose::Change, bytes, available(any), reserved, lack);
        let none = ReservedBytes::default();
        assert_eq!(judge(1_000, 2_024, none, None), Ok(()));
        assert_eq!(judge(1_000, 2_023, none, None), Err(LogRefusal::Busy));
        let reserved = ReservedBytes { changes: 500, leading: 100 };
        assert_eq!(judge(1_000, 2_624, reserved, None), Ok(()));
        assert_eq!(judge(1_000, 2_623, reserved, None), Err(LogRefusal::Busy));
        assert_eq!(judge(1, 1 << 40, none, Some(LACK)), Err(LogRefusal::Lack(LACK)), "however much is left");
    }

    #[test]
    fn leader_entries_are_admitted_while_space_remains() {
        let judge =
            |bytes, any, lack| SIZES.judge(Purpose::Entries, bytes, available(any), ReservedBytes::default(), lack);
        assert_eq!(judge(1_000, 2_024, Some(LACK)), Ok(()));
        assert_eq!(judge(1_000, 2_023, Some(LACK)), Err(LogRefusal::Lack(LACK)));
        assert_eq!(judge(1_000, 2_023, None), Err(LogRefusal::Busy));
    }

    #[test]
    fn first_entry_of_a_term_is_admitted_before_changes() {
        let judge = |bytes, any, reserved| SIZES.judge(Purpose::Leading, bytes, available(any), reserved, Some(LACK));
        let none = ReservedBytes::default();
        assert_eq!(judge(600, 664, none), Ok(()));
        // Of the last space, only small records may take some, and not from the part promised to changes.
        assert_eq!(judge(600, 663, none), Err(LogRefusal::Lack(LACK)));
        assert_eq!(judge(60, 0, none), Ok(()));
        assert_eq!(judge(60, 0, ReservedBytes { changes: 1, leading: 0 }), Err(LogRefusal::Lack(LACK)));
        assert_eq!(judge(60, 0, ReservedBytes { changes: 0, leading: 4_000 }), Err(LogRefusal::Lack(LACK)));
    }
}
