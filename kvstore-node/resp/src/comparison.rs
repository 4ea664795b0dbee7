//! Conditions on the present value of a key: `IFEQ` and its relatives, of `SET` and `DELEX`.

use crate::SYNTAX;
use bytes::Bytes;

/// Length of a digest in a request.
const DIGEST_DIGITS: usize = 16;

/// Condition on the present value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comparison {
    with: Operand,
    /// The condition is that they differ, which an absent value does from every other.
    differs: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Operand {
    Value(Bytes),
    /// A digest; none if the text is no number, which no digest equals.
    Digest(Option<u64>),
}

impl Comparison {
    /// Takes an option, in capital letters, and its argument from the arguments behind it. Returns `None` if the option is
    /// another one.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn take<'a>(option: &[u8], rest: &'a [Bytes]) -> Result<Option<(Self, &'a [Bytes])>, String> {
        let (is_digest, differs) = match option {
            b"IFEQ" => (false, false),
            b"IFNE" => (false, true),
            b"IFDEQ" => (true, false),
            b"IFDNE" => (true, true),
            _ => return Ok(None),
        };
        let [operand, rest @ ..] = rest else { return Err(SYNTAX.to_owned()) };
        let with = if is_digest { Operand::Digest(digest(operand)?) } else { Operand::Value(operand.clone()) };
        Ok(Some((Self { with, differs }, rest)))
    }

    /// Parses the arguments of `DELEX` behind the key: a condition, or nothing.
    ///
    /// # Errors
    /// The error for the client.
    pub fn parse(arguments: &[Bytes]) -> Result<Option<Self>, String> {
        let [option, operand @ ..] = arguments else { return Ok(None) };
        match Self::take(&option.to_ascii_uppercase(), operand)? {
            Some((comparison, [])) => Ok(Some(comparison)),
            Some(_) => Err(SYNTAX.to_owned()),
            None => Err("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE".to_owned()),
        }
    }

    /// Returns true if the condition holds. `digest` computes that of a value.
    pub fn holds(&self, found: Option<&[u8]>, digest: impl Fn(&[u8]) -> u64) -> bool {
        let is_equal = match &self.with {
            Operand::Value(value) => found == Some(value),
            Operand::Digest(expected) => expected.is_some() && found.map(digest) == *expected,
        };
        is_equal != self.differs
    }
}

fn digest(text: &[u8]) -> Result<Option<u64>, String> {
    if text.len() != DIGEST_DIGITS {
        return Err(format!("ERR must be exactly {DIGEST_DIGITS} hexadecimal characters"));
    }
    let is_number = text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number);
    Ok(text.and_then(|text| u64::from_str_radix(text, 16).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(value: &[u8]) -> u64 {
        value.len() as u64
    }

    fn parse(text: &'static str) -> Result<Option<Comparison>, String> {
        let arguments: Vec<Bytes> = text.split_whitespace().map(|part| Bytes::from_static(part.as_bytes())).collect();
        Comparison::parse(&arguments)
    }

    #[test]
    fn absent_value_differs_from_every_other() {
        for (text, same, other, absent) in [
            ("IFEQ abc", true, false, false),
            ("ifne abc", false, true, true),
            ("IFDEQ 0000000000000003", true, false, false),
            ("IFDNE 0000000000000003", false, true, true),
            ("IFDEQ 000000000000000x", false, false, false),
            ("IFDNE 000000000000000x", true, true, true),
            ("IFDEQ +000000000000003", false, false, false),
        ] {
            let condition = parse(text).unwrap().unwrap();
            let found = [Some(&b"abc"[..]), Some(b"abcd"), None].map(|found| condition.holds(found, length));
            assert_eq!(found, [same, other, absent], "{text}");
        }
    }

    #[test]
    fn wrong_conditions_are_refused() {
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("IFEQ"), Err(SYNTAX.to_owned()));
        assert_eq!(parse("IFEQ a b"), Err(SYNTAX.to_owned()));
        assert_eq!(parse("NX a"), Err("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE".to_owned()));
        assert_eq!(parse("IFDEQ abc"), Err("ERR must be exactly 16 hexadecimal characters".to_owned()));
    }
}
