//! Reports of participants.

use archon_types::{Epoch, PartitionId};
use std::time::Duration;

/// A report of a participant to a [`FakeCoordinator`](super::FakeCoordinator).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParticipantReport {
    /// It requested registration, and was registered.
    Registered {
        /// Name of the participant.
        participant: String,
    },
    /// It requested registration, and was rejected.
    Refused {
        /// Name of the participant.
        participant: String,
    },
    /// Its service has acquired a partition.
    Acquired {
        /// Name of the participant.
        participant: String,
        /// The partition.
        partition: PartitionId,
        /// Epoch in which it owns the partition.
        epoch: Epoch,
    },
    /// Its service has released a partition, or lost one that was withdrawn (the service gets the call of `lost` at
    /// the same time).
    Released {
        /// Name of the participant.
        participant: String,
        /// The partition.
        partition: PartitionId,
        /// Epoch in which it owned the partition.
        epoch: Epoch,
    },
    /// It has given up a partition on its own: it dropped the partition, or its service could not acquire it.
    Declined {
        /// Name of the participant.
        participant: String,
        /// The partition.
        partition: PartitionId,
        /// Epoch in which it owned the partition.
        epoch: Epoch,
    },
    /// It has announced for the first time that it is about to stop.
    Stopping {
        /// Name of the participant.
        participant: String,
    },
    /// It has released everything and has left.
    Left {
        /// Name of the participant.
        participant: String,
    },
}

/// The expected reports did not arrive in time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not reported within {} ms; this was: {reported:?}", .within.as_millis())]
pub struct ReportTimeout {
    /// Time waited.
    pub within: Duration,
    /// All reports.
    pub reported: Vec<ParticipantReport>,
}
