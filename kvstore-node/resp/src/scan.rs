//! Arguments of `SCAN`.

use crate::{KeyPattern, NOT_AN_INTEGER, SYNTAX, parse_integer};
use bytes::Bytes;

/// Keys that one call looks at without `COUNT`.
const COUNT_DEFAULT: u32 = 10;
/// Most keys that one call looks at.
pub(crate) const SCAN_COUNT_MAX: u32 = 1_024;

/// Arguments of `SCAN`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanArguments {
    /// Position, as an earlier call returned it; zero: the beginning.
    pub cursor: u64,
    /// Pattern of the keys to return.
    pub pattern: KeyPattern,
    /// Keys to look at.
    pub count: u32,
    /// Keys of strings are returned, which all are.
    pub takes_strings: bool,
}

impl ScanArguments {
    /// Parses the arguments behind the name of the command.
    ///
    /// # Errors
    /// The error for the client.
    pub fn parse(arguments: &[Bytes]) -> Result<Self, String> {
        let [cursor, options @ ..] = arguments else { return Err(SYNTAX.to_owned()) };
        let is_number = !cursor.is_empty() && cursor.iter().all(u8::is_ascii_digit);
        let cursor = std::str::from_utf8(cursor).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
        let cursor = cursor.ok_or("ERR invalid cursor")?;
        let any = KeyPattern::parse(b"*")?;
        let mut found = Self { cursor, pattern: any, count: COUNT_DEFAULT, takes_strings: true };
        let mut rest = options;
        while let [option, argument, more @ ..] = rest {
            rest = more;
            match &option.to_ascii_uppercase()[..] {
                b"MATCH" => found.pattern = KeyPattern::parse(argument)?,
                b"COUNT" => {
                    let count = parse_integer(argument).ok_or(NOT_AN_INTEGER)?;
                    if count < 1 {
                        return Err(SYNTAX.to_owned());
                    }
                    found.count = u32::try_from(count).unwrap_or(u32::MAX).min(SCAN_COUNT_MAX);
                }
                b"TYPE" => found.takes_strings = argument.eq_ignore_ascii_case(b"string"),
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        if rest.is_empty() { Ok(found) } else { Err(SYNTAX.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &'static str) -> Result<ScanArguments, String> {
        let arguments: Vec<Bytes> = text.split_whitespace().map(|part| Bytes::from_static(part.as_bytes())).collect();
        ScanArguments::parse(&arguments)
    }

    #[test]
    fn options_have_any_order_and_case() {
        let found = parse("17 count 5 MATCH a* type STRING").unwrap();
        assert_eq!((found.cursor, found.count, found.takes_strings), (17, 5, true));
        assert_eq!(found.pattern, KeyPattern::parse(b"a*").unwrap());
        assert_eq!((parse("0").unwrap().count, parse("0 COUNT 1000000000000").unwrap().count), (10, SCAN_COUNT_MAX));
        assert!(!parse("0 TYPE hash").unwrap().takes_strings);
        assert_eq!(parse("18446744073709551615").unwrap().cursor, u64::MAX);
    }

    #[test]
    fn wrong_arguments_get_the_texts_of_redis() {
        for text in ["x", "-1", "+1", "18446744073709551616"] {
            assert_eq!(parse(text), Err("ERR invalid cursor".to_owned()), "{text}");
        }
        for text in ["0 COUNT", "0 COUNT 0", "0 COUNT -5", "0 FOO 1", "0 MATCH a NOVALUES"] {
            assert_eq!(parse(text), Err(SYNTAX.to_owned()), "{text}");
        }
        assert_eq!(parse("0 COUNT x"), Err(NOT_AN_INTEGER.to_owned()));
    }
}
