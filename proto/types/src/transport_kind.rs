//! How members talk to each other.

use crate::word::words;

words! {
    /// How members talk to each other, and others to them.
    pub enum TransportKind: "transport" {
        /// By TLS, with certificates on both sides.
        Tls = "tls",
        /// In plaintext, which does not leave this machine.
        Loopback = "loopback",
        /// In plaintext beyond this machine: whoever reaches a port may do anything.
        Insecure = "insecure",
    }
}
