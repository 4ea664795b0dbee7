//! Options of `SET`.

use crate::SYNTAX;
use crate::expiry::{ExpiryOption, NewExpiry};
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
    /// Expiry of the value; `None` if it does not expire.
    pub expiry: Option<NewExpiry>,
}

impl SetOptions {
    /// Parses the arguments behind the value, at this Unix time in milliseconds.
    ///
    /// # Errors
    /// The error for the client.
    pub fn parse(arguments: &[Bytes], now_ms: i64) -> Result<Self, String> {
        let (mut options, mut expiry, mut rest) = (Self::default(), ExpiryOption::None, arguments);
        while let [argument, more @ ..] = rest {
            rest = more;
            let option = argument.to_ascii_uppercase();
            match &option[..] {
                // As in Redis, an option may be repeated.
                b"NX" if options.condition != Some(Condition::Present) => options.condition = Some(Condition::Absent),
                b"XX" if options.condition != Some(Condition::Absent) => options.condition = Some(Condition::Present),
                b"GET" => options.returns_old = true,
                b"IFEQ" | b"IFNE" | b"IFDEQ" | b"IFDNE" => {
                    let option = String::from_utf8_lossy(&option).into_owned();
                    return Err(format!("ERR option {option} of 'set' is not supported; nothing was changed"));
                }
                b"PERSIST" => return Err(SYNTAX.to_owned()),
                option => rest = expiry.take(option, more).ok_or(SYNTAX)?,
            }
        }
        options.expiry = expiry.parse("set", now_ms)?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &'static str) -> Result<SetOptions, String> {
        let arguments: Vec<Bytes> = text.split_whitespace().map(|part| Bytes::from_static(part.as_bytes())).collect();
        SetOptions::parse(&arguments, 1_700_000_000_000)
    }

    #[test]
    fn options_have_any_order_and_case() {
        assert_eq!(parse(""), Ok(SetOptions::default()));
        assert_eq!(
            parse("get nx"),
            Ok(SetOptions { condition: Some(Condition::Absent), returns_old: true, expiry: None })
        );
        let keep =
            SetOptions { condition: Some(Condition::Present), returns_old: false, expiry: Some(NewExpiry::Keep) };
        assert_eq!(parse("XX KEEPTTL"), Ok(keep));
        assert_eq!(parse("px 15 nx").unwrap().expiry, Some(NewExpiry::After(15)));
        assert_eq!(parse("NX nx"), parse("NX"));
        assert_eq!(parse("EXAT 15").unwrap().expiry, Some(NewExpiry::At(15_000)));
    }

    #[test]
    fn contradictory_options_are_a_syntax_error() {
        for text in ["NX XX", "XX NX", "FOO", "EX", "EX 1 PX 1", "KEEPTTL EX 1", "EX 1 KEEPTTL", "PERSIST"] {
            assert_eq!(parse(text), Err(SYNTAX.to_owned()), "{text}");
        }
    }

    #[test]
    fn comparisons_are_refused_by_name() {
        let refused = parse("IFEQ v").unwrap_err();
        assert_eq!(refused, "ERR option IFEQ of 'set' is not supported; nothing was changed");
    }

    #[test]
    fn wrong_expiry_is_found_after_the_syntax() {
        assert_eq!(parse("EX 0"), Err("ERR invalid expire time in 'set' command".to_owned()));
        assert_eq!(parse("EX 0 FOO"), Err(SYNTAX.to_owned()));
        assert_eq!(parse("EX 1.5"), Err(crate::NOT_AN_INTEGER.to_owned()));
    }
}
