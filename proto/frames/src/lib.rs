//! The streams of what is sent all the time, as frames over a TCP connection of their own, on the port where everything else is
//! gRPC (ADR 0021): `Exchange` between clients and nodes, `Replicate` between nodes, and `Beats` between members and
//! coordinators (ADR 0046). [`GrpcServer`] is the gRPC server beside them.
//!
//! ```text
//! connection = handshake · frame*
//! handshake   = "ARCHON" · stream u8 · format u8
//! frame      = kind u8 · length u32, little-endian · payload
//! ```
//!
//! A frame is a message (protobuf, of the type that the stream carries in that direction), the error that ends the stream, or
//! a sign of life without payload. Whoever connects greets; no request of HTTP begins with an `A` in capitals and goes on like
//! this, so one byte tells a stream from gRPC. Each side says something at least every [`Keepalive::EVERY`], and gives up a peer
//! that was silent for [`Keepalive::TIMEOUT`]: that is what a paused process or a cut cable looks like. On `Beats` nobody does,
//! for heartbeats and their answers say it.

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
mod writer;

pub use bodies::{Bounded, PartialBodies};
pub use ending::{end_stream, first_message};
pub use error::FrameError;
pub use frame::{Frame, FrameKind, HEAD_BYTES, cut};
pub use handshake::{
    HANDSHAKE_BYTES, OPEN_TIMEOUT, Opening, StreamKind, accept, connect, connect_and_greet, turn_away,
};
pub use keepalive::Keepalive;
pub use partial::{PARTIAL_BYTES_MAX, PartialBudget};
pub use reader::{FrameReader, STRANGER_BYTES_MAX};
pub use responses::{BoundedResponses, Counted};
pub use server::{GrpcServer, GrpcSettings, Serving};
pub use sort::{Incoming, route, sort, turn_away_in_its_words};
pub use writer::FrameWriter;
