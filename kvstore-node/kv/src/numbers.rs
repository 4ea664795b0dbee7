//! Numbers in as few bytes as possible (LEB128: seven bits in each byte, the lowest first), in log entries and rows.

/// Error of bytes that are no number as [`put_number`] writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberError {
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
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads a number written by [`put_number`], and moves `rest` behind it.
///
/// # Errors
/// For anything else; `rest` is then behind the bytes that were read.
pub(crate) fn take_number(rest: &mut &[u8]) -> Result<u64, NumberError> {
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
        for last in [0x02, 0x7F, 0x81] {
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
        }
    }
}
