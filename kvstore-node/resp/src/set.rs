//! Options of `SET`.

use crate::SYNTAX;
use crate::comparison::Comparison;
use crate::expiry::{ExpiryOption, NewExpiry};
use bytes::Bytes;

/// Condition of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The key is absent (`NX`).
    Absent,
    /// The key is present (`XX`).
    Present,
    /// The present value fits (`IFEQ`, `IFNE`, `IFDEQ`, `IFDNE`).
    Value(Comparison),
}

/// Options of `SET`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
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
            let chosen = match &option[..] {
                // As in Redis, these may be repeated.
                b"NX" => Condition::Absent,
                b"XX" => Condition::Present,
                b"GET" => {
                    options.returns_old = true;
                    continue;
                }
                b"PERSIST" => return Err(SYNTAX.to_owned()),
                option => match Comparison::take(option, more)? {
                    Some((comparison, more)) if options.condition.is_none() => {
                        rest = more;
                        Condition::Value(comparison)
                    }
                    Some(_) => return Err(SYNTAX.to_owned()),
                    None => {
                        rest = expiry.take(option, more).ok_or(SYNTAX)?;
                        continue;
                    }
                },
            };
            if options.condition.as_ref().is_some_and(|before| *before != chosen) {
                return Err(SYNTAX.to_owned());
            }
            options.condition = Some(chosen);
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
    fn comparison_excludes_other_conditions() {
        assert!(matches!(parse("EX 5 ifeq v GET").unwrap().condition, Some(Condition::Value(_))));
        for text in ["IFEQ", "IFEQ v NX", "XX IFEQ v", "IFEQ v IFEQ v", "IFEQ v IFNE w"] {
            assert_eq!(parse(text), Err(SYNTAX.to_owned()), "{text}");
        }
        assert_eq!(parse("IFDNE 12"), Err("ERR must be exactly 16 hexadecimal characters".to_owned()));
    }

    #[test]
    fn wrong_expiry_is_found_after_the_syntax() {
        assert_eq!(parse("EX 0"), Err("ERR invalid expire time in 'set' command".to_owned()));
        assert_eq!(parse("EX 0 FOO"), Err(SYNTAX.to_owned()));
        assert_eq!(parse("EX 1.5"), Err(crate::NOT_AN_INTEGER.to_owned()));
    }
}
