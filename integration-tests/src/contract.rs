//! Validates output of `-o json` against `docs/reference/json.schema.json`. It supports the part of JSON schema that the file
//! uses, and is stricter in one point: a key that the schema does not name is an error.

use serde_json::Value;
use std::sync::LazyLock;

const SCHEMA: &str = include_str!("../../docs/reference/json.schema.json");

static PARSED: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(SCHEMA).expect("docs/reference/json.schema.json is JSON"));

/// Returns the verbs that have a document, and the other named documents: `error`, `plan file`.
pub fn names() -> impl Iterator<Item = &'static str> {
    PARSED["verbs"].as_object().into_iter().flatten().map(|(verb, _)| verb.as_str())
}

/// Returns the verb of a command line: `node list` for `node list --watch`. `None` if it has no document of its own.
pub fn verb_of(arguments: &[&str]) -> Option<&'static str> {
    let begins = |verb: &str| verb.split(' ').eq(arguments.iter().copied().take(verb.split(' ').count()));
    names().find(|verb| begins(verb))
}

/// Checks a document against the schemas of `name`.
///
/// # Errors
/// The place of the violation, and the reason.
pub fn check(name: &str, document: &Value) -> Result<(), String> {
    let schema = &PARSED["verbs"][name];
    if schema.is_null() {
        return Err(format!("docs/reference/json.schema.json has no document of {name:?}"));
    }
    against(schema, document)
        .map_err(|(at, why)| format!("{name} -o json, at `{at}`: {why}; see docs/reference/json.md"))
}

/// Place of a violation, and its reason.
type ContractViolation = (String, String);

fn wrong(why: impl Into<String>) -> ContractViolation {
    (String::new(), why.into())
}

fn within(part: &str) -> impl FnOnce(ContractViolation) -> ContractViolation + '_ {
    move |(at, why)| (format!("/{part}{at}"), why)
}

fn against(schema: &Value, found: &Value) -> Result<(), ContractViolation> {
    let keywords = schema.as_object().ok_or_else(|| wrong("the schema is no object"))?;
    for (keyword, wanted) in keywords {
        match keyword.as_str() {
            "$ref" => {
                let pointer = wanted.as_str().and_then(|text| text.strip_prefix('#')).unwrap_or_default();
                let definition = PARSED.pointer(pointer).ok_or_else(|| wrong(format!("no {wanted} in the schema")))?;
                against(definition, found)?;
            }
            "type" => check_type(wanted, found)?,
            "const" if wanted != found => return Err(wrong(format!("{found} is not {wanted}"))),
            "minimum" if found.is_number() && found.as_f64() < wanted.as_f64() => {
                return Err(wrong(format!("{found} is below {wanted}")));
            }
            "maximum" if found.is_number() && found.as_f64() > wanted.as_f64() => {
                return Err(wrong(format!("{found} is above {wanted}")));
            }
            "anyOf" | "oneOf" => one_of(wanted, found)?,
            "items" => {
                for (place, item) in found.as_array().into_iter().flatten().enumerate() {
                    against(wanted, item).map_err(within(&place.to_string()))?;
                }
            }
            "properties" => {
                for (key, value) in found.as_object().into_iter().flatten() {
                    let property =
                        wanted.get(key).ok_or_else(|| wrong(format!("the key {key:?} is not documented")))?;
                    against(property, value).map_err(within(key))?;
                }
            }
            "required" => {
                let keys = wanted.as_array().into_iter().flatten().filter_map(Value::as_str);
                if let Some(key) = keys.into_iter().find(|key| found.get(key).is_none()) {
                    return Err(wrong(format!("the key {key:?} is missing")));
                }
            }
            "const"
            | "minimum"
            | "maximum"
            | "description"
            | "title"
            | "format"
            | "default"
            | "additionalProperties" => {}
            other => return Err(wrong(format!("the schema says {other:?}, which is not known here"))),
        }
    }
    Ok(())
}

fn check_type(wanted: &Value, found: &Value) -> Result<(), ContractViolation> {
    let is = |kind: &str| match kind {
        "null" => found.is_null(),
        "boolean" => found.is_boolean(),
        "integer" => found.is_i64() || found.is_u64(),
        "number" => found.is_number(),
        "string" => found.is_string(),
        "array" => found.is_array(),
        "object" => found.is_object(),
        _ => false,
    };
    let holds = match wanted {
        Value::String(kind) => is(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(is),
        _ => false,
    };
    if holds { Ok(()) } else { Err(wrong(format!("{found} is no {wanted}"))) }
}

/// Checks against several schemas. Objects are selected by `kind`, so that the error names the violation.
fn one_of(schemas: &Value, found: &Value) -> Result<(), ContractViolation> {
    let mut last = wrong("nothing is allowed here");
    for schema in schemas.as_array().into_iter().flatten() {
        match against(schema, found) {
            Ok(()) => return Ok(()),
            Err(why) if found["kind"].is_string() && schema["properties"]["kind"]["const"] == found["kind"] => {
                return Err(why);
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_documents_are_rejected() {
        let cancelled = json!({"moves_cancelled": 1, "moves_too_late": 0});
        check("rebalance cancel", &cancelled).expect("as documented");
        for (key, value, part) in [
            ("moves_cancelled", json!("1"), "/moves_cancelled"),
            ("moves_cancelled", json!(-1), "is below"),
            ("cancelled", json!(1), "not documented"),
        ] {
            let mut other = cancelled.clone();
            other[key] = value;
            let error = check("rebalance cancel", &other).expect_err("not as documented");
            assert!(error.contains(part), "{error}");
        }
        let error = check("rebalance cancel", &json!({"moves_cancelled": 1})).expect_err("half of it");
        assert!(error.contains("\"moves_too_late\" is missing"), "{error}");
    }

    #[test]
    fn wrong_codes_and_incomplete_subjects_are_rejected() {
        let event = |code: &str, subject: Value| {
            json!([{"index": 1, "at_ms": 1, "code": code, "by": {"kind": "admin", "admin": null, "from": "::1"}, "subject": subject,
                    "severity": "warning", "facts": {"incarnation": 3, "stopped": false, "leaderships_ended": 1, "leaderships_handed_on": 1}, "message": "m"}])
        };
        let node = json!({"kind": "node", "node_id": 1, "node": "athens"});
        check("events", &event("node_failed", node.clone())).expect("as documented");
        let error = check("events", &event("NodeFailed", node)).expect_err("a word of people");
        assert!(error.contains("/0/code"), "{error}");
        let error = check("events", &event("node_failed", json!({"kind": "node", "node": "athens"})));
        assert!(error.expect_err("without its number").contains("\"node_id\" is missing"));
    }

    #[test]
    fn verb_of_a_command_line_is_found() {
        assert_eq!(verb_of(&["node", "list", "--watch"]), Some("node list"));
        assert_eq!(verb_of(&["status"]), Some("status"));
        assert_eq!(verb_of(&["bench", "put"]), None);
    }
}
