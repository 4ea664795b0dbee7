//! E: epochs only rise, and each has at most one serving replica.

use super::Violation;
use archon_types::{Epoch, PlacementId};
use std::collections::BTreeMap;

/// Epochs observed so far.
#[derive(Clone, Default, Debug)]
pub struct Epochs {
    persisted: BTreeMap<PlacementId, Epoch>,
    served: BTreeMap<Epoch, PlacementId>,
}

impl Epochs {
    /// Notes the epoch that a replica acts under, or that its disk holds after a restart.
    ///
    /// # Errors
    /// [`Violation::EpochFell`].
    pub fn persisted(&mut self, placement: PlacementId, now: Epoch) -> Result<(), Violation> {
        let before = self.persisted.insert(placement, now).unwrap_or_default();
        if now < before {
            return Err(Violation::EpochFell { placement, before, now });
        }
        Ok(())
    }

    /// Notes that a fault destroyed what a replica had persisted.
    pub fn destroyed(&mut self, placement: PlacementId) {
        self.persisted.remove(&placement);
    }

    /// Notes that a replica serves.
    ///
    /// # Errors
    /// [`Violation::TwoLeaders`].
    pub fn serves(&mut self, placement: PlacementId, epoch: Epoch) -> Result<(), Violation> {
        let other = *self.served.entry(epoch).or_insert(placement);
        if other != placement {
            return Err(Violation::TwoLeaders { placement, other, epoch });
        }
        Ok(())
    }
}
