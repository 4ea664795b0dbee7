//! State of one connection.

use crate::server::admit::Permit;
use archon_resp::Version;
use archon_security::Caller;
use archon_types::PartitionId;
use std::net::SocketAddr;
use std::time::Instant;

/// State of one connection.
pub(super) struct Session {
    pub(super) caller: Caller,
    pub(super) id: u64,
    /// Address of the client, and that of the node on this connection.
    pub(super) addresses: Option<(SocketAddr, SocketAddr)>,
    pub(super) opened: Instant,
    pub(super) version: Version,
    pub(super) name: String,
    pub(super) library: String,
    pub(super) library_version: String,
    /// Partition of the last write.
    pub(super) written: Option<PartitionId>,
    /// Share of admission of the last operation, held until its reply is sent.
    pub(super) permit: Option<Permit>,
    /// The connection is closed after the reply.
    pub(super) closes: bool,
}

impl Session {
    pub(super) const fn new(
        caller: Caller,
        id: u64,
        addresses: Option<(SocketAddr, SocketAddr)>,
        opened: Instant,
    ) -> Self {
        Self {
            caller,
            id,
            addresses,
            opened,
            version: Version::Resp2,
            name: String::new(),
            library: String::new(),
            library_version: String::new(),
            written: None,
            permit: None,
            closes: false,
        }
    }

    /// Resets what a client can change, as `RESET` does.
    pub(super) fn reset(&mut self) {
        self.version = Version::Resp2;
        self.name.clear();
    }
}
