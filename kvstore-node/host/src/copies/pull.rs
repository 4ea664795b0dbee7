//! Copy that a placement pulls, from its shard's side: the present attempt, and the pages that wait.
//!
//! An attempt begins when the space was cleared and ends with the next clearing. It carries the number of its clearing:
//! late results of an earlier attempt, such as a page or the end of a clearing, must not be taken for its own. Their
//! rows would not be cleared, and a row deleted since would stay.

use crate::copies::pages::CopyPage;
use archon_replica::ReplicaAddress;
use archon_types::Epoch;
use std::collections::VecDeque;

/// Copy that this placement pulls.
#[derive(Debug)]
pub(crate) struct Pull<P> {
    /// The replica's number for it.
    pub(crate) copy: u64,
    pub(crate) leader: ReplicaAddress,
    pub(crate) epoch: Epoch,
    /// The clearing after which pages may come; `None` if the flusher accepts no further work.
    attempt: Option<u64>,
    /// The space is empty and pages may come.
    begun: bool,
    /// The last stream that brought a page.
    stream: u64,
    /// Pages of one stream for which the flusher had no room; bounded by the pages in flight.
    pub(crate) waiting: VecDeque<CopyPage<P>>,
}

impl<P> Pull<P> {
    /// Pulls a copy into the space that `clear` empties.
    pub(crate) fn new(copy: u64, leader: ReplicaAddress, epoch: Epoch, clear: Option<u64>) -> Self {
        Self { copy, leader, epoch, attempt: clear, begun: false, stream: 0, waiting: VecDeque::new() }
    }

    /// Restarts the copy in the space that `clear` empties.
    pub(crate) fn restart(&mut self, clear: Option<u64>) {
        *self = Self::new(self.copy, self.leader, self.epoch, clear);
    }

    /// Takes the end of a clearing. Returns whether to pull pages now: only for the clearing of this attempt, and once.
    pub(crate) fn begin(&mut self, clear: u64) -> bool {
        let first = !self.begun && self.attempt == Some(clear);
        self.begun |= first;
        first
    }

    /// Returns whether `attempt` is the present one.
    pub(crate) fn is_of(&self, attempt: u64) -> bool {
        self.begun && self.attempt == Some(attempt)
    }

    /// Queues a page, unless it belongs to another attempt or a broken stream. A new stream drops the queued pages of
    /// the previous one and sends them again; otherwise streams that break while the flusher is full would pile them
    /// up.
    pub(crate) fn queue(&mut self, page: CopyPage<P>) {
        if !self.is_of(page.attempt) || page.stream < self.stream {
            return;
        }
        if page.stream > self.stream {
            self.stream = page.stream;
            self.waiting.clear();
        }
        self.waiting.push_back(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Incarnation, NodeId, PlacementId};

    fn pull(copy: u64, clear: u64) -> Pull<u8> {
        let (node, placement) = (NodeId::new(2), PlacementId::new(2));
        let leader = ReplicaAddress { node, placement, incarnation: Incarnation::new(1) };
        Pull::new(copy, leader, Epoch::new(1), Some(clear))
    }

    fn page(attempt: u64, stream: u64, content: u8) -> CopyPage<u8> {
        CopyPage { placement: PlacementId::new(1), attempt, stream, content }
    }

    fn keys(pull: &Pull<u8>) -> Vec<u8> {
        pull.waiting.iter().map(|page| page.content).collect()
    }

    #[test]
    fn late_clearing_and_late_page_are_ignored() {
        // The first copy's clearing, 7, is done; the second copy has requested another, 8, before the result of 7
        // arrives.
        let mut second = pull(2, 8);
        assert!(!second.begin(7), "the space is going to be emptied once more");
        second.queue(page(7, 1, 1));
        second.queue(page(8, 1, 1));
        assert_eq!(keys(&second), [0_u8; 0], "nothing comes before the space is empty");
        assert!(second.begin(8));
        assert!(!second.begin(8), "one puller per clearing");
        second.queue(page(7, 1, 1));
        second.queue(page(8, 1, 2));
        assert_eq!(keys(&second), [2]);
        assert!(second.is_of(8) && !second.is_of(7));
        second.restart(Some(9));
        second.queue(page(8, 1, 3));
        assert!(second.waiting.is_empty() && !second.is_of(8) && !second.is_of(9) && second.copy == 2);
        assert!(!second.begin(8) && second.begin(9));
    }

    #[test]
    fn broken_stream_leaves_no_pages_queued() {
        let mut pull = pull(1, 1);
        assert!(pull.begin(1));
        for stream in 1..=100 {
            pull.queue(page(1, stream, 1));
            pull.queue(page(1, stream, 2));
            assert_eq!(keys(&pull), [1, 2], "stream {stream} begins again where nothing was taken");
        }
        pull.queue(page(1, 99, 3));
        assert_eq!(keys(&pull), [1, 2], "of a stream that is over");
    }
}
