//! Operations on rows as HTTP resources: the body is the value, the ETag its revision.

use super::asker::Asker;
use super::extract::{Body, KnownTag, Octets, Path, Query, RequestName, UnconditionalRequest};
use super::operation::HandlerResult;
use super::paths::{KeyPath, TablePath};
use super::scan_query::ScanQuery;
use crate::documents::{Entry, ValueText};
use crate::error::{ApiError, STAMP_HEADER};
use archon_client::bytes::Bytes;
use archon_client::{Answer, Client, Error, ErrorKind, Expiry, KeyText, Op, PutOptions, Revision, Right, WriteName};
use axum::Json;
use axum::http::header::{CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Default number of rows per page.
const LIMIT_DEFAULT: u32 = 100;
/// Header of a time to live, in milliseconds.
const TTL_HEADER: &str = "archon-ttl-ms";
/// Header of the Unix time at which a value expires, in milliseconds.
const EXPIRES_HEADER: &str = "archon-expires-ms";

/// Rows, in order of their keys.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Rows {
    /// The rows.
    rows: Vec<Entry>,
    /// True if there may be more rows after the last one.
    more: bool,
}

/// Result of a deletion.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeleteResult {
    /// True if the key existed.
    existed: bool,
}

/// Result of a write.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WriteResult {
    /// Revision of the new value.
    revision: u64,
}

pub(crate) async fn scan(
    asker: Asker,
    Path(named): Path<TablePath>,
    Query(asked): Query<ScanQuery>,
) -> Result<Json<Rows>, ApiError> {
    let client = asker.rows(Right::Read, "Scan", &named.table).await?;
    let mut scan = client.scan(&asked.prefix).limit(asked.limit.unwrap_or(LIMIT_DEFAULT));
    if let Some(from) = &asked.from {
        scan = scan.from(from);
    }
    if let Some(to) = &asked.to {
        scan = scan.to(to);
    }
    if let Some(after) = &asked.after {
        scan = scan.after(after);
    }
    if asked.reverse {
        scan = scan.reverse();
    }
    let page = scan.page().await?;
    let rows = page.entries.into_iter().map(|entry| Entry {
        key: KeyText(entry.key),
        value: ValueText::of(&entry.value),
        revision: entry.revision.get(),
        expires_at_ms: entry.expires_at_ms,
    });
    Ok(Json(Rows { rows: rows.collect(), more: page.more }))
}

pub(crate) async fn get(asker: Asker, Path(keyed): Path<KeyPath>, known: KnownTag) -> Result<ReadResult, ApiError> {
    let (found, stamp_ms) = asker.rows(Right::Read, "Get", &keyed.table).await?.get_with_stamp(&keyed.key).await?;
    let absent = || {
        let why = format!("{} is absent from table {}", keyed.key, keyed.table);
        ApiError::new(ErrorKind::NotFound, why).with_stamp(stamp_ms)
    };
    let found = found.ok_or_else(absent)?;
    let tag = etag(found.revision);
    let expires_at_ms = found.expires_at_ms;
    let value = (!known.is(&tag)).then_some(found.value);
    Ok(ReadResult { tag, expires_at_ms, stamp_ms, value })
}

/// A value that was read.
pub(crate) struct ReadResult {
    tag: String,
    expires_at_ms: Option<u64>,
    /// Stamp of writes from now on.
    stamp_ms: u64,
    /// `None` if the caller has it already.
    value: Option<Bytes>,
}

impl HandlerResult for ReadResult {
    fn describe(generator: &mut SchemaGenerator) -> serde_json::Value {
        Bytes::describe(generator)
    }
}

impl IntoResponse for ReadResult {
    fn into_response(self) -> Response {
        let expires = self.expires_at_ms.map(|millis| [(HeaderName::from_static(EXPIRES_HEADER), millis.to_string())]);
        let response = match self.value {
            // Readers choose how to interpret a value; its writer must not be able to run it in a browser.
            Some(value) => {
                ([(ETAG, self.tag), (CONTENT_TYPE, "application/octet-stream".to_owned())], value).into_response()
            }
            None => (StatusCode::NOT_MODIFIED, [(ETAG, self.tag)]).into_response(),
        };
        let stamp = [(HeaderName::from_static(STAMP_HEADER), self.stamp_ms.to_string())];
        (stamp, expires, response).into_response()
    }
}

pub(crate) async fn put(
    asker: Asker,
    Path(keyed): Path<KeyPath>,
    headers: HeaderMap,
    body: Octets,
) -> Result<([(HeaderName, String); 1], Json<WriteResult>), ApiError> {
    let expected = expected(&headers)?;
    let method = if expected.is_some() { "CompareAndSet" } else { "Put" };
    let (ttl, RequestName(name)) = (ttl(&headers)?, RequestName::of(&headers)?);
    let client = asker.rows(Right::Write, method, &keyed.table).await?;
    let value = body.read().await?;
    let written = match name {
        Some(name) => {
            let expiry = ttl.map(|ttl| Expiry::After(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)));
            let op = Op::write(keyed.key.0, value, expected, expiry);
            match write_named(&client, op, name).await? {
                Answer::Written { revision } => Ok(revision),
                Answer::ConditionFailed { revision } => Err(Error::ConditionFailed { found: revision }),
                other => return Err(unexpected(&other)),
            }
        }
        None => {
            let options = PutOptions::default();
            let options = expected.map_or(options, |expected| options.if_revision(expected));
            client.put_with(&keyed.key, value, ttl.map_or(options, |ttl| options.ttl(ttl))).await
        }
    };
    let revision = written.map_err(|error| {
        let failed = matches!(error, Error::ConditionFailed { .. });
        let error = ApiError::from(error);
        if failed { error.with_status(StatusCode::PRECONDITION_FAILED) } else { error }
    })?;
    Ok(([(ETAG, etag(revision))], Json(WriteResult { revision: revision.get() })))
}

