//! Type errors of TOML and JSON readers, in words for people instead of Rust's.

/// The library's names of types, and those for people.
const TYPES: [(&str, &str); 8] = [
    ("a sequence", "a list in [ ]"),
    ("a map", "an object of keys and values"),
    ("struct ", "an object of keys and values"),
    ("a boolean", "true or false"),
    ("bool", "true or false"),
    ("a string", "a text in quotes"),
    ("path string", "a text in quotes"),
    ("unit", "nothing"),
];

/// Returns a type error in other words, and any other problem unchanged.
pub(crate) fn in_words(problem: &str) -> String {
    if problem.starts_with("EOF while parsing") {
        return "it ends in the middle".to_owned();
    }
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    let Some((rest, of_length)) =
        kinds.iter().find_map(|kind| Some((problem.strip_prefix(kind)?, *kind == "invalid length ")))
    else {
        return problem.to_owned();
    };
    let Some((found, wanted)) = rest.split_once(", expected ") else { return problem.to_owned() };
    let (wanted, place) = match wanted.find(" at line ") {
        Some(at) => wanted.split_at(at),
        None => (wanted, ""),
    };
    let number = ["u8", "u16", "u32", "u64", "usize", "i64"].contains(&wanted);
    let wanted = match TYPES.iter().find(|(name, _)| wanted.starts_with(name)) {
        _ if number => "a whole number",
        Some((_, words)) => words,
        None => wanted,
    };
    let found = match found.strip_prefix("sequence").or_else(|| found.strip_prefix("map")) {
        _ if of_length => "a list",
        Some(_) if found.starts_with('s') => "a list",
        Some(_) => "an object of keys and values",
        None => found,
    };
    format!("expected {wanted}, found {found}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_errors_do_not_use_rust_names() {
        let cases = [
            ("invalid type: integer `5`, expected a string", "expected a text in quotes, found integer `5`"),
            (r#"invalid type: string "x", expected u64"#, r#"expected a whole number, found string "x""#),
            (
                "invalid type: integer `5`, expected a sequence at line 1 column 10",
                "expected a list in [ ], found integer `5` at line 1 column 10",
            ),
            (
                "invalid length 0, expected struct PlanFile with 5 elements at line 1 column 2",
                "expected an object of keys and values, found a list at line 1 column 2",
            ),
            ("EOF while parsing an object at line 2 column 0", "it ends in the middle"),
            ("key with no value, expected `=`", "key with no value, expected `=`"),
        ];
        for (problem, said) in cases {
            assert_eq!(in_words(problem), said);
        }
    }
}
