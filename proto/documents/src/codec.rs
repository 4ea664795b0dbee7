//! Documents as JSON.

use crate::method::{Effect, MethodCall, invalid};
use archon_types::into_plain;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{ErrorDetail, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A document as it travels.
///
/// # Errors
/// `Internal`, if the document cannot be written as JSON, which is a defect.
pub fn write(document: &impl Serialize) -> Result<Vec<u8>, ErrorDetail> {
    let defect =
        |error| ErrorDetail::new(ErrorKind::Internal, format!("a document cannot be written as JSON: {error}"));
    serde_json::to_vec(document).map_err(defect)
}

/// Largest answer in bytes: whole tables, plans, lists of nodes.
pub const ANSWER_BYTES_MAX: usize = 8 * MESSAGE_BYTES_MAX;

/// A request as it came; an empty one stands for `{}`. [`Document::check`](crate::Document::check) is still to be called.
///
/// A request that changes something is refused if it has a field that this version does not know: a misspelled `dry_run`, or a condition
/// of a newer version, must not be ignored.
///
/// # Errors
/// `InvalidArgument`, if it is no document of this method, too long, or has unknown fields.
pub fn read_request<T: MethodCall>(bytes: &[u8]) -> Result<T, ErrorDetail> {
    let method = T::METHOD.name;
    if bytes.len() > T::BYTES_MAX {
        return Err(invalid(method, format!("has {} bytes, at most {} are allowed", bytes.len(), T::BYTES_MAX)));
    }
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    let unreadable = |error: serde_json::Error| invalid(method, format!("cannot be read: {error}"));
    let request: T = serde_json::from_slice(bytes).map_err(unreadable)?;
    if T::METHOD.effect == Effect::Writes && !T::IS_STRICT {
        let given: Value = serde_json::from_slice(bytes).map_err(unreadable)?;
        let known = serde_json::to_value(&request).map_err(unreadable)?;
        if let Some(field) = unknown_field(&given, &known) {
            return Err(invalid(method, format!("has an unknown field `{field}`; nothing is changed")));
        }
    }
    Ok(request)
}

/// Returns a field that the known form of a document lacks. Empty fields are left out of that form, and mean nothing.
fn unknown_field<'a>(given: &'a Value, known: &Value) -> Option<&'a str> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            given.iter().find_map(|(field, value)| match known.get(field) {
                Some(known) => unknown_field(value, known),
                None => (!is_empty(value)).then_some(field.as_str()),
            })
        }
        (Value::Array(given), Value::Array(known)) => {
            given.iter().zip(known).find_map(|(given, known)| unknown_field(given, known))
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
    }
}

/// Fields that hold keys of rows. They keep every character, since programs use them; a terminal shows them escaped already.
const ROW_KEYS: [&str; 3] = ["begin", "end", "at"];

/// An answer as it came. Its texts are made fit for a terminal here, once for all of them: control characters and the like are escaped.
///
/// # Errors
/// `Internal`, if it is no document of this type.
pub fn read_answer<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ErrorDetail> {
    let read = || {
        // Most answers hold nothing to escape.
        if bytes.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\') {
            return serde_json::from_slice(bytes);
        }
        let mut value: Value = serde_json::from_slice(bytes)?;
        escape(&mut value);
        serde_json::from_value(value)
    };
    read().map_err(|error| {
        let message = format!("a coordinator's answer cannot be read: {error}; do the versions fit?");
        ErrorDetail::new(ErrorKind::Internal, message)
    })
}

/// Escapes the odd characters of every text. Recursion is bounded: `serde_json` reads at most 128 levels.
fn escape(value: &mut Value) {
    match value {
        Value::String(text) => *text = into_plain(std::mem::take(text)),
        Value::Array(all) => all.iter_mut().for_each(escape),
        Value::Object(all) => {
            let texts = all.iter_mut().filter(|(field, _)| !ROW_KEYS.contains(&field.as_str()));
            texts.for_each(|(_, value)| escape(value));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads a request, checks it, and writes it again.
pub(crate) fn rewrite<T: MethodCall>(bytes: &[u8]) -> Result<Vec<u8>, ErrorDetail> {
    let request: T = read_request(bytes)?;
    request.check()?;
    write(&request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessChanged, Document, METHODS, RangeSummary, SetAccess, method_at};
    use archon_types::{KeyText, Right};

    #[test]
    fn answer_texts_are_escaped() {
        let answer = AccessChanged {
            weight_max: None,
            client: Some("sh\u{1b}[2Jop".to_owned()),
            table: None,
            changed: true,
            granted: Some(Right::Read.into()),
            may: None,
            access_version: 7,
            nodes_behind: vec!["athens\n".to_owned()],
            nodes_behind_count: 1,
        };
        let read: AccessChanged = read_answer(&write(&answer).unwrap()).unwrap();
        assert_eq!((read.client.as_deref(), read.nodes_behind[0].as_str()), (Some("sh\\u{1b}[2Jop"), "athens\\n"));
    }

    #[test]
    fn row_keys_keep_their_characters() {
        for end in [&b"b\x1b"[..], b"b\xff\x1b"] {
            let range = RangeSummary { begin: KeyText::new("a\n"), end: Some(KeyText::new(end)) };
            assert_eq!(read_answer::<RangeSummary>(&write(&range).unwrap()), Ok(range));
        }
    }

    #[test]
    fn absent_fields_default_and_unknown_fields_of_changes_are_refused() {
        let read = |document: &str| read_request::<SetAccess>(document.as_bytes());
        let grant = SetAccess::new(Right::Write, Some("shop"), None, false);
        assert_eq!(read(r#"{"client": "shop", "every_table": true, "may": "write"}"#), Ok(grant.clone()));
        assert_eq!(read(r#"{"client": "shop", "every_table": true, "may": "write", "revoke": false}"#), Ok(grant));
        let error = read(r#"{"client": "shop", "every_table": true, "may": "write", "revok": true}"#).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(error.message.contains("unknown field `revok`"), "{error}");
        let settings = br#"{"changes": [{"setting": "replication", "value": 3, "at_once": true}]}"#;
        let error = read_request::<crate::Configure>(settings).unwrap_err();
        assert!(error.message.contains("unknown field `at_once`"), "{error}");
        // A request that only reads is answered as far as this version knows it.
        assert!(read_request::<crate::ShowStatus>(br#"{"region": "north"}"#).is_ok());
    }

    #[test]
    fn long_requests_are_refused() {
        let long = format!("{{\"region\": \"{}\"}}", "x".repeat(crate::ShowStatus::BYTES_MAX));
        let error = read_request::<crate::ShowStatus>(long.as_bytes()).unwrap_err();
        assert!(error.message.contains("at most 65536"), "{error}");
    }

    #[test]
    fn unreadable_request_names_the_method_and_the_field() {
        let error = read_request::<SetAccess>(br#"{"client": "shop"}"#).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(error.message.starts_with("SetAccess: cannot be read: missing field `may`"), "{error}");
    }

    #[test]
    fn paths_find_their_methods() {
        for method in METHODS {
            assert_eq!(method_at(method.path).map(|found| found.name), Some(method.name));
            assert!((method.rewrite)(b"[").is_err(), "{}", method.name);
        }
        assert!(method_at("/archon.v1.Admin/setaccess").is_none());
    }
}
