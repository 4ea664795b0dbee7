//! State of a split-key search for an operator, and how long its result is kept.

use crate::ranges::byte_halves::ByteHalves;
use crate::ranges::split_watch::{MIDDLE_MS_MAX, SplitSearch};
use archon_types::{KeyRange, Middle, Millis, check_split_at};
use bytes::Bytes;

/// Time for which a result is kept for the operator regardless of writes, in milliseconds. Without it, a partition with
/// many writes would never get an answer.
pub(crate) const ANSWER_MS: u64 = 2_000;

/// Partitions up to this size are walked quickly, so each later request walks them again.
pub(crate) const SMALL_BYTES: u64 = 16 * 1024 * 1024;

/// Inverse of the share of a larger partition's bytes that may be written before a result expires.
const CHANGED_PART: u64 = 16;

/// State of a leader between requests for its split key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum MiddleSearch {
    /// No request yet.
    #[default]
    None,
    /// The walk failed.
    Failed(Millis),
    /// A walk is in progress.
    UnderWay(SearchedKeys),
    /// Result of a walk.
    Found(WalkResult),
}

/// The searched keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SearchedKeys {
    pub(crate) range: KeyRange,
    /// Bytes ever logged when the walk was requested.
    pub(crate) logged_bytes: u64,
}

/// Result of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WalkResult {
    pub(crate) of: SearchedKeys,
    pub(crate) at: Option<Bytes>,
    /// Bytes of all rows.
    pub(crate) bytes: u64,
    pub(crate) found: Millis,
    /// A caller has received it.
    pub(crate) told: bool,
}

impl WalkResult {
    /// Returns whether it still holds for a partition that has logged this many bytes by now.
    const fn is_good(&self, logged_bytes: u64, now: Millis) -> bool {
        let age_ms = now.since(self.found);
        if !self.told && age_ms < ANSWER_MS {
            return true;
        }
        let written = logged_bytes.saturating_sub(self.of.logged_bytes);
        let is_as_it_was = self.bytes > SMALL_BYTES && written <= self.bytes / CHANGED_PART;
        self.at.is_some() && is_as_it_was && age_ms < MIDDLE_MS_MAX
    }
}

impl MiddleSearch {
    /// Returns the known answer for a partition with these keys and logged bytes; `None` if its rows must be walked.
    pub(crate) fn known(&mut self, range: &KeyRange, logged_bytes: u64, now: Millis) -> Option<Middle> {
        match self {
            Self::UnderWay(of) if of.range == *range => Some(Middle::Searching),
            Self::Found(found) if found.of.range == *range && found.is_good(logged_bytes, now) => {
                found.told = true;
                Some(found.at.clone().map_or(Middle::Indivisible, Middle::At))
            }
            _ => None,
        }
    }

    /// Takes the result of a walk; `None` if it failed.
    pub(crate) fn walked(&mut self, search: &SplitSearch, halves: Option<&ByteHalves>, now: Millis) {
        let of = match self {
            Self::UnderWay(of) if of.range == search.range => of.clone(),
            _ => return,
        };
        let cuts = |at: &Bytes| check_split_at(&search.range, at).is_ok();
        *self = match halves {
            Some(halves) => {
                let at = halves.middle().filter(cuts);
                Self::Found(WalkResult { of, at, bytes: halves.bytes(), found: now, told: false })
            }
            None => Self::Failed(now),
        };
    }
}
