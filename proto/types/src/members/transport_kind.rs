//! Transports between members.

use crate::admin::word::words;

words! {
    /// Transport between members, and between them and clients.
    pub enum TransportKind: "transport" {
        /// By TLS, with certificates on both sides.
        Tls = "tls",
        /// In plaintext, which does not leave this machine.
        Loopback = "loopback",
        /// In plaintext beyond this machine: whoever reaches a port may do anything.
        Insecure = "insecure",
    }
}
