//! Relocation: selects streams with few old records that retain much of the log, to rewrite them at its end.
//!
//! Only a prefix of segments is ever freed, so one old record retains everything behind it. Records that must be kept
//! are therefore rewritten: their stream is cut and put again in one batch, which is whole or absent after any crash.
//! This needs no special file format.

use crate::format::OP_HEADER_BYTES;
use crate::index::{Index, StreamIndex};

/// Bounds of one relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelocationLimits {
    /// Bytes of segments, without the newest, that may stay unchanged.
    pub(crate) kept_bytes_max: u64,
    /// Bytes of records rewritten at once.
    pub(crate) moved_bytes_max: u64,
    /// Maximum size of a larger stream, which is moved alone.
    pub(crate) stream_bytes_max: u64,
}

/// Returns the streams to move, those with the oldest records first; none if this would free less than twice the
/// written bytes.
pub(crate) fn plan_relocation(index: &Index, limits: RelocationLimits, is_movable: impl Fn(u64) -> bool) -> Vec<u64> {
    let Some((&newest, _)) = index.segments.last_key_value() else { return Vec::new() };
    let mut kept: u64 = index.segments.range(..newest).map(|(_, segment)| segment.size).sum();
    if kept <= limits.kept_bytes_max {
        return Vec::new();
    }
    let mut streams: Vec<(u64, u64, &StreamIndex)> = index
        .streams
        .iter()
        .filter_map(|(stream, entry)| Some((entry.entries.front()?.segment, *stream, entry)))
        .filter(|(segment, ..)| *segment < newest)
        .collect();
    streams.sort_unstable_by_key(|(segment, stream, _)| (*segment, *stream));
    let (mut chosen, mut moved, mut freed, mut at) = (Vec::new(), 0, 0, 0);
    for (segment, stream, entry) in streams {
        let before: u64 = index.segments.range(at..segment).map(|(_, segment)| segment.size).sum();
        (kept, freed, at) = (kept - before, freed + before, segment);
        if kept <= limits.kept_bytes_max {
            return worthwhile(chosen, freed, moved);
        }
        // A pending trim will free it.
        let is_settled = entry.hidden <= entry.tail.first && !entry.tail.frozen && !entry.lost_records();
        let alone = limits.stream_bytes_max.max(limits.moved_bytes_max);
        let bytes = record_bytes(entry, alone);
        let fits = moved + bytes <= limits.moved_bytes_max || (chosen.is_empty() && bytes <= alone);
        if !is_settled || !fits || !is_movable(stream) {
            return worthwhile(chosen, freed, moved);
        }
        moved += bytes;
        chosen.push(stream);
    }
    let rest: u64 = index.segments.range(at..newest).map(|(_, segment)| segment.size).sum();
    worthwhile(chosen, freed + rest, moved)
}

fn worthwhile(chosen: Vec<u64>, freed: u64, moved: u64) -> Vec<u64> {
    if freed >= moved.saturating_mul(2) && freed > 0 { chosen } else { Vec::new() }
}

/// Returns the bytes of the stream's records; stops counting above `enough`.
fn record_bytes(entry: &StreamIndex, enough: u64) -> u64 {
    let mut bytes = 0;
    for location in &entry.entries {
        bytes += OP_HEADER_BYTES as u64 + u64::from(location.data_bytes);
        if bytes > enough {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::{Disk, MemoryDisk};
    use crate::index::{Change, Location, SegmentEntry};

    const SEGMENT: u64 = 1000;
    const NONE: [u64; 0] = [];

    /// Ten segments; each stream has one record of `data_bytes` in each of its segments.
    fn index(streams: &[(u64, &[u64])], data_bytes: u32) -> Index {
        let disk = MemoryDisk::new();
        let mut index = Index::default();
        for generation in 1..=10 {
            let file = disk.create(&generation.to_string()).unwrap();
            index.segments.insert(generation, SegmentEntry { file: Arc::clone(&file), size: SEGMENT, live: 0 });
        }
        for (stream, segments) in streams {
            for (seq, segment) in (1..).zip(*segments) {
                let location = Location { segment: *segment, offset: 100, data_bytes };
                index.apply(seq, Change::Put { stream: *stream, seq, location }).unwrap();
            }
        }
        index
    }

    fn limits(kept_bytes_max: u64, moved_bytes_max: u64) -> RelocationLimits {
        RelocationLimits { kept_bytes_max, moved_bytes_max, stream_bytes_max: 0 }
    }

    #[test]
    fn streams_with_the_oldest_records_are_chosen_first() {
        let index = index(&[(1, &[9]), (2, &[1, 9]), (3, &[4]), (4, &[10])], 10);
        let plan = |kept, moved| plan_relocation(&index, limits(kept, moved), |_| true);
        assert_eq!(plan(9 * SEGMENT, 500), NONE, "within the bound");
        assert_eq!(plan(8 * SEGMENT, 500), [2], "stream 3 may stay");
        assert_eq!(plan(3 * SEGMENT, 500), [2, 3]);
        assert_eq!(plan(0, 500), [2, 3, 1], "records of the newest segment keep nothing");
        assert_eq!(plan(3 * SEGMENT, 120), [2], "as much as fits");
    }

    #[test]
    fn unmovable_stream_ends_the_plan() {
        let mut index = index(&[(2, &[1]), (3, &[4])], 10);
        assert_eq!(plan_relocation(&index, limits(0, 500), |stream| stream != 3), [2]);
        index.streams.get_mut(&2).unwrap().tail.frozen = true;
        assert_eq!(plan_relocation(&index, limits(0, 500), |_| true), NONE);
    }

    #[test]
    fn moves_must_free_twice_the_written_bytes() {
        let dense: Vec<(u64, Vec<u64>)> = (1..=9).map(|segment| (segment, vec![segment])).collect();
        let dense: Vec<(u64, &[u64])> = dense.iter().map(|(stream, at)| (*stream, &at[..])).collect();
        assert_eq!(plan_relocation(&index(&dense, 900), limits(0, 5_000), |_| true), NONE);
        assert_eq!(plan_relocation(&index(&dense, 100), limits(0, 5_000), |_| true).len(), 9);
    }

    #[test]
    fn large_stream_is_moved_alone() {
        let index = index(&[(2, &[1, 2]), (3, &[4])], 900);
        let limits = RelocationLimits { stream_bytes_max: 2_000, ..limits(0, 500) };
        assert_eq!(plan_relocation(&index, limits, |_| true), NONE);
        assert_eq!(
            plan_relocation(&index, RelocationLimits { kept_bytes_max: 0, ..limits }, |stream| stream == 3),
            NONE
        );
        let index = self::index(&[(2, &[1, 2]), (3, &[8])], 900);
        assert_eq!(plan_relocation(&index, limits, |_| true), [2]);
    }
}
