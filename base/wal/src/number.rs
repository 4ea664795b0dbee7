//! Numbers at the beginning of records, in as few bytes as possible (LEB128: seven bits in each byte, the lowest first).

use bytes::Bytes;

/// Bytes of the longest number.
const NUMBER_BYTES_MAX: usize = 10;

/// An encoded number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedNumber {
    bytes: [u8; NUMBER_BYTES_MAX],
    length: usize,
}

impl EncodedNumber {
    pub(crate) fn new(mut number: u64) -> EncodedNumber {
        let length = number_bytes(number);
        let mut bytes = [0; NUMBER_BYTES_MAX];
        for byte in &mut bytes[..length] {
            *byte = (number & 0x7f) as u8 | 0x80;
            number >>= 7;
        }
        bytes[length - 1] &= 0x7f;
        EncodedNumber { bytes, length }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Returns the bytes that a number takes.
pub(crate) const fn number_bytes(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Separates the number of a record from its data, if [`WalBatch::put_numbered`](crate::WalBatch::put_numbered) can have
/// written both. The data shares the record's memory.
pub fn split_number(record: &Bytes) -> Option<(u64, Bytes)> {
    let mut number = 0_u64;
    for (at, byte) in record.iter().take(NUMBER_BYTES_MAX).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            // Neither padded nor beyond 64 bits.
            let is_sound = number_bytes(number) == at + 1 && EncodedNumber::new(number).bytes()[at] == *byte;
            return is_sound.then(|| (number, record.slice(at + 1..)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn number_has_one_encoding() {
        assert_eq!(EncodedNumber::new(300).bytes(), [0xac, 0x02]);
        assert_eq!(split_number(&Bytes::from_static(&[0xac, 0x02, 7])), Some((300, Bytes::from_static(&[7]))));
        let most = [&[0xff; 9][..], &[1]].concat();
        assert_eq!(split_number(&Bytes::from(most)).map(|(number, _)| number), Some(u64::MAX));
        for malformed in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0xff; 11],
            &[&[0xff; 9][..], &[2]].concat(),
            &[&[0xff; 9][..], &[3]].concat(),
        ] {
            assert_eq!(split_number(&Bytes::copy_from_slice(malformed)), None, "{malformed:?}");
        }
    }

    proptest! {
        #[test]
        fn number_and_data_are_read_as_written(number in any::<u64>(), shift in 0..64_u32, data in any::<[u8; 3]>()) {
            let number = number >> shift;
            let encoded = EncodedNumber::new(number);
            prop_assert_eq!(encoded.bytes().len(), number_bytes(number));
            let record = Bytes::from([encoded.bytes(), &data].concat());
            prop_assert_eq!(split_number(&record), Some((number, Bytes::copy_from_slice(&data))));
        }
    }
}
