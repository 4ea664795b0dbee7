//! Query of a scan.

use super::extract::Query;
use super::key_path::{decode, invalid};
use crate::error::ApiError;
use archon_client::KeyText;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use schemars::JsonSchema;

/// Selection of rows; keys are percent-encoded bytes.
#[derive(Default, JsonSchema)]
pub(crate) struct ScanQuery {
    /// Only keys with this prefix.
    #[schemars(with = "String", default)]
    pub(super) prefix: KeyText,
    /// Only this key and greater ones.
    #[schemars(with = "Option<String>")]
    pub(super) from: Option<KeyText>,
    /// Only keys that are less than this one.
    #[schemars(with = "Option<String>")]
    pub(super) to: Option<KeyText>,
    /// Only keys after this one in the order of the scan: continues after the last key of the previous page.
    #[schemars(with = "Option<String>")]
    pub(super) after: Option<KeyText>,
    /// Descending order.
    #[schemars(default)]
    pub(super) reverse: bool,
    /// Maximum number of rows, 1 to 10,000; default: 100.
    pub(super) limit: Option<u32>,
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
            "prefix" => scan.prefix = KeyText(value.into()),
            "from" => scan.from = Some(KeyText(value.into())),
            "to" => scan.to = Some(KeyText(value.into())),
            "after" => scan.after = Some(KeyText(value.into())),
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

    #[test]
    fn query_of_a_scan_is_decoded_to_bytes() {
        let scan = scan_query("prefix=%ff%00&after=a+b%2B&reverse=true&limit=7&&to=").expect("a query");
        assert_eq!((&scan.prefix.0[..], scan.after.map(|key| key.0)), (&b"\xff\0"[..], Some("a b+".into())));
        assert_eq!((scan.from, scan.to, scan.reverse, scan.limit), (None, Some(KeyText::default()), true, Some(7)));
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
