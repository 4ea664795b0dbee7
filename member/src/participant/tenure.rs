//! One partition that a participant is to own, in one epoch.

use super::why::Why;
use archon_types::{Epoch, PlacementId, Version};

/// How far it has come.
///
/// ```text
/// Offered ──► Acquiring ──► Owned ──► Releasing ──► Gone
///    ▲            └───────────┴───────────┴──► lost: touched no more
///    └── if the row still names this participant in the same epoch, once a lease covers it again
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The row names this participant. Nothing is done before a lease covers it: then it is acquired, or given up at once if
    /// `then` says so.
    Offered {
        /// Why it will be given up.
        then: Option<Why>,
    },
    /// The service makes ready to own it, and is to release it at once if `then` says so.
    Acquiring {
        /// Why it will be released.
        then: Option<Why>,
    },
    /// The service owns it.
    Owned,
    /// The service still owns it, takes no new work for it and brings what it has to an end.
    Releasing(Why),
    /// It was given up in this epoch, for good.
    Gone,
}

/// A partition that the duties name this participant the owner of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tenure {
    pub(crate) placement: PlacementId,
    pub(crate) epoch: Epoch,
    /// The version of its row.
    pub(crate) version: Version,
    pub(crate) stage: Stage,
    /// Which acquisition it is, of all of this participant.
    pub(crate) number: u64,
}

impl Tenure {
    pub(crate) const fn offered(placement: PlacementId, epoch: Epoch, version: Version) -> Self {
        Self { placement, epoch, version, stage: Stage::Offered { then: None }, number: 0 }
    }

    /// Whether the service has been asked to acquire it, and no ending was told.
    pub(crate) const fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Acquiring { .. } | Stage::Owned | Stage::Releasing(_))
    }

    /// Whether the service owns it, as far as this goes: the lease is looked at besides.
    pub(crate) const fn is_owned(&self) -> bool {
        matches!(self.stage, Stage::Owned | Stage::Releasing(_))
    }
}
