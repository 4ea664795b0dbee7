//! systemd units.

use crate::{names, source};
use std::collections::BTreeSet;

/// Path of the program in a unit.
pub const PROGRAM: &str = "/usr/bin/archon";

/// Settings of a unit.
#[derive(Debug)]
pub struct Unit {
    /// File name.
    pub name: String,
    /// The text of its file.
    pub text: String,
    /// Section, key, value.
    settings: Vec<(String, String, String)>,
}

impl Unit {
    /// Reads a unit.
    ///
    /// # Panics
    /// If it cannot be read, or a setting continues on the next line.
    #[must_use]
    #[track_caller]
    pub fn read(name: &str) -> Self {
        let text = source(&format!("packaging/systemd/{name}"));
        let (mut section, mut settings) = (String::new(), Vec::new());
        for line in text.lines() {
            match (line.strip_prefix('[').and_then(|line| line.strip_suffix(']')), line.split_once('=')) {
                _ if line.is_empty() || line.starts_with('#') => {}
                (Some(title), _) => title.clone_into(&mut section),
                (None, Some((key, value))) if !value.ends_with('\\') => {
                    settings.push((section.clone(), key.to_owned(), value.to_owned()));
                }
                (None, _) => panic!("{name}: {line:?}"),
            }
        }
        Self { name: name.to_owned(), text, settings }
    }

    /// Reads all units.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let units: Vec<_> = names("packaging/systemd").into_iter().filter(|name| name.ends_with(".service")).collect();
        units.iter().map(|name| Self::read(name)).collect()
    }

    /// Returns the single value of a key.
    ///
    /// # Panics
    /// If there is none, or more than one.
    #[must_use]
    #[track_caller]
    pub fn value(&self, section: &str, key: &str) -> &str {
        let mut values =
            self.settings.iter().filter(|(of, name, _)| of == section && name == key).map(|(.., value)| value);
        let value = values.next().unwrap_or_else(|| panic!("{}: [{section}] {key}= is missing", self.name));
        assert_eq!(values.next(), None, "{}: {key} stands there twice", self.name);
        value
    }

    /// Returns the exit codes of a key of `[Service]`.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    #[track_caller]
    pub fn codes(&self, key: &str) -> BTreeSet<u8> {
        self.value("Service", key).split_whitespace().map(|code| code.parse().expect("a code")).collect()
    }

    /// Returns verb and flags of the command.
    ///
    /// # Panics
    /// If it starts another program.
    #[must_use]
    #[track_caller]
    pub fn command(&self) -> Vec<&str> {
        let command = self.value("Service", "ExecStart").strip_prefix(PROGRAM);
        command.unwrap_or_else(|| panic!("{}: another program", self.name)).split_whitespace().collect()
    }
}
