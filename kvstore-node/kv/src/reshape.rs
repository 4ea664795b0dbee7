//! Effects by which a partition gives keys away or gets some: sealed before another partition is formed from them or takes them in,
//! opened again if nothing comes of that, cleared once the other has them; of the one that gets them, sealed until it may show
//! what it got.

use super::effect::{Effect, RowChange};
use super::merged::Merged;
use super::row::{self, CLEARED_KEY, MERGED_KEY, SEAL_KEY};
use super::seal::Seal;
use super::view::{View, ViewError};
use archon_types::{KeyRange, Millis, Version};
use bytes::Bytes;

/// From here on nothing is admitted in what `seal` covers.
pub fn split(at: Millis, seal: &Seal) -> Effect {
    Effect::new(at, vec![RowChange::set(Bytes::from_static(SEAL_KEY), seal.encode())])
}

/// What was sealed is admitted again.
pub fn open(at: Millis) -> Effect {
    Effect::new(at, vec![RowChange::remove(Bytes::from_static(SEAL_KEY))])
}

/// Users' rows in `range` are another partition's since that version of the row: they go, and the seal on them. What the partition
/// keeps of clients stays.
pub fn clear(at: Millis, range: KeyRange, since: Version) -> Effect {
    let cleared = RowChange::set(Bytes::from_static(CLEARED_KEY), row::encode_version(since));
    Effect { clear: Some(range), ..Effect::new(at, vec![RowChange::remove(Bytes::from_static(SEAL_KEY)), cleared]) }
}

/// Since which version of its row a partition has no keys any more that its rows lack; zero if it never gave any away. A copy that
/// knows an older row takes keys for its own that are another partition's.
///
/// # Errors
/// [`ViewError`] if a row cannot be read or is malformed.
pub fn cleared_since(view: &impl View) -> Result<Version, ViewError> {
    let row = view.get(CLEARED_KEY)?;
    Ok(row.map(|row| row::decode_version(&row)).transpose()?.unwrap_or(Version::ZERO))
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
