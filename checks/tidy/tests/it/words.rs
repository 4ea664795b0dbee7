//! Renamed terms: those in the last table of `docs/concepts/glossary.md` are no longer used. Decisions and the changelog keep
//! the words of their time.

use archon_tidy::{files_below, root};
use std::fs;
use std::path::Path;

/// Returns the words of the glossary's last table, `| was | is |`.
fn banned(glossary: &str) -> Vec<String> {
    let table = glossary.lines().skip_while(|line| !line.starts_with("| was | is |")).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.trim_matches('|').split('|').next()).map(|word| word.trim().to_lowercase()).collect()
}

/// Returns true if the line contains the word, by itself or within a name: `recent window`, `RecentWindow`,
/// `recent_window`.
fn says(line: &str, word: &str) -> bool {
    let line = line.to_lowercase();
    [word.to_owned(), word.replace(' ', "_"), word.replace(' ', "")].iter().any(|form| line.contains(form.as_str()))
}

/// Returns true if the file may keep the words of its time.
fn keeps_its_words(file: &Path) -> bool {
    let names = ["adr", "glossary.md", "CHANGELOG.md", "words.rs"];
    file.iter().any(|part| names.iter().any(|name| part == *name))
}

#[test]
fn renamed_terms_are_not_used() {
    let banned =
        banned(&fs::read_to_string(root().join("docs/concepts/glossary.md")).expect("docs/concepts/glossary.md"));
    assert!(banned.len() >= 6, "the table of the glossary: {banned:?}");
    let mut all = files_below(&root(), &[".rs", ".md", ".proto"]);
    all.retain(|file| !keeps_its_words(file));
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
fn word_is_found_alone_and_within_a_name() {
    for line in ["the recent window", "struct RecentWindow", "let recent_window = 1;"] {
        assert!(says(line, "recent window"), "{line}");
    }
    assert!(!says("a window of recent rows", "recent window"));
}
