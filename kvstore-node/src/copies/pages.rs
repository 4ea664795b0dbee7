//! Wire format of a copy's rows: lengths and bytes, checked by a CRC-32C over all of them.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Rows that differ from what was sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// The checksum does not match.
    #[error("a page of {bytes} bytes has checksum {found:08x}, not {sent:08x}; it was damaged on the way")]
    Checksum {
        /// Its length.
        bytes: usize,
        /// The computed checksum.
        found: u32,
        /// The received checksum.
        sent: u32,
    },
    /// The page ends inside a row.
    #[error("a page of {bytes} bytes ends inside a row")]
    Short {
        /// Its length.
        bytes: usize,
    },
}

/// Returns the checksum of encoded rows.
pub(crate) fn checksum(rows: &[u8]) -> u32 {
    crc32c::crc32c(rows)
}

/// Rows as they are sent.
#[derive(Debug)]
pub(crate) struct EncodedRows {
    pub(crate) bytes: Bytes,
    pub(crate) crc32c: u32,
}

/// Bytes of the lengths before each row.
const LENGTHS_BYTES: usize = 8;

/// Encodes rows.
pub(crate) fn encode<'a>(rows: impl Iterator<Item = (&'a Bytes, &'a Bytes)> + Clone) -> EncodedRows {
    let length = rows.clone().map(|(key, value)| LENGTHS_BYTES + key.len() + value.len()).sum();
    let mut out = BytesMut::with_capacity(length);
    for (key, value) in rows {
        // The engine bounds both lengths far below 4 GiB.
        out.put_u32(u32::try_from(key.len()).unwrap_or(u32::MAX));
        out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        out.put_slice(key);
        out.put_slice(value);
    }
    EncodedRows { crc32c: checksum(&out), bytes: out.freeze() }
}

/// Decodes rows after checking them.
///
/// # Errors
/// [`PageError`] for anything [`encode`] does not write.
pub(crate) fn decode(rows: &Bytes, sent: u32) -> Result<Vec<(Bytes, Bytes)>, PageError> {
    let bytes = rows.len();
    let found = checksum(rows);
    if found != sent {
        return Err(PageError::Checksum { bytes, found, sent });
    }
    let mut rest = rows.clone();
    let mut decoded = Vec::new();
    while rest.has_remaining() {
        if rest.remaining() < LENGTHS_BYTES {
            return Err(PageError::Short { bytes });
        }
        let (key, value) = (rest.get_u32() as usize, rest.get_u32() as usize);
        if rest.remaining() < key.saturating_add(value) {
            return Err(PageError::Short { bytes });
        }
        decoded.push((rest.split_to(key), rest.split_to(value)));
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_round_trip(rows in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..40), proptest::collection::vec(any::<u8>(), 0..40)), 0..10)) {
            let rows: Vec<(Bytes, Bytes)> = rows.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
            let encoded = encode(rows.iter().map(|(key, value)| (key, value)));
            prop_assert_eq!(decode(&encoded.bytes, encoded.crc32c), Ok(rows));
        }

        #[test]
        fn decode_rejects_any_bytes_with_wrong_checksum(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let bytes = Bytes::from(bytes);
            let crc32c = checksum(&bytes);
            let _ = decode(&bytes, crc32c);
            prop_assert!(decode(&bytes, crc32c ^ 1).is_err());
        }
    }
}
