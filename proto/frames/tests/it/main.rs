//! Streams, responses and bodies over real connections.

#![allow(missing_docs, clippy::unwrap_used)]

mod bodies;
mod responses;
mod sort;
mod stream;
