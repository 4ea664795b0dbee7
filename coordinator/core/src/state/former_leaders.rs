//! Leaders deposed without acknowledgement: that incarnation of the node may still believe that it leads.

use archon_types::{Epoch, Incarnation, NodeId, PartitionId, PlacementId};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// The former holder of a leadership.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct FormerLeader {
    /// The partition it led.
    pub partition: PartitionId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its copy.
    pub placement: PlacementId,
    /// Its node.
    pub node: NodeId,
    /// The incarnation of the node that held the leadership.
    pub incarnation: Incarnation,
    /// The failure time-out of that incarnation, in milliseconds: participants have their own.
    pub failure_timeout_ms: u64,
    /// Its lease was known to have ended when a successor was named. It no longer blocks an election, but as long as
    /// that incarnation goes on, every answer to it must list this leadership as withdrawn (PROTOCOL rule 15):
    /// otherwise its next lease would cover it again.
    pub lapsed: bool,
}

impl FormerLeader {}

/// All former leaders that still matter. Serialised as a plain list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "Vec<FormerLeader>")]
pub struct FormerLeaders {
    rows: BTreeMap<(PartitionId, Epoch), FormerLeader>,
    by_holder: BTreeSet<(NodeId, Incarnation, PartitionId, Epoch)>,
}

impl FormerLeaders {
    /// Returns every former holder, by partition and epoch.
    pub fn iter(&self) -> impl Iterator<Item = &FormerLeader> {
        self.rows.values()
    }

    /// Returns the former holders of a partition's leadership, oldest epoch first.
    pub fn of_partition(&self, partition: PartitionId) -> impl Iterator<Item = &FormerLeader> {
        self.rows.range((partition, Epoch::ZERO)..=(partition, Epoch::new(u64::MAX))).map(|(_, former)| former)
    }

    /// Returns the leaderships that this incarnation of a node may still believe in.
    pub fn of_holder(
        &self,
        node: NodeId,
        incarnation: Incarnation,
    ) -> impl Iterator<Item = (PartitionId, Epoch)> + use<'_> {
        let first = (node, incarnation, PartitionId::new(archon_types::TableId::ZERO, 0), Epoch::ZERO);
        self.by_holder
            .range(first..)
            .take_while(move |(of, life, _, _)| *of == node && *life == incarnation)
            .map(|(_, _, partition, epoch)| (*partition, *epoch))
    }

    /// Returns the former holder in this epoch.
    pub fn get(&self, partition: PartitionId, epoch: Epoch) -> Option<&FormerLeader> {
        self.rows.get(&(partition, epoch))
    }

    /// Returns the number of former leaders.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn insert(&mut self, former: FormerLeader) {
        self.by_holder.insert((former.node, former.incarnation, former.partition, former.epoch));
        self.rows.insert((former.partition, former.epoch), former);
    }

    pub(crate) fn remove(&mut self, partition: PartitionId, epoch: Epoch) -> Option<FormerLeader> {
        let former = self.rows.remove(&(partition, epoch))?;
        self.by_holder.remove(&(former.node, former.incarnation, partition, epoch));
        Some(former)
    }
}

impl From<Vec<FormerLeader>> for FormerLeaders {
    fn from(rows: Vec<FormerLeader>) -> Self {
        let mut former_leaders = Self::default();
        for former in rows {
            former_leaders.insert(former);
        }
        former_leaders
    }
}

impl Serialize for FormerLeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.values())
    }
}
