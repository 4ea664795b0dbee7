//! The wire: generated protobuf types and gRPC services.

/// Generated from `proto/archon/v1/*.proto`; the comments there are the documentation.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    tonic::include_proto!("archon.v1");
}
