//! Options of `SET`.

use crate::SYNTAX;
use bytes::Bytes;

/// Condition of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The key is absent (`NX`).
    Absent,
    /// The key is present (`XX`).
    Present,
}

/// Options of `SET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetOptions {
    /// Its condition, if it has one.
    pub condition: Option<Condition>,
    /// The reply is the value before (`GET`).
    pub returns_old: bool,
}

impl SetOptions {
    /// Parses the arguments behind the value.
    ///
    /// # Errors
    /// The error for the client.
    pub fn parse(arguments: &[Bytes]) -> Result<Self, String> {
        let mut options = Self::default();
        for argument in arguments {
            let option = argument.to_ascii_uppercase();
            match &option[..] {
                b"NX" if options.condition.is_none() => options.condition = Some(Condition::Absent),
                b"XX" if options.condition.is_none() => options.condition = Some(Condition::Present),
                b"GET" => options.returns_old = true,
                // No key expires, so there is nothing to keep.
                b"KEEPTTL" => {}
                b"EX" | b"PX" | b"EXAT" | b"PXAT" | b"IFEQ" | b"IFNE" | b"IFDEQ" | b"IFDNE" => {
                    let option = String::from_utf8_lossy(&option).into_owned();
                    return Err(format!("ERR option {option} of 'set' is not supported; nothing was changed"));
                }
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &'static str) -> Result<SetOptions, String> {
        let arguments: Vec<Bytes> = text.split_whitespace().map(|part| Bytes::from_static(part.as_bytes())).collect();
        SetOptions::parse(&arguments)
    }

    #[test]
    fn options_have_any_order_and_case() {
        assert_eq!(parse(""), Ok(SetOptions::default()));
        assert_eq!(parse("get nx"), Ok(SetOptions { condition: Some(Condition::Absent), returns_old: true }));
        assert_eq!(parse("XX KEEPTTL"), Ok(SetOptions { condition: Some(Condition::Present), returns_old: false }));
    }

    #[test]
    fn contradictory_options_are_a_syntax_error() {
        for text in ["NX XX", "XX NX", "NX NX", "FOO"] {
            assert_eq!(parse(text), Err(SYNTAX.to_owned()), "{text}");
        }
    }

    #[test]
    fn expiry_is_refused_by_name() {
        let refused = parse("EX 10").unwrap_err();
        assert_eq!(refused, "ERR option EX of 'set' is not supported; nothing was changed");
    }
}
