//! Escapes for foreign text on a terminal, which bytes of values could otherwise control.

use archon_types::plain;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Returns the bytes as text with everything escaped except visible characters, line breaks and tabs.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for piece in chunk.valid().split_inclusive(['\n', '\t']) {
            let end = piece.trim_end_matches(['\n', '\t']).len();
            text.push_str(&plain(&piece[..end]));
            text.push_str(&piece[end..]);
        }
        for byte in chunk.invalid() {
            // Writing to a text never fails.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Escapes characters in a JSON document that are valid in strings but that a terminal obeys.
pub(crate) fn escaped_json(document: String) -> String {
    let is_odd =
        |character: char| !character.is_ascii() && plain(character.encode_utf8(&mut [0; 4])) != character.to_string();
    // JSON already escapes ASCII control characters in strings; those between strings are layout.
    if !document.chars().any(|character| character == '\u{7f}' || is_odd(character)) {
        return document;
    }
    let mut text = String::with_capacity(document.len());
    for character in document.chars() {
        match character == '\u{7f}' || is_odd(character) {
            true => drop(write!(text, "\\u{:04x}", u32::from(character))),
            false => text.push(character),
        }
    }
    text
}

/// Writer that escapes its input for a terminal.
pub(crate) struct TerminalWriter<W> {
    out: W,
    /// Leading bytes of an incomplete character.
    pending: Vec<u8>,
}

impl<W> TerminalWriter<W> {
    pub(crate) const fn new(out: W) -> Self {
        Self { out, pending: Vec::new() }
    }
}

impl<W: Write> Write for TerminalWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(buffer);
        let whole = match std::str::from_utf8(&self.pending) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.pending.len(),
        };
        let text: Vec<u8> = self.pending.drain(..whole).collect();
        self.out.write_all(escaped(&text).as_bytes())?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}]0;owned\u{7}\tb\r\u{9b}2J\u{202e}\n";

    #[test]
    fn values_cannot_control_a_terminal() {
        let harmless = "a\\u{1b}]0;owned\\u{7}\tb\\r\\u{9b}2J\\u{202e}\n";
        assert_eq!(escaped(HOSTILE.as_bytes()), harmless);
        assert_eq!(escaped(b"\xff\x00ok"), "\\xff\\u{0}ok");
        assert_eq!(escaped("Prüfsumme\n\t校".as_bytes()), "Prüfsumme\n\t校");
        for size in 1..5 {
            let mut writer = TerminalWriter::new(Vec::new());
            HOSTILE.as_bytes().chunks(size).for_each(|chunk| writer.write_all(chunk).expect("written"));
            assert_eq!(writer.out, harmless.as_bytes(), "in pieces of {size}");
        }
    }

    #[test]
    fn json_on_a_terminal_means_the_same() {
        let document = serde_json::to_string_pretty(&[HOSTILE, "\u{7f}", "ü"]).expect("JSON");
        let text = escaped_json(document);
        assert!(
            text.chars().all(|character| character == '\n' || plain(&character.to_string()) == character.to_string())
        );
        assert!(text.contains("\\u009b2J") && text.contains('ü'), "{text}");
        let read: Vec<String> = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read, [HOSTILE, "\u{7f}", "ü"]);
    }
}
