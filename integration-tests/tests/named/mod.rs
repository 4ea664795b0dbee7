//! What documents name: tests, each as its file and its name.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The tests named in a cell of a table, each as its file and its name.
pub(crate) fn tests_in(cell: &str) -> Vec<(String, String)> {
    let named = cell.split('`').skip(1).step_by(2);
    let parts = |test: &str| {
        let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("file::test, not {test}"));
        (file.to_owned(), name.to_owned())
    };
    named.map(parts).collect()
}

/// The text of a file.
pub(crate) fn source(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Whether a test of this name stands in the text and is run.
pub(crate) fn is_run(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let found = lines.iter().position(|line| {
        line.strip_prefix("async ")
            .unwrap_or(line)
            .strip_prefix("fn ")
            .is_some_and(|of| of.starts_with(&format!("{name}(")))
    });
    let Some(found) = found else { return false };
    let before: Vec<&&str> = lines[..found].iter().rev().take_while(|line| line.starts_with("#[")).collect();
    let marks = |word: &str| before.iter().any(|line| line.contains(word));
    marks("test") && !marks("ignore")
}
