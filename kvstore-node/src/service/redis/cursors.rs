//! Cursors of `SCAN`: numbers that stand for a position in the keys of a partition.
//!
//! A number holds the partition and a hash of the position (ADR 0097). The node remembers the positions of recent numbers; of
//! one that it does not know, also after a restart, the partition begins again, so that no key is left out.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bits of the hash. With the 14 bits of a partition a cursor has 53 bits, because some clients hold it in a double.
const HASH_BITS: u32 = 39;
/// Most positions that are remembered.
const POSITIONS_MAX: usize = 16_384;
/// Bytes of the keys in them.
const POSITION_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Position of an iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// Number of the partition.
    pub(super) partition: u32,
    /// First key that was not looked at; none at the beginning of the partition.
    pub(super) begin: Option<Bytes>,
}

/// Positions of recent cursors.
#[derive(Debug, Default)]
pub(super) struct Cursors(Mutex<IssuedCursors>);

#[derive(Debug, Default)]
struct IssuedCursors {
    /// Keys by number, each with the time of its last issue.
    positions: BTreeMap<u64, (Bytes, u64)>,
    /// Numbers by the time of their last issue.
    order: BTreeMap<u64, u64>,
    /// Number of issues so far.
    issues: u64,
    bytes: usize,
}

impl Cursors {
    /// Returns the number of a position, which is not zero unless it is the very first one.
    pub(super) fn number_of(&self, position: &Position) -> u64 {
        let partition = u64::from(position.partition) << HASH_BITS;
        let Some(begin) = &position.begin else { return partition };
        let mut known = self.0.lock();
        // Two positions never have one number at the same time.
        let mut seed = 0;
        let number = loop {
            let number = partition | (xxh3_64_with_seed(begin, seed) & ((1 << HASH_BITS) - 1)).max(1);
            match known.positions.get(&number) {
                Some((other, _)) if other != begin => seed += 1,
                _ => break number,
            }
        };
        known.issues += 1;
        let issue = known.issues;
        // A copy: a part of a page would keep the whole page in memory.
        match known.positions.insert(number, (Bytes::copy_from_slice(begin), issue)) {
            Some((_, before)) => drop(known.order.remove(&before)),
            None => known.bytes += begin.len(),
        }
        known.order.insert(issue, number);
        while known.order.len() > POSITIONS_MAX || known.bytes > POSITION_BYTES_MAX {
            let Some((_, oldest)) = known.order.pop_first() else { break };
            let forgotten = known.positions.remove(&oldest);
            known.bytes -= forgotten.map_or(0, |(begin, _)| begin.len());
        }
        number
    }

    /// Returns the position of a number; `None` if there is no such partition.
    pub(super) fn position_of(&self, number: u64, partitions: u32) -> Option<Position> {
        let partition = u32::try_from(number >> HASH_BITS).ok().filter(|partition| *partition < partitions)?;
        Some(Position { partition, begin: self.0.lock().positions.get(&number).map(|(begin, _)| begin.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(partition: u32, begin: &str) -> Position {
        Position { partition, begin: Some(Bytes::copy_from_slice(begin.as_bytes())) }
    }

    #[test]
    fn numbers_stand_for_their_positions() {
        let cursors = Cursors::default();
        let start = Position { partition: 0, begin: None };
        assert_eq!((cursors.number_of(&start), cursors.position_of(0, 1)), (0, Some(start)));
        for found in [position(0, "a"), position(16_383, "a"), Position { partition: 7, begin: None }] {
            let number = cursors.number_of(&found);
            assert!(number > 0 && number < 1 << 53, "{number}");
            assert_eq!(cursors.position_of(number, 16_384), Some(found.clone()));
            assert_eq!(cursors.number_of(&found), number);
        }
        assert_eq!(cursors.position_of(u64::MAX, 16_384), None);
        assert_eq!(cursors.position_of(3 << HASH_BITS, 3), None);
    }

    #[test]
    fn unknown_number_begins_its_partition_again() {
        let number = Cursors::default().number_of(&position(5, "a"));
        let restarted = Cursors::default();
        assert_eq!(restarted.position_of(number, 9), Some(Position { partition: 5, begin: None }));
    }

    #[test]
    fn remembered_positions_are_bounded() {
        let cursors = Cursors::default();
        let first = cursors.number_of(&position(1, "first"));
        let long = "k".repeat(4_000);
        for number in 0..2_000 {
            cursors.number_of(&position(1, &format!("{long}{number}")));
        }
        let bytes = cursors.0.lock().bytes;
        assert!(bytes > POSITION_BYTES_MAX / 2 && bytes <= POSITION_BYTES_MAX, "{bytes}");
        assert_eq!(cursors.position_of(first, 9), Some(Position { partition: 1, begin: None }));
        let used = cursors.number_of(&position(1, "used"));
        for number in 0..2 * POSITIONS_MAX {
            cursors.number_of(&position(1, &number.to_string()));
            assert_eq!(cursors.number_of(&position(1, "used")), used);
        }
        assert_eq!(cursors.position_of(used, 9), Some(position(1, "used")), "it was used again");
        let known = cursors.0.lock();
        assert_eq!((known.order.len(), known.positions.len()), (POSITIONS_MAX, POSITIONS_MAX));
    }
}
