//! What is taken from a request: as axum takes it, with errors as this interface says them.

use crate::error::ApiError;
use archon_client::ErrorKind;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// The body, in JSON.
pub(crate) struct Body<T>(pub(crate) T);

/// What stands after the question mark.
pub(crate) struct Query<T>(pub(crate) T);

/// What stands in the path.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let taken = axum::Json::from_request(request, state).await;
        taken.map(|axum::Json(body)| Self(body)).map_err(|rejected| {
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
