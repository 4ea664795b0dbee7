//! Path parameters shared by several operations.

use super::extract::Path;
use super::key_path::{invalid, segment};
use crate::error::ApiError;
use archon_client::KeyText;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::Deserialize;

/// Table of the operation.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct TablePath {
    /// The table's name.
    pub(crate) table: String,
}

/// Key of the operation.
#[derive(JsonSchema)]
pub(crate) struct KeyPath {
    /// The table's name.
    pub(crate) table: String,
    /// The key: 1 to 4096 bytes, percent-encoded.
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub(crate) key: KeyText,
}

fn keyed(pattern: &str, path: &str) -> Result<KeyPath, ApiError> {
    let table = String::from_utf8(segment("{table}", pattern, path)?);
    let table = table.map_err(|_| invalid("the path is wrong: the name of the table is not UTF-8".to_owned()))?;
    Ok(KeyPath { table, key: KeyText(segment("{key}", pattern, path)?.into()) })
}

impl<S: Send + Sync> FromRequestParts<S> for Path<KeyPath> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let pattern = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        keyed(pattern, parts.uri.path()).map(Self)
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
}
