//! Compares `docs/reference/agent.schema.json` with the types of the protocol.

use crate::protocol::{
    Answer, AnswerOutcomes, ErrorAnswer, Event, Heartbeat, Ownership, Permission, ProgramHeartbeat, ProgramPermission,
    Status, TableOwners, VERSION, Whereabouts,
};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Set to regenerate the file instead of comparing it.
const UPDATE: &str = "ARCHON_UPDATE_DOCS";

fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let documents = [
        ("GET /v1/events: each event", generator.subschema_for::<Event>()),
        ("POST /v1/heartbeat: request", generator.subschema_for::<Heartbeat>()),
        ("POST /v1/heartbeat: answer", generator.subschema_for::<Permission>()),
        ("POST /v1/answers: request", generator.subschema_for::<Answer>()),
        ("POST /v1/answers: request with a list", generator.subschema_for::<Vec<Answer>>()),
        ("POST /v1/answers: answer to a list", generator.subschema_for::<AnswerOutcomes>()),
        ("GET /v1/owned/{partition}: answer", generator.subschema_for::<Ownership>()),
        ("GET /v1/where/{key}: answer", generator.subschema_for::<Whereabouts>()),
        ("GET /v1/owners: answer, and each event of GET /v1/owners/watch", generator.subschema_for::<TableOwners>()),
        ("GET /v1/status: answer", generator.subschema_for::<Status>()),
        ("--exec: heartbeat", generator.subschema_for::<ProgramHeartbeat>()),
        ("--exec: reply to a heartbeat", generator.subschema_for::<ProgramPermission>()),
        ("error", generator.subschema_for::<ErrorAnswer>()),
    ];
    let documents: Map<String, Value> =
        documents.into_iter().map(|(name, schema)| (name.to_owned(), schema.to_value())).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Protocol of archon participant, version {VERSION}"),
        "documents": documents,
        "$defs": generator.take_definitions(true),
    })
}

#[test]
fn schema_of_the_protocol_equals_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/agent.schema.json");
    let wanted = format!("{:#}\n", schema());
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/reference/agent.schema.json does not match the types; if the change is intended, regenerate it: \
         {UPDATE}=1 cargo test -p archonkv-agent --lib schema, and raise VERSION if an existing service would \
         misunderstand it"
    );
}
