//! Space in this voter's log. openraft ends when its log refuses something, so whatever is to be written is admitted before
//! openraft hears of it, against space that is there already and that no full disk can take away. What admission cannot
//! stop is small: a vote, the first entry of a term. A part of the space is kept for it.

use super::lack::Lack;
use archon_wal::Wal;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often whoever waits for space looks again.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// What one request takes beside what it holds, in bytes: headers in the log, and facts that ride along.
const REQUEST_BYTES: u64 = 512;
/// What one entry takes beside its encoding, in bytes.
const ENTRY_BYTES: u64 = 64;

/// Why something is not let into the log now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The log is short of space.
    Lack(Lack),
    /// Its next file is still being made.
    Busy,
    /// It would fit into no log.
    TooLarge {
        /// Its size, in bytes.
        bytes: u64,
        /// The largest accepted.
        max: u64,
    },
}

/// What space in the log is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Changes of the state, which nobody has stored yet.
    Change,
    /// Entries of a leader. It hears that this voter lacks space and stops making changes if others do too; what it made until
    /// then should be on all of them, for another one could not lead without.
    Entries,
    /// What a quorum needs to have a leader: it may use space that is kept from changes.
    Leading,
}

/// Bytes that were admitted and may not be in the log yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reserved {
    /// Bytes of changes and entries.
    changes: u64,
    leading: u64,
}

/// Space that is there whatever becomes of the disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Available {
    /// For records of any size that is accepted.
    any: u64,
    /// For small ones only.
    small: u64,
}

/// The sizes that follow from that of a log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// The largest record.
    largest: u64,
    /// What changes leave.
    kept: u64,
    /// What the first entries of terms leave, for votes; also the largest record that counts as small.
    last: u64,
}

impl Sizes {
    const fn of(segment_bytes: u64) -> Self {
        Self { largest: segment_bytes / 2, kept: segment_bytes / 16, last: segment_bytes / 256 }
    }

    /// Whether `bytes` more may be let in.
    fn judge(
        self,
        purpose: Purpose,
        bytes: u64,
        available: Available,
        reserved: Reserved,
        lack: Option<Lack>,
    ) -> Result<(), Refused> {
        let all = reserved.changes + reserved.leading + bytes;
        match purpose {
            Purpose::Change => match lack {
                Some(lack) => Err(Refused::Lack(lack)),
                None if available.any >= all + self.kept => Ok(()),
                None => Err(Refused::Busy),
            },
            Purpose::Entries if available.any >= all + self.kept => Ok(()),
            // What changes were promised stays theirs.
            Purpose::Leading if available.any >= all + self.last => Ok(()),
            Purpose::Leading if reserved.changes == 0 && bytes <= self.last && available.small >= all + self.last => {
                Ok(())
            }
            Purpose::Entries | Purpose::Leading => Err(lack.map_or(Refused::Busy, Refused::Lack)),
        }
    }
}

/// The space of one log; clones share it.
#[derive(Clone)]
pub(crate) struct LogSpace {
    wal: Wal,
    directory: Arc<Path>,
    sizes: Sizes,
    reserved: Arc<Mutex<Reserved>>,
}

/// Space that is held until what it was given for is in the log.
#[derive(Debug)]
pub(crate) struct Admitted {
    reserved: Arc<Mutex<Reserved>>,
    purpose: Purpose,
    bytes: u64,
}

impl Drop for Admitted {
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

    /// What the log lacks to take changes.
    pub(crate) fn lack(&self) -> Option<Lack> {
        self.wal.shortage().map(Lack::from)
    }

