//! Expiries in requests.

use crate::{NOT_AN_INTEGER, SYNTAX, parse_integer};
use bytes::Bytes;

/// Expiry that a request gives to a value, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewExpiry {
    /// The expiry of the value before (`KEEPTTL`).
    Keep,
    /// None (`PERSIST`).
    Never,
    /// After this time, at least 1 (`EX`, `PX`).
    After(u64),
    /// At this Unix time, which may have passed (`EXAT`, `PXAT`).
    At(u64),
}

impl NewExpiry {
    /// A time that has passed: the value is removed.
    pub const LONG_AGO: Self = Self::At(0);
}

/// Unit of an expiry, and whether it is a Unix time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpiryUnit {
    /// In seconds, otherwise milliseconds.
    pub seconds: bool,
    /// A Unix time, otherwise a time to live.
    pub absolute: bool,
}

impl ExpiryUnit {
    /// Returns the unit of an option, in capital letters.
    fn of_option(option: &[u8]) -> Option<Self> {
        let (seconds, absolute) = match option {
            b"EX" => (true, false),
            b"PX" => (false, false),
            b"EXAT" => (true, true),
            b"PXAT" => (false, true),
            _ => return None,
        };
        Some(Self { seconds, absolute })
    }

    /// Parses a time in this unit, as milliseconds. It may be negative.
    ///
    /// # Errors
    /// The error for the client.
    pub fn parse(self, text: &[u8], command: &str, now_ms: i64) -> Result<i64, String> {
        let time = parse_integer(text).ok_or(NOT_AN_INTEGER)?;
        let millis = if self.seconds { time.checked_mul(1_000) } else { Some(time) };
        let base = if self.absolute { 0 } else { now_ms };
        millis.filter(|millis| millis.checked_add(base).is_some()).ok_or_else(|| invalid(command))
    }

    /// Parses the time of a value that is written: above zero.
    ///
    /// # Errors
    /// The error for the client.
    pub fn parse_new(self, text: &[u8], command: &str, now_ms: i64) -> Result<NewExpiry, String> {
        let millis = u64::try_from(self.parse(text, command, now_ms)?).map_err(|_| invalid(command))?;
        match millis {
            0 => Err(invalid(command)),
            millis if self.absolute => Ok(NewExpiry::At(millis)),
            millis => Ok(NewExpiry::After(millis)),
        }
    }
}

fn invalid(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}

/// Options about expiry, gathered from the arguments of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ExpiryOption<'a> {
    #[default]
    None,
    Keep,
    Never,
    Time(ExpiryUnit, &'a [u8]),
}

impl<'a> ExpiryOption<'a> {
    /// Takes an option, in capital letters, and the arguments behind it. Returns the arguments behind its own; `None` if it
    /// is none about expiry, or contradicts an earlier one.
    pub(crate) fn take(&mut self, option: &[u8], rest: &'a [Bytes]) -> Option<&'a [Bytes]> {
        let (taken, rest) = match (option, rest) {
            (b"KEEPTTL", rest) => (Self::Keep, rest),
            (b"PERSIST", rest) => (Self::Never, rest),
            (option, [time, rest @ ..]) => (Self::Time(ExpiryUnit::of_option(option)?, time), rest),
            _ => return None,
        };
        let fits = match (*self, taken) {
            (Self::None, _) | (Self::Keep, Self::Keep) | (Self::Never, Self::Never) => true,
            (Self::Time(unit, _), Self::Time(other, _)) => unit == other,
            _ => false,
        };
        fits.then(|| {
            *self = taken;
            rest
        })
    }

    /// Returns the expiry, if there is one.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn parse(self, command: &str, now_ms: i64) -> Result<Option<NewExpiry>, String> {
        match self {
            Self::None => Ok(None),
            Self::Keep => Ok(Some(NewExpiry::Keep)),
            Self::Never => Ok(Some(NewExpiry::Never)),
            Self::Time(unit, text) => unit.parse_new(text, command, now_ms).map(Some),
        }
    }
}

