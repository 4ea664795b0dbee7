//! A copy that a placement pulls, from its shard's side: which attempt is under way, and what of it waits.
//!
//! An attempt begins when the space was emptied and ends with the next emptying. It bears the number of its clearing: what
//! comes of an earlier one, a late word that the space is empty as well as a late page, must not be taken for this one's,
//! for what it brought is not thrown away any more, and a row that was deleted since would stay.

use super::message::CopyChunk;
use archon_replica::ReplicaAddress;
use archon_types::Epoch;
use std::collections::VecDeque;

/// A copy that this placement pulls.
pub(super) struct Pull {
    /// The replica's number of it.
    pub(super) copy: u64,
    pub(super) leader: ReplicaAddress,
    pub(super) epoch: Epoch,
    /// The clearing after which pages may come; `None` if the flusher takes no more work.
    attempt: Option<u64>,
    /// The space is empty and pages may come.
    begun: bool,
    /// The last stream that brought a page.
    stream: u64,
    /// Pages that the flusher had no room for yet, of one stream: as many as are under way at most.
    pub(super) waiting: VecDeque<CopyChunk>,
}

impl Pull {
    /// A copy into the space that `clear` empties.
    pub(super) fn new(copy: u64, leader: ReplicaAddress, epoch: Epoch, clear: Option<u64>) -> Self {
        Self { copy, leader, epoch, attempt: clear, begun: false, stream: 0, waiting: VecDeque::new() }
    }

    /// The copy begins anew in the space that `clear` empties.
    pub(super) fn restart(&mut self, clear: Option<u64>) {
        *self = Self::new(self.copy, self.leader, self.epoch, clear);
    }

    /// A clearing is done. Whether pages are to be pulled now: not after a clearing that was not for this attempt, and not
    /// twice after one.
    pub(super) fn begin(&mut self, clear: u64) -> bool {
        let first = !self.begun && self.attempt == Some(clear);
        self.begun |= first;
        first
    }

    /// Whether what comes of an attempt is of the one under way.
    pub(super) fn is_of(&self, attempt: u64) -> bool {
        self.begun && self.attempt == Some(attempt)
    }

    /// Queues a page, unless it is of another attempt or of a stream that has broken. What waits of such a stream is
    /// dropped: the new one brings it again, and streams that break while the flusher is full would pile it up.
    pub(super) fn queue(&mut self, chunk: CopyChunk) {
        if !self.is_of(chunk.attempt) || chunk.stream < self.stream {
            return;
        }
        if chunk.stream > self.stream {
            self.stream = chunk.stream;
            self.waiting.clear();
        }
        self.waiting.push_back(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Incarnation, NodeId, PlacementId};
    use bytes::Bytes;
    use tokio::sync::oneshot;

    const OWN: PlacementId = PlacementId::new(1);

    fn pull(copy: u64, clear: u64) -> Pull {
        let (node, placement) = (NodeId::new(2), PlacementId::new(2));
        let leader = ReplicaAddress { node, placement, incarnation: Incarnation::new(1) };
        Pull::new(copy, leader, Epoch::new(1), Some(clear))
    }

    fn page(attempt: u64, stream: u64, key: u8) -> (CopyChunk, oneshot::Receiver<()>) {
        let (taken, wait) = oneshot::channel();
        let rows = vec![(Bytes::from(vec![key]), Bytes::new())];
        (CopyChunk { placement: OWN, attempt, stream, rows, taken }, wait)
    }

    fn keys(pull: &Pull) -> Vec<u8> {
        pull.waiting.iter().map(|chunk| chunk.rows[0].0[0]).collect()
    }

    #[test]
    fn a_late_word_of_an_earlier_clearing_begins_nothing_and_a_late_page_is_dropped() {
        // The first copy's clearing, 7, is done, and the second copy has asked for another, 8, when the word of 7 comes.
        let mut second = pull(2, 8);
        assert!(!second.begin(7), "the space is going to be emptied once more");
        second.queue(page(7, 1, 1).0);
        second.queue(page(8, 1, 1).0);
        assert_eq!(keys(&second), [0_u8; 0], "nothing comes before the space is empty");
        assert!(second.begin(8));
        assert!(!second.begin(8), "one puller per clearing");
        second.queue(page(7, 1, 1).0);
        second.queue(page(8, 1, 2).0);
        assert_eq!(keys(&second), [2]);
        assert!(second.is_of(8) && !second.is_of(7));
        second.restart(Some(9));
        second.queue(page(8, 1, 3).0);
        assert!(second.waiting.is_empty() && !second.is_of(8) && !second.is_of(9) && second.copy == 2);
        assert!(!second.begin(8) && second.begin(9));
    }

    #[test]
    fn streams_that_break_while_the_flusher_is_full_leave_nothing_behind() {
        let mut pull = pull(1, 1);
        assert!(pull.begin(1));
        for stream in 1..=100 {
            let (first, mut wait) = page(1, stream, 1);
            pull.queue(first);
            pull.queue(page(1, stream, 2).0);
            assert_eq!(keys(&pull), [1, 2], "stream {stream} begins again where nothing was taken");
            assert_eq!(wait.try_recv(), Err(oneshot::error::TryRecvError::Empty), "it still waits");
        }
        pull.queue(page(1, 99, 3).0);
        assert_eq!(keys(&pull), [1, 2], "of a stream that is over");
    }
}
