//! A copy that a placement pulls, from its shard's side: which attempt is under way, and what of it waits.
//!
//! An attempt begins when the space was emptied and ends with the next emptying. It bears the number of its clearing: what
//! comes of an earlier one, a late word that the space is empty as well as a late page, must not be taken for this one's,
//! for what it brought is not thrown away any more, and a row that was deleted since would stay.

use crate::copying::CopyPage;
use archon_replica::ReplicaAddress;
use archon_types::Epoch;
use std::collections::VecDeque;

/// A copy that this placement pulls.
#[derive(Debug)]
pub(crate) struct Pull<P> {
    /// The replica's number of it.
    pub(crate) copy: u64,
    pub(crate) leader: ReplicaAddress,
    pub(crate) epoch: Epoch,
    /// The clearing after which pages may come; `None` if the flusher takes no more work.
    attempt: Option<u64>,
    /// The space is empty and pages may come.
    begun: bool,
    /// The last stream that brought a page.
    stream: u64,
    /// Pages that the flusher had no room for yet, of one stream: as many as are under way at most.
    pub(crate) waiting: VecDeque<CopyPage<P>>,
}

impl<P> Pull<P> {
    /// A copy into the space that `clear` empties.
    pub(crate) fn new(copy: u64, leader: ReplicaAddress, epoch: Epoch, clear: Option<u64>) -> Self {
        Self { copy, leader, epoch, attempt: clear, begun: false, stream: 0, waiting: VecDeque::new() }
    }

    /// The copy begins anew in the space that `clear` empties.
    pub(crate) fn restart(&mut self, clear: Option<u64>) {
        *self = Self::new(self.copy, self.leader, self.epoch, clear);
    }

    /// A clearing is done. Whether pages are to be pulled now: not after a clearing that was not for this attempt, and not
    /// twice after one.
    pub(crate) fn begin(&mut self, clear: u64) -> bool {
        let first = !self.begun && self.attempt == Some(clear);
        self.begun |= first;
        first
    }

    /// Whether what comes of an attempt is of the one under way.
    pub(crate) fn is_of(&self, attempt: u64) -> bool {
        self.begun && self.attempt == Some(attempt)
    }

    /// Queues a page, unless it is of another attempt or of a stream that has broken. What waits of such a stream is
    /// dropped: the new one brings it again, and streams that break while the flusher is full would pile it up.
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
    fn a_late_word_of_an_earlier_clearing_begins_nothing_and_a_late_page_is_dropped() {
        // The first copy's clearing, 7, is done, and the second copy has asked for another, 8, when the word of 7 comes.
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
    fn streams_that_break_while_the_flusher_is_full_leave_nothing_behind() {
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
