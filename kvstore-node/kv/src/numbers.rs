//! Numbers in as few bytes as possible (LEB128: seven bits in each byte, the lowest first), in records of the log, entries
//! and rows.

use bytes::BufMut;

/// Bytes of the longest number.
pub const NUMBER_BYTES_MAX: usize = 10;

/// Error of bytes that are no number as [`put_number`] writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NumberError {
    /// They end inside the number.
    Short,
    /// They are more than the number takes.
    Padded,
    /// It has more than 64 bits.
    TooLarge,
}

/// Returns the number of bytes that [`put_number`] writes.
pub(crate) const fn number_bytes(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Writes a number.
///
/// # Panics
/// If `out` has less room than the number takes: at most [`NUMBER_BYTES_MAX`] bytes.
pub fn put_number(out: &mut impl BufMut, mut number: u64) {
    while number >= 0x80 {
        out.put_u8((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// Reads a number written by [`put_number`], and moves `rest` behind it.
///
/// # Errors
/// For anything else; `rest` is then behind the bytes that were read.
pub fn take_number(rest: &mut &[u8]) -> Result<u64, NumberError> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(NumberError::Short)?;
        *rest = after;
        let part = u64::from(byte & 0x7F);
        // The tenth byte has room for one bit.
        if part << shift >> shift != part {
            return Err(NumberError::TooLarge);
        }
        number |= part << shift;
        if *byte == 0 && shift > 0 {
            return Err(NumberError::Padded);
        }
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(NumberError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_one_spelling() {
        let take = |bytes: &[u8]| take_number(&mut &bytes[..]);
        assert_eq!(take(&[0x80, 0x01]), Ok(128));
        assert_eq!(take(&[]), Err(NumberError::Short));
        assert_eq!(take(&[0x80]), Err(NumberError::Short));
        assert_eq!(take(&[0x81, 0x00]), Err(NumberError::Padded));
        let most = [&[0xFF; 9][..], &[0x01]].concat();
        assert_eq!(take(&most), Ok(u64::MAX));
        assert_eq!(take(&[0x80, 0x00]), Err(NumberError::Padded));
        assert_eq!(take(&[0xFF; 11]), Err(NumberError::TooLarge));
        for last in [0x02, 0x03, 0x7F, 0x81] {
            assert_eq!(take(&[&[0xFF; 9][..], &[last]].concat()), Err(NumberError::TooLarge), "{last}");
        }
    }

    proptest! {
        #[test]
        fn number_is_read_as_written(number in any::<u64>(), shift in 0..64_u32) {
            let number = number >> shift;
            let mut out = Vec::new();
            put_number(&mut out, number);
            prop_assert_eq!(out.len(), number_bytes(number));
            let mut rest = &out[..];
            prop_assert_eq!(take_number(&mut rest), Ok(number));
            prop_assert!(rest.is_empty());
            let mut array = [0; NUMBER_BYTES_MAX];
            let mut room = &mut array[..];
            put_number(&mut room, number);
            let written = NUMBER_BYTES_MAX - room.len();
            prop_assert_eq!(&array[..written], &out[..]);
        }
    }
}
