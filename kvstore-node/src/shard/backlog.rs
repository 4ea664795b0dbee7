//! Operations that their turn had no time for: every client has a queue of its own, and the queues are served in turn, so
//! that one who asks for much lets nobody wait for longer than one who asks for little.
//!
//! What waits here was admitted, and holds its share of admission: that bounds it.

use std::collections::{HashMap, VecDeque};

/// Queues of clients, in the order in which they are served.
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
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Queues what came last from a client.
    pub(super) fn push(&mut self, client: u64, item: T) {
        self.queue(client).push_back(item);
    }

    /// Queues what came from a client before everything that waits of it.
    pub(super) fn push_first(&mut self, client: u64, item: T) {
        self.queue(client).push_front(item);
    }

    fn queue(&mut self, client: u64) -> &mut VecDeque<T> {
        self.queues.entry(client).or_insert_with(|| {
            self.turns.push_back(client);
            VecDeque::new()
        })
    }

    /// The next of the client whose turn it is; `None` once it has no more, also if others have.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.queues.get_mut(self.turns.front()?)?.pop_front()
    }

    /// It is the next client's turn.
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
    fn who_asks_for_much_lets_others_wait_for_one_of_theirs_only() {
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
    fn whoever_comes_after_one_with_little_has_a_whole_turn_of_its_own() {
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
        /// Whatever is cut off and goes on later, of each client the first that came is served first, and nothing is lost.
        #[test]
        fn each_client_is_served_in_order_and_whole(
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
