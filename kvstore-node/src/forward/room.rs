//! Bounds on the operations in progress at one peer, and their distribution among callers.

use std::collections::HashMap;

/// Operations in progress at one peer: as many as it accepts from one stream.
const OPERATIONS_MAX: usize = 4_096;
/// Bytes of them, as admitted: half of what a peer accepts from one stream, so that callers are refused here, one by
/// one, before all forwarded operations are refused there.
const BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Amount {
    operations: usize,
    bytes: usize,
}

impl Amount {
    fn fits(self, held: Self, cost: usize) -> bool {
        self.operations + held.operations < OPERATIONS_MAX && self.bytes + held.bytes + cost <= BYTES_MAX
    }

    fn add(&mut self, cost: usize) {
        self.operations += 1;
        self.bytes += cost;
    }

    fn remove(&mut self, cost: usize) {
        self.operations = self.operations.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(cost);
    }
}

/// Operations in progress at one peer. No caller can take the last of it: one with operations in progress gets more
/// only if as much stays free for others.
#[derive(Debug, Default)]
pub(super) struct Room {
    all: Amount,
    callers: HashMap<u64, Amount>,
}

impl Room {
    /// Takes room for an operation of `caller` that is admitted by `cost` bytes. Returns whether there was any.
    pub(super) fn take(&mut self, caller: u64, cost: usize) -> bool {
        let held = self.callers.get(&caller).copied().unwrap_or_default();
        // A single operation, however large, fits if there is no other.
        if self.all.operations > 0 && !self.all.fits(held, cost) {
            return false;
        }
        self.all.add(cost);
        self.callers.entry(caller).or_default().add(cost);
        true
    }

    /// Releases the room of such an operation.
    pub(super) fn give(&mut self, caller: u64, cost: usize) {
        self.all.remove(cost);
        if let Some(held) = self.callers.get_mut(&caller) {
            held.remove(cost);
            if *held == Amount::default() {
                self.callers.remove(&caller);
            }
        }
    }

    /// Returns the number of operations in progress.
    pub(super) const fn operations(&self) -> usize {
        self.all.operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many operations of a caller are accepted at once.
    fn flood(room: &mut Room, caller: u64, cost: usize) -> usize {
        std::iter::repeat_with(|| room.take(caller, cost)).take_while(|taken| *taken).count()
    }

    #[test]
    fn flooding_caller_leaves_half_to_others() {
        let mut room = Room::default();
        assert_eq!(flood(&mut room, 1, 256), OPERATIONS_MAX / 2);
        assert_eq!(flood(&mut room, 2, 256), OPERATIONS_MAX / 4);
        assert!(room.take(3, 256), "somebody who has nothing under way is taken in");
        assert!(flood(&mut Room::default(), 1, 64 * 1024) <= BYTES_MAX / 2 / (64 * 1024));
        for _ in 0..OPERATIONS_MAX / 2 {
            room.give(1, 256);
        }
        assert_eq!(
            (room.operations(), room.callers.len()),
            (OPERATIONS_MAX / 4 + 1, 2),
            "nobody is remembered for ever"
        );
        assert!(room.take(1, 256));
    }

    #[test]
    fn largest_operation_fits_when_alone() {
        let mut room = Room::default();
        assert!(room.take(1, 2 * BYTES_MAX) && !room.take(2, 1));
        room.give(1, 2 * BYTES_MAX);
        assert!(room.take(2, 1));
    }
}
