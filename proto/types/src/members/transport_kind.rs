//! Transports between members.

use crate::admin::open_enum::words;

words! {
    /// Transport between members, and between them and clients.
    pub enum TransportKind: "transport" {
        /// TLS with certificates on both sides.
        Tls = "tls",
        /// Plaintext on this machine only.
        Loopback = "loopback",
        /// Plaintext beyond this machine: every process that reaches a port has full access.
        Insecure = "insecure",
    }
}
