//! Extractors of request parts: those of axum, with errors of this interface.
//!
//! A handler reads the body itself, after it has checked the caller's role: a caller without the role reserves no
//! room.

use crate::api::body_room::{BodyRoom, BodyShare, LARGE_BYTES_MAX, Room, SMALL_BYTES_MAX};
use crate::api::console_state::ConsoleState;
use crate::error::{ApiError, STAMP_HEADER};
use archon_client::{ErrorKind, WriteName};
use archon_security::Caller;
use axum::body::{Body as RawBody, to_bytes};
use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Time within which a body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Header with the name of a write.
const NAME_HEADER: &str = "archon-operation";

/// The unread body of a request, and its room once it is read, until the request is answered.
#[derive(Clone, Debug)]
pub(crate) struct UnreadBody(Arc<Mutex<BodyState>>);

#[derive(Debug)]
struct BodyState {
    unread: Option<RawBody>,
    share: Option<BodyShare>,
}

impl UnreadBody {
    /// Keeps a body for the handler.
    pub(crate) fn new(body: RawBody) -> Self {
        Self(Arc::new(Mutex::new(BodyState { unread: Some(body), share: None })))
    }

    async fn read(&self, room: &Room, from: IpAddr, length: Option<usize>) -> Result<Bytes, ApiError> {
        let unread = self.0.lock().unread.take();
        let reading = async {
            let share = room.take(from, length).await;
            self.0.lock().share = share;
            to_bytes(unread.unwrap_or_default(), room.bytes_max).await
        };
        let late = |_| {
            ApiError::new(
                ErrorKind::Overloaded,
                "the body did not arrive in time, or other requests use all \
                                                      memory for bodies",
            )
        };
        let read = tokio::time::timeout(BODY_TIMEOUT, reading).await.map_err(late)?;
        read.map_err(|error| {
            let why = format!("the body is larger than {} bytes, or cannot be read: {error}", room.bytes_max);
            ApiError::new(ErrorKind::InvalidArgument, why).with_status(StatusCode::PAYLOAD_TOO_LARGE)
        })
    }

    /// Reads the rest of the body, then releases its room: over HTTP/2 an early answer looks like a broken stream.
    pub(crate) async fn skip(self) {
        let unread = self.0.lock().unread.take();
        let Some(body) = unread else { return };
        let mut body = body.into_data_stream();
        let mut left = LARGE_BYTES_MAX;
        let skipping = async {
            while let Some(Ok(part)) = body.next().await
                && left > 0
            {
                left = left.saturating_sub(part.len());
            }
        };
        let _ = tokio::time::timeout(BODY_TIMEOUT, skipping).await;
    }
}

/// A body that the handler can read.
#[derive(Clone, Debug)]
struct ReadableBody {
    unread: Option<UnreadBody>,
    room: BodyRoom,
    from: IpAddr,
    length: Option<usize>,
    headers: HeaderMap,
}

impl ReadableBody {
    fn of(parts: &Parts, shared: &ConsoleState) -> Self {
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let (unread, headers) = (parts.extensions.get::<UnreadBody>().cloned(), parts.headers.clone());
        let from = parts.extensions.get::<Caller>().map_or(Caller::NOBODY.from, |caller| caller.from);
        Self { unread, room: shared.bodies.clone(), from, length, headers }
    }

    async fn read(&self, large: bool) -> Result<Bytes, ApiError> {
        // A short body does not wait for long ones.
        let short = self.length.is_some_and(|length| length <= SMALL_BYTES_MAX);
        let room = if large && !short { &self.room.large } else { &self.room.small };
        match &self.unread {
            Some(unread) => unread.read(room, self.from, self.length).await,
            None => Ok(Bytes::new()),
        }
    }
}

/// A JSON body.
pub(crate) struct Body<T>(ReadableBody, PhantomData<fn() -> T>);

/// The query of the URL.
pub(crate) struct Query<T>(pub(crate) T);

/// The parameters in the path.
pub(crate) struct Path<T>(pub(crate) T);

