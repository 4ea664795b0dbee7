//! Errors of the HTTP interface.

use archon_client::{Error, ErrorDetail, ErrorKind, NamedError};
use axum::Json;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

/// Reason why a request fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    /// Stamp of the next attempt of a write under a name.
    stamp_ms: Option<u64>,
}

/// Response header of a read or a failed write, and request header of a write under a name: its stamp.
pub(crate) const STAMP_HEADER: &str = "archon-stamp-ms";

/// Failure of a request.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorAnswer {
    /// The error.
    error: ErrorBody,
}

/// An error.
#[derive(Serialize, JsonSchema)]
struct ErrorBody {
    /// Kind of error, as in the JSON output of `archon`.
    kind: &'static str,
    /// Description of the error, naming the input that caused it, and a remedy.
    message: String,
}

impl ApiError {
    /// Creates an error of this kind, with its default status.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { status: status(kind), kind: kind.as_str(), message: message.into(), stamp_ms: None }
    }

    /// Creates the refusal of a caller with too many requests; `or` is what may help instead.
    pub(crate) fn overloaded(detail: &ErrorDetail, or: &str) -> Self {
        Self::new(detail.kind, format!("{}; or {or}", detail.message))
    }

    /// Returns the message.
    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Adds the stamp of writes from now on.
    pub(crate) const fn with_stamp(mut self, stamp_ms: u64) -> Self {
        self.stamp_ms = Some(stamp_ms);
        self
    }

    /// Replaces the status.
    pub(crate) const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        // The kind has its own field.
        let message = match &error {
            Error::Server { detail } => detail.message.clone(),
            other => other.to_string(),
        };
        let failed = Self::new(error.kind(), message);
        // A write with unknown outcome must not look like a retryable refusal.
        if error.outcome_unknown() { failed.with_status(StatusCode::GATEWAY_TIMEOUT) } else { failed }
    }
}

impl From<NamedError> for ApiError {
    fn from(NamedError { error, stamp_ms }: NamedError) -> Self {
        Self { stamp_ms, ..error.into() }
    }
}

/// Returns the status of an error kind.
const fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        kind if kind.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody { kind: self.kind, message: self.message };
        let stamp = self.stamp_ms.map(|millis| [(HeaderName::from_static(STAMP_HEADER), millis.to_string())]);
        (self.status, stamp, Json(ErrorAnswer { error: body })).into_response()
    }
}
