//! Integers in requests.

/// Parses an integer as Redis does: decimal, without surrounding characters, plus sign or leading zeros.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    plain.then_some(text).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in
            [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(parse_integer(text.as_bytes()), Some(value));
        }
        for text in ["", "-", "-0", "+1", "01", " 1", "1 ", "1a", "9223372036854775808", "1\0"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
