//! Keys in URLs: percent-encoded bytes, which need not be UTF-8.

use super::extract::{Path, Query};
use super::paths::Keyed;
use super::rows::ScanQuery;
use crate::error::ApiError;
use archon_client::ErrorKind;
use archon_client::bytes::Bytes;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::borrow::Cow;
use std::fmt;

/// Key in a URL.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct UrlKey(pub(crate) Bytes);

impl AsRef<[u8]> for UrlKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Writes the key in quotes, safe for a terminal, and shortened.
impl fmt::Display for UrlKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&archon_types::shown_key(&self.0))
    }
}

impl JsonSchema for UrlKey {
    fn schema_name() -> Cow<'static, str> {
        "UrlKey".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// Decodes percent-encoded text; `plus_is_space` as in the query of a form.
fn decode(what: &str, text: &str, plus_is_space: bool) -> Result<Vec<u8>, ApiError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => {
                let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
                let byte = digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                let broken = || invalid(format!("{what} has a % without two hexadecimal digits; write % as %25"));
                decoded.push(byte.ok_or_else(broken)?);
                rest = &rest[2..];
            }
            b'+' if plus_is_space => decoded.push(b' '),
            other => decoded.push(*other),
        }
    }
    Ok(decoded)
}

fn invalid(why: String) -> ApiError {
    ApiError::new(ErrorKind::InvalidArgument, why)
}

/// Decodes the segment of a path that the pattern names `name`.
fn segment(name: &str, pattern: &str, path: &str) -> Result<Vec<u8>, ApiError> {
    let found = pattern.split('/').zip(path.split('/')).find(|(part, _)| *part == name);
    let (_, text) = found.ok_or_else(|| invalid(format!("the path has no {name}")))?;
    decode("the path", text, false)
}

fn keyed(pattern: &str, path: &str) -> Result<Keyed, ApiError> {
    let table = String::from_utf8(segment("{table}", pattern, path)?);
    let table = table.map_err(|_| invalid("the path is wrong: the name of the table is not UTF-8".to_owned()))?;
    Ok(Keyed { table, key: UrlKey(segment("{key}", pattern, path)?.into()) })
}

impl<S: Send + Sync> FromRequestParts<S> for Path<Keyed> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let pattern = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        keyed(pattern, parts.uri.path()).map(Self)
    }
}

fn scan_query(query: &str) -> Result<ScanQuery, ApiError> {
    let mut scan = ScanQuery::default();
    let mut seen: Vec<&str> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode("the query", value, true)?;
        if seen.contains(&name) {
            return Err(invalid(format!("the query is wrong: it has {name:?} twice")));
        }
        seen.push(name);
        let text = String::from_utf8_lossy(&value).into_owned();
        let wrong = |expected: &str| invalid(format!("the query is wrong: {name} is {text:?}, not {expected}"));
        match name {
            "prefix" => scan.prefix = UrlKey(value.into()),
            "from" => scan.from = Some(UrlKey(value.into())),
            "to" => scan.to = Some(UrlKey(value.into())),
            "after" => scan.after = Some(UrlKey(value.into())),
            "reverse" => scan.reverse = text.parse().map_err(|_| wrong("true or false"))?,
            "limit" => scan.limit = Some(text.parse().map_err(|_| wrong("a number"))?),
            other => {
                let may = "prefix, from, to, after, reverse and limit";
                return Err(invalid(format!("the query is wrong: it has {other:?}; it may have {may}")));
            }
        }
    }
    Ok(scan)
}

impl<S: Send + Sync> FromRequestParts<S> for Query<ScanQuery> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        scan_query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: &str = "/api/v1/rows/{table}/{key}/increment";

    #[test]
    fn path_of_a_key_is_decoded_to_bytes() {
        let read = |path: &str| keyed(PATTERN, path).map(|keyed| (keyed.table, keyed.key.0));
        let (table, key) = read("/api/v1/rows/d%2De/%ff%00%2Fa+b%C3%BC/increment").expect("a key");
        assert_eq!((&*table, &key[..]), ("d-e", &b"\xff\0/a+b\xc3\xbc"[..]));
        for wrong in ["%", "%f", "%zz", "a%2", "%+1"] {
            let error = read(&format!("/api/v1/rows/t/{wrong}/increment")).expect_err(wrong);
            assert!(error.message().contains("write % as %25"), "{wrong}: {}", error.message());
        }
        assert!(read("/api/v1/rows/%ff/k/increment").unwrap_err().message().contains("the name of the table"));
        assert!(read("/api/v1/rows/t").is_err());
    }

    #[test]
    fn query_of_a_scan_is_decoded_to_bytes() {
        let scan = scan_query("prefix=%ff%00&after=a+b%2B&reverse=true&limit=7&&to=").expect("a query");
        assert_eq!((&scan.prefix.0[..], scan.after.map(|key| key.0)), (&b"\xff\0"[..], Some("a b+".into())));
        assert_eq!((scan.from, scan.to, scan.reverse, scan.limit), (None, Some(UrlKey::default()), true, Some(7)));
        for (wrong, part) in [
            ("prefix=%f", "write % as %25"),
            ("limit=x", "limit is \"x\""),
            ("reverse=1", "true or false"),
            ("prefx=a", "\"prefx\""),
            ("to=a&to=b", "twice"),
        ] {
            let error = scan_query(wrong).map(|_| ()).expect_err(wrong);
            assert!(error.message().contains(part), "{wrong}: {}", error.message());
        }
    }
}
