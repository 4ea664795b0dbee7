//! Mapping from a key to its slot and partition.
//!
//! A slot is CRC16/XMODEM of the key, or of its first non-empty `{tag}`, modulo 16384: the scheme of Redis Cluster, so
//! that keys with the same tag share a partition and existing tools can be used with Archon later.

use crc::{CRC_16_XMODEM, Crc};

/// Number of slots; a power of two.
pub const SLOTS: u16 = 16_384;

/// Most partitions of a hashed table: each has at least one slot.
pub const HASH_PARTITIONS_MAX: u32 = SLOTS as u32;

const XMODEM: Crc<u16, crc::Table<16>> = Crc::<u16, crc::Table<16>>::new(&CRC_16_XMODEM);

/// Returns the slot of `key`, in `0..SLOTS`.
pub fn slot_of(key: &[u8]) -> u16 {
    XMODEM.checksum(hashed_part(key)) % SLOTS
}

/// Returns the partition that owns `slot` in a table of `partitions` partitions: `slot × P / 16384`.
///
/// `partitions` must be in `1..=HASH_PARTITIONS_MAX` and `slot` below [`SLOTS`]; both are checked where they enter the
/// system.
pub fn partition_of(slot: u16, partitions: u32) -> u32 {
    debug_assert!(slot < SLOTS && (1..=HASH_PARTITIONS_MAX).contains(&partitions));
    u32::from(slot) * partitions / u32::from(SLOTS)
}

/// Returns the first and the last slot of a partition: those that [`partition_of`] maps to it.
///
/// `partitions` must be in `1..=HASH_PARTITIONS_MAX` and `partition` below it.
pub fn slots_of(partition: u32, partitions: u32) -> (u16, u16) {
    debug_assert!(partition < partitions && partitions <= HASH_PARTITIONS_MAX);
    let slots = u32::from(SLOTS);
    let first = |partition: u32| (partition * slots).div_ceil(partitions);
    let (begin, end) = (first(partition), first(partition + 1) - 1);
    (u16::try_from(begin).unwrap_or(SLOTS), u16::try_from(end).unwrap_or(SLOTS))
}

/// Returns the part to hash: the tag, else the whole key.
fn hashed_part(key: &[u8]) -> &[u8] {
    tag_of(key).unwrap_or(key)
}

/// Returns the text between the first `{` and the next `}`, if present and not empty. In a prefix: every key that
/// begins with it has this tag, and so is in one partition.
pub fn tag_of(part: &[u8]) -> Option<&[u8]> {
    let open = part.iter().position(|byte| *byte == b'{')?;
    let after = &part[open + 1..];
    let length = after.iter().position(|byte| *byte == b'}').filter(|length| *length > 0)?;
    Some(&after[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_has_the_check_value_of_xmodem() {
        assert_eq!(XMODEM.checksum(b"123456789"), 0x31C3);
    }

    #[test]
    fn keys_with_the_same_tag_share_a_slot() {
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
    }

    #[test]
    fn only_a_closed_tag_pins_the_partition_of_a_prefix() {
        for (prefix, pinned) in [("{a}", true), ("x{a}y", true), ("{a", false), ("{}", false), ("abc", false)] {
            assert_eq!(tag_of(prefix.as_bytes()).is_some(), pinned, "{prefix}");
        }
    }

    #[test]
    fn empty_or_open_tag_hashes_the_whole_key() {
        assert_eq!(hashed_part(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hashed_part(b"foo{bar"), b"foo{bar");
    }

    #[test]
    fn slots_of_partitions_are_those_of_keys() {
        for partitions in [1, 2, 3, 7, 64, 100, 16_383, 16_384] {
            for index in 0..partitions {
                let (begin, end) = slots_of(index, partitions);
                assert_eq!((partition_of(begin, partitions), partition_of(end, partitions)), (index, index));
                let before = index.checked_sub(1).map_or(0, |before| slots_of(before, partitions).1 + 1);
                assert_eq!(begin, before, "no slot is left out");
            }
            assert_eq!(slots_of(partitions - 1, partitions).1, SLOTS - 1);
        }
    }

    #[test]
    fn partitions_own_contiguous_slots_evenly() {
        for partitions in [1u32, 2, 3, 9, 30, 1000, 16_383, 16_384] {
            let mut owned = vec![0u32; partitions as usize];
            let mut last = 0;
            for slot in 0..SLOTS {
                let partition = partition_of(slot, partitions);
                assert!(partition == last || partition == last + 1, "a hole at slot {slot}");
                last = partition;
                owned[partition as usize] += 1;
            }
            let (min, max) = (owned.iter().min().unwrap(), owned.iter().max().unwrap());
            assert!(*min > 0 && max - min <= 1, "{partitions}: {min}..{max}");
        }
    }
}
