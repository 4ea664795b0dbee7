//! Connections to names: resolution, dialling, and transport in plaintext or with TLS.

pub(crate) mod blocking;
mod dial;
mod names;
pub(crate) mod stream;
pub(crate) mod transport;
