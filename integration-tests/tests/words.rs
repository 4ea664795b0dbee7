//! One word for one thing: those that `docs/GLOSSARY.md` says are said no more are not. Decisions and the changelog keep the words of
//! their day.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace root").to_owned()
}

/// The words of the glossary's last table, `| was | is |`.
fn banned(glossary: &str) -> Vec<String> {
    let table = glossary.lines().skip_while(|line| !line.starts_with("| was | is |")).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.trim_matches('|').split('|').next()).map(|word| word.trim().to_lowercase()).collect()
}

/// Whether a line says the word, by itself or within a name: `recent window`, `RecentWindow`, `recent_window`. The names that
/// a file on disk may still have are read under the new ones.
fn says(line: &str, word: &str) -> bool {
    if line.trim_start().starts_with("#[serde(alias = ") {
        return false;
    }
    let line = line.to_lowercase();
    [word.to_owned(), word.replace(' ', "_"), word.replace(' ', "")].iter().any(|form| line.contains(form.as_str()))
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the workspace") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let skipped = ["target", "adr", "GLOSSARY.md", "CHANGELOG.md", "words.rs"];
        if name.starts_with('.') || skipped.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else if [".rs", ".md", ".proto"].iter().any(|extension| name.ends_with(extension)) {
            found.push(path);
        }
    }
}

#[test]
fn words_that_are_said_no_more_are_not() {
    let banned = banned(&fs::read_to_string(root().join("docs/GLOSSARY.md")).expect("docs/GLOSSARY.md"));
    assert!(banned.len() >= 6, "the table of the glossary: {banned:?}");
    let mut all = Vec::new();
    files(&root(), &mut all);
    assert!(all.len() > 500, "{} files", all.len());
    let mut found = Vec::new();
    for file in all {
        let text = fs::read_to_string(&file).expect("a text file");
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = banned.iter().find(|word| says(line, word)) {
                found.push(format!("{}:{}: {word:?}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_word_is_found_by_itself_and_within_a_name() {
    for line in ["the recent window", "struct RecentWindow", "let recent_window = 1;"] {
        assert!(says(line, "recent window"), "{line}");
    }
    for line in ["a window of recent rows", "#[serde(alias = \"recent_window\")]"] {
        assert!(!says(line, "recent window"), "{line}");
    }
}
