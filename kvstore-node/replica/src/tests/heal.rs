//! End of a run: faults cease, and everything must converge.

use super::world::{CheckResult, World};
use crate::Input;

impl World {
    /// Ends all faults and checks that everything converges and serves.
    pub(super) fn heal(&mut self) -> CheckResult {
        self.faults = false;
        self.away.0.clear();
        self.network.clear();
        self.pushes.clear();
        self.reports.clear();
        for index in 0..self.nodes.len() {
            self.step(index, Input::Lease(true))?;
        }
        for round in 0..4_000 {
            self.now = self.now.plus(20);
            if self.coordinator.row.leader.is_none() {
                self.elect();
            }
            if round % 5 == 0 {
                self.push_all();
            }
            while !self.pushes.is_empty() {
                self.deliver_push()?;
            }
            for index in 0..self.nodes.len() {
                self.step(index, Input::Tick)?;
                while !self.nodes[index].disk.under_way.is_empty() {
                    self.complete(index)?;
                }
                self.copy_page(index)?;
            }
            for _ in 0..self.network.len() {
                self.deliver()?;
            }
            while !self.reports.is_empty() {
                self.deliver_report()?;
            }
            if let Some(leader) = self.coordinator.row.leader
                && self.coordinator.handing.is_some_and(|(epoch, _)| epoch == self.coordinator.row.epoch)
            {
                let (epoch, index) = (self.coordinator.row.epoch, self.index(leader));
                self.coordinator.handing = None;
                self.step(index, Input::KeepLeading { epoch })?;
            }
            if self.converged() {
                return self.check();
            }
            if round % 50 == 49 && self.coordinator.row.live().count() == self.nodes.len() {
                self.propose(0)?;
            }
        }
        let roles: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|node| {
                node.replica
                    .as_ref()
                    .map(|replica| (node.placement, replica.last(), replica.commit(), replica.describe()))
            })
            .collect();
        panic!("no convergence: {:?}\n{roles:#?}\n{}", self.coordinator.row, self.tail(200));
    }

    fn converged(&self) -> bool {
        let all_live = self.coordinator.row.live().count() == self.nodes.len();
        let leader = self.nodes.iter().find(|node| node.serving && Some(node.placement) == self.coordinator.row.leader);
        let Some(leader) = leader.and_then(|node| node.replica.as_ref().map(|replica| (node, replica))) else {
            return false;
        };
        let end = leader.1.last();
        all_live
            && self.nodes.iter().all(|node| {
                let replica = node.replica.as_ref();
                replica.is_some_and(|replica| replica.last() == end && replica.commit() == end.seq)
                    && node.disk.engine == leader.0.disk.engine
            })
    }
}