/// A raw body.
pub(crate) struct Octets(ReadableBody);

impl Octets {
    /// Reads the body. The role of the caller is checked before.
    ///
    /// # Errors
    /// The body is too long or does not arrive in time.
    pub(crate) async fn read(self) -> Result<Bytes, ApiError> {
        self.0.read(true).await
    }
}

/// The ETag of a value that the caller has.
pub(crate) struct KnownTag(pub(crate) Option<String>);

impl FromRequestParts<ConsoleState> for KnownTag {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ConsoleState) -> Result<Self, ApiError> {
        Ok(Self(parts.headers.get(IF_NONE_MATCH).and_then(|tag| tag.to_str().ok()).map(str::to_owned)))
    }
}

impl KnownTag {
    /// Returns whether the caller has the value with this tag; accepts lists and weak tags.
    pub(crate) fn is(&self, tag: &str) -> bool {
        let known = self.0.as_deref().unwrap_or_default();
        known.split(',').map(|one| one.trim().trim_start_matches("W/")).any(|one| one == "*" || one == tag)
    }
}

/// A request without conditions: ignoring one would violate the caller's intent.
pub(crate) struct UnconditionalRequest;

impl FromRequestParts<ConsoleState> for UnconditionalRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ConsoleState) -> Result<Self, ApiError> {
        if [IF_MATCH, IF_NONE_MATCH].iter().any(|name| parts.headers.contains_key(name)) {
            let why = "a deletion has no condition: omit If-Match and If-None-Match";
            return Err(ApiError::new(ErrorKind::InvalidArgument, why));
        }
        Ok(Self)
    }
}

/// The name of a write, if its caller gives one.
pub(crate) struct RequestName(pub(crate) Option<WriteName>);

impl RequestName {
    /// Reads the name from the headers: `Archon-Operation: CLIENT/NUMBER`, and `Archon-Stamp-Ms`.
    ///
    /// # Errors
    /// A header that is not of this form, or a stamp without a name.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let wrong = |why: String| ApiError::new(ErrorKind::InvalidArgument, why);
        let stamp = text(STAMP_HEADER).map(|stamp| {
            stamp.parse().map_err(|_| wrong(format!("{STAMP_HEADER} must be that of an answer before, or 0")))
        });
        match (text(NAME_HEADER), stamp.transpose()?) {
            (None, None) => Ok(Self(None)),
            (None, Some(_)) => Err(wrong(format!("{STAMP_HEADER} needs the {NAME_HEADER} of the write"))),
            (Some(name), stamp) => {
                let name: WriteName = name.parse().map_err(|error| wrong(format!("{NAME_HEADER}: {error}")))?;
                Ok(Self(Some(stamp.map_or(name, |stamp| name.stamped(stamp)))))
            }
        }
    }
}

impl FromRequestParts<ConsoleState> for RequestName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ConsoleState) -> Result<Self, ApiError> {
        Self::of(&parts.headers)
    }
}

impl<T: DeserializeOwned> Body<T> {
    /// Reads the body, at most 64 KiB. The role of the caller is checked before.
    ///
    /// # Errors
    /// The body is too long, does not arrive in time, or is not JSON of this type.
    pub(crate) async fn read(self) -> Result<T, ApiError> {
        self.read_as(false).await
    }

    /// Does the same for lists, at most 8 MiB.
    ///
    /// # Errors
    /// As [`Body::read`].
    pub(crate) async fn read_large(self) -> Result<T, ApiError> {
        self.read_as(true).await
    }

