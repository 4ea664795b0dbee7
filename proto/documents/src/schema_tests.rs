//! Schemas of all requests and answers, in `docs/reference/admin.schema.json`.

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

/// Compares a file with its expected content, or writes it.
fn compare(path: &str, wanted: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == wanted,
        "{path} does not match the types; regenerate it: {UPDATE}=1 cargo test -p archonkv-documents schema"
    );
}

#[test]
fn schema_file_matches_the_types() {
    compare("../../docs/reference/admin.schema.json", &format!("{:#}\n", schema()));
}

#[test]
fn answers_tolerate_fields_of_newer_versions() {
    let schema = schema();
    let mut rest: Vec<&Value> = schema["methods"].as_object().unwrap().values().map(|row| &row["answer"]).collect();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                assert_ne!(fields.get("additionalProperties"), Some(&Value::Bool(false)), "{fields:?}");
                let named = fields.get("$ref").and_then(Value::as_str).and_then(|of| of.rsplit('/').next());
                rest.extend(named.filter(|named| seen.insert(*named)).map(|named| &schema["$defs"][named]));
                rest.extend(fields.values());
            }
            Value::Array(items) => rest.extend(items),
            _ => {}
        }
    }
    assert!(seen.contains("Move") && seen.contains("UnmetGoal"), "{seen:?}");
}

/// Line of `admin.proto` before the generated calls.
const GENERATED: &str = "  // Calls with documents, generated from archon-documents: \
                         ARCHON_UPDATE_DOCS=1 cargo test -p archonkv-documents schema\n";

#[test]
fn proto_schema_lists_every_method() {
    let mut generator = SchemaGenerator::default();
    let methods = schemas(&mut generator);
    let calls = methods.iter().map(|(method, [request, _])| {
        let reference = request.get("$ref").and_then(Value::as_str).unwrap_or_default();
        let name = reference.rsplit('/').next().unwrap_or_default();
        let text = generator.definitions()[name]["description"].as_str().expect("a documented request");
        format!("  // {}\n  rpc {}(AdminRequest) returns (AdminAnswer);\n", text.replace('\n', " "), method.name)
    });
    let path = "../proto/archon/v1/admin.proto";
    let now = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let (head, tail) = now.split_once(GENERATED).expect("the line before the generated calls");
    let (_, tail) = tail.split_once("}\n").expect("the end of the service");
    compare(path, &format!("{head}{GENERATED}{}}}\n{tail}", calls.collect::<String>()));
}
