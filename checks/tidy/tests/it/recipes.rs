//! Code in pages that is code of a file: `<!-- code: PATH -->`, or `PATH#ANCHOR`, before a block. Tests run the files, so
//! readers copy what was tested. `ARCHON_UPDATE_DOCS=1 cargo test -p archon-tidy recipes` fills the blocks in.

use archon_tidy::{files_below, root, source};
use std::collections::BTreeSet;
use std::fs;

const MARK: &str = "<!-- code: ";

/// Returns the code that a mark names: a whole file, or the lines between `ANCHOR: name` and `ANCHOR_END: name`.
fn code(named: &str) -> String {
    let (path, anchor) = named.split_once('#').map_or((named, None), |(path, anchor)| (path, Some(anchor)));
    let text = source(path);
    let Some(anchor) = anchor else { return text };
    let is_mark = |line: &str, mark: &str| line.trim_start_matches(['/', '#', ' ']) == format!("{mark}: {anchor}");
    let lines = text.lines().skip_while(|line| !is_mark(line, "ANCHOR")).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| !is_mark(line, "ANCHOR_END")).collect();
    assert!(!lines.is_empty(), "{path} has no lines between ANCHOR: {anchor} and ANCHOR_END: {anchor}");
    lines.join("\n") + "\n"
}

/// Returns a page with its marked blocks filled in, and what they name.
fn filled(page: &str) -> (String, Vec<String>) {
    let (mut filled, mut named) = (String::new(), Vec::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        filled += &format!("{line}\n");
        let Some(name) = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        let fence =
            lines.next().filter(|line| line.starts_with("```")).unwrap_or_else(|| panic!("no block after {line}"));
        lines.by_ref().find(|line| *line == "```").unwrap_or_else(|| panic!("the block after {line} has no end"));
        filled += &format!("{fence}\n{}```\n", code(name));
        named.push(name.to_owned());
    }
    (filled, named)
}

#[test]
fn code_in_pages_is_that_of_the_tested_files() {
    let mut shown = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in files_below(&root().join("docs"), &[".md"]) {
        let path = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let page = source(&path);
        if !page.contains(MARK) {
            continue;
        }
        let (filled, named) = filled(&page);
        shown.extend(named);
        if filled != page {
            if std::env::var_os("ARCHON_UPDATE_DOCS").is_some() {
                fs::write(root().join(&path), filled).unwrap();
            } else {
                wrong.push(path);
            }
        }
    }
    let remedy = "the files are tested; fill them in: ARCHON_UPDATE_DOCS=1 cargo test -p archon-tidy recipes";
    assert!(wrong.is_empty(), "{wrong:?} show other code than the files that they name; {remedy}");
    assert!(shown.len() > 10, "only {shown:?} found");
    for path in files_below(&root().join("examples/recipes"), &[".rs", ".py", ".sh"]) {
        let path = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let is_shown = shown.iter().any(|name| name.split('#').next() == Some(path.as_str()));
        assert!(is_shown, "no page shows {path}");
    }
}
