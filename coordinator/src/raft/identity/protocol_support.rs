//! Protocols that this coordinator supports, and the cluster's protocol as far as known.

use crate::raft::log::codec;
use archon_coordinator_core::ClusterState;
use archon_types::{PROTOCOL_FIRST, ProtocolRange};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Supported protocols. Clones share the knowledge of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct ProtocolSupport {
    range: ProtocolRange,
    /// Protocol of messages to others: some could not read a newer one.
    cluster: Arc<AtomicU32>,
}

impl Default for ProtocolSupport {
    /// Returns the whole range of this version.
    fn default() -> Self {
        Self::new(ProtocolRange::SPOKEN, PROTOCOL_FIRST)
    }
}

impl ProtocolSupport {
    /// Creates it; `known`: the cluster's protocol when this coordinator ran last.
    pub(crate) fn new(range: ProtocolRange, known: u32) -> Self {
        Self { range, cluster: Arc::new(AtomicU32::new(known)) }
    }

    /// Returns the range that this coordinator supports.
    pub(crate) const fn range(&self) -> ProtocolRange {
        self.range
    }

    /// Returns the cluster's protocol, as far as known here.
    pub(crate) fn cluster(&self) -> u32 {
        self.cluster.load(Ordering::Relaxed)
    }

    /// Notes the protocol of the state.
    ///
    /// # Errors
    /// `Unsupported`: this version does not support it, and must not continue.
    pub(in crate::raft) fn note(&self, state: &ClusterState) -> io::Result<()> {
        let protocol = self.check(state)?;
        self.cluster.fetch_max(protocol, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the protocol of a state.
    ///
    /// # Errors
    /// As [`ProtocolSupport::note`].
    fn check(&self, state: &ClusterState) -> io::Result<u32> {
        let protocol = state.protocol.max(PROTOCOL_FIRST);
        if !self.range.contains(protocol) {
            let message = format!(
                "the cluster uses protocol {protocol}, and this version supports {}: start the version of the other \
                 members",
                self.range
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        Ok(protocol)
    }

    /// Decodes a state from a snapshot.
    ///
    /// # Errors
    /// `InvalidData` if it is no state, and as [`ProtocolSupport::note`].
    pub(in crate::raft) fn decode(&self, body: &[u8]) -> io::Result<ClusterState> {
        let state: ClusterState = codec::decode("snapshot", body)?;
        self.check(&state)?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_newer_protocol_is_refused() {
        let spoken = ProtocolSupport::new(ProtocolRange::FIRST, 1);
        let body = |protocol| codec::encode("snapshot", &ClusterState { protocol, ..ClusterState::new() }).unwrap();
        for known in [0, 1] {
            assert_eq!(spoken.decode(&body(known)).unwrap().protocol, known);
        }
        let error = spoken.decode(&body(2)).unwrap_err();
        assert!(error.to_string().contains("uses protocol 2, and this version supports 1"), "{error}");
        assert_eq!(spoken.cluster(), 1);
        let newer = ProtocolSupport::default();
        newer.note(&newer.decode(&body(2)).unwrap()).unwrap();
        assert_eq!(newer.clone().cluster(), 2);
    }
}
