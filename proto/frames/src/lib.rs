//! Streams for continuous traffic: frames over separate TCP connections, on the same port as gRPC (ADR 0021).
//! `Exchange` runs between clients and nodes, `Replicate` between nodes, and `Beats` between members and coordinators
//! (ADR 0046). [`GrpcServer`] is the gRPC server beside them.
//!
//! ```text
//! connection = handshake · frame*
//! handshake   = "ARCHON" · stream u8 · format u8
//! frame      = kind u8 · length u32, little-endian · payload
//! ```
//!
//! A frame is a message (protobuf, of the stream's type in that direction), the error that ends the stream, or a
//! keepalive without payload. The connecting side sends the handshake; no HTTP request begins with a capital `A` and
//! continues like it, so one byte distinguishes a stream from gRPC. Each side sends something at least every
//! [`Keepalive::EVERY`], and gives up a peer that was silent for [`Keepalive::TIMEOUT`]: this detects a paused process
//! or a cut cable. `Beats` has no keepalives, because heartbeats and their answers serve as such.

mod bodies;
mod ending;
mod error;
mod frame;
mod handshake;
mod keepalive;
mod partial;
mod reader;
mod responses;
mod server;
mod sort;
#[cfg(feature = "testing")]
pub mod testing;
mod writer;

pub use bodies::{BoundedRequests, PartialBodies};
pub use ending::{end_stream, first_message};
pub use error::FrameError;
pub use frame::{Frame, FrameKind, HEAD_BYTES, cut};
pub use handshake::{
    ConnectionProtocol, HANDSHAKE_BYTES, OPEN_TIMEOUT, StreamKind, accept, connect, connect_and_greet, turn_away,
};
pub use keepalive::Keepalive;
pub use partial::{PARTIAL_BYTES_MAX, PartialBudget, PartialMessage};
pub use reader::{FrameReader, STRANGER_BYTES_MAX};
pub use responses::{BoundedResponses, CountedResponses};
pub use server::{GrpcServer, GrpcSettings, ServerFuture};
pub use sort::{IncomingConnections, route, sort, turn_away_in_its_words};
pub use writer::{FrameWriter, Progress};
