//! State of one connection.

use super::queue::TransactionState;
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
    /// Reads are answered by the replica of this node, by `READONLY`.
    pub(super) reads_replica: bool,
    /// Share of admission of the last operation, held until its reply is sent.
    pub(super) permit: Option<Permit>,
    /// Its transaction.
    pub(super) transaction: TransactionState,
    /// The connection is closed after the reply.
    pub(super) closes: bool,
    /// Replies that the client wants.
    pub(super) wanted: WantedReplies,
}

/// Replies that a client wants, by `CLIENT REPLY`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WantedReplies {
    All,
    /// None, until it asks for them again.
    None,
    /// All but the next ones.
    After(u8),
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
            reads_replica: false,
            permit: None,
            transaction: TransactionState::new(),
            closes: false,
            wanted: WantedReplies::All,
        }
    }

    /// Creates the state for a request that is in progress beside others of this connection, which it does not change.
    pub(super) fn for_request(&self) -> Self {
        let new = Self::new(self.caller.clone(), self.id, self.addresses, self.opened);
        Self { reads_replica: self.reads_replica, ..new }
    }

    /// Returns whether requests may be in progress beside others: those of an open transaction are queued in their order.
    pub(super) fn allows_overlap(&self) -> bool {
        self.wanted == WantedReplies::All && !self.transaction.is_open()
    }

    /// Returns whether the reply to the present request is sent.
    pub(super) fn replies(&mut self) -> bool {
        match &mut self.wanted {
            WantedReplies::All => true,
            WantedReplies::None => false,
            WantedReplies::After(left) => {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.wanted = WantedReplies::All;
                }
                false
            }
        }
    }

    /// Resets what a client can change, as `RESET` does.
    pub(super) fn reset(&mut self) {
        self.version = Version::Resp2;
        self.name.clear();
        self.wanted = WantedReplies::All;
        self.reads_replica = false;
        self.transaction = TransactionState::new();
    }
}
