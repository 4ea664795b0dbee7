//! Connections to names: resolution, dialling, and transport in plaintext or with TLS, and acceptance of HTTP.

pub(crate) mod blocking;
mod dial;
pub(crate) mod http;
pub(crate) mod local_name;
mod names;
pub(crate) mod stream;
pub(crate) mod transport;
