//! Effects by which a partition gives keys away or gets some: sealed before another partition is formed from them or takes them in,
//! opened again if nothing comes of that, cleared once the other has them; of the one that gets them, sealed until it may show
//! what it got.

use super::effect::{Effect, RowChange};
use super::merged::Merged;
use super::row::{MERGED_KEY, SEAL_KEY};
use super::seal::Seal;
use archon_types::{KeyRange, Millis};
use bytes::Bytes;

/// From here on nothing is admitted in what `seal` covers.
pub fn split(at: Millis, seal: &Seal) -> Effect {
    Effect::new(at, vec![RowChange::set(Bytes::from_static(SEAL_KEY), seal.encode())])
}

/// What was sealed is admitted again.
pub fn open(at: Millis) -> Effect {
    Effect::new(at, vec![RowChange::remove(Bytes::from_static(SEAL_KEY))])
}

/// Users' rows in `range` are another partition's: they go, and the seal on them. What the partition keeps of clients stays.
pub fn clear(at: Millis, range: KeyRange) -> Effect {
    Effect { clear: Some(range), ..open(at) }
}

/// Keys that are to come from another partition: whatever there is of them goes, and they are sealed until they may be shown.
pub fn absorb(at: Millis, seal: &Seal) -> Effect {
    Effect { clear: Some(seal.range()), ..split(at, seal) }
}

/// All keys of another partition have come.
pub fn absorbed(at: Millis, merged: &Merged) -> Effect {
    Effect::new(at, vec![RowChange::set(Bytes::from_static(MERGED_KEY), merged.encode())])
}

#[cfg(test)]
#[path = "reshape_tests.rs"]
mod tests;
