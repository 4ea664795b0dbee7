//! Ranges of options: checked on the command line, in variables and in files, and stated in the help.

use clap::Arg;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Returns a parser of whole numbers within a range.
pub(super) fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<i128> + Into<i128> + Copy + Send + Sync + 'static,
{
    let (least, most) = (*range.start(), *range.end());
    move |text: &str| {
        let (low, high): (i128, i128) = (least.into(), most.into());
        // The upper bound of an open range is that of a type.
        let is_open = high >= i128::from(u32::MAX);
        let numbers = |is_above: bool| match is_open && !is_above {
            true => format!("write a number of at least {low}"),
            false => format!("write a number from {low} to {high}"),
        };
        let value: i128 = text.parse().map_err(|_| format!("{text:?} is not a number; {}", numbers(false)))?;
        let fitting = if (low..=high).contains(&value) { T::try_from(value).ok() } else { None };
        fitting.ok_or_else(|| format!("{value} is out of range; {}", numbers(value > high)))
    }
}

/// An option with bounds.
pub(super) trait Bounded: Sized {
    /// Adds a sentence to the help.
    #[must_use]
    fn noted(self, sentence: impl Display) -> Self;

    /// States a range in the help, for a parser that checks it.
    #[must_use]
    fn ranging<T: Display>(self, range: RangeInclusive<T>) -> Self;

    /// Accepts only the numbers of a range, and states it in the help. The option has the number's type.
    #[must_use]
    fn within<T>(self, range: RangeInclusive<T>) -> Self
    where
        T: TryFrom<i128> + Into<i128> + Display + Copy + Send + Sync + 'static;
}

impl Bounded for Arg {
    fn noted(self, sentence: impl Display) -> Self {
        let help = self.get_help().map(ToString::to_string).unwrap_or_default();
        self.help(format!("{}. {sentence}", help.trim_end_matches('.')))
    }

    fn ranging<T: Display>(self, range: RangeInclusive<T>) -> Self {
        let is_time = self.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == "MS"));
        let unit = if is_time { " milliseconds" } else { "" };
        self.noted(format!("From {} to {}{unit}", range.start(), range.end()))
    }

    fn within<T>(self, range: RangeInclusive<T>) -> Self
    where
        T: TryFrom<i128> + Into<i128> + Display + Copy + Send + Sync + 'static,
    {
        self.value_parser(number(range.clone())).ranging(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_out_of_range_is_refused_with_the_range() {
        let weight = number(1_u32..=10_000);
        assert_eq!((weight("1"), weight("10000")), (Ok(1), Ok(10_000)));
        for (text, wanted) in [
            ("0", "0 is out of range; write a number from 1 to 10000"),
            ("10001", "10001 is out of range; write a number from 1 to 10000"),
            ("-1", "-1 is out of range; write a number from 1 to 10000"),
            ("1.5", "\"1.5\" is not a number; write a number from 1 to 10000"),
        ] {
            assert_eq!(weight(text), Err(wanted.to_owned()));
        }
        let (id, limit) = (number(1..=u64::MAX), number(1..=u32::MAX));
        assert_eq!(id("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(id("0"), Err("0 is out of range; write a number of at least 1".to_owned()));
        assert_eq!(
            limit("4294967296"),
            Err("4294967296 is out of range; write a number from 1 to 4294967295".to_owned())
        );
    }

    #[test]
    fn help_states_range_and_unit() {
        let option = Arg::new("pause").long("pause").value_name("MS").help("Time between two.").within(1_u32..=5);
        assert_eq!(
            option.get_help().map(ToString::to_string).as_deref(),
            Some("Time between two. From 1 to 5 milliseconds")
        );
    }
}
