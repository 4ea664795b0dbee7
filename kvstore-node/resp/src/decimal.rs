//! Numbers of `INCRBYFLOAT`: decimal fractions with 17 places, which is what Redis stores and replies. Sums are exact, where
//! Redis adds binary numbers with 64 significant bits.

use std::fmt;

/// Error of a value or an argument that is no number.
pub(crate) const NOT_A_FLOAT: &str = "ERR value is not a valid float";
/// Error of a sum out of range.
pub(crate) const INFINITE: &str = "ERR increment would produce NaN or Infinity";

/// Decimal places.
const PLACES: i32 = 17;
/// Longest text of a number, in bytes.
const TEXT_BYTES_MAX: usize = 5 * 1_024;

/// A number in units of its last decimal place, so its absolute value is below 1.7e21.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decimal(i128);

impl Decimal {
    /// Parses a number as `strtold` does, in decimal notation, possibly with an exponent. Further places are rounded.
    ///
    /// # Errors
    /// The error for the client.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(NOT_A_FLOAT);
        }
        let (is_negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if [&b"inf"[..], b"infinity"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
            return Err(INFINITE);
        }
        let (digits, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&text[..at], exponent(&text[at + 1..]).ok_or(NOT_A_FLOAT)?),
            None => (text, 0),
        };
        let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
        let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or_default());
        let is_plain = whole.iter().chain(fraction).all(u8::is_ascii_digit);
        if !is_plain || whole.is_empty() && fraction.is_empty() {
            return Err(NOT_A_FLOAT);
        }
        let places = i32::try_from(fraction.len()).map_err(|_| NOT_A_FLOAT)?;
        let units = scaled(whole.iter().chain(fraction), exponent - places + PLACES).ok_or(NOT_A_FLOAT)?;
        Ok(Self(if is_negative { -units } else { units }))
    }

    /// Returns the sum.
    ///
    /// # Errors
    /// The error for the client.
    pub fn plus(self, other: Self) -> Result<Self, &'static str> {
        self.0.checked_add(other.0).map(Self).ok_or(INFINITE)
    }
}

/// Parses an exponent. One that is too large for any number in range counts as a large one.
fn exponent(text: &[u8]) -> Option<i32> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i32, |value, digit| (value * 10 + i32::from(digit - b'0')).min(100_000));
    Some(if is_negative { -value } else { value })
}

/// Returns the number with these digits times ten to the power `shift`, rounded to the nearest integer, the even one of two.
fn scaled<'a>(digits: impl Iterator<Item = &'a u8>, shift: i32) -> Option<i128> {
    let digits: Vec<u8> = digits.skip_while(|digit| **digit == b'0').map(|digit| digit - b'0').collect();
    let count = i64::try_from(digits.len()).ok()?;
    // Digits that remain; the others are rounded off.
    let kept = count + i64::from(shift);
    let mut value = 0i128;
    for at in 0..kept.max(0) {
        let digit = usize::try_from(at).ok().and_then(|at| digits.get(at)).copied().unwrap_or(0);
        if value == 0 && at >= count {
            break;
        }
        value = value.checked_mul(10)?.checked_add(digit.into())?;
    }
    let Ok(kept) = usize::try_from(kept) else { return Some(value) };
    let rounds_up = match digits.get(kept..) {
        None | Some([]) => false,
        Some([first, rest @ ..]) => {
            *first > 5 || *first == 5 && (rest.iter().any(|digit| *digit > 0) || value % 2 == 1)
        }
    };
    value.checked_add(rounds_up.into())
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10u128.pow(PLACES.unsigned_abs());
        let (whole, fraction) = (self.0.unsigned_abs() / unit, self.0.unsigned_abs() % unit);
        let sign = if self.0 < 0 { "-" } else { "" };
        let text = format!("{sign}{whole}.{fraction:017}");
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(one: &str, other: &str) -> Result<String, &'static str> {
        Ok(Decimal::parse(one.as_bytes())?.plus(Decimal::parse(other.as_bytes())?)?.to_string())
    }

    #[test]
    fn sums_are_those_of_redis() {
        for (one, other, expected) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("3", "1.5", "4.5"),
            ("1.5", "-1.5", "0"),
            ("-0.0", "0", "0"),
            ("1", "-1.1", "-0.1"),
            (".5", "+5.", "5.5"),
            ("1", "1.23", "2.23"),
            ("17179869184", "1.5", "17179869185.5"),
            ("1e-17", "0", "0.00000000000000001"),
            ("1E+3", "1e-3", "1000.001"),
            ("0e99999999999", "1", "1"),
            ("1e-99999999999", "1", "1"),
        ] {
            assert_eq!(sum(one, other), Ok(expected.to_owned()), "{one} {other}");
        }
    }

    #[test]
    fn places_beyond_the_last_are_rounded() {
        assert_eq!(sum("0.000000000000000014", "0").unwrap(), "0.00000000000000001");
        assert_eq!(sum("0.000000000000000015", "0").unwrap(), "0.00000000000000002");
        assert_eq!(sum("0.000000000000000025", "0").unwrap(), "0.00000000000000002");
        assert_eq!(sum("0.0000000000000000250001", "0").unwrap(), "0.00000000000000003");
        assert_eq!(sum("0.000000000000000005", "0").unwrap(), "0");
        assert_eq!(sum("0.0000000000000000051", "0").unwrap(), "0.00000000000000001");
    }

    #[test]
    fn other_texts_are_no_numbers() {
        for text in ["", " 1", "1 ", "1a", "-", ".", "e5", "1e", "1e+", "--1", "1.2.3", "nan", "0x1p3", "1e400", "2e21"]
        {
            assert_eq!(Decimal::parse(text.as_bytes()), Err(NOT_A_FLOAT), "{text}");
        }
        assert_eq!(Decimal::parse(b"-inf"), Err(INFINITE));
        assert_eq!(sum("1.5e21", "1.5e21"), Err(INFINITE));
        assert_eq!(Decimal::parse(&[b'1'; TEXT_BYTES_MAX + 1]), Err(NOT_A_FLOAT));
    }

    proptest! {
        #[test]
        fn texts_are_read_again(units in -i128::MAX..=i128::MAX) {
            let number = Decimal(units);
            prop_assert_eq!(Decimal::parse(number.to_string().as_bytes()), Ok(number));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.eE]{0,40}") {
            if let Ok(number) = Decimal::parse(text.as_bytes()) {
                let close = text.parse::<f64>().unwrap();
                let read: f64 = number.to_string().parse().unwrap();
                prop_assert!((read - close).abs() <= 1e-16 + close.abs() * 1e-15, "{text}: {number}");
            }
        }
    }
}
