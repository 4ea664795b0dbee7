//! Effects of splits and merges. Keys given away are sealed before another partition is formed from them or merges them
//! in, unsealed if that is cancelled, and cleared once the other has them. Keys received are sealed until they may be
//! shown.

use super::merge_record::MergeRecord;
use super::seal::Seal;
use crate::operations::effect::{Effect, RowChange};
use crate::rows::row::{self, CLEARED_KEY, MERGED_KEY, SEAL_KEY};
use crate::rows::view::{View, ViewError};
use archon_types::{KeyRange, Millis, Version};
use bytes::Bytes;

/// Seals the keys that `seal` covers: no operation on them is admitted from here on.
pub fn split(at: Millis, seal: &Seal) -> Effect {
    Effect::new(at, vec![RowChange::set(Bytes::from_static(SEAL_KEY), seal.encode())])
}

/// Lifts the seal.
pub fn open(at: Millis) -> Effect {
    Effect::new(at, vec![RowChange::remove(Bytes::from_static(SEAL_KEY))])
}

/// Clears user rows in `range`, another partition's since that version of the row, and the seal on them. The
/// partition's client records stay.
pub fn clear(at: Millis, range: KeyRange, since: Version) -> Effect {
    let cleared = RowChange::set(Bytes::from_static(CLEARED_KEY), row::encode_version(since));
    Effect { clear: Some(range), ..Effect::new(at, vec![RowChange::remove(Bytes::from_static(SEAL_KEY)), cleared]) }
}

/// Returns the version of its row since which a partition has cleared keys of other partitions; zero if it never gave
/// any away. A copy with an older row takes such keys for its own.
///
/// # Errors
/// [`ViewError`] if a row cannot be read or is malformed.
pub fn cleared_since(view: &impl View) -> Result<Version, ViewError> {
    let row = view.get(CLEARED_KEY)?;
    Ok(row.map(|row| row::decode_version(&row)).transpose()?.unwrap_or(Version::ZERO))
}

/// Prepares for keys of another partition: existing rows there are cleared, and the keys are sealed until they may be
/// shown.
pub fn absorb(at: Millis, seal: &Seal) -> Effect {
    Effect { clear: Some(seal.range()), ..split(at, seal) }
}

/// Records that all keys of another partition have arrived.
pub fn absorbed(at: Millis, merged: &MergeRecord) -> Effect {
    Effect::new(at, vec![RowChange::set(Bytes::from_static(MERGED_KEY), merged.encode())])
}

#[cfg(test)]
#[path = "reshape_tests.rs"]
mod tests;
