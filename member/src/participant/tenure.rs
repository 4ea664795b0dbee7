//! State of one partition in one epoch at a participant.

use super::release_cause::ReleaseCause;
use archon_types::{Epoch, PlacementId, Version};

/// Stage of a partition:
///
/// ```text
/// Offered ──► Acquiring ──► Owned ──► Releasing ──► Gone
///    ▲            └───────────┴───────────┴──► lost: touched no more
///    └── if the row still names this participant in the same epoch, once a lease covers it again
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The row names this participant. Once a lease covers the partition, it is acquired, or given up at once if
    /// `then` is set.
    Offered {
        /// The reason to give it up.
        then: Option<ReleaseCause>,
    },
    /// The service prepares to own it, and releases it right after if `then` is set.
    Acquiring {
        /// The reason to release it.
        then: Option<ReleaseCause>,
    },
    /// The service owns it.
    Owned,
    /// The service still owns it, accepts no new work for it and finishes the current work.
    Releasing(ReleaseCause),
    /// It was given up for good in this epoch.
    Gone,
}

/// A partition that the duties assign to this participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tenure {
    pub(crate) placement: PlacementId,
    pub(crate) epoch: Epoch,
    /// The version of its row.
    pub(crate) version: Version,
    pub(crate) stage: Stage,
    /// Number of the acquisition within this participant.
    pub(crate) number: u64,
}

impl Tenure {
    pub(crate) const fn offered(placement: PlacementId, epoch: Epoch, version: Version) -> Self {
        Self { placement, epoch, version, stage: Stage::Offered { then: None }, number: 0 }
    }

    /// Returns whether the service was asked to acquire it and the acquisition has not ended.
    pub(crate) const fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Acquiring { .. } | Stage::Owned | Stage::Releasing(_))
    }

    /// Returns whether the service owns it; the lease is checked separately.
    pub(crate) const fn is_owned(&self) -> bool {
        matches!(self.stage, Stage::Owned | Stage::Releasing(_))
    }
}
