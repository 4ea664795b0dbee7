//! Tests that documents name, by file and name.

/// Returns the tests in a cell of a table, written as `file::name` between backticks.
///
/// # Panics
/// If other text is between backticks.
#[must_use]
pub fn tests_in(cell: &str) -> Vec<(String, String)> {
    let named = cell.split('`').skip(1).step_by(2);
    let parts = |test: &str| {
        let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("file::test, not {test}"));
        (file.to_owned(), name.to_owned())
    };
    named.map(parts).collect()
}

/// Returns whether the text of a file has a test of this name that is not ignored.
#[must_use]
pub fn is_run(text: &str, name: &str) -> bool {
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
