//! Documents as JSON.

use crate::method::{MethodCall, invalid};
use archon_types::text::into_plain;
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

/// A request as it came; an empty one stands for `{}`. [`Document::check`](crate::Document::check) is still to be called.
///
/// # Errors
/// `InvalidArgument`, if it is no document of this method.
pub fn read_request<T: MethodCall>(bytes: &[u8]) -> Result<T, ErrorDetail> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| invalid(T::METHOD.name, format!("cannot be read: {error}")))
}

/// Fields that hold keys of rows. They keep every character, since programs use them; a terminal shows them escaped already.
const ROW_KEYS: [&str; 3] = ["begin", "end", "at"];

/// An answer as it came. Its texts are made fit for a terminal here, once for all of them: control characters and the like are escaped.
///
/// # Errors
/// `Internal`, if it is no document of this type.
pub fn read_answer<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ErrorDetail> {
    let read = || {
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
    use crate::{AccessChanged, METHODS, RangeSummary, SetAccess, method_at};
    use archon_types::Right;

    #[test]
    fn answer_texts_are_escaped() {
        let answer = AccessChanged {
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
        let range = RangeSummary { begin: "a\n".to_owned(), end: Some("b\u{1b}".to_owned()) };
        assert_eq!(read_answer::<RangeSummary>(&write(&range).unwrap()), Ok(range));
    }

    #[test]
    fn unknown_fields_are_ignored_and_absent_ones_default() {
        let read: SetAccess =
            read_request(br#"{"client": "shop", "every_table": true, "may": "write", "for_a_day": true}"#).unwrap();
        assert_eq!(read, SetAccess::new(Right::Write, Some("shop"), None, false));
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
