//! Credential directories, handshakes and renewal, with certificates as `archon cert` issues them and with invalid
//! ones.
#![allow(clippy::unwrap_used)]

mod credentials;
mod handshakes;
mod rotation;
mod support;
mod withdrawn;
