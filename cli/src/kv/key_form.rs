//! Keys on the command line: text, or hexadecimal digits.

use crate::exit::Failure;
use archon_client::KeyText;
use archon_types::limits::check_key;
use archon_types::{bare_key, hex};

/// Form in which keys are given and printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyForm {
    /// Text in UTF-8. Other keys are printed escaped.
    Text,
    /// Two hexadecimal digits per byte.
    Hex,
}

impl KeyForm {
    /// Returns the form for the option `--hex`.
    pub(crate) const fn of(hex: bool) -> Self {
        if hex { Self::Hex } else { Self::Text }
    }

    /// Reads a key, a prefix or a bound.
    ///
    /// # Errors
    /// Text that is not of this form.
    pub(crate) fn read(self, text: &str) -> Result<KeyText, Failure> {
        match self {
            Self::Text => Ok(KeyText::new(text)),
            Self::Hex => hex::decode(text).map(KeyText).ok_or_else(|| {
                let remedy = "write two hexadecimal digits for each byte, as in ff00, or omit --hex";
                Failure::usage(format!("the key {text:?} is not hexadecimal"), remedy)
            }),
        }
    }

    /// Reads a whole key, and rejects an invalid one before any request.
    ///
    /// # Errors
    /// The fault of the key.
    pub(crate) fn key(self, text: &str) -> Result<KeyText, Failure> {
        let key = self.read(text)?;
        check_key(&key.0).map_err(|error| Failure::usage(error.message, "keys have 1 to 4096 bytes"))?;
        Ok(key)
    }

    /// Formats a key for a cell of a table.
    pub(crate) fn cell(self, key: &[u8]) -> String {
        match self {
            Self::Text => bare_key(key),
            Self::Hex => hex::encode(key),
        }
    }

    /// Formats the option that continues a listing after a key.
    pub(crate) fn after(self, key: &[u8]) -> String {
        match (self, std::str::from_utf8(key)) {
            (Self::Text, Ok(text)) => format!("--after {text:?}"),
            (Self::Text, Err(_)) => {
                format!("--hex --after {} (all keys in hexadecimal digits)", hex::encode(key))
            }
            (Self::Hex, _) => format!("--after {}", hex::encode(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_text_or_digits() {
        assert_eq!(KeyForm::Text.key("ff00").unwrap(), KeyText::new("ff00"));
        assert_eq!(KeyForm::of(true).key("Ff00").unwrap(), KeyText::new(b"\xff\0"));
        for wrong in ["f", "zz", "+f", "ff 00", "0xff"] {
            assert!(KeyForm::Hex.read(wrong).unwrap_err().message.contains("not hexadecimal"), "{wrong}");
        }
        assert!(KeyForm::Hex.read("").is_ok() && KeyForm::Hex.key("").unwrap_err().message.contains("empty"));
    }

    #[test]
    fn listing_of_binary_keys_can_be_continued() {
        assert_eq!((KeyForm::Text.cell(b"a\xff"), KeyForm::Hex.cell(b"a\xff")), ("a\\xff".into(), "61ff".into()));
        assert_eq!(KeyForm::Text.after(b"a b"), "--after \"a b\"");
        assert!(KeyForm::Text.after(b"a\xff").starts_with("--hex --after 61ff"));
        assert_eq!(KeyForm::Hex.after(b"ab"), "--after 6162");
    }
}
