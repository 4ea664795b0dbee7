//! Packed entries: the format of partition snapshots on the wire and in backups (`docs/operate/backups.md`).
//!
//! | bytes | of each entry |
//! |---|---|
//! | 4 | length of the key |
//! | 4 | length of the value |
//! | 8 | revision of the value |
//! | | the key, then the value |
//!
//! Numbers are big-endian.

use crate::common::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::ids::Revision;
use crate::operations::op::Entry;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Size of an entry without its key and value.
pub(crate) const ENTRY_HEAD_BYTES: usize = 16;

/// Malformed entry bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {at} is not where an entry begins: {why}")]
pub struct PackedEntriesError {
    /// Number of valid bytes before the fault.
    pub at: usize,
    /// Fault at this position.
    pub why: &'static str,
}

/// Appends an entry.
pub fn pack_entry(out: &mut BytesMut, key: &[u8], value: &[u8], revision: Revision) {
    // Both are bounded far below 4 GiB.
    out.put_u32(u32::try_from(key.len()).unwrap_or(u32::MAX));
    out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
    out.put_u64(revision.get());
    out.put_slice(key);
    out.put_slice(value);
}

/// Returns the entries in the bytes; the last one is an error if the bytes are malformed.
pub fn unpack_entries(packed: &Bytes) -> impl Iterator<Item = Result<Entry, PackedEntriesError>> {
    let (all, mut rest) = (packed.len(), packed.clone());
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = all - rest.len();
        let entry = unpack_entry(&mut rest).map_err(|why| PackedEntriesError { at, why });
        if entry.is_err() {
            rest.clear();
        }
        Some(entry)
    })
}

fn unpack_entry(rest: &mut Bytes) -> Result<Entry, &'static str> {
    if rest.remaining() < ENTRY_HEAD_BYTES {
        return Err("too few bytes follow");
    }
    let (key, value) = (rest.get_u32() as usize, rest.get_u32() as usize);
    let revision = Revision::new(rest.get_u64());
    if key == 0 || key > KEY_BYTES_MAX || value > VALUE_BYTES_MAX {
        return Err("no key or value is so long");
    }
    if rest.remaining() < key + value {
        return Err("its key and value are not whole");
    }
    Ok(Entry { key: rest.split_to(key), value: rest.split_to(value), revision })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_round_trip(
            entries in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 1..40), proptest::collection::vec(any::<u8>(), 0..40), any::<u64>()), 0..10,
            ),
        ) {
            let mut packed = BytesMut::new();
            let entries: Vec<Entry> = entries
                .into_iter()
                .map(|(key, value, revision)| Entry { key: key.into(), value: value.into(), revision: Revision::new(revision) })
                .collect();
            entries.iter().for_each(|entry| pack_entry(&mut packed, &entry.key, &entry.value, entry.revision));
            let found: Result<Vec<_>, _> = unpack_entries(&packed.freeze()).collect();
            prop_assert_eq!(found, Ok(entries));
        }

        #[test]
        fn arbitrary_bytes_are_entries_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let bytes = Bytes::from(bytes);
            let mut packed = BytesMut::new();
            let mut whole = true;
            for entry in unpack_entries(&bytes) {
                match entry {
                    Ok(entry) => pack_entry(&mut packed, &entry.key, &entry.value, entry.revision),
                    Err(error) => {
                        prop_assert_eq!(error.at, packed.len());
                        whole = false;
                    }
                }
            }
            prop_assert_eq!(whole, packed.freeze() == bytes);
        }
    }
}
