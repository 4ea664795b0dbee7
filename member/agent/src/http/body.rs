//! Body of an answer.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use std::convert::Infallible;

/// Body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;