pub(crate) async fn delete(
    asker: Asker,
    Path(keyed): Path<KeyPath>,
    _: UnconditionalRequest,
    RequestName(name): RequestName,
) -> Result<Json<DeleteResult>, ApiError> {
    let client = asker.rows(Right::Write, "Delete", &keyed.table).await?;
    let existed = match name {
        Some(name) => match write_named(&client, Op::Delete { key: keyed.key.0 }, name).await? {
            Answer::Deleted { existed } => existed,
            other => return Err(unexpected(&other)),
        },
        None => client.delete(&keyed.key).await?,
    };
    Ok(Json(DeleteResult { existed }))
}

/// An increment.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Increment {
    /// The addend; default: 1.
    by: Option<i64>,
}

/// Result of an increment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Sum {
    /// The sum.
    value: i64,
    /// Revision of the new value.
    revision: u64,
}

pub(crate) async fn increment(
    asker: Asker,
    Path(keyed): Path<KeyPath>,
    RequestName(name): RequestName,
    body: Body<Increment>,
) -> Result<([(HeaderName, String); 1], Json<Sum>), ApiError> {
    let client = asker.rows(Right::Write, "Increment", &keyed.table).await?;
    let by = body.read().await?.by.unwrap_or(1);
    let (value, revision) = match name {
        Some(name) => match write_named(&client, Op::Increment { key: keyed.key.0, by }, name).await? {
            Answer::Counter { value, revision } => (value, revision),
            Answer::NotANumber => return Err(Error::NotANumber.into()),
            other => return Err(unexpected(&other)),
        },
        None => {
            let counter = client.increment(&keyed.key, by).await?;
            (counter.value, counter.revision)
        }
    };
    Ok(([(ETAG, etag(revision))], Json(Sum { value, revision: revision.get() })))
}

/// Runs a write under the name that the caller gave it.
async fn write_named(client: &Client, op: Op, name: WriteName) -> Result<Answer, ApiError> {
    client.write_named(op, name).await.map_err(ApiError::from)
}

fn unexpected(answer: &Answer) -> ApiError {
    ApiError::new(ErrorKind::Internal, format!("a node answered a write with {answer:?}"))
}

fn etag(revision: Revision) -> String {
    format!("\"{revision}\"")
}

/// Returns the time to live of a value, if given: `Archon-TTL-Ms: 10000`.
fn ttl(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let Some(ttl) = headers.get(TTL_HEADER) else { return Ok(None) };
    let millis = ttl.to_str().ok().and_then(|ttl| ttl.parse().ok()).filter(|millis| *millis > 0);
    let wrong =
        || ApiError::new(ErrorKind::InvalidArgument, format!("{TTL_HEADER} must be a number of milliseconds from 1"));
    millis.map(Duration::from_millis).ok_or_else(wrong).map(Some)
}

/// Returns the expected revision, if given: `If-Match: "17"`, or `If-None-Match: *` for an absent key.
fn expected(headers: &HeaderMap) -> Result<Option<Revision>, ApiError> {
    let wrong =
        |name: HeaderName, may: &str| ApiError::new(ErrorKind::InvalidArgument, format!("{name} must be {may}"));
    match (headers.get(IF_MATCH), headers.get(IF_NONE_MATCH)) {
        (None, None) => Ok(None),
        (None, Some(any)) if any == "*" => Ok(Some(Revision::ZERO)),
        (None, Some(_)) => Err(wrong(IF_NONE_MATCH, "*: the key is absent")),
        (Some(_), Some(_)) => Err(wrong(IF_MATCH, "alone, without If-None-Match")),
        (Some(tag), None) => {
            let number = tag.to_str().ok().and_then(|tag| tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok());
            let number: u64 = number.ok_or_else(|| wrong(IF_MATCH, "one ETag of an earlier answer, such as \"17\""))?;
            Ok(Some(Revision::new(number)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_to_live_is_in_milliseconds() {
        let of = |text: &'static str| {
            ttl(&HeaderMap::from_iter([(HeaderName::from_static(TTL_HEADER), text.parse().unwrap())]))
        };
        assert_eq!(of("1500").ok().flatten(), Some(Duration::from_millis(1_500)));
        assert_eq!(ttl(&HeaderMap::new()).ok().flatten(), None);
        for wrong in ["0", "-1", "10s", "1.5", ""] {
            assert!(of(wrong).unwrap_err().message().starts_with(TTL_HEADER), "{wrong}");
        }
    }

    #[test]
    fn condition_is_a_revision_or_absence() {
        let said = |pairs: &[(HeaderName, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
            expected(&HeaderMap::from_iter(pairs)).map_err(|error| error.message().to_owned())
        };
        assert_eq!(said(&[]), Ok(None));
        assert_eq!(said(&[(IF_MATCH, "\"17\"")]), Ok(Some(Revision::new(17))));
        assert_eq!(said(&[(IF_NONE_MATCH, "*")]), Ok(Some(Revision::ZERO)));
        for wrong in ["17", "*", "W/\"17\"", "\"17\", \"18\"", "\"\"", "\"-1\"", "\"x\""] {
            assert!(said(&[(IF_MATCH, wrong)]).unwrap_err().starts_with("if-match"), "{wrong}");
        }
        assert!(
            said(&[(IF_NONE_MATCH, "\"17\"")]).is_err() && said(&[(IF_MATCH, "\"1\""), (IF_NONE_MATCH, "*")]).is_err()
        );
    }
}
