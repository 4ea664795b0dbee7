//! Sanitizing of untrusted text for log lines and terminals.

use std::borrow::Cow;

/// Returns the text with invisible characters escaped: control characters, which start new lines or command terminals,
/// and those that change the direction of writing.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_odd(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// Like [`plain`], for an owned text.
pub fn into_plain(text: String) -> String {
    match plain(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(plain) => plain,
    }
}

/// Longest key that a sentence or a table shows whole, in characters.
const SHOWN_KEY_CHARS_MAX: usize = 60;

/// Formats a key in quotes: bytes that are not UTF-8 are escaped as `\xff`, invisible characters and backslashes as in a
/// Rust string. A long key is shown by its beginning and its length.
pub fn shown_key(key: &[u8]) -> String {
    let (head, rest) = key_head(key);
    format!("\"{head}\"{rest}")
}

/// Like [`shown_key`], without quotes: for a table cell.
pub fn bare_key(key: &[u8]) -> String {
    let (head, rest) = key_head(key);
    format!("{head}{rest}")
}

/// Returns the displayed part of a key and a note about the rest.
fn key_head(key: &[u8]) -> (String, String) {
    let (mut head, mut left) = (String::new(), SHOWN_KEY_CHARS_MAX);
    for chunk in key.utf8_chunks() {
        let text = chunk.valid();
        let end = text.char_indices().nth(left).map_or(text.len(), |(end, _)| end);
        head.extend(text[..end].escape_debug());
        left -= text[..end].chars().count();
        let invalid = &chunk.invalid()[..chunk.invalid().len().min(left)];
        head.extend(invalid.escape_ascii().map(char::from));
        left -= invalid.len();
        if end < text.len() || invalid.len() < chunk.invalid().len() {
            return (head, format!("… ({} bytes)", key.len()));
        }
    }
    (head, String::new())
}

/// Formats a number of bytes for people: `0 B`, `1.5 KiB`, `20.0 MiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

const fn is_odd(character: char) -> bool {
    matches!(character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Line and paragraph separators, and direction marks.
        | '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_key_is_shortened_for_display() {
        assert_eq!(shown_key("x".repeat(4_096).as_bytes()), format!("\"{}\"… (4096 bytes)", "x".repeat(60)));
        assert_eq!(bare_key("ü".repeat(61).as_bytes()), format!("{}… (122 bytes)", "ü".repeat(60)));
        assert_eq!(
            (shown_key(&[b'x'; 60]), bare_key(b"a\nb")),
            (format!("\"{}\"", "x".repeat(60)), "a\\nb".to_owned())
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped_in_a_key() {
        assert_eq!(shown_key(b"\xac\xed\x00\x05t\x00\x01k"), r#""\xac\xed\0\u{5}t\0\u{1}k""#);
        assert_ne!(shown_key(b"\xff"), shown_key(br"\xff"), "a text of the same look is another key");
        assert_eq!(bare_key(&[0xff; 60]), r"\xff".repeat(60));
        assert_eq!(bare_key(&[0xff; 61]), format!("{}… (61 bytes)", r"\xff".repeat(60)));
        assert_eq!(bare_key(&[&[b'x'; 60][..], &[0xff]].concat()), format!("{}… (61 bytes)", "x".repeat(60)));
    }

    #[test]
    fn sizes_for_people() {
        let found: Vec<String> = [0, 1023, 1024, 1536, 1024 * 1024 * 20].into_iter().map(bytes_text).collect();
        assert_eq!(found, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "20.0 MiB"]);
        assert_eq!(bytes_text(u64::MAX), "16384.0 PiB");
    }

    #[test]
    fn untrusted_text_cannot_start_a_log_line() {
        let forged = "checksum\n2026-01-01T00:00:00Z ERROR all data is lost\u{1b}[31m\r\u{202e}";
        let found = plain(forged);
        assert_eq!(found, "checksum\\n2026-01-01T00:00:00Z ERROR all data is lost\\u{1b}[31m\\r\\u{202e}");
        assert_eq!(plain(&found), found, "once is enough");
        assert!(matches!(plain("Prüfsumme – 校验和 \\n"), Cow::Borrowed(_)));
    }
}
