//! What participants have told.

use archon_types::{Epoch, PartitionId};
use std::time::Duration;

/// What a participant has told a [`FakeCoordinator`](super::FakeCoordinator).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reported {
    /// It asked to be registered, and was.
    Registered {
        /// Its name.
        participant: String,
    },
    /// It asked to be registered, and was refused.
    Refused {
        /// Its name.
        participant: String,
    },
    /// Its service has acquired a partition.
    Acquired {
        /// Its name.
        participant: String,
        /// The partition.
        partition: PartitionId,
        /// The epoch in which it owns it.
        epoch: Epoch,
    },
    /// Its service has released a partition; or the partition was taken away, which the service is told by `lost` at the same time.
    Released {
        /// Its name.
        participant: String,
        /// The partition.
        partition: PartitionId,
        /// The epoch in which it owned it.
        epoch: Epoch,
    },
    /// It has given up a partition by itself: it dropped it, or its service could not acquire it.
    Declined {
        /// Its name.
        participant: String,
        /// The partition.
        partition: PartitionId,
        /// The epoch in which it owned it.
        epoch: Epoch,
    },
    /// It is about to stop, and says so for the first time.
    Stopping {
        /// Its name.
        participant: String,
    },
    /// It has released everything, and has left.
    Left {
        /// Its name.
        participant: String,
    },
}

/// What was waited for was not reported in time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not reported within {} ms; this was: {reported:?}", .within.as_millis())]
pub struct NotReported {
    /// How long it was waited for.
    pub within: Duration,
    /// All that was reported.
    pub reported: Vec<Reported>,
}
