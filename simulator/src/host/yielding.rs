//! Pages of a partition that is absorbed by its left neighbour, on their way.

use crate::event::PeerMessage;
use crate::world::World;
use archon_host::{Life, YieldAsk};
use archon_kv::engine::PageLimit;

/// Rows of a page: few, so that a merge takes several pages, and more than one entry takes (`ENTRY_ROWS_MAX`), as in pages of a
/// leader with other bounds.
const PAGE_ROWS: usize = 2;
/// Users' rows that one entry of a log writes at most: what a copy reads.
pub(crate) const ENTRY_ROWS_MAX: usize = 1;

impl World {
    /// Asks who leads the partition, as far as anybody knows, for a page.
    pub(super) fn ask_right(&mut self, host: usize, ask: YieldAsk) {
        let right = self.quorum.state.partitions.get(ask.right);
        let leader = right.and_then(|row| row.leader_placement()).map(|copy| copy.node);
        if let Some((leader, own)) = leader.zip(self.life(host)) {
            self.send_to_node(host, leader, PeerMessage::YieldAsk { from: own, ask });
        }
    }

    pub(super) fn give_right(&mut self, host: usize, from: Life, ask: &YieldAsk) {
        let limit = PageLimit { rows_max: PAGE_ROWS, bytes_max: usize::MAX };
        let page = self.drive(host, |partitions| partitions.yielded(ask.right, ask.attempt, ask.after.as_ref(), limit));
        let Some(page) = page else { return };
        let answer = PeerMessage::YieldPage { to: from.incarnation, placement: ask.placement, ask: ask.ask, page };
        self.send_to_node(host, from.node, answer);
    }
}
