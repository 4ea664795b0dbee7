//! gRPC services and frame streams: they check, translate and queue; decisions are made elsewhere.

mod batches;
mod call;
pub(crate) mod carrier;
pub(crate) mod control;
mod exchange;
pub(crate) mod kv;
pub(crate) mod redis;
pub(crate) mod replication;
pub(crate) mod reply;
mod snapshot;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod timed_request;

use archon_proto::convert::error::status_of;
use archon_types::{ErrorDetail, ErrorKind};
use tonic::Status;

/// Converts a refusal to a status.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn refuse(detail: ErrorDetail) -> Status {
    status_of(&detail)
}

/// Returns the refusal of a full queue.
pub(crate) fn overloaded() -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Overloaded, "too many operations wait for this partition's shard; try again later")
        .with_retry_after_ms(20)
}
