//! Directories of credentials, handshakes by them, and their renewal, with certificates as `archon cert` issues them and with such
//! as it never would.
#![allow(clippy::unwrap_used)]

mod credentials;
mod handshakes;
mod rotation;
mod support;
mod withdrawn;
