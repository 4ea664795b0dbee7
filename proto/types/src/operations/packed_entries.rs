//! Packed entries: the format of partition snapshots on the wire and in backups (`docs/operate/backups.md`).
//!
//! | bytes | of each entry |
//! |---|---|
//! | 4 | length of the key; the highest bit is set if the value expires |
//! | 4 | length of the value |
//! | 8 | revision of the value |
//! | 8 | Unix time in milliseconds at which the value expires, if it does |
//! | | the key, then the value |
//!
//! Numbers are big-endian.

use crate::common::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::ids::{Millis, Revision};
use crate::operations::op::{Entry, StoredValue};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Size of an entry without its key and value.
pub(crate) const ENTRY_HEAD_BYTES: usize = 16;
/// Mark beside the length of the key of a value that expires.
const EXPIRES: u32 = 1 << 31;

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
pub fn pack_entry(out: &mut BytesMut, key: &[u8], stored: &StoredValue) {
    // Both are bounded far below 2 GiB.
    let mark = if stored.expires.is_some() { EXPIRES } else { 0 };
    out.put_u32(u32::try_from(key.len()).unwrap_or(u32::MAX) | mark);
    out.put_u32(u32::try_from(stored.value.len()).unwrap_or(u32::MAX));
    out.put_u64(stored.revision.get());
    stored.expires.iter().for_each(|expires| out.put_u64(expires.get()));
    out.put_slice(key);
    out.put_slice(&stored.value);
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
    let (key, value) = (rest.get_u32(), rest.get_u32() as usize);
    let revision = Revision::new(rest.get_u64());
    let (key, is_expiring) = ((key & !EXPIRES) as usize, key & EXPIRES != 0);
    if key == 0 || key > KEY_BYTES_MAX || value > VALUE_BYTES_MAX {
        return Err("no key or value is so long");
    }
    let expires = match is_expiring {
        true => Some(Millis::new(rest.try_get_u64().map_err(|_| "its expiry is not whole")?)),
        false => None,
    };
    if rest.remaining() < key + value {
        return Err("its key and value are not whole");
    }
    Ok(Entry { key: rest.split_to(key), value: rest.split_to(value), revision, expires })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_round_trip(
            entries in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 1..40), proptest::collection::vec(any::<u8>(), 0..40), any::<u64>(), any::<Option<u64>>()), 0..10,
            ),
        ) {
            let mut packed = BytesMut::new();
            let entries: Vec<Entry> = entries
                .into_iter()
                .map(|(key, value, revision, expires)| Entry {
                    key: key.into(),
                    value: value.into(),
                    revision: Revision::new(revision),
                    expires: expires.map(Millis::new),
                })
                .collect();
            entries.iter().for_each(|entry| pack_entry(&mut packed, &entry.key, &entry.stored()));
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
                    Ok(entry) => pack_entry(&mut packed, &entry.key, &entry.stored()),
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
