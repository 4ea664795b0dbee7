//! Pages of a merge source, in flight to its left neighbour.

use crate::event::PeerMessage;
use crate::world::World;
use archon_host::{NodeRegistration, YieldAsk};
use archon_kv::engine::PageLimit;

/// Ratio of page size to entry size: a merge takes several pages, each larger than one entry, as from a leader with
/// other bounds.
const PAGE_ENTRIES: usize = 2;

impl World {
    /// Requests a page from the known leader of the merge source.
    pub(super) fn ask_right(&mut self, host: usize, ask: YieldAsk) {
        let right = self.quorum.state.partitions.get(ask.right);
        let leader = right.and_then(|row| row.leader_placement()).map(|copy| copy.node);
        if let Some((leader, own)) = leader.zip(self.life(host)) {
            self.send_to_node(host, leader, PeerMessage::YieldAsk { from: own, ask });
        }
    }

    pub(super) fn give_right(&mut self, host: usize, from: NodeRegistration, ask: &YieldAsk) {
        let rows_max = self.plan.entry_limit.rows_max.saturating_mul(PAGE_ENTRIES);
        let limit = PageLimit { rows_max, bytes_max: usize::MAX };
        let page = self.drive(host, |partitions| partitions.yielded(ask.right, ask.attempt, ask.after.as_ref(), limit));
        let Some(page) = page else { return };
        let answer = PeerMessage::YieldPage { to: from.incarnation, placement: ask.placement, ask: ask.ask, page };
        self.send_to_node(host, from.node, answer);
    }
}
