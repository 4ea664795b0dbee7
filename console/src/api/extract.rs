//! What is taken from a request: as axum takes it, with errors as this interface says them.

use super::{BODY_BYTES_MAX, BODY_TIMEOUT, Shared};
use crate::error::ApiError;
use archon_client::ErrorKind;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use bytes::Bytes;
use serde::de::DeserializeOwned;

/// The body, in JSON.
pub(crate) struct Body<T>(pub(crate) T);

/// What stands after the question mark.
pub(crate) struct Query<T>(pub(crate) T);

/// What stands in the path.
pub(crate) struct Path<T>(pub(crate) T);

/// The body, as it is.
pub(crate) struct Octets(pub(crate) Bytes);

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, ApiError> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let json = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
        // Also one that is refused is read: over HTTP/2 an answer that comes before it was sent is taken for a break.
        let Octets(body) = Octets::from_request(request, shared).await?;
        let refused = |why: String, status| Err(ApiError::new(ErrorKind::InvalidArgument, why).with_status(status));
        if !json {
            let why = "say what the body is: `content-type: application/json`";
            return refused(why.to_owned(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        match axum::Json::from_bytes(&body) {
            Ok(axum::Json(body)) => Ok(Self(body)),
            Err(rejected) => refused(rejected.body_text(), rejected.status()),
        }
    }
}

impl FromRequest<Shared> for Octets {
    type Rejection = ApiError;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, ApiError> {
        // Within the room that all bodies have together, and in time: they lie in the memory of a coordinator.
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let weight = length.map_or(BODY_BYTES_MAX, |length: usize| length.min(BODY_BYTES_MAX));
        let reading = async {
            let room = shared.bodies.acquire_many(u32::try_from(weight).unwrap_or(u32::MAX)).await;
            let taken = Bytes::from_request(request, shared).await;
            drop(room);
            taken
        };
        let late =
            |_| ApiError::new(ErrorKind::Overloaded, "the body did not come in time, or others leave no room for it");
        let taken = tokio::time::timeout(BODY_TIMEOUT, reading).await.map_err(late)?;
        taken.map(Self).map_err(|rejected| {
            ApiError::new(ErrorKind::InvalidArgument, rejected.body_text()).with_status(rejected.status())
        })
    }
}

macro_rules! of_parts {
    ($wrapper:ident, $of:ty) => {
        impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for $wrapper<T> {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
                let taken = <$of>::from_request_parts(parts, state).await;
                taken
                    .map(|taken| Self(taken.0))
                    .map_err(|rejected| ApiError::new(ErrorKind::InvalidArgument, rejected.body_text()))
            }
        }
    };
}

of_parts!(Query, axum::extract::Query<T>);
of_parts!(Path, axum::extract::Path<T>);
