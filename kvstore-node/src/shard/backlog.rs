//! Operations that did not fit into their turn: every client has its own queue, and the queues are served in turn, so
//! that a client with many operations delays others no longer than one with few.
//!
//! Operations here were admitted, and hold their share of admission, which bounds them.

use std::collections::{HashMap, VecDeque};

/// Client queues, in the order in which they are served.
#[derive(Debug)]
pub(super) struct Backlog<T> {
    /// Clients with something in their queue, each once.
    turns: VecDeque<u64>,
    queues: HashMap<u64, VecDeque<T>>,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), queues: HashMap::new() }
    }
}

impl<T> Backlog<T> {
    /// Returns whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Queues an item behind everything of its client.
    pub(super) fn push(&mut self, client: u64, item: T) {
        self.queue(client).push_back(item);
    }

    /// Queues an item before everything of its client.
    pub(super) fn push_first(&mut self, client: u64, item: T) {
        self.queue(client).push_front(item);
    }

    fn queue(&mut self, client: u64) -> &mut VecDeque<T> {
        self.queues.entry(client).or_insert_with(|| {
            self.turns.push_back(client);
            VecDeque::new()
        })
    }

    /// Takes the next item of the client in turn; `None` once that client has no more, even if others have.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.queues.get_mut(self.turns.front()?)?.pop_front()
    }

    /// Moves on to the next client.
    pub(super) fn rotate(&mut self) {
        let Some(client) = self.turns.pop_front() else { return };
        if self.queues.get(&client).is_some_and(|queue| !queue.is_empty()) {
            self.turns.push_back(client);
        } else {
            self.queues.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn busy_client_delays_others_by_one_turn() {
        let mut backlog = Backlog::default();
        (0..1_000).for_each(|number| backlog.push(1, (1, number)));
        backlog.push(2, (2, 0));
        let mut served = Vec::new();
        while served.len() < 3 {
            served.extend(backlog.pop());
            backlog.rotate();
        }
        assert_eq!(served, [(1, 0), (2, 0), (1, 1)]);
    }

    #[test]
    fn client_after_short_queue_has_a_whole_turn() {
        let mut backlog = Backlog::default();
        backlog.push(1, "first");
        (0..3).for_each(|_| backlog.push(2, "second"));
        backlog.push(3, "third");
        let mut turns = Vec::new();
        while !backlog.is_empty() {
            // A turn takes two at most.
            turns.push([backlog.pop(), backlog.pop()].into_iter().flatten().collect::<Vec<_>>());
            backlog.rotate();
        }
        assert_eq!(turns, [vec!["first"], vec!["second", "second"], vec!["third"], vec!["second"]]);
    }

    proptest! {
        /// Wherever turns are cut off and continued, each client is served in order, and nothing is lost.
        #[test]
        fn each_client_is_served_in_order_without_loss(
            clients in prop::collection::vec(0..5_u64, 0..200),
            rotations in prop::collection::vec(any::<bool>(), 200),
        ) {
            let mut backlog = Backlog::default();
            clients.iter().enumerate().for_each(|(number, client)| backlog.push(*client, (*client, number)));
            let mut served: Vec<Vec<usize>> = vec![Vec::new(); 5];
            let mut rotations = rotations.into_iter();
            while !backlog.is_empty() {
                let served_one = backlog.pop().map(|(client, number)| served[client as usize].push(number)).is_some();
                if !served_one || rotations.next() == Some(true) {
                    backlog.rotate();
                }
            }
            prop_assert!(served.iter().all(|numbers| numbers.is_sorted()));
            prop_assert_eq!(served.iter().map(Vec::len).sum::<usize>(), clients.len());
        }
    }
}