    /// Admits `entries` entries, of so many bytes as they are encoded.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) fn admit(&self, purpose: Purpose, entries: usize, bytes: usize) -> Result<Admitted, Refused> {
        let bytes = bytes as u64 + REQUEST_BYTES + ENTRY_BYTES * entries as u64;
        let mut reserved = self.reserved.lock();
        let lack = self.lack();
        self.sizes.judge(purpose, bytes, self.available(), *reserved, lack)?;
        match purpose {
            Purpose::Change | Purpose::Entries => reserved.changes += bytes,
            Purpose::Leading => reserved.leading += bytes,
        }
        Ok(Admitted { reserved: Arc::clone(&self.reserved), purpose, bytes })
    }

    /// As [`admit`](LogSpace::admit), waiting until `deadline` for a file that is being made.
    ///
    /// # Errors
    /// [`Refused`]; `Busy` only after the deadline.
    pub(crate) async fn admitted(
        &self,
        purpose: Purpose,
        entries: usize,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Admitted, Refused> {
        loop {
            match self.admit(purpose, entries, bytes) {
                Err(Refused::Busy) if Instant::now() < deadline => tokio::time::sleep(LOOK_INTERVAL).await,
                outcome => return outcome,
            }
        }
    }

    /// Whether one entry of so many bytes, as it is encoded, can be in the log at all.
    ///
    /// # Errors
    /// [`Refused::TooLarge`].
    pub(crate) fn check_size(&self, bytes: usize) -> Result<(), Refused> {
        let (bytes, max) = (bytes as u64, self.sizes.largest.saturating_sub(REQUEST_BYTES));
        if bytes <= max { Ok(()) } else { Err(Refused::TooLarge { bytes, max }) }
    }

    /// Whether there is space for votes. Without it this voter votes for nobody, itself included.
    pub(crate) fn may_vote(&self) -> bool {
        let reserved = *self.reserved.lock();
        self.available().small >= reserved.changes + reserved.leading + self.sizes.last / 2
    }

    /// Whether files that the log lacks would come free if it were cut.
    pub(super) fn is_freed_by_a_cut(&self) -> bool {
        self.wal.shortage().is_some() && self.wal.oldest_pinned().is_some()
    }

    fn available(&self) -> Available {
        Available { any: self.wal.sure_space(self.sizes.largest), small: self.wal.sure_space(self.sizes.last) }
    }
}

/// The largest batch of entries that is written as one, in bytes.
pub(super) fn batch_bytes_max(wal: &Wal) -> usize {
    let largest = Sizes::of(wal.segment_bytes()).largest;
    usize::try_from(largest).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{DiskFull, DiskLimit};

    const SIZES: Sizes = Sizes::of(16_384);
    const LACK: Lack = Lack::Full(DiskFull { free_bytes: 0, needed_bytes: 16_384, limit: DiskLimit::Bytes });

    fn available(any: u64) -> Available {
        Available { any, small: any + 4_096 }
    }

    #[test]
    fn a_change_is_let_in_only_where_space_is_sure_beside_all_that_is_under_way() {
        assert_eq!(SIZES, Sizes { largest: 8_192, kept: 1_024, last: 64 });
        let judge = |bytes, any, reserved, lack| SIZES.judge(Purpose::Change, bytes, available(any), reserved, lack);
        let none = Reserved::default();
        assert_eq!(judge(1_000, 2_024, none, None), Ok(()));
        assert_eq!(judge(1_000, 2_023, none, None), Err(Refused::Busy));
        let reserved = Reserved { changes: 500, leading: 100 };
        assert_eq!(judge(1_000, 2_624, reserved, None), Ok(()));
        assert_eq!(judge(1_000, 2_623, reserved, None), Err(Refused::Busy));
        assert_eq!(judge(1, 1 << 40, none, Some(LACK)), Err(Refused::Lack(LACK)), "however much is left");
    }

    #[test]
    fn what_a_leader_made_is_stored_while_there_is_space_for_it() {
        let judge = |bytes, any, lack| SIZES.judge(Purpose::Entries, bytes, available(any), Reserved::default(), lack);
        assert_eq!(judge(1_000, 2_024, Some(LACK)), Ok(()));
        assert_eq!(judge(1_000, 2_023, Some(LACK)), Err(Refused::Lack(LACK)));
        assert_eq!(judge(1_000, 2_023, None), Err(Refused::Busy));
    }

    #[test]
    fn the_first_entry_of_a_term_is_let_in_where_changes_are_not() {
        let judge = |bytes, any, reserved| SIZES.judge(Purpose::Leading, bytes, available(any), reserved, Some(LACK));
        let none = Reserved::default();
        assert_eq!(judge(600, 664, none), Ok(()));
        // Of the last space only what is small may have some, and not what changes were promised.
        assert_eq!(judge(600, 663, none), Err(Refused::Lack(LACK)));
        assert_eq!(judge(60, 0, none), Ok(()));
        assert_eq!(judge(60, 0, Reserved { changes: 1, leading: 0 }), Err(Refused::Lack(LACK)));
        assert_eq!(judge(60, 0, Reserved { changes: 0, leading: 4_000 }), Err(Refused::Lack(LACK)));
    }
}
