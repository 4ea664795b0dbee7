//! Quorums in this process, on free ports and in temporary directories; and nodes that exist only on the wire.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

mod beats;
mod calls;
mod node;
mod pushes;
mod quorum;

pub use beats::{beat_once, beat_stream, beats};
pub use calls::{ask, ask_as, ask_of, ask_within, channel, hashed, kind, request_id, status, table};
pub use node::FakeNode;
pub use pushes::Trouble;
pub use quorum::Quorum;
