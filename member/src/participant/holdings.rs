//! What a participant owns, to be looked at from any thread at the moment of use.

use super::tenure::{Stage, Tenure};
use crate::grants::Grants;
use crate::mutant::{Broken, Mutant};
use archon_types::{Epoch, Millis, PartitionId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was acquired once. What it is worth now is asked of [`Holdings::check`], each time before it is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Acquired {
    /// The partition.
    pub partition: PartitionId,
    /// In which epoch: whoever owns it later has a higher one.
    pub epoch: Epoch,
    /// Which acquisition of this participant it is. One that was lost does not come back with another one, not even in the
    /// same epoch.
    pub number: u64,
}

/// The partitions and the lease of a participant as of one moment. Cheap to clone, and published as a whole.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    pub(crate) grants: Grants,
    pub(crate) tenures: Arc<BTreeMap<PartitionId, Tenure>>,
    broken: Broken,
}

impl Holdings {
    pub(crate) fn new(broken: Broken) -> Self {
        Self { grants: Grants::new(broken), tenures: Arc::default(), broken }
    }

    /// Whether new work for this partition may be taken on at `now`: it is owned and not being released.
    pub fn have(&self, partition: PartitionId, now: Millis) -> Option<Acquired> {
        let tenure = self.tenures.get(&partition).filter(|tenure| tenure.stage == Stage::Owned)?;
        self.held(acquired(partition, tenure), now)
    }

    /// Whether what was acquired is still owned at `now`. While it is being released it is.
    pub fn check(&self, acquired: Acquired, now: Millis) -> bool {
        if self.broken.breaks(Mutant::CheckBeforeUse) {
            return true; // rule 28
        }
        let same = |tenure: &&Tenure| tenure.is_owned() && tenure.number == acquired.number;
        self.tenures.get(&acquired.partition).filter(same).is_some() && self.held(acquired, now).is_some()
    }

    /// All that new work may be taken on for at `now`.
    pub fn owned(&self, now: Millis) -> impl Iterator<Item = Acquired> + use<'_> {
        let owned = self.tenures.iter().filter(|(_, tenure)| tenure.stage == Stage::Owned);
        owned.filter_map(move |(partition, tenure)| self.held(acquired(*partition, tenure), now))
    }

    /// When the lease ends, if there is one.
    pub fn until(&self) -> Option<Millis> {
        self.grants.until()
    }

    /// Whether the lease holds at `now`, whatever it covers.
    pub fn is_valid(&self, now: Millis) -> bool {
        self.grants.is_valid(now)
    }

    fn held(&self, acquired: Acquired, now: Millis) -> Option<Acquired> {
        self.grants.covers(acquired.partition, acquired.epoch, now).then_some(acquired)
    }
}

pub(crate) fn acquired(partition: PartitionId, tenure: &Tenure) -> Acquired {
    Acquired { partition, epoch: tenure.epoch, number: tenure.number }
}
