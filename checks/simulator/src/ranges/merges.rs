//! Merges: an operator orders them for tables by ranges at any time, between splits, and at times cancels one; and the
//! faults placed around a merge (rules 44 to 51).

use crate::coordinator::member::host_of;
use crate::event::Event;
use crate::network::{End, Lag};
use crate::world::World;
use archon_coordinator_core::{ClusterState, check_cancel_merge, check_merge};
use archon_types::{Partition, PartitionId};

/// Returns the partitions of tables by ranges.
fn rows(state: &ClusterState) -> impl Iterator<Item = &Partition> {
    state.data_rows().filter(|row| state.is_range(row.id.table))
}

/// Number of orders to merge keys back that were just split off.
const MERGES_BACK: u64 = 4;

impl World {
    /// Orders a merge, and schedules the next one.
    pub(crate) fn order_merge(&mut self) {
        if self.healing {
            return;
        }
        let unit = self.plan.unit_ms();
        let delay = self.merges.between(unit * 2, unit * 15);
        self.after(delay, Event::Merge);
        let Some(leader) = self.quorum.leader else { return };
        let coordinator = &self.quorum.coordinators[leader];
        if coordinator.session.is_none() {
            return;
        }
        let rows: Vec<PartitionId> = rows(&coordinator.state).map(|row| row.id).collect();
        let Some(partition) = self.merges.pick(&rows) else { return };
        let Ok(plan) = check_merge(&self.quorum.coordinators[leader].state, partition, |_| None) else { return };
        self.trouble_merge(partition, plan.right);
        self.say(plan.command);
    }

    /// Handles a partition that just gave keys up: for a moment requests of clients with old tables are slow to reach
    /// its leader, and the keys are merged back meanwhile, so that a late duplicate comes after the merge (rule 50).
    pub(crate) fn return_keys(&mut self, partition: PartitionId) {
        if self.healing {
            return;
        }
        let unit = self.plan.unit_ms();
        let Some(row) = self.quorum.state.partitions.get(partition) else { return };
        let leader = row.leader_placement().and_then(|copy| self.quorum.state.node(copy.node));
        let Some(host) = leader.and_then(|row| host_of(&row.node.address)) else { return };
        self.coverage.keys_returned += 1;
        let clients: Vec<End> = (0..self.clients.len()).map(End::Client).collect();
        let until = self.truth + self.merges.between(unit, unit * 3);
        // A later write of the same client declares the duplicate as done: it must arrive soon after the merge.
        let millis = self.merges.between(unit * 3, unit * 12);
        self.network.lag(Lag { from: clients, to: vec![End::Host(host)], until, millis });
        // The first order may come too early; a later one is accepted.
        for _ in 0..MERGES_BACK {
            let delay = self.merges.between(1, unit * 4);
            self.after(delay, Event::MergeBack { partition });
        }
    }

    /// Orders a partition to absorb its right neighbour.
    pub(crate) fn merge_back(&mut self, partition: PartitionId) {
        let Some(leader) = self.quorum.leader.filter(|_| !self.healing) else { return };
        if self.quorum.coordinators[leader].session.is_none() {
            return;
        }
        let Ok(plan) = check_merge(&self.quorum.coordinators[leader].state, partition, |_| None) else { return };
        self.say(plan.command);
    }

    /// Draws whether and how to disturb the merge about to begin: soon, since it takes some tenths of a second.
    fn trouble_merge(&mut self, left: PartitionId, right: PartitionId) {
        let unit = self.plan.unit_ms();
        if self.merges.below(4) == 0 {
            let when = self.merges.between(1, unit * 8);
            self.after(when, Event::CancelMerge { partition: left });
        }
        for _ in 0..self.merges.below(3) {
            let when = self.merges.between(1, unit * 4);
            let partition = if self.merges.below(2) == 0 { left } else { right };
            self.after(when, Event::DisturbReshape { partition });
        }
    }

    /// Cancels the merge of this partition, if it is in progress.
    pub(crate) fn cancel_merge(&mut self, partition: PartitionId) {
        let Some(leader) = self.quorum.leader.filter(|_| !self.healing) else { return };
        let state = &self.quorum.coordinators[leader].state;
        let Ok((_, command)) = check_cancel_merge(state, partition) else { return };
        self.say(command);
    }

    /// Injects a fault during a merge or a split.
    pub(crate) fn around_a_merge(&mut self) {
        let state = &self.quorum.state;
        let merging = state.partitions.merging().filter_map(|row| Some([row.id, row.absorbs()?.1])).flatten();
        let splitting = state.partitions.splitting().map(|row| row.id);
        let both: Vec<PartitionId> = merging.chain(splitting).collect();
        if let Some(partition) = self.merges.pick(&both) {
            self.disturb_reshape(partition);
        }
        self.theme_until = self.truth + self.plan.unit_ms();
    }
}
