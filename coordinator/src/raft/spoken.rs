//! The protocols that this coordinator speaks, and the one that the cluster speaks as far as it knows.

use super::codec;
use archon_coordinator_core::ClusterState;
use archon_types::{PROTOCOL_FIRST, ProtocolRange};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What is spoken here. Clones share what is known of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Spoken {
    range: ProtocolRange,
    /// By which messages to others are written: any newer one could not be read by everybody.
    cluster: Arc<AtomicU32>,
}

impl Default for Spoken {
    /// All that this version speaks.
    fn default() -> Self {
        Self::new(ProtocolRange::SPOKEN, PROTOCOL_FIRST)
    }
}

impl Spoken {
    /// `known`: what the cluster spoke when this coordinator ran last.
    pub(crate) fn new(range: ProtocolRange, known: u32) -> Self {
        Self { range, cluster: Arc::new(AtomicU32::new(known)) }
    }

    /// What this coordinator speaks.
    pub(crate) const fn range(&self) -> ProtocolRange {
        self.range
    }

    /// What the cluster speaks, as far as is known here.
    pub(crate) fn cluster(&self) -> u32 {
        self.cluster.load(Ordering::Relaxed)
    }

    /// Takes note of what the state says.
    ///
    /// # Errors
    /// `Unsupported`: this version does not speak it, and must not go on.
    pub(super) fn note(&self, state: &ClusterState) -> io::Result<()> {
        let protocol = self.check(state)?;
        self.cluster.fetch_max(protocol, Ordering::Relaxed);
        Ok(())
    }

    /// The protocol that a state says is spoken.
    ///
    /// # Errors
    /// As [`Spoken::note`].
    fn check(&self, state: &ClusterState) -> io::Result<u32> {
        let protocol = state.protocol.max(PROTOCOL_FIRST);
        if !self.range.contains(protocol) {
            let message = format!(
                "the cluster speaks protocol {protocol}, and this version {}: start the version that the others are of",
                self.range
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        Ok(protocol)
    }

    /// Takes a state out of what a snapshot holds.
    ///
    /// # Errors
    /// `InvalidData` if it is none, and as [`Spoken::note`].
    pub(super) fn decode(&self, body: &[u8]) -> io::Result<ClusterState> {
        let state: ClusterState = codec::decode("snapshot", body)?;
        self.check(&state)?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_a_newer_protocol_was_taken_in_without_what_is_new_in_it() {
        let spoken = Spoken::new(ProtocolRange::FIRST, 1);
        let body = |protocol| codec::encode("snapshot", &ClusterState { protocol, ..ClusterState::new() }).unwrap();
        for known in [0, 1] {
            assert_eq!(spoken.decode(&body(known)).unwrap().protocol, known);
        }
        let error = spoken.decode(&body(2)).unwrap_err();
        assert!(error.to_string().contains("speaks protocol 2, and this version 1"), "{error}");
        assert_eq!(spoken.cluster(), 1);
        let newer = Spoken::default();
        newer.note(&newer.decode(&body(2)).unwrap()).unwrap();
        assert_eq!(newer.clone().cluster(), 2);
    }
}
