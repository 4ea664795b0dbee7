//! Compares the figures of the page of limits with the constants in the code.

use archon_tidy::source;

/// Rows of the page: text of the limit, value, file and name of the constant.
fn rows(page: &str) -> Vec<(&str, &str, &str, &str)> {
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<(&str, &str, &str, &str)> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let (limit, value, place) = (cells.next()?, cells.next()?, cells.next()?);
    let (file, name) = place.strip_prefix('`')?.strip_suffix('`')?.split_once("::")?;
    Some((limit, value, file, name))
}

/// Reads a value as people write it: `4 KiB`, `1,048,576`, `10 min`.
fn value_of(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit {
        "" | "bytes" | "ms" => 1,
        "KiB" => 1024,
        "MiB" => 1024 * 1024,
        "GiB" => 1024 * 1024 * 1024,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(number.replace(',', "").parse::<u64>().ok()? * factor)
}

/// Evaluates a product of numbers and of constants of the same file.
fn product(text: &str, expression: &str) -> Option<u64> {
    let factor = |factor: &str| {
        let factor = factor.split(" as ").next().unwrap_or_default().trim();
        factor.replace('_', "").parse().ok().or_else(|| constant(text, factor))
    };
    expression.split('*').map(factor).product()
}

/// Finds a constant, or a field of a constant struct, in the text of a file.
fn constant(text: &str, name: &str) -> Option<u64> {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    let declared = text.lines().find_map(|line| {
        let (_, after) = line.split_once(&format!("const {name}: "))?;
        after.split_once(" = ")?.1.strip_suffix(';')
    });
    let field = || text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}: "))?.strip_suffix(','));
    let number = |expression: &str| product(text, expression);
    declared.and_then(number).or_else(|| field().and_then(number))
}

#[test]
fn page_of_limits_agrees_with_the_code() {
    let page = source("docs/reference/limits.md");
    let rows = rows(&page);
    assert!(rows.len() > 30, "only {} limits found", rows.len());
    let wrong: Vec<String> = rows
        .into_iter()
        .filter_map(|(limit, value, file, name)| {
            let (written, defined) = (value_of(value), constant(&source(file), name));
            (written.is_none() || written != defined)
                .then(|| format!("{limit}: the page says {value} ({written:?}), {file} defines {name} as {defined:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn constants_are_read_from_source() {
    let text = "const MIB: u64 = 1024 * 1024;\npub const A_MAX: usize = 4 * MIB;\n    pub const S: u32 = SLOTS as u32;\npub const SLOTS: u16 = 16_384;\n        clients_max: 4_096,\n";
    let read = |name: &str| constant(text, name);
    assert_eq!((read("A_MAX"), read("S"), read("clients_max")), (Some(4_194_304), Some(16_384), Some(4_096)));
    assert_eq!((read("B_MAX"), value_of("2,000 ms"), value_of("3 apples")), (None, Some(2_000), None));
}
