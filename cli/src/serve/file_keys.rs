//! Keys of a configuration file, declared once each: name, type in the file, checked type, and check.

use super::file::{ConfigFile, FileError};
use std::ops::RangeInclusive;
use toml::Spanned;

/// Declares the keys of a file as a struct with their checked values, and `KEYS` with their names.
macro_rules! file_keys {
    ($(#[doc = $doc:literal])+ $name:ident { $($key:ident: $raw:ty => $kind:ty = $check:expr,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Default)]
        pub(crate) struct $name { $($key: Option<$kind>,)+ }

        impl $name {
            /// All keys.
            pub(crate) const KEYS: &[&str] = &[$(stringify!($key),)+];

            /// Reads the keys of a file, which may have only the `known` ones.
            pub(crate) fn read_known(
                file: &$crate::serve::file::ConfigFile,
                known: &[&str],
            ) -> Result<Self, $crate::serve::file::FileError> {
                #[derive(Default, serde::Deserialize)]
                #[serde(default)]
                struct RawKeys { $($key: Option<$raw>,)+ }
                let raw: RawKeys = file.settings(known)?;
                Ok(Self { $($key: raw.$key.map(|value| $check(file, stringify!($key), value)).transpose()?,)+ })
            }
        }
    };
}
pub(crate) use file_keys;

/// Accepts a value as it is.
pub(crate) fn any<T>(_: &ConfigFile, _: &str, value: T) -> Result<T, FileError> {
    Ok(value)
}

/// Parses a text like the flag of that name.
pub(crate) fn text<T>(
    parser: impl Fn(&str) -> Result<T, String>,
) -> impl FnOnce(&ConfigFile, &str, Spanned<String>) -> Result<T, FileError> {
    move |file, key, value| file.parse(key, &value, parser)
}

/// Parses each text of a list like the flag of that name.
pub(crate) fn list<T>(
    parser: impl Fn(&str) -> Result<T, String>,
) -> impl FnOnce(&ConfigFile, &str, Vec<Spanned<String>>) -> Result<Vec<T>, FileError> {
    move |file, key, values| values.iter().map(|value| file.parse(key, value, &parser)).collect()
}

/// Parses a number like the flag of that name.
pub(crate) fn number<T>(
    parser: impl Fn(&str) -> Result<T, String>,
) -> impl FnOnce(&ConfigFile, &str, Spanned<u64>) -> Result<T, FileError> {
    move |file, key, value| file.number(key, &value, parser)
}

/// Accepts a number within a range.
pub(crate) fn within<T: TryFrom<u64> + Into<u64> + Copy>(
    range: RangeInclusive<T>,
) -> impl FnOnce(&ConfigFile, &str, Spanned<u64>) -> Result<T, FileError> {
    move |file, key, value| file.within(key, &value, range)
}
