//! Pause of the compactions of an LSM tree while the disk has no space for them.

use std::time::Duration;

/// Interval between looks at a disk with too little space for compactions.
const SPACE_INTERVAL: Duration = Duration::from_secs(2);
/// Doublings of that interval after compactions that met a full disk although it seemed to have space: about two minutes.
const RETRY_DOUBLINGS_MAX: u32 = 6;

/// Wait of the compactions for space on the disk.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    /// Bytes that the next compaction needs.
    pub(super) needed_bytes: u64,
    /// Bytes that the disk had for compactions when the pause began.
    spare_bytes: u64,
    /// Longest time until the next attempt.
    interval: Duration,
}

impl Pause {
    /// Returns the pause of a compaction for which the disk has too little space.
    pub(super) const fn for_space(needed_bytes: u64, spare_bytes: u64) -> Self {
        Self { needed_bytes, spare_bytes, interval: SPACE_INTERVAL }
    }

    /// Returns the pause of a compaction that met a full disk in spite of `spare_bytes`, after so many earlier ones.
    pub(super) fn after_refusal(needed_bytes: u64, spare_bytes: u64, refusals: u32) -> Self {
        let interval = SPACE_INTERVAL * 2_u32.pow(refusals.min(RETRY_DOUBLINGS_MAX));
        Self { needed_bytes, spare_bytes, interval }
    }

    /// Returns the time until the next look at the disk, which has `spare_bytes` now; `None` ends the pause.
    ///
    /// It ends early once as many bytes have become free as the compaction needs. Fewer may be those of its own tables,
    /// which some file systems release later.
    pub(super) fn remaining(&self, waited: Duration, spare_bytes: u64) -> Option<Duration> {
        let returned = spare_bytes.saturating_sub(self.spare_bytes);
        let rest = self.interval.saturating_sub(waited);
        (returned < self.needed_bytes && !rest.is_zero()).then(|| rest.min(SPACE_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn refused_compactions_are_tried_again_within_minutes() {
        let intervals = [0, 1, 5, 6, 7, u32::MAX].map(|refusals| Pause::after_refusal(1, 0, refusals).interval);
        assert_eq!(intervals.map(|interval| interval.as_secs()), [2, 4, 64, 128, 128, 128]);
    }

    #[test]
    fn returned_space_ends_a_pause_early() {
        let pause = Pause::after_refusal(100, 250, 6);
        for spare_bytes in [0, 250, 349] {
            assert_eq!(pause.remaining(SECOND, spare_bytes), Some(SPACE_INTERVAL), "{spare_bytes}");
        }
        for spare_bytes in [350, u64::MAX] {
            assert_eq!(pause.remaining(SECOND, spare_bytes), None, "{spare_bytes}");
        }
        assert_eq!(pause.remaining(127 * SECOND, 250), Some(SECOND));
        assert_eq!(pause.remaining(128 * SECOND, 250), None);
        // The system does not report the free space.
        let blind = Pause::after_refusal(100, u64::MAX, 6);
        assert_eq!(blind.remaining(SECOND, u64::MAX), Some(SPACE_INTERVAL));
    }
}
