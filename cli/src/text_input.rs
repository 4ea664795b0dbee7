//! Text in files and standard input: UTF-8, with or without a byte order mark.

/// The byte order mark of UTF-8, which some editors write at the start of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Bytes at the start of a file that identify its encoding.
pub(crate) const BEGIN_BYTES: usize = 4;

/// Describes text in UTF-16 by its first bytes: a byte order mark, or every second byte zero.
pub(crate) fn utf16_problem(begin: &[u8]) -> Option<&'static str> {
    let is_utf16 = matches!(
        begin,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=255, 0, 1..=255, ..] | [1..=255, 0, 1..=255, 0, ..]
    );
    is_utf16.then_some("it is UTF-16; save it as UTF-8, or convert it: iconv -f UTF-16 -t UTF-8")
}

/// Decodes a whole file, without its byte order mark.
///
/// # Errors
/// The encoding, or the first line that is not UTF-8.
pub(crate) fn decode(bytes: &[u8]) -> Result<&str, String> {
    if let Some(problem) = utf16_problem(bytes) {
        return Err(problem.to_owned());
    }
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_marks_are_stripped_and_utf16_is_named() {
        assert_eq!(decode(b"\xef\xbb\xbfput k v"), Ok("put k v"));
        assert_eq!(decode("ü\n".as_bytes()), Ok("ü\n"));
        assert_eq!(decode(b""), Ok(""));
        assert_eq!(decode(b"a\n\xff"), Err("line 2 is not UTF-8".to_owned()));
        for utf16 in [&b"\xff\xfea\0"[..], b"\xfe\xff\0a", b"\xff\xfe", b"k\0e\0y\0", b"\0k\0e"] {
            assert!(decode(utf16).is_err_and(|problem| problem.contains("UTF-16")), "{utf16:?}");
        }
    }
}
