//! Text of others, made fit for a line of a log or a terminal.

use std::borrow::Cow;

/// The text with everything escaped that is more than a character to be seen: control characters, which begin new lines or
/// command terminals, and those that turn the direction of writing round.
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

/// As [`plain`], of a text that nobody else needs as it was.
pub fn into_plain(text: String) -> String {
    match plain(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(plain) => plain,
    }
}

/// A key, in quotes: what is no text of it is replaced, what cannot be seen is escaped.
pub fn shown_key(key: &[u8]) -> String {
    format!("\"{}\"", String::from_utf8_lossy(key).escape_debug())
}

const fn is_odd(character: char) -> bool {
    matches!(character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Line and paragraph separators, and marks of direction.
        | '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_node_began_a_line_of_its_own_in_the_log() {
        let forged = "checksum\n2026-01-01T00:00:00Z ERROR all data is lost\u{1b}[31m\r\u{202e}";
        let found = plain(forged);
        assert_eq!(found, "checksum\\n2026-01-01T00:00:00Z ERROR all data is lost\\u{1b}[31m\\r\\u{202e}");
        assert_eq!(plain(&found), found, "once is enough");
        assert!(matches!(plain("Prüfsumme – 校验和 \\n"), Cow::Borrowed(_)));
    }
}
