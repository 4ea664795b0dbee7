//! Plain English: idioms that make prose hard to read have a budget per top-level folder, in `checks/tidy/prose-budgets.toml`. A budget may
//! fall and never rises. `ARCHON_UPDATE_PROSE=1 cargo test -p archon-tidy` lowers the budgets to what is there.
//!
//! Counted are comments in Rust and protobuf files and the text of Markdown files, without code. The changelog keeps its words.

use archon_tidy::{files_below, root, source};
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const BUDGETS: &str = "checks/tidy/prose-budgets.toml";

/// Counts of idioms by their names.
type Counts = BTreeMap<String, u64>;

/// Idioms that are counted by words: `persons` stand where a component should, `pronouns` where a noun should.
const WORDS: [(&str, &[&str]); 5] = [
    ("persons", &["nobody", "somebody", "anybody", "someone", "anyone"]),
    ("pronouns", &["whoever", "whatever", "whichever", "wherever", "whom", "whose"]),
    ("told", &["told", "tell", "tells", "telling"]),
    ("said", &["said", "say", "says", "saying"]),
    ("anew", &["anew"]),
];

/// Sentences that begin with a relative clause instead of a subject.
const CLAUSES: (&str, &[&str]) =
    ("clauses", &["What", "Whether", "Who", "Whose", "Whom", "Which", "That", "Where", "Why", "How"]);

/// Adds the idioms of one sentence or line of prose. Only at the beginning of one are relative clauses counted.
fn count_idioms(text: &str, begins: bool, counts: &mut Counts) {
    let words = || text.split(|letter: char| !letter.is_alphanumeric() && letter != '\'');
    for word in words() {
        let word = word.to_lowercase();
        for (idiom, forms) in WORDS {
            if forms.contains(&word.as_str()) {
                *counts.entry(idiom.to_owned()).or_default() += 1;
            }
        }
    }
    let (idiom, fronts) = CLAUSES;
    let is_question = || text.split('.').next().is_some_and(|sentence| sentence.contains('?'));
    if begins && words().next().is_some_and(|word| fronts.contains(&word)) && !is_question() {
        *counts.entry(idiom.to_owned()).or_default() += 1;
    }
}

/// A line without what stands between backticks, nor the targets of links.
fn without_code(line: &str) -> String {
    let mut text = String::new();
    for (place, part) in line.split('`').enumerate() {
        text.push_str(if place % 2 == 0 { part } else { "x" });
    }
    while let Some((begin, length)) = text.find("](").and_then(|begin| Some((begin, text[begin..].find(')')?))) {
        text.replace_range(begin..=begin + length, " ");
    }
    text
}

/// Counts the idioms of a file.
fn count_file(path: &Path, text: &str, counts: &mut Counts) {
    if path.extension().is_some_and(|ending| ending == "md") {
        let mut is_code = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if !is_code {
                let line = without_code(line);
                count_idioms(line.trim_start_matches(['#', '>', '|', '*', '-', '[', ' ']), true, counts);
            }
        }
        return;
    }
    // A line of a comment begins a sentence if none stands before it, or if it begins with a capital letter.
    let mut is_first = true;
    for line in text.lines() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_first = true;
            continue;
        };
        let comment = without_code(comment.trim_start_matches(['/', '!']).trim());
        count_idioms(&comment, is_first || comment.starts_with(char::is_uppercase), counts);
        is_first = comment.is_empty();
    }
}

/// The top-level folder of a file, or `root`.
fn folder(path: &Path) -> String {
    let mut parts = path.strip_prefix(root()).expect("a file of the workspace").iter();
    let first = parts.next().expect("a name").to_str().expect("a name");
    if parts.next().is_some() { first.to_owned() } else { "root".to_owned() }
}

fn counts_of_workspace() -> BTreeMap<String, Counts> {
    let mut all: BTreeMap<String, Counts> = BTreeMap::new();
    for path in files_below(&root(), &[".rs", ".md", ".proto"]) {
        // This file lists the idioms; the table of contents repeats titles, the page of commands and generated code comments.
        if ["CHANGELOG.md", "SUMMARY.md", "cli.md", "prose.rs", "archon.v1.rs"]
            .iter()
            .any(|skipped| path.ends_with(skipped))
        {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a text file");
        count_file(&path, &text, all.entry(folder(&path)).or_default());
    }
    all
}

fn budgets_as_text(budgets: &BTreeMap<String, Counts>) -> String {
    let mut text =
        "# Idioms per top-level folder, as `tests/it/prose.rs` counts them. A number may fall and never rises.\n"
            .to_owned();
    for (folder, counts) in budgets.iter().filter(|(_, counts)| !counts.is_empty()) {
        let counts: Vec<_> = counts.iter().map(|(idiom, count)| format!("{idiom} = {count}")).collect();
        writeln!(text, "{folder} = {{ {} }}", counts.join(", ")).expect("a text");
    }
    text
}

#[test]
fn idioms_stay_within_their_budgets() {
    let budgets: BTreeMap<String, Counts> = toml::from_str(&source(BUDGETS)).expect(BUDGETS);
    let counts = counts_of_workspace();
    let mut above = Vec::new();
    for (folder, counts) in &counts {
        for (idiom, count) in counts {
            let budget = budgets.get(folder).and_then(|budget| budget.get(idiom)).copied().unwrap_or_default();
            if *count > budget {
                above.push(format!("{folder}: {count} of `{idiom}`, the budget is {budget}"));
            }
        }
    }
    let why = "write subject, verb, object (CONTRIBUTING.md); the words are listed in checks/tidy/tests/it/prose.rs";
    assert!(above.is_empty(), "{why}\n{}", above.join("\n"));
    if env::var_os("ARCHON_UPDATE_PROSE").is_some() {
        fs::write(root().join(BUDGETS), budgets_as_text(&counts)).expect(BUDGETS);
    }
}

#[test]
fn idioms_are_counted_in_comments_and_pages() {
    let mut counts = Counts::new();
    let code =
        "/// Whether somebody told `nobody`.\n/// What: a number.\nlet said = 1; // said\n\n// Who asks? Nobody.\n";
    count_file(Path::new("a.rs"), code, &mut counts);
    let expected = [("clauses", 2), ("persons", 2), ("told", 1)];
    assert_eq!(counts, expected.map(|(idiom, count)| (idiom.to_owned(), count)).into());
    counts.clear();
    count_file(Path::new("a.md"), "- What it is, [said](told.md) anew\n```\nsaid\n```\n", &mut counts);
    let expected = [("anew", 1), ("clauses", 1), ("said", 1)];
    assert_eq!(counts, expected.map(|(idiom, count)| (idiom.to_owned(), count)).into());
}
