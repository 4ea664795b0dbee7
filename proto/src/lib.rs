//! The wire: generated protobuf types, gRPC services and their conversion to and from `archon-types`.
//!
//! Wire types stop here and in the services that receive them: [`convert`] turns them into the vocabulary and checks
//! every field; the inner crates never see them.

pub mod authority;
pub mod convert;
pub mod documents;
#[cfg(test)]
mod generated_tests;
pub mod guarded_connection;
pub mod health;
pub mod listen;
#[cfg(test)]
mod rights_tests;
pub mod trace;

/// Generated from `proto/archon/v1/*.proto`, which document the types.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    include!("generated/archon.v1.rs");
}

/// Compiled descriptors, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
