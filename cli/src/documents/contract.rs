//! Generates `docs/reference/json.schema.json` and the generated part of `docs/reference/json.md` from the types, and
//! checks these files.

use super::Outcome;
use super::{
    BackupTaken, CertificateCheck, CertificateRequest, CertificateSummary, CounterValue, Diagnosis, Entry,
    ErrorDocument, Key, MemberCertificates,
};
use super::{ExportSummary, ImportSummary, Row};
use super::{Status, Version, WrittenKey};
use crate::admin::quorum::upgrade;
use crate::admin::rebalance::plan_file::PlanFile;
use crate::admin::{access, config, node, partition, quorum, rebalance, table};
use archon_backup::{BackupSummary, Manifest, RestoredTable};
use archon_client::{Check, ErrorKind, Event, OpenEnum};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Set for a test to regenerate the files instead of comparing them.
const UPDATE: &str = "ARCHON_UPDATE_DOCS";
/// Marker in `docs/reference/json.md` before the generated part.
const MARK: &str = "<!-- What follows is generated; CONTRIBUTING.md says how. -->\n";

/// Generator of a document's schema.
type Schema = fn(&mut SchemaGenerator) -> Value;

/// Commands with the schemas of their outputs. Each noun has its own list, beside its commands.
pub(crate) type Documents = &'static [(&'static str, Schema)];

/// Returns the schema of one document.
pub(crate) fn one<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().into()
}

/// Returns the schema of a list of documents.
pub(crate) fn list<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    json!({ "type": "array", "items": one::<T>(generator) })
}

/// Returns the commands with the schema of each output.
fn verbs(generator: &mut SchemaGenerator) -> Vec<(&'static str, Value)> {
    let others: Documents = &[
        ("status", one::<Status>),
        ("check", one::<Check>),
        ("doctor", one::<Diagnosis>),
        ("events", list::<Event>),
        ("backup create", one::<BackupTaken>),
        ("backup verify", one::<BackupSummary>),
        ("backup show", one::<Manifest>),
        ("backup restore", list::<RestoredTable>),
        ("kv put", one::<WrittenKey>),
        ("kv cas", one::<WrittenKey>),
        ("kv get", one::<Key>),
        ("kv del", one::<Key>),
        ("kv incr", one::<CounterValue>),
        ("kv scan", list::<Entry>),
        ("kv batch", list::<Outcome>),
        ("kv export", one::<ExportSummary>),
        ("kv import", one::<ImportSummary>),
        ("cert ca", one::<CertificateSummary>),
        ("cert coordinator", one::<CertificateSummary>),
        ("cert node", one::<CertificateSummary>),
        ("cert participant", one::<CertificateSummary>),
        ("cert client", one::<CertificateSummary>),
        ("cert operator", one::<CertificateSummary>),
        ("cert admin", one::<CertificateSummary>),
        ("cert request", one::<CertificateRequest>),
        ("cert sign", one::<CertificateSummary>),
        ("cert show", list::<CertificateSummary>),
        ("cert check", one::<CertificateCheck>),
        ("cert members", one::<MemberCertificates>),
        ("version", one::<Version>),
        // Printed by a command that fails before its own document.
        ("error", one::<ErrorDocument>),
        // Values of its `kind`, which is no `OpenEnum` because it may also be `failed`.
        ("error kind", one::<OpenEnum<ErrorKind>>),
        // Each line written by `kv export`.
        ("row", one::<Row>),
        // File written by `rebalance plan --out`.
        ("plan file", one::<PlanFile>),
    ];
    let nouns = [
        access::DOCUMENTS,
        config::DOCUMENTS,
        node::DOCUMENTS,
        partition::DOCUMENTS,
        quorum::DOCUMENTS,
        rebalance::DOCUMENTS,
        table::DOCUMENTS,
        upgrade::DOCUMENTS,
    ];
    let all = nouns.into_iter().flatten().chain(others);
    all.map(|(verb, schema)| (*verb, schema(generator))).collect()
}

/// Returns the schema of every document, and of its parts.
fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let verbs: Map<String, Value> =
        verbs(&mut generator).into_iter().map(|(verb, schema)| (verb.to_owned(), schema)).collect();
    let mut definitions = generator.take_definitions(true);
    definitions.values_mut().for_each(absent_instead_of_null);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Output of archon with -o json",
        "verbs": verbs,
        "$defs": definitions,
    })
}

