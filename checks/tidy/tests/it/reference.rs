//! Compares the pages of errors and of HTTP interfaces with the code.

use archon_tidy::source;

/// Returns the text between two marks of a file.
fn part<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("{from:?} is missing")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("{to:?} is missing")).0
}

#[test]
fn page_of_errors_lists_every_kind() {
    let code = source("proto/types/src/error.rs");
    let declared = part(&code, "\nkinds! {\n", "\n}\n").lines().filter_map(|line| {
        let (name, rest) = line.trim().strip_suffix(',')?.split_once(" = ")?;
        let (number, word) = rest.split_once(", ")?;
        Some((name.to_owned(), number.to_owned(), word.trim_matches('"').to_owned()))
    });
    let retryable = part(&code, "pub const fn is_retryable(self)", "=> true,");
    let expected: Vec<_> = declared
        .map(|(name, number, word)| {
            let retry = retryable.split("Self::").any(|kind| kind.trim().trim_end_matches('|').trim() == name);
            (word, number, if retry { "yes" } else { "no" }.to_owned())
        })
        .collect();
    let page = source("docs/reference/errors.md");
    let rows: Vec<_> = part(&page, "\n## Kinds\n", "\n## gRPC\n")
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
            Some((
                cells.first()?.trim_end_matches('`').to_owned(),
                (*cells.get(1)?).to_owned(),
                (*cells.get(5)?).to_owned(),
            ))
        })
        .collect();
    assert!(expected.len() > 30, "only {} kinds found", expected.len());
    assert_eq!(rows, expected);
}

#[test]
fn page_of_http_lists_every_operation() {
    let code = source("coordinator/console/src/api/mod.rs");
    // Long calls have an argument per line.
    let calls = part(&code, "Operations::new()", "\n}\n").split_whitespace().collect::<Vec<_>>().join(" ");
    let calls = calls.replace("( \"", "(\"");
    let operations = calls.split(" .").filter_map(|call| {
        let (method, rest) = call.trim_start_matches('.').split_once("(\"")?;
        Some(format!("{} {}", method.to_uppercase(), rest.split_once('"')?.0))
    });
    let page = source("docs/reference/http.md");
    let rows = part(&page, "\n### Operations\n", "\n### Errors\n").lines();
    let listed: Vec<_> =
        rows.filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect();
    let others = ["GET /feed", "GET /owners/{table}/watch", "GET /openapi.json"].map(str::to_owned);
    let expected: Vec<_> = operations.chain(others).collect();
    assert!(expected.len() > 25, "only {} operations found", expected.len());
    assert_eq!(listed, expected);
}
