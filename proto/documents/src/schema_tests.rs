//! Schemas of all requests and answers, in `docs/admin.schema.json`.

use crate::methods::schemas;
use crate::{Callers, Effect};
use schemars::SchemaGenerator;
use serde_json::{Value, json};
use std::path::Path;

/// Set to regenerate the file instead of comparing it.
const UPDATE: &str = "ARCHON_UPDATE_DOCS";

fn schema() -> Value {
    let mut generator = SchemaGenerator::default();
    let methods: serde_json::Map<String, Value> = schemas(&mut generator)
        .into_iter()
        .map(|(method, [request, answer])| {
            let row = json!({
                "path": method.path,
                "callers": match method.callers {
                    Callers::Readers => "readers",
                    Callers::Admins => "admins",
                },
                "changes": method.effect == Effect::Writes,
                "request": request,
                "answer": answer,
            });
            (method.name.to_owned(), row)
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Requests and answers of the administration",
        "methods": methods,
        "$defs": generator.definitions(),
    })
}

#[test]
fn schema_file_matches_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin.schema.json");
    let wanted = format!("{:#}\n", schema());
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/admin.schema.json does not match the types; regenerate it: {UPDATE}=1 cargo test -p archon-documents schema"
    );
}
