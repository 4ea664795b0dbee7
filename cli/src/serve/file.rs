//! TOML file of a serving process: read and checked key by key, with errors that name file, line and remedy.

use crate::exit::Failure;
use crate::text_input;
use clap::{Arg, Command};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// Largest accepted file, in bytes: a configuration is a page, not a data set.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Text of a file with its name, so that its values can be traced back to a line.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    text: String,
}

/// Values of a file by key, which is the name of an option.
pub(crate) type FileValues = BTreeMap<String, FileValue>;

/// Value of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileValue {
    /// Words of the command line with the same meaning: one for each item of a list.
    pub(crate) words: Vec<String>,
    /// File and line, for errors.
    pub(crate) place: String,
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

    /// Returns the values of the file, each accepted by the option with the name of its key.
    ///
    /// # Errors
    /// Malformed TOML, an unknown key (with the nearest known one), or a value that the option refuses.
    pub(crate) fn values(&self, options: &[&Arg]) -> Result<FileValues, FileError> {
        let table = DeTable::parse(&self.text).map_err(|error| {
            self.error(
                error.span().map(|span| span.start),
                error.message(),
                "correct the TOML: one `key = value` per line",
            )
        })?;
        // In the order of the file, so that the first fault is reported.
        let mut rows: Vec<_> = table.get_ref().iter().collect();
        rows.sort_by_key(|(key, _)| key.span().start);
        let mut values = FileValues::new();
        for (key, value) in rows {
            let name: &str = key.get_ref();
            let Some(option) = options.iter().find(|option| option.get_id() == name) else {
                let known: Vec<&str> = options.iter().map(|option| option.get_id().as_str()).collect();
                let message = format!("unknown key `{name}`");
                return Err(self.error(Some(key.span().start), &message, &suggestion(name, &known)));
            };
            let place = self.place(value.span().start);
            values.insert(name.to_owned(), FileValue { words: self.words(option, value)?, place });
        }
        Ok(values)
    }

    /// Returns true if the file is well formed and has such a key.
    pub(crate) fn has_key(&self, is: impl Fn(&str) -> bool) -> bool {
        DeTable::parse(&self.text).is_ok_and(|keys| keys.get_ref().keys().any(|key| is(key.get_ref())))
    }

    /// Returns a value as words of the command line.
    fn words(&self, option: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, FileError> {
        if option.get_value_delimiter().is_none() {
            return Ok(vec![self.word(option, value)?]);
        }
        match value.get_ref() {
            DeValue::Array(items) if items.is_empty() => {
                Err(self.refuse(option, value, "the list is empty; name at least one, or remove the key"))
            }
            DeValue::Array(items) => items.iter().map(|item| self.word(option, item)).collect(),
            other => Err(self.refuse(option, value, &format!("expected a list in [ ], found {}", shown(other)))),
        }
    }

    /// Returns a single value as a word of the command line.
    fn word(&self, option: &Arg, value: &Spanned<DeValue<'_>>) -> Result<String, FileError> {
        let form = ValueForm::of(option);
        let (found, word) = match value.get_ref() {
            DeValue::String(text) => (Some(ValueForm::Text), text.to_string()),
            DeValue::Integer(number) => (Some(ValueForm::Number), decimal(number)),
            DeValue::Float(number) => (None, number.to_string()),
            DeValue::Boolean(value) => (Some(ValueForm::Switch), value.to_string()),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => (None, String::new()),
        };
        let is_fitting = found == Some(form);
        // The parser's text is better than a type, as it has an example.
        let refusal = if word.is_empty() && !is_fitting { None } else { refusal(option, &word) };
        match refusal {
            Some(message) => Err(self.refuse(option, value, &message)),
            None if is_fitting => Ok(word),
            None => {
                let message = format!("expected {}, found {}", form.as_str(), shown(value.get_ref()));
                Err(self.refuse(option, value, &message))
            }
        }
    }

    /// Formats the file and the line of an offset, for errors.
    fn place(&self, offset: usize) -> String {
        format!("{}{}", self.path.display(), Line(Some(self.line(offset))))
    }

    fn refuse(&self, option: &Arg, value: &Spanned<DeValue<'_>>, message: &str) -> FileError {
        let key = option.get_id();
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

/// Form of an option's value in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ValueForm {
    Switch,
    Number,
    Text,
}

impl ValueForm {
    /// Names of values that are whole numbers.
    const NUMBERS: [&str; 5] = ["BYTES", "ID", "MS", "N", "W"];

    fn of(option: &Arg) -> Self {
        let names = option.get_value_names().unwrap_or_default();
        match names.first() {
            _ if !option.get_action().takes_values() => Self::Switch,
            Some(name) if Self::NUMBERS.contains(&name.as_str()) => Self::Number,
            _ => Self::Text,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Switch => "true or false",
            Self::Number => "a whole number",
            Self::Text => "a text in quotes",
        }
    }
}

/// Describes a value of the wrong form.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text {text:?}"),
        DeValue::Integer(number) => format!("the number {}", decimal(number)),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a time".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Returns a number of a file in decimal digits.
fn decimal(number: &DeInteger<'_>) -> String {
    let value = i128::from_str_radix(number.as_str(), number.radix());
    value.map_or_else(|_| number.to_string(), |value| value.to_string())
}

/// Returns the error of an option about a value, as on the command line.
fn refusal(option: &Arg, word: &str) -> Option<String> {
    if !option.get_action().takes_values() {
        return None;
    }
    let alone = Arg::new("value").long("value").value_parser(option.get_value_parser().clone());
    let command = Command::new("file").no_binary_name(true).arg(alone);
    let error = command.try_get_matches_from([format!("--value={word}")]).err()?;
    Some(std::error::Error::source(&error).map_or_else(|| "a value is missing".to_owned(), ToString::to_string))
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
    use crate::serve::settings::MemberKind;

    fn read(kind: MemberKind, text: &str) -> Result<FileValues, FileError> {
        kind.values(&ConfigFile { path: PathBuf::from("archon.toml"), text: text.to_owned() })
    }

    #[test]
    fn unknown_key_is_an_error_with_line_and_suggestion() {
        let text = "id = 1\n# the address\nlisten_on = \"127.0.0.1:1\"\nlisen = \"127.0.0.1:1\"\n";
        let error = read(MemberKind::Coordinator, text).unwrap_err();
        let found = Failure::from(error).to_string();
        assert!(found.contains("archon.toml, line 3: unknown key `listen_on`"), "{found}");
        assert!(found.contains("did you mean `listen`?"), "{found}");
    }

    #[test]
    fn unknown_key_without_a_near_one_lists_all_keys() {
        let error = read(MemberKind::Node, "colour = 1\n").unwrap_err();
        assert!(error.remedy.contains("name, listen, metrics_listen, advertise"), "{}", error.remedy);
        let error = read(MemberKind::Node, "data-dir = '/d'\n").unwrap_err();
        assert_eq!(error.remedy, "did you mean `data_dir`?");
    }

    #[test]
    fn malformed_toml_and_wrong_types_name_the_line() {
        let line = |text| {
            let error = read(MemberKind::Coordinator, text).unwrap_err();
            (error.line, error.message)
        };
        assert_eq!(line("id = 1\nlisten = = 2\n").0, Some(2));
        for (text, wanted) in [
            ("\n\nid = \"nine\"\n", "id: \"nine\" is not a number; write a number of at least 1"),
            ("id = 1\n\nid_of = 1\n", "unknown key `id_of`"),
            (
                "id = 1\n\npartitions = \"nine\"\n",
                "partitions: \"nine\" is not a number; write a number from 1 to 16384",
            ),
            ("id = 1\n\npartitions = \"9\"\n", "partitions: expected a whole number, found the text \"9\""),
            ("id = 1\n\npartitions = [9]\n", "partitions: expected a whole number, found a list"),
            ("id = 1\n\nlearner = \"yes\"\n", "learner: expected true or false, found the text \"yes\""),
            ("id = 1\n\ndata_dir = 1\n", "data_dir: expected a text in quotes, found the number 1"),
            ("id = 1\n\npeers = \"1=a:1\"\n", "peers: expected a list in [ ], found the text \"1=a:1\""),
            ("id = 1\n\npeers = []\n", "peers: the list is empty; name at least one, or remove the key"),
            ("peers = [\n\"1=a:1\",\n\"2\"]\n", "peers: \"2\" is not a voter; write ID=H:P, as in 1=127.0.0.1:7101"),
            ("id = 1\n\ndata_dir = \"\"\n", "data_dir: a value is missing"),
        ] {
            assert_eq!(line(text), (Some(3), wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn impossible_values_name_the_range() {
        let error = read(MemberKind::Coordinator, "partitions = 20000\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "archon.toml, line 1: partitions: 20000 is out of range; write a number from 1 to 16384"
        );
        let error = read(MemberKind::Node, "weight = 20_000\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "archon.toml, line 1: weight: 20000 is out of range; write a number from 1 to 10000"
        );
        let error = read(MemberKind::Node, "partitions_max = -1\n").unwrap_err();
        assert_eq!(error.message, "partitions_max: -1 is out of range; write a number of at least 1");
    }

    #[test]
    fn values_become_words_of_the_command_line() {
        let values = read(MemberKind::Node, "weight = 0x10\ncoordinators = [\"a:1\", \"b:2\"]\ninsecure = true\n");
        let values = values.unwrap();
        let words = |key: &str| values[key].words.join(" ");
        assert_eq!(
            (words("weight"), words("coordinators"), words("insecure")),
            ("16".into(), "a:1 b:2".into(), "true".into())
        );
        assert_eq!(values["insecure"].place, "archon.toml, line 3");
    }
}
