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

/// Programs in other languages have only this page and the files of the interface.
#[test]
fn page_of_grpc_names_existing_calls_and_fields() {
    let folder = "proto/proto/archon/v1";
    let protos: Vec<String> =
        ["common", "kv", "table"].iter().map(|name| source(&format!("{folder}/{name}.proto"))).collect();
    let protos = protos.join("\n");
    let page = source("docs/reference/grpc.md");
    let calls: Vec<(&str, &str)> =
        page.split("archon.v1.").skip(1).filter_map(|rest| rest.split_once('`')?.0.split_once('/')).collect();
    for (service, call) in &calls {
        let methods = part(&protos, &format!("service {service} {{"), "\n}\n");
        assert!(methods.contains(&format!("rpc {call}(")), "{service} has no call {call}");
    }
    let kv = part(&protos, "service Kv {", "\n}\n").matches("rpc ").count();
    assert_eq!(calls.len(), kv + 1, "all calls of `Kv`, and that of `Table`");
    for message in ["OpId", "GetTableRequest", "GetTableResponse", "ErrorDetail", "ScanRequest", "IncrementRequest"] {
        assert!(protos.contains(&format!("message {message} {{")), "{message}");
    }
    let fields = "client number done_below stamp_ms since wait_ms from coordinators delta cluster retry_after_ms leader \
                  log_time_ms hash_partitions after more range ttl_ms time_ms expected";
    for field in fields.split_whitespace() {
        assert!(page.contains(field) && protos.contains(&format!(" {field} = ")), "{field}");
    }
    // The classes of errors are those of the code.
    let code = source("proto/types/src/error.rs");
    let retryable = part(&code, "pub const fn is_retryable(self)", "=> true,");
    let numbers = retryable.split("Self::").skip(1).filter_map(|kind| {
        let name = kind.trim().trim_end_matches('|').trim();
        let declared = code.lines().find_map(|line| line.trim().strip_prefix(&format!("{name} = ")))?;
        declared.split_once(',')?.0.parse::<u32>().ok()
    });
    // `ReadOnly` passes as well, but a disk may stay full for long.
    let mut expected: Vec<u32> = numbers.filter(|number| *number != 22).collect();
    expected.sort_unstable();
    let row = page.lines().find(|line| line.starts_with("| retry |")).expect("a row of retryable kinds");
    let listed = row.split('|').nth(2).expect("numbers").split(',').filter_map(|number| number.trim().parse().ok());
    assert_eq!(listed.collect::<Vec<u32>>(), expected);
}