/// Options of `GETEX`, not read yet: as in Redis, a time is checked only if the key is present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetExOptions<'a>(ExpiryOption<'a>);

impl<'a> GetExOptions<'a> {
    /// Takes the arguments behind the key.
    ///
    /// # Errors
    /// The error for the client.
    pub fn parse(arguments: &'a [Bytes]) -> Result<Self, String> {
        let (mut option, mut rest) = (ExpiryOption::None, arguments);
        while let [argument, more @ ..] = rest {
            let name = argument.to_ascii_uppercase();
            let taken = option.take(&name, more).filter(|_| name != b"KEEPTTL");
            rest = taken.ok_or(SYNTAX)?;
        }
        Ok(Self(option))
    }

    /// Returns the new expiry; `None` if it stays as it is.
    ///
    /// # Errors
    /// The error for the client.
    pub fn expiry(self, now_ms: i64) -> Result<Option<NewExpiry>, String> {
        self.0.parse("getex", now_ms)
    }
}

/// Conditions of `EXPIRE` and its relatives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpireConditions {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
}

impl ExpireConditions {
    /// Parses the arguments behind the time.
    ///
    /// # Errors
    /// The error for the client.
    pub fn parse(arguments: &[Bytes]) -> Result<Self, String> {
        let mut found = Self::default();
        for argument in arguments {
            match &argument.to_ascii_uppercase()[..] {
                b"NX" => found.absent = true,
                b"XX" => found.present = true,
                b"GT" => found.greater = true,
                b"LT" => found.less = true,
                _ => {
                    let shown = String::from_utf8_lossy(&argument[..argument.len().min(64)]).into_owned();
                    return Err(format!("ERR Unsupported option {shown}"));
                }
            }
        }
        if found.absent && (found.present || found.greater || found.less) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".to_owned());
        }
        if found.greater && found.less {
            return Err("ERR GT and LT options at the same time are not compatible".to_owned());
        }
        Ok(found)
    }

    /// Returns the expiry that a value gets by a time in milliseconds; `None` if the conditions do not hold. A Unix time that
    /// was compared is the one that is stored: a time to live would be counted from a later moment by another clock. A time
    /// to live that is not positive is returned as the earliest time; whether a Unix time has passed is decided by the
    /// leader.
    pub fn choose(self, before: Option<i64>, absolute: bool, time: i64, now_ms: i64) -> Option<NewExpiry> {
        let at = if absolute { time } else { now_ms.saturating_add(time) };
        // Neither is negative where it is used.
        let millis = |time: i64| u64::try_from(time).unwrap_or_default();
        self.allow(before, at).then(|| match absolute || self.compares() {
            _ if at <= 0 || !absolute && time <= 0 => NewExpiry::LONG_AGO,
            true => NewExpiry::At(millis(at)),
            false => NewExpiry::After(millis(time)),
        })
    }

    const fn compares(self) -> bool {
        self.greater || self.less
    }

    /// Returns whether a value with this expiry gets another one, both as Unix times in milliseconds. A value that does not
    /// expire counts as one that expires later than any other.
    fn allow(self, before: Option<i64>, after: i64) -> bool {
        let refused = match before {
            Some(before) => self.absent || self.greater && after <= before || self.less && after >= before,
            None => self.present || self.greater,
        };
        !refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn words(text: &'static str) -> Vec<Bytes> {
        text.split_whitespace().map(|part| Bytes::from_static(part.as_bytes())).collect()
    }

    fn getex(text: &'static str) -> Result<Option<NewExpiry>, String> {
        GetExOptions::parse(&words(text))?.expiry(NOW)
    }

    #[test]
    fn getex_takes_one_expiry_or_none() {
        assert_eq!(getex(""), Ok(None));
        assert_eq!(getex("ex 10"), Ok(Some(NewExpiry::After(10_000))));
        assert_eq!(getex("PX 10"), Ok(Some(NewExpiry::After(10))));
        assert_eq!(getex("EXAT 10"), Ok(Some(NewExpiry::At(10_000))));
        assert_eq!(getex("PXAT 10"), Ok(Some(NewExpiry::At(10))));
        assert_eq!(getex("PERSIST"), Ok(Some(NewExpiry::Never)));
        for text in ["KEEPTTL", "EX", "NX", "EX 1 PX 1", "EX 1 PERSIST", "PERSIST PX 1", "10"] {
            assert_eq!(getex(text), Err(SYNTAX.to_owned()), "{text}");
        }
    }

    #[test]
    fn times_out_of_range_get_the_texts_of_redis() {
        let invalid = Err("ERR invalid expire time in 'getex' command".to_owned());
        for text in
            ["EX 0", "PX -1", "EXAT 0", "EX 9223372036854775807", "PX 9223372036854775807", "EX -9223372036854775808"]
        {
            assert_eq!(getex(text), invalid, "{text}");
        }
        assert_eq!(getex("PXAT 9223372036854775807"), Ok(Some(NewExpiry::At(i64::MAX as u64))));
        assert_eq!(getex("EX ten"), Err(NOT_AN_INTEGER.to_owned()));
        let seconds = ExpiryUnit { seconds: true, absolute: false };
        assert_eq!(seconds.parse(b"-5", "expire", NOW), Ok(-5_000));
        let text = "ERR invalid expire time in 'expire' command";
        assert_eq!(seconds.parse(b"9223372036854776", "expire", NOW).unwrap_err(), text);
        assert_eq!(seconds.parse(b"-9223372036854776", "expire", NOW).unwrap_err(), text);
    }

    /// GT and LT compare a Unix time, so that is what is stored.
    #[test]
    fn compared_time_is_the_stored_one() {
        let chosen = |text, before, absolute, time| {
            ExpireConditions::parse(&words(text)).unwrap().choose(before, absolute, time, NOW)
        };
        let unix = |time: i64| Some(NewExpiry::At(time as u64));
        assert_eq!(chosen("", None, false, 10), Some(NewExpiry::After(10)));
        assert_eq!(chosen("XX", Some(NOW + 5), false, 10), Some(NewExpiry::After(10)));
        assert_eq!(chosen("GT", Some(NOW + 5), false, 10), unix(NOW + 10));
        assert_eq!(chosen("LT", Some(NOW + 50), false, 10), unix(NOW + 10));
        assert_eq!(chosen("LT", Some(NOW + 5), false, 10), None);
        assert_eq!(chosen("", None, true, NOW + 10), unix(NOW + 10));
        // The clock here may be ahead of the leader's.
        assert_eq!(chosen("", None, true, NOW - 5), unix(NOW - 5));
        for (absolute, time) in [(false, 0), (false, -5), (true, 0), (true, -5), (false, -NOW - 5)] {
            assert_eq!(chosen("", None, absolute, time), Some(NewExpiry::LONG_AGO), "{time}");
        }
    }

    #[test]
    fn expire_conditions_compare_with_expiry_before() {
        let allowed = |text, before, after| ExpireConditions::parse(&words(text)).unwrap().allow(before, after);
        for (text, none, earlier, same, later) in [
            ("", true, true, true, true),
            ("nx", true, false, false, false),
            ("XX", false, true, true, true),
            ("GT", false, false, false, true),
            ("LT", true, true, false, false),
            ("XX GT", false, false, false, true),
            ("XX LT", false, true, false, false),
        ] {
            assert_eq!(allowed(text, None, 7), none, "{text}");
            let found = [6, 7, 8].map(|after| allowed(text, Some(7), after));
            assert_eq!(found, [earlier, same, later], "{text}");
        }
        let error = |text| ExpireConditions::parse(&words(text)).unwrap_err();
        assert_eq!(error("NX GT"), "ERR NX and XX, GT or LT options at the same time are not compatible");
        assert_eq!(error("LT GT"), "ERR GT and LT options at the same time are not compatible");
        assert_eq!(error("ab"), "ERR Unsupported option ab");
    }
}