/// Removes null from keys that may be absent: an absent key is left out, and never null.
fn absent_instead_of_null(definition: &mut Value) {
    let required = definition["required"].as_array().cloned().unwrap_or_default();
    let Some(properties) = definition.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (_, value) in properties.iter_mut().filter(|(key, _)| !required.contains(&json!(key))) {
        if let Some(types) = value.get_mut("type").and_then(Value::as_array_mut) {
            types.retain(|kind| kind != "null");
        }
        if let Some(any) = value.get_mut("anyOf").and_then(Value::as_array_mut) {
            any.retain(|kind| kind["type"] != "null");
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Formats a text as one line for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

/// Returns `InSync`, the form for people of `in_sync`.
fn shown(word: &str) -> String {
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    word.split('_').map(capital).collect()
}

/// Describes the type of a value.
fn kind(schema: &Value) -> String {
    if let Some(name) = text(schema, "$ref").strip_prefix("#/$defs/") {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    if let Some(types) = schema["type"].as_array() {
        return types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ");
    }
    match text(schema, "type") {
        "array" => format!("list of {}", kind(&schema["items"])),
        "" => panic!("a value of no kind: {schema}"),
        kind => kind.to_owned(),
    }
}

/// Writes the keys of an object.
fn keys(out: &mut String, schema: &Value) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    out.push_str("| key | value | |\n|---|---|---|\n");
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        let absent = if required.contains(&json!(key)) { "" } else { ", or absent" };
        let _ = writeln!(out, "| `{key}` | {}{absent} | {} |", kind(value), cell(text(value, "description")));
    }
}

/// Writes the other keys of a variant distinguished by `kind`.
fn variant(out: &mut String, schema: &Value) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let besides: Vec<String> =
        properties.filter(|(key, _)| *key != "kind").map(|(key, value)| format!("`{key}`: {}", kind(value))).collect();
    let kind = text(&schema["properties"]["kind"], "const");
    let _ = writeln!(out, "| `{kind}` | {} | {} |", besides.join(", "), cell(text(schema, "description")));
}

fn definition(out: &mut String, name: &str, schema: &Value) {
    let _ = write!(out, "\n### {name}\n\n");
    if !text(schema, "description").is_empty() {
        let _ = write!(out, "{}\n\n", cell(text(schema, "description")));
    }
    match schema["oneOf"].as_array() {
        None if schema["anyOf"].is_array() => {
            let _ = writeln!(out, "It is a {}.", kind(schema));
        }
        None => keys(out, schema),
        Some(words) if text(schema, "type") == "string" => {
            out.push_str("| code | shown as | |\n|---|---|---|\n");
            for word in words {
                let (word, meaning) = (text(word, "const"), cell(text(word, "description")));
                let _ = writeln!(out, "| `{word}` | {} | {meaning} |", shown(word));
            }
        }
        Some(variants) => {
            out.push_str("| `kind` | has | |\n|---|---|---|\n");
            variants.iter().for_each(|one| variant(out, one));
        }
    }
}

/// Returns the generated part of `docs/reference/json.md`.
fn page(schema: &Value) -> String {
    let mut out = String::from("\n## Documents\n\n| command | output |\n|---|---|\n");
    for (verb, document) in schema["verbs"].as_object().into_iter().flatten() {
        let _ = writeln!(out, "| {verb} | {} |", kind(document));
    }
    let (words, objects): (Vec<_>, Vec<_>) =
        schema["$defs"].as_object().into_iter().flatten().partition(|(_, schema)| text(schema, "type") == "string");
    for (heading, definitions) in [("Types", objects), ("Codes", words)] {
        let _ = write!(out, "\n## {heading}\n");
        definitions.into_iter().for_each(|(name, schema)| definition(&mut out, name, schema));
    }
    out
}

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(file)
}

/// Compares a file with its expected content, or writes it.
fn hold(file: &str, wanted: &str) {
    let path = docs(file);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(
        found == wanted,
        "docs/reference/{file} does not match the types ({differs:?}); if the change is intended, regenerate it: \
         {UPDATE}=1 cargo test -p archonkv-cli --lib contract, and list it in CHANGELOG.md"
    );
}

#[test]
fn schema_equals_the_types() {
    hold("json.schema.json", &format!("{:#}\n", schema()));
}

#[test]
fn page_equals_the_types() {
    let path = docs("json.md");
    let page_now = std::fs::read_to_string(path).unwrap();
    let (head, _) = page_now.split_once(MARK).expect("the mark in docs/reference/json.md");
    hold("json.md", &format!("{head}{MARK}{}", page(&schema())));
}

/// Checks the rules at the head of `docs/reference/json.md` that a program can verify.
#[test]
fn names_follow_the_rules() {
    let schema = schema();
    let mut wrong = Vec::new();
    let mut kinds: std::collections::BTreeMap<String, String> = Default::default();
    let snake = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        let variants = definition["oneOf"].as_array().cloned().unwrap_or_else(|| vec![definition.clone()]);
        for variant in variants {
            if variant["const"].is_string() && !snake(text(&variant, "const")) {
                wrong.push(format!("{name}: the word {} is not in snake_case", variant["const"]));
            }
            for (key, value) in variant["properties"].as_object().into_iter().flatten() {
                let kind = if value["const"].is_string() { "string".to_owned() } else { kind(value) };
                let kind = kind.trim_end_matches(" or null").to_owned();
                let (number, listed) = (kind == "integer", kind.starts_with("list"));
                if !snake(key) {
                    wrong.push(format!("{name}.{key} is not in snake_case"));
                }
                if key.ends_with("_ms") && !(key.ends_with("_for_ms") || key == "at_ms" || key.ends_with("_at_ms")) {
                    wrong.push(format!("{name}.{key} says neither instant nor duration"));
                }
                if key.ends_with("_id") && key != "cluster_id" && !number {
                    wrong.push(format!("{name}.{key} is no number"));
                }
                if listed && key.contains("_total") {
                    wrong.push(format!("{name}.{key} is a list"));
                }
                // A name has the same meaning everywhere, and so the same type.
                let held = kinds.entry(key.clone()).or_insert_with(|| kind.clone());
                if *held != kind && !["copies", "code", "kind", "state", "status", "moves"].contains(&key.as_str()) {
                    wrong.push(format!("{name}.{key} is {kind}, and {held} elsewhere"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
