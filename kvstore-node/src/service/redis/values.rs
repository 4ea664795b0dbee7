//! Values of strings: parts that are overwritten, encodings and digests.

use archon_resp::parse_integer;
use archon_types::limits::VALUE_BYTES_MAX;
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// Longest string that Redis keeps together with its head.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Returns the value with a part overwritten from `offset` on. Bytes between its end and the part are zero. Returns `None`
/// if the value becomes too long.
pub(super) fn overwrite(before: &[u8], offset: usize, part: &[u8]) -> Option<Bytes> {
    let end = offset.checked_add(part.len()).filter(|end| *end <= VALUE_BYTES_MAX)?;
    let mut whole = before.to_vec();
    whole.resize(before.len().max(end), 0);
    whole[offset..end].copy_from_slice(part);
    Some(whole.into())
}

/// Returns the encoding that Redis would choose for a string that was set.
pub(super) fn encoding(value: &[u8]) -> &'static str {
    match parse_integer(value) {
        Some(_) => "int",
        None if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
        None => "raw",
    }
}

/// Returns the digest of a value.
pub(super) fn digest(value: &[u8]) -> u64 {
    xxh3_64(value)
}

/// Returns the text of that: 16 hexadecimal digits.
pub(super) fn digest_text(value: &[u8]) -> String {
    format!("{:016x}", digest(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_beyond_the_end_is_padded_with_zeros() {
        let over = |before: &str, offset, part: &str| overwrite(before.as_bytes(), offset, part.as_bytes());
        assert_eq!(over("Hello World", 6, "Redis").unwrap(), &b"Hello Redis"[..]);
        assert_eq!(over("", 6, "Redis").unwrap(), &b"\0\0\0\0\0\0Redis"[..]);
        assert_eq!(over("abc", 1, "x").unwrap(), &b"axc"[..]);
        assert_eq!(over("", VALUE_BYTES_MAX - 1, "x").unwrap().len(), VALUE_BYTES_MAX);
        for offset in [VALUE_BYTES_MAX, usize::MAX] {
            assert_eq!(over("abc", offset, "x"), None);
        }
    }

    #[test]
    fn encodings_are_those_of_redis() {
        for (value, expected) in [("12", "int"), ("-1", "int"), ("01", "embstr"), ("", "embstr"), ("1.5", "embstr")] {
            assert_eq!(encoding(value.as_bytes()), expected, "{value}");
        }
        assert_eq!((encoding(&[b'a'; 44]), encoding(&[b'a'; 45])), ("embstr", "raw"));
    }

    /// The value of Redis's documentation.
    #[test]
    fn digest_is_that_of_redis() {
        assert_eq!(digest_text(b"Hello world"), "b6acb9d84a38ff74");
    }
}
