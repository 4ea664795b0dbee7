//! Bytes as hexadecimal digits, two per byte.

use bytes::Bytes;
use std::fmt::Write as _;

/// Returns the digits of the bytes, in lower case.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// Returns the bytes of digits in any case; `None` for any other text.
pub fn decode(digits: &str) -> Option<Bytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_written() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(decode(&encode(&all)).as_deref(), Some(&all[..]));
        assert_eq!((encode(b"\x00\xff"), decode("Ff0a").as_deref()), ("00ff".into(), Some(&b"\xff\x0a"[..])));
        for wrong in ["f", "+f", "zz", "0x", "ff 0", "é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
