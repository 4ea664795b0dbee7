//! How many writes of one client may wait for the log and the followers at a time, in one partition: whoever sends many lets
//! those of others wait behind no more than a share of them.
//!
//! What is beyond waits here, in its client's order, and not in the turns of the shard: there it would hold up what the client
//! sends to other partitions, too. It was admitted, and holds its share of admission, which bounds it.

use std::collections::{BTreeMap, VecDeque};

/// The bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Writes that all clients of a partition have under way together before each gets [`Shares::least`] only. A client that is
    /// alone is not bound by it.
    pub together: u32,
    /// What each client may have under way however many there are; at least 1.
    pub least: u32,
}

impl Default for Shares {
    fn default() -> Self {
        Self { together: 128, least: 12 }
    }
}

/// Writes of one partition that are not answered yet, and those that wait for their turn, by client.
#[derive(Debug)]
pub(crate) struct UnderWay<Q> {
    shares: Shares,
    writes: BTreeMap<u64, u32>,
    /// None of these queues is empty.
    queued: BTreeMap<u64, VecDeque<Q>>,
}

impl<Q> UnderWay<Q> {
    pub(crate) const fn new(shares: Shares) -> Self {
        Self { shares, writes: BTreeMap::new(), queued: BTreeMap::new() }
    }

    /// How many more writes of this client may be under way.
    fn room(&self, client: u64) -> u32 {
        let own = self.writes.get(&client).copied().unwrap_or(0);
        let others = self.writes.len() - usize::from(own > 0);
        if others == 0 {
            return u32::MAX;
        }
        let clients = u32::try_from(others + 1).unwrap_or(u32::MAX);
        (self.shares.together / clients).max(self.shares.least).saturating_sub(own)
    }

    /// Whether another write of this client may be under way; otherwise it is to be queued.
    pub(crate) fn has_room(&self, client: u64) -> bool {
        !self.queued.contains_key(&client) && self.room(client) > 0
    }

    /// Has a write wait until less of its client is under way.
    pub(crate) fn queue(&mut self, client: u64, write: Q) {
        self.queued.entry(client).or_default().push_back(write);
    }

    pub(crate) fn begin(&mut self, client: u64) {
        *self.writes.entry(client).or_insert(0) += 1;
    }

    pub(crate) fn end(&mut self, client: u64) {
        if let Some(writes) = self.writes.get_mut(&client) {
            *writes -= 1;
            if *writes == 0 {
                self.writes.remove(&client);
            }
        }
    }

    /// The writes that have waited for long enough, each client's in their order.
    pub(crate) fn resume(&mut self) -> Vec<Q> {
        if self.queued.is_empty() {
            return Vec::new();
        }
        let clients: Vec<u64> = self.queued.keys().copied().collect();
        let mut resumed = Vec::new();
        for client in clients {
            let room = usize::try_from(self.room(client)).unwrap_or(usize::MAX);
            let Some(queue) = self.queued.get_mut(&client) else { continue };
            resumed.extend(queue.drain(..room.min(queue.len())));
            if queue.is_empty() {
                self.queued.remove(&client);
            }
        }
        resumed
    }

    /// All writes that wait, each client's in their order: nobody's turn comes here any more.
    pub(crate) fn give_back(&mut self) -> Vec<Q> {
        std::mem::take(&mut self.queued).into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under_way() -> UnderWay<u32> {
        UnderWay::new(Shares { together: 8, least: 2 })
    }

    #[test]
    fn who_is_alone_is_not_bound() {
        let mut under_way = under_way();
        (0..1_000).for_each(|_| under_way.begin(1));
        assert!(under_way.has_room(1));
    }

    #[test]
    fn whoever_sends_many_waits_as_soon_as_there_are_others_and_goes_on_in_order() {
        let mut under_way = under_way();
        (0..6).for_each(|_| under_way.begin(1));
        under_way.begin(2);
        assert!(!under_way.has_room(1) && under_way.has_room(2), "each has four of eight");
        (0..4).for_each(|write| under_way.queue(1, write));
        assert_eq!(under_way.resume(), [0; 0]);
        (0..4).for_each(|_| under_way.end(1));
        assert_eq!(under_way.resume(), [0, 1]);
        assert!(!under_way.has_room(1), "what came later waits behind what waits");
        under_way.end(2);
        assert_eq!(under_way.resume(), [2, 3], "alone once more");
        assert!(under_way.has_room(1));
    }

    #[test]
    fn of_many_clients_each_has_the_least() {
        let mut under_way = under_way();
        (0..100).for_each(|client| under_way.begin(client));
        assert!(under_way.has_room(5));
        under_way.begin(5);
        assert!(!under_way.has_room(5));
    }

    #[test]
    fn what_waits_is_given_back_when_nobodys_turn_comes_here_any_more() {
        let mut under_way = under_way();
        under_way.queue(2, 1);
        under_way.queue(1, 2);
        under_way.queue(2, 3);
        assert_eq!(under_way.give_back(), [2, 1, 3]);
        assert_eq!(under_way.give_back(), [0; 0]);
    }
}
