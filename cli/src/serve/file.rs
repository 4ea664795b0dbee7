//! TOML file of a serving process: read and checked key by key, with errors that name file, line and remedy.

use crate::exit::Failure;
use crate::text_input;
use crate::wanted::in_words;
use archon_types::Setting;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Largest accepted file, in bytes: a configuration is a page, not a data set.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Text of a file with its name, so that its values can be traced back to a line.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    text: String,
}

/// Fault of a configuration file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}{}: {message}", Line(*.line))]
pub(crate) struct FileError {
    path: String,
    line: Option<usize>,
    message: String,
    remedy: String,
}

struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, ", line {line}"),
            None => Ok(()),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::usage(error.to_string(), error.remedy)
    }
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// An unreadable file, one larger than a mebibyte, or one that is not UTF-8.
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        let unreadable = |message: String| FileError {
            path: path.display().to_string(),
            line: None,
            message,
            remedy: "name a readable TOML file after --config (or in ARCHON_CONFIG)".to_owned(),
        };
        let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
        if size > FILE_BYTES_MAX {
            return Err(unreadable(format!("it has {size} bytes; at most {FILE_BYTES_MAX} are read")));
        }
        let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let text = text_input::decode(&bytes).map_err(unreadable)?.to_owned();
        Ok(Self { path: path.to_owned(), text })
    }

    /// Returns the settings of the file. Every key must be one of `known`.
    ///
    /// # Errors
    /// Malformed TOML, an unknown key (with the nearest known one), or a value of the wrong type.
    pub(crate) fn settings<T: DeserializeOwned>(&self, known: &[&str]) -> Result<T, FileError> {
        let keys: BTreeMap<Spanned<String>, Spanned<toml::Value>> = toml::from_str(&self.text).map_err(|error| {
            self.error(
                error.span().map(|span| span.start),
                error.message(),
                "correct the TOML: one `key = value` per line",
            )
        })?;
        for key in keys.keys() {
            if !known.contains(&key.get_ref().as_str()) {
                let message = format!("unknown key `{}`", key.get_ref());
                return Err(self.error(Some(key.span().start), &message, &suggestion(key.get_ref(), known)));
            }
        }
        toml::from_str(&self.text).map_err(|error| {
            let at = error.span().map(|span| span.start);
            let key = keys.iter().find(|(_, value)| value.span().contains(&at.unwrap_or(usize::MAX)));
            let problem = in_words(error.message());
            let message = match key {
                Some((key, _)) => format!("{}: {problem}", key.get_ref()),
                None => problem,
            };
            self.error(at, &message, "give the key a value of the right type")
        })
    }

    /// Returns true if the file is well formed and has such a key.
    pub(crate) fn has_key(&self, is: impl Fn(&str) -> bool) -> bool {
        let keys: toml::Table = self.text.parse().unwrap_or_default();
        keys.keys().any(|key| is(key))
    }

    /// Returns the cluster settings of the file, each within its range, with their positions. Every key must be one of
    /// `known`.
    ///
    /// # Errors
    /// The range, with the line of the value.
    pub(crate) fn cluster(&self, known: &[&str]) -> Result<BTreeMap<Setting, (u64, String)>, FileError> {
        let values: BTreeMap<String, Spanned<toml::Value>> = self.settings(known)?;
        let mut found = BTreeMap::new();
        for setting in Setting::ALL {
            let key = setting.as_str();
            let Some(value) = values.get(key) else { continue };
            let Some(number) = value.get_ref().as_integer() else {
                let range = setting.range();
                let wanted = format!("not a number; write one from {} to {}", range.start(), range.end());
                return Err(self.refuse(key, value, &wanted));
            };
            let number = setting.parse(&number.to_string()).map_err(|message| self.refuse(key, value, &message))?;
            found.insert(*setting, (number, self.place(value.span().start)));
        }
        Ok(found)
    }

    /// Parses a value of the file like the flag of that name.
    ///
    /// # Errors
    /// The parser's error, with the line of the value.
    pub(crate) fn parse<T>(
        &self,
        key: &str,
        value: &Spanned<String>,
        parser: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, FileError> {
        parser(value.get_ref()).map_err(|message| self.refuse(key, value, &message))
    }

    /// Accepts a number of the file only within its range.
    ///
    /// # Errors
    /// The range, with the line of the value.
    pub(crate) fn within<T: TryFrom<u64> + Into<u64> + Copy>(
        &self,
        key: &str,
        value: &Spanned<u64>,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<T, FileError> {
        let found = *value.get_ref();
        let range: std::ops::RangeInclusive<u64> = (*range.start()).into()..=(*range.end()).into();
        let narrowed = if range.contains(&found) { T::try_from(found).ok() } else { None };
        narrowed.ok_or_else(|| {
            self.refuse(key, value, &format!("{found} is not between {} and {}", range.start(), range.end()))
        })
    }

    /// Parses a number of the file like the flag of that name.
    ///
    /// # Errors
    /// The parser's error, with the line of the value.
    pub(crate) fn number<T>(
        &self,
        key: &str,
        value: &Spanned<u64>,
        parser: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, FileError> {
        parser(&value.get_ref().to_string()).map_err(|message| self.refuse(key, value, &message))
    }

    /// Formats the file and the line of an offset, for errors.
    pub(crate) fn place(&self, offset: usize) -> String {
        format!("{}{}", self.path.display(), Line(Some(self.line(offset))))
    }

    fn refuse<V>(&self, key: &str, value: &Spanned<V>, message: &str) -> FileError {
        self.error(Some(value.span().start), &format!("{key}: {message}"), &format!("change `{key}` in that file"))
    }

    fn error(&self, offset: Option<usize>, message: &str, remedy: &str) -> FileError {
        let line = offset.map(|offset| self.line(offset));
        let message = message.lines().next().unwrap_or("not valid TOML").to_owned();
        FileError { path: self.path.display().to_string(), line, message, remedy: remedy.to_owned() }
    }

    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().get(..offset).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}

/// Suggests the nearest known key, or lists all keys if none is near.
pub(crate) fn suggestion(found: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|key| (strsim::normalized_damerau_levenshtein(found, key), *key))
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|left, right| left.0.total_cmp(&right.0));
    match nearest {
        Some((_, key)) => format!("did you mean `{key}`?"),
        None => format!("known keys are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::coordinator::FromCoordinatorFile;
    use crate::serve::settings::node::FromNodeFile;

    fn file(text: &str) -> ConfigFile {
        ConfigFile { path: PathBuf::from("archon.toml"), text: text.to_owned() }
    }

    #[test]
    fn unknown_key_is_an_error_with_line_and_suggestion() {
        let text = "id = 1\n# the address\nlisten_on = \"127.0.0.1:1\"\nlisen = \"127.0.0.1:1\"\n";
        let error = FromCoordinatorFile::read(&file(text)).unwrap_err();
        let found = Failure::from(error).to_string();
        assert!(found.contains("archon.toml, line 4: unknown key `lisen`"), "{found}");
        assert!(found.contains("did you mean `listen`?"), "{found}");
    }

    #[test]
    fn unknown_key_without_a_near_one_lists_all_keys() {
        assert!(suggestion("colour", FromNodeFile::KEYS).contains("name, listen, metrics_listen, advertise"));
        assert_eq!(suggestion("data-dir", FromNodeFile::KEYS), "did you mean `data_dir`?");
    }

    #[test]
    fn malformed_toml_and_wrong_types_name_the_line() {
        let broken = FromCoordinatorFile::read(&file("id = 1\nlisten = = 2\n")).unwrap_err();
        assert_eq!(broken.line, Some(2), "{broken}");
        let wrong = FromCoordinatorFile::read(&file("\n\nid = \"nine\"\n")).unwrap_err();
        assert_eq!(wrong.line, Some(3), "{wrong}");
        assert!(wrong.to_string().contains("id: ") && wrong.to_string().contains("expected a whole number"), "{wrong}");
        let wrong = FromCoordinatorFile::read(&file("id = 1\n\npartitions = \"nine\"\n")).unwrap_err();
        assert_eq!(wrong.line, Some(3), "{wrong}");
        assert!(wrong.to_string().contains("partitions: not a number; write one from 1 to 16384"), "{wrong}");
    }

    #[test]
    fn impossible_values_name_the_range() {
        let error = FromCoordinatorFile::read(&file("partitions = 20000\n")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "archon.toml, line 1: partitions: 20000 is out of range; write a number from 1 to 16384"
        );
        let error = FromNodeFile::read(&file("weight = 20000\n")).unwrap_err();
        assert_eq!(error.to_string(), "archon.toml, line 1: weight: 20000 is not between 1 and 10000");
    }
}
