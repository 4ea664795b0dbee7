//! Metrics and health, in the formats of other members.

use super::body::{Body, whole};
use crate::state::AgentState;
use archon_telemetry::{Format, render};
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};

/// Answers a scrape.
pub(super) fn metrics(shared: &AgentState, headers: &HeaderMap) -> Response<Body> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    match render(shared.families(), format) {
        Ok(text) => response(StatusCode::OK, format.content_type(), text),
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n".to_owned()),
    }
}

/// Answers a probe.
pub(super) fn health(verdict: Result<(), String>) -> Response<Body> {
    match verdict {
        Ok(()) => plain(StatusCode::OK, "ok\n".to_owned()),
        Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Body> {
    response(status, "text/plain; charset=utf-8", text)
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(whole(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