    async fn read_as(self, large: bool) -> Result<T, ApiError> {
        let kind = self.0.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let json = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
        let refused = |why: String, status| Err(ApiError::new(ErrorKind::InvalidArgument, why).with_status(status));
        if !json {
            let why = "set the header `content-type: application/json`";
            return refused(why.to_owned(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        let body = self.0.read(large).await?;
        // Serde would accept a JSON array as a struct, with its fields in order.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return refused("the body must be a JSON object, such as {}".to_owned(), StatusCode::BAD_REQUEST);
        }
        match serde_json::from_slice(&body) {
            Ok(body) => Ok(body),
            Err(error) if error.is_data() => {
                refused(format!("the body does not fit this operation: {error}"), StatusCode::UNPROCESSABLE_ENTITY)
            }
            Err(error) => refused(format!("the body is not valid JSON: {error}"), StatusCode::BAD_REQUEST),
        }
    }
}

impl<T> FromRequestParts<ConsoleState> for Body<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &ConsoleState) -> Result<Self, Infallible> {
        Ok(Self(ReadableBody::of(parts, shared), PhantomData))
    }
}

impl FromRequestParts<ConsoleState> for Octets {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &ConsoleState) -> Result<Self, Infallible> {
        Ok(Self(ReadableBody::of(parts, shared)))
    }
}

/// Returns whether a percent sign is not followed by two hexadecimal digits.
fn has_broken_escape(text: &str) -> bool {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    text.split('%').skip(1).any(|rest| !is_escape(rest))
}

macro_rules! of_parts {
    ($wrapper:ident, $of:ty, $what:literal, $prefix:literal, $text:expr) => {
        impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for $wrapper<T> {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
                let wrong = |why: String| ApiError::new(ErrorKind::InvalidArgument, why);
                if has_broken_escape(&$text(&*parts)) {
                    return Err(wrong(
                        concat!($what, " has a % without two hexadecimal digits; write % as %25").to_owned(),
                    ));
                }
                let taken = <$of>::from_request_parts(parts, state).await;
                taken.map(|taken| Self(taken.0)).map_err(|rejected| {
                    let text = rejected.body_text();
                    wrong(format!(concat!($what, " is wrong: {}"), text.strip_prefix($prefix).unwrap_or(&text)))
                })
            }
        }
    };
}

of_parts!(Query, axum::extract::Query<T>, "the query", "Failed to deserialize query string: ", |parts: &Parts| {
    parts.uri.query().unwrap_or_default().to_owned()
});
of_parts!(Path, axum::extract::Path<T>, "the path", "Invalid URL: ", |parts: &Parts| parts.uri.path().to_owned());

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    #[test]
    fn known_tag_matches_any_listed_tag() {
        let known = |tags: &str| KnownTag(Some(tags.to_owned())).is("\"7\"");
        assert!(known("\"7\"") && known("W/\"7\"") && known("\"6\", \"7\"") && known("*"));
        assert!(!known("\"77\"") && !known("7") && !KnownTag(None).is("\"7\""));
    }

    #[test]
    fn stamp_needs_a_name_and_names_have_a_form() {
        let named = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            RequestName::of(&HeaderMap::from_iter(pairs))
                .map(|named| named.0)
                .map_err(|error| error.message().to_owned())
        };
        let name = "6fa459ea-ee8a-4ca4-894e-db77e160355e/17";
        let parsed: WriteName = name.parse().unwrap();
        assert_eq!(named(&[]), Ok(None));
        assert_eq!(named(&[(NAME_HEADER, name)]), Ok(Some(parsed)));
        assert_eq!(named(&[(NAME_HEADER, name), (STAMP_HEADER, "0")]), Ok(Some(parsed.stamped(0))));
        assert!(named(&[(STAMP_HEADER, "0")]).unwrap_err().contains("needs the archon-operation"));
        assert!(named(&[(NAME_HEADER, "17")]).unwrap_err().contains("CLIENT/NUMBER"));
        assert!(named(&[(NAME_HEADER, name), (STAMP_HEADER, "now")]).unwrap_err().starts_with(STAMP_HEADER));
    }

    #[test]
    fn broken_escapes_are_detected() {
        for right in ["", "/a/b", "/a%2Fb%25", "%C3%BC"] {
            assert!(!has_broken_escape(right), "{right}");
        }
        for wrong in ["%", "/a%", "/%z1", "/%zz/b", "/%2", "/%%25"] {
            assert!(has_broken_escape(wrong), "{wrong}");
        }
    }
}
