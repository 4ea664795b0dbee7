//! Checks the claims of documents: files and tests that they name, counts, and links.

use archon_tidy::named::{is_run, tests_in};
use archon_tidy::{files_below, names, root, source};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// A row of a table of `docs/history/seeds.md`: `| number | phrase | state | where | test |`.
struct Row {
    /// Number of the source, and of the phrase in it.
    number: (usize, usize),
    state: String,
    /// The cells after the phrase.
    said: String,
    test: String,
}

fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let (source, phrase) = cells.first()?.split_once('.')?;
        let number = (source.parse().ok()?, phrase.parse().ok()?);
        let [_, _, state, place, test] = cells[..] else { panic!("five cells, not {}: {line}", cells.len()) };
        let said = format!("{state} {place} {test}");
        let state = state.split(':').next().unwrap_or_default().to_owned();
        assert!(["done", "better", "not yet"].contains(&state.as_str()), "{number:?}: {state}");
        Some(Row { number, state, said, test: test.to_owned() })
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn answered_seed_phrases_name_active_tests() {
    let rows = rows(&source("docs/history/seeds.md"));
    assert!(rows.len() > 200, "only {} rows found", rows.len());
    let mut wrong = Vec::new();
    for Row { number, state, test, .. } in &rows {
        let tests = tests_in(test);
        if (state == "not yet") != tests.is_empty() {
            wrong.push(format!("{number:?} is {state} and names {} tests", tests.len()));
        }
        let runs = |(file, name): &&(String, String)| root().join(file).exists() && is_run(&source(file), name);
        wrong
            .extend(tests.iter().filter(|test| !runs(test)).map(|test| format!("{number:?}: no test {test:?} is run")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_named_by_the_seeds_exist() {
    let mut wrong = Vec::new();
    for Row { number, state, said, .. } in rows(&source("docs/history/seeds.md")) {
        if state != "done" && said.trim_end().ends_with(&state) {
            wrong.push(format!("{number:?} does not say which mechanism is better, or what is missing"));
        }
        let extensions = [".rs", ".md", ".proto", ".toml"];
        let words = said.split(['`', '(', ')']).map(|word| word.split([':', '#']).next().unwrap_or_default());
        for word in words.filter(|word| extensions.iter().any(|end| word.ends_with(end)) && !word.contains(' ')) {
            // Links are relative to the document's folder.
            if !root().join(word).exists() && !root().join("docs/history").join(word).exists() {
                wrong.push(format!("{number:?} names {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn seed_phrases_are_numbered_and_counted_correctly() {
    let text = source("docs/history/seeds.md");
    let mut counted: BTreeMap<usize, [usize; 3]> = BTreeMap::new();
    for Row { number: (source, phrase), state, .. } in rows(&text) {
        let counts = counted.entry(source).or_default();
        counts[["done", "better", "not yet"].iter().position(|known| *known == state).expect("a state")] += 1;
        assert_eq!(phrase, counts.iter().sum::<usize>(), "phrases of source {source} are numbered in order");
    }
    let table = text.lines().skip_while(|line| !line.starts_with("| source |")).skip(2);
    let said: Vec<Vec<usize>> = table
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect())
        .collect();
    assert_eq!(said, counted.into_values().map(Vec::from).collect::<Vec<_>>());
}

/// Returns the link anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the links of a text, without those in code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split("](").skip(1)).filter_map(|after| after.split_once(')')).map(|(link, _)| link)
}

#[test]
fn links_between_documents_resolve() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for document in files_below(&root(), &[".md"]) {
        let text = fs::read_to_string(&document).expect("a text");
        for link in links(&text).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            seen += 1;
            let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
            let target = if file.is_empty() { document.clone() } else { document.with_file_name(file) };
            let leads = match (fs::read_to_string(&target), heading) {
                (Ok(there), Some(heading)) if file.is_empty() || file.ends_with(".md") => {
                    there.lines().any(|line| line.starts_with('#') && anchor(line) == heading)
                }
                _ => target.exists(),
            };
            if !leads {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(seen > 300, "only {seen} links found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn book_contains_every_page() {
    let summary = source("docs/SUMMARY.md");
    let named: Vec<&str> = links(&summary).collect();
    let folder = root().join("docs");
    let pages = files_below(&folder, &[".md"]);
    let path = |page: &PathBuf| page.strip_prefix(&folder).expect("below docs").display().to_string();
    let missing: Vec<String> =
        pages.iter().map(path).filter(|page| page != "SUMMARY.md" && !named.contains(&page.as_str())).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lists every page; add {missing:#?}");
    assert_eq!(named.len(), pages.len() - 1, "a page is listed twice in docs/SUMMARY.md");
}

#[test]
fn decisions_state_status_and_alternatives() {
    let index = source("docs/design/adr/README.md");
    let mut wrong = Vec::new();
    let names = names("docs/design/adr");
    for name in names.iter().filter(|name| *name != "README.md") {
        let text = source(&format!("docs/design/adr/{name}"));
        for heading in ["## Status", "## Decision", "## Alternatives"] {
            if !text.lines().any(|line| line == heading) {
                wrong.push(format!("{name} has no heading {heading:?}"));
            }
        }
        if !text.starts_with(&format!("# {}: ", &name[..4])) || !index.contains(&format!("]({name})")) {
            wrong.push(format!("{name} has no number in its title, or no row in README.md"));
        }
    }
    assert!(names.len() > 70, "only {} decisions found", names.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
