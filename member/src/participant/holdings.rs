//! Partitions that a participant owns, readable from any thread at the moment of use.

use super::tenure::{Stage, Tenure};
use crate::grants::Grants;
use crate::mutant::{DisabledRule, Mutant};
use archon_types::{Epoch, Millis, PartitionId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An acquisition. [`Holdings::check`] returns whether it is still owned, and must be called before each use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Acquisition {
    /// The partition.
    pub partition: PartitionId,
    /// Its epoch; later owners have a higher one.
    pub epoch: Epoch,
    /// Number of the acquisition within this participant. A lost acquisition is not restored by another one, even in
    /// the same epoch.
    pub number: u64,
}

/// The partitions and the lease of a participant at one moment. Cheap to clone, and published as a whole.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    pub(crate) grants: Grants,
    pub(crate) tenures: Arc<BTreeMap<PartitionId, Tenure>>,
    broken: DisabledRule,
}

impl Holdings {
    pub(crate) fn new(broken: DisabledRule) -> Self {
        Self { grants: Grants::new(broken), tenures: Arc::default(), broken }
    }

    /// Returns the acquisition if the partition accepts new work at `now`: it is owned and not being released.
    pub fn have(&self, partition: PartitionId, now: Millis) -> Option<Acquisition> {
        let tenure = self.tenures.get(&partition).filter(|tenure| tenure.stage == Stage::Owned)?;
        self.held(acquired(partition, tenure), now)
    }

    /// Returns whether the acquisition is still owned at `now`, including while it is being released.
    pub fn check(&self, acquired: Acquisition, now: Millis) -> bool {
        if self.broken.breaks(Mutant::CheckBeforeUse) {
            return true; // rule 28
        }
        let same = |tenure: &&Tenure| tenure.is_owned() && tenure.number == acquired.number;
        self.tenures.get(&acquired.partition).filter(same).is_some() && self.held(acquired, now).is_some()
    }

    /// Returns all acquisitions that accept new work at `now`.
    pub fn owned(&self, now: Millis) -> impl Iterator<Item = Acquisition> + use<'_> {
        let owned = self.tenures.iter().filter(|(_, tenure)| tenure.stage == Stage::Owned);
        owned.filter_map(move |(partition, tenure)| self.held(acquired(*partition, tenure), now))
    }

    /// Returns the end of the lease, if any.
    pub fn until(&self) -> Option<Millis> {
        self.grants.until()
    }

    /// Returns whether there is a lease at `now`, regardless of the partitions it covers.
    pub fn is_valid(&self, now: Millis) -> bool {
        self.grants.is_valid(now)
    }

    fn held(&self, acquired: Acquisition, now: Millis) -> Option<Acquisition> {
        self.grants.covers(acquired.partition, acquired.epoch, now).then_some(acquired)
    }
}

pub(crate) fn acquired(partition: PartitionId, tenure: &Tenure) -> Acquisition {
    Acquisition { partition, epoch: tenure.epoch, number: tenure.number }
}
