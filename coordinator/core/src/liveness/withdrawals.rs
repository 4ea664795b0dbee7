//! Leaderships that no lease covers any longer, while their holders' incarnations go on (PROTOCOL rule 15).

use crate::state::ClusterState;
use archon_types::{Epoch, Incarnation, Millis, NodeId, PartitionId, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// A withdrawn leadership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WithdrawnLeadership {
    pub(crate) epoch: Epoch,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// The last answer that did not withdraw it.
    pub(crate) answered: Option<Millis>,
}

/// All withdrawn leaderships.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Withdrawals {
    by_partition: BTreeMap<PartitionId, WithdrawnLeadership>,
    /// The same by node: each answer to a heartbeat lists those of its node.
    by_node: BTreeSet<(NodeId, PartitionId)>,
}

impl Withdrawals {
    pub(crate) fn get(&self, partition: PartitionId) -> Option<&WithdrawnLeadership> {
        self.by_partition.get(&partition)
    }

    /// Adds one, replacing an earlier one of the partition.
    pub(crate) fn insert(&mut self, partition: PartitionId, withdrawn: WithdrawnLeadership) {
        if let Some(before) = self.by_partition.insert(partition, withdrawn) {
            self.by_node.remove(&(before.node, partition));
        }
        self.by_node.insert((withdrawn.node, partition));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PartitionId, Epoch)> + use<'_> {
        self.by_partition.iter().map(|(partition, withdrawn)| (*partition, withdrawn.epoch))
    }

    /// Returns those of one incarnation.
    pub(crate) fn of(
        &self,
        node: NodeId,
        incarnation: Incarnation,
    ) -> impl Iterator<Item = (PartitionId, Epoch)> + use<'_> {
        let first = PartitionId::new(TableId::ZERO, 0);
        let of_node = self.by_node.range((node, first)..).take_while(move |(of, _)| *of == node);
        let of_node = of_node.filter_map(|(_, partition)| Some((*partition, self.by_partition.get(partition)?)));
        let of_life = of_node.filter(move |(_, withdrawn)| withdrawn.incarnation == incarnation);
        of_life.map(|(partition, withdrawn)| (partition, withdrawn.epoch))
    }

    /// Drops ended leaderships: those ended by the state are listed from there (`former_leaders`) or belong to an
    /// incarnation that gets no answer.
    pub(crate) fn sync(&mut self, state: &ClusterState) {
        let by_node = &mut self.by_node;
        self.by_partition.retain(|partition, withdrawn| {
            let stands = state.partitions.get(*partition).is_some_and(|row| {
                row.epoch == withdrawn.epoch
                    && row.leader_placement().is_some_and(|leader| leader.node == withdrawn.node)
                    && state.incarnation(withdrawn.node) == Some(withdrawn.incarnation)
            });
            if !stands {
                by_node.remove(&(withdrawn.node, *partition));
            }
            stands
        });
    }
}
