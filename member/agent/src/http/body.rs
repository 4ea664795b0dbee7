//! Body of an answer.

use archon_client::ErrorDetail;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

/// Body of an answer. Its error ends the connection of a caller that reads too slowly.
pub(super) type Body = UnsyncBoxBody<Bytes, ErrorDetail>;

/// Returns a body of known length.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
