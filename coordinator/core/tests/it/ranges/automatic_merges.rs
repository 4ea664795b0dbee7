//! Automatic merges in tables by ranges: selection, timing, concurrency, and pauses.

use crate::bed::TestBed;
use crate::bed::ranges::{TIMES, times};
use crate::random::cases;
use archon_coordinator_core::*;
use archon_types::*;
use bytes::Bytes;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const LIMITS: RangeLimits =
    RangeLimits { split_above_bytes: Some(8 * MIB), split_above_rate: None, merge_below_bytes: Some(2 * MIB) };
/// Two of them are within the limit, three are not.
const SMALL: LowUsage = LowUsage { bytes: MIB - MIB / 5, rate: None };

/// Creates three nodes and a table by ranges, split at these keys, with limits.
fn ranges(split_at: &[&str], limits: RangeLimits) -> TestBed {
    TestBed::with_ranges(3, 3, split_at, limits)
}

impl TestBed {
    /// Reports the partition as small by its leader. Returns true if a merge began, and the error of a refusal.
    fn undersized(&mut self, index: u32, has: LowUsage) -> Result<bool, ErrorDetail> {
        let row = self.of_times(index).clone();
        let leader = *row.leader_placement().expect("a leader");
        let (epoch, version) = (row.epoch, row.version);
        let before = self.state.partitions.merging().count();
        let fact = Fact::Undersized(has);
        self.report(leader.node, &Report { partition: row.id, placement: leader.id, epoch, version, fact })?;
        Ok(self.state.partitions.merging().count() > before)
    }

    fn starts(&self) -> Vec<Bytes> {
        let mut begins: Vec<Bytes> = self.state.partitions.of_table(TIMES).map(|row| row.range.begin.clone()).collect();
        begins.sort();
        begins
    }
}

#[test]
fn two_small_neighbours_merge_with_reason() {
    for order in [[1, 2], [2, 1]] {
        let mut bed = ranges(&["g", "p"], LIMITS);
        assert_eq!(bed.undersized(order[0], SMALL), Ok(false), "nothing is known of its neighbours");
        assert_eq!(bed.undersized(order[1], SMALL), Ok(true));
        let begun = bed.state.events.iter().rev().find_map(|event| match event.what {
            EventKind::MergeBegun { partition, right, undersized_bytes } => Some((partition, right, undersized_bytes)),
            _ => None,
        });
        assert_eq!(begun, Some((times(1), times(2), Some(2 * SMALL.bytes))));
        bed.round_trip();
        bed.settle();
        assert_eq!(bed.starts(), ["", "g"]);
        assert_eq!(bed.undersized(0, SMALL), Ok(false), "what was said of the other one is over with it");
    }
}

#[test]
fn large_or_unlimited_neighbours_are_not_merged() {
    let mut bed = ranges(&["g"], LIMITS);
    let has = |bytes| LowUsage { bytes, rate: None };
    assert_eq!(bed.undersized(0, has(MIB + 1)), Ok(false));
    assert_eq!(bed.undersized(1, has(MIB)), Ok(false), "together above the limit");
    assert_eq!(bed.undersized(1, has(2 * MIB + 1)), Ok(false), "above it by itself: what it said before is taken back");
    assert_eq!(bed.undersized(0, has(0)), Ok(false));
    assert_eq!(bed.undersized(1, has(2 * MIB)), Ok(true));

    let mut bed = ranges(&["g"], RangeLimits::NONE);
    assert_eq!((bed.undersized(0, has(0)), bed.undersized(1, has(0))), (Ok(false), Ok(false)));
    let by_load = RangeLimits { split_above_rate: Some(1_000), ..LIMITS };
    let mut bed = ranges(&["g"], by_load);
    let busy = |rate| LowUsage { bytes: 0, rate };
    assert_eq!((bed.undersized(0, busy(Some(300))), bed.undersized(1, busy(Some(201)))), (Ok(false), Ok(false)));
    assert_eq!(bed.undersized(1, busy(None)), Ok(false), "nobody counted");
    assert_eq!(bed.undersized(1, busy(Some(200))), Ok(true));
}

#[test]
fn outdated_small_reports_are_ignored() {
    let mut bed = ranges(&["g", "p"], LIMITS);
    bed.undersized(0, SMALL).expect("it is heard");
    bed.pass(30_000, &[]);
    assert_eq!(bed.undersized(1, SMALL), Ok(false), "half a minute ago");
    assert_eq!(bed.undersized(0, SMALL), Ok(true));
    bed.settle();
    // The first one now has the keys up to p; its last report covered those up to g.
    assert_eq!(bed.undersized(2, SMALL), Ok(false));
    let row = bed.of_times(2).clone();
    let leader = *row.leader_placement().expect("a leader");
    let other = row.placements.iter().find(|copy| copy.id != leader.id).expect("another copy");
    let report = Report {
        partition: row.id,
        placement: other.id,
        epoch: row.epoch,
        version: row.version,
        fact: Fact::Undersized(SMALL),
    };
    assert_eq!(bed.report(other.node, &report).unwrap_err().kind, ErrorKind::NotPartitionLeader);
    let before = Report { placement: leader.id, version: Version::new(row.version.get() - 1), ..report };
    assert_eq!(bed.report(leader.node, &before).unwrap_err().kind, ErrorKind::StaleVersion);
}

#[test]
fn automatic_merge_passes_operators_checks() {
    let mut bed = ranges(&["g"], LIMITS);
    bed.undersized(0, SMALL).expect("it is heard");
    let follower = bed.of_times(0).placements.iter().map(|copy| copy.node);
    let led = [0, 1].map(|index| bed.of_times(index).leader_placement().expect("a leader").node);
    let follower = follower.into_iter().find(|node| !led.contains(node)).expect("a node that leads neither");
    bed.fail(follower);
    let error = bed.undersized(1, SMALL).unwrap_err();
    assert!(error.kind == ErrorKind::Refused && error.message.contains("is down"), "{error:?}");
}

#[test]
fn abandoned_attempt_is_retried_with_growing_pause() {
    let mut bed = ranges(&["g"], LIMITS);
    let both = |bed: &mut TestBed| Ok::<_, ErrorDetail>(bed.undersized(0, SMALL)? || bed.undersized(1, SMALL)?);
    for rest_ms in [10_000, 20_000, 40_000] {
        assert_eq!(both(&mut bed), Ok(true));
        let (_, cancel) = check_cancel_merge(&bed.state, times(0)).expect("under way");
        bed.ok(cancel);
        bed.pass(1_100, &[]);
        let error = both(&mut bed).unwrap_err();
        assert!(error.kind == ErrorKind::Refused && error.message.contains("abandoned"), "{error:?}");
        bed.pass(rest_ms - 2_000, &[]);
        assert!(both(&mut bed).is_err());
        bed.pass(2_200, &[]);
    }
    assert_eq!(both(&mut bed), Ok(true));
    bed.settle();
    assert_eq!(bed.starts(), [""]);
}

#[test]
fn void_merge_proposal_counts_as_no_attempt() {
    let mut bed = ranges(&["g"], LIMITS);
    bed.undersized(0, SMALL).expect("it is heard");
    let row = bed.of_times(1).clone();
    let leader = *row.leader_placement().expect("a leader");
    let (epoch, version) = (row.epoch, row.version);
    let report = Report { partition: row.id, placement: leader.id, epoch, version, fact: Fact::Undersized(SMALL) };
    let incarnation = bed.state.incarnation(leader.node).expect("a node");
    let commands = on_report(&bed.state, &mut bed.liveness, bed.now, leader.node, incarnation, &report);
    assert_eq!(commands.map(|commands| commands.len()), Ok(1), "what is proposed is lost");
    assert_eq!(bed.undersized(1, SMALL), Ok(false), "it may come still");
    bed.pass(1_100, &[]);
    assert_eq!(bed.undersized(0, SMALL), Ok(true));
}

#[test]
fn few_automatic_merges_run_at_once() {
    let mut bed = ranges(&["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"], LIMITS);
    for index in 0..12 {
        let begun = bed.undersized(index, SMALL);
        match index {
            1 | 3 | 5 | 7 => assert_eq!(begun, Ok(true), "{index}"),
            9.. => assert!(begun.as_ref().unwrap_err().message.contains("4 merges are under way"), "{begun:?}"),
            _ => assert_eq!(begun, Ok(false), "{index}"),
        }
    }
    bed.settle();
    assert_eq!(bed.state.partitions.count_of(TIMES), 8);
}

#[test]
fn merge_limits_need_range_table_and_do_not_undo_splits() {
    let mut bed = ranges(&[], LIMITS);
    let below = |bytes| TableChange { merge_below_bytes: Some(bytes), ..TableChange::default() };
    let check = |bed: &TestBed, table, change| check_alter_table(&bed.state, &bed.state.tables[&table], &change);
    for limit in [None, Some(MIB)] {
        let error = check(&bed, TableId::new(1), below(limit)).unwrap_err();
        assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains("--range"), "{error:?}");
    }
    let error = check(&bed, TIMES, below(Some(4 * MIB + 1))).unwrap_err();
    assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains("split again"), "{error:?}");
    let less = TableChange { split_above_bytes: Some(Some(3 * MIB)), ..TableChange::default() };
    assert_eq!(check(&bed, TIMES, less).unwrap_err().kind, ErrorKind::InvalidArgument, "the other way round");
    let off = check(&bed, TIMES, below(None)).expect("it may").expect("a change");
    bed.ok(off);
    assert_eq!(bed.state.tables[&TIMES].keys.limits(), RangeLimits { merge_below_bytes: None, ..LIMITS });
}

#[derive(Clone, Debug)]
enum Event {
    Says { partition: usize, bytes: u64 },
    Cancelled { partition: usize },
    Split { partition: usize, at: u8 },
    Round,
    Pass(u64),
    NewCoordinator,
}

fn happens() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (any::<usize>(), 0..3 * MIB).prop_map(|(partition, bytes)| Event::Says { partition, bytes }),
        1 => any::<usize>().prop_map(|partition| Event::Cancelled { partition }),
        2 => (any::<usize>(), b'a'..=b'z').prop_map(|(partition, at)| Event::Split { partition, at }),
        3 => Just(Event::Round),
        3 => (100..12_000_u64).prop_map(Event::Pass),
        1 => Just(Event::NewCoordinator),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// For any reports and coordinators: automatic merges are within the limit, and few are in progress. All invariants
    /// are checked after each step, and after the last report no merge remains in progress.
    #[test]
    fn automatic_merges_are_few_and_justified(steps in proptest::collection::vec(happens(), 1..60)) {
        let mut bed = ranges(&["c", "f", "i", "l", "o", "r", "u", "x"], LIMITS);
        for step in steps {
            let rows: Vec<PartitionId> = bed.state.partitions.of_table(TIMES).map(|row| row.id).collect();
            let of = |number: usize| rows[number % rows.len()].index;
            match step {
                Event::Says { partition, bytes } if bed.of_times(of(partition)).leader.is_some() => {
                    let begun = bed.undersized(of(partition), LowUsage { bytes, rate: None });
                    if begun == Ok(true) {
                        prop_assert!(bytes <= 2 * MIB);
                        let under_way = bed.state.partitions.merging().filter(|row| row.absorbs().is_some()).count();
                        prop_assert!(under_way <= 4);
                        let last = bed.state.events.iter().rev().find_map(|event| match event.what {
                            EventKind::MergeBegun { undersized_bytes, .. } => undersized_bytes,
                            _ => None,
                        });
                        prop_assert!(last.is_some_and(|bytes| bytes <= 2 * MIB), "{:?}", last);
                    }
                }
                Event::Says { .. } => {}
                Event::Cancelled { partition } => {
                    if let Ok((_, command)) = check_cancel_merge(&bed.state, times(of(partition))) {
                        bed.ok(command);
                    }
                }
                Event::Split { partition, at } => {
                    if let Ok(plan) = check_split(&bed.state, times(of(partition)), &Bytes::copy_from_slice(&[at])) {
                        bed.ok(plan.command);
                    }
                }
                Event::Round => {
                    bed.heartbeat_all();
                    bed.round(&[]);
                }
                Event::Pass(ms) => bed.pass(ms, &[]),
                Event::NewCoordinator => bed.liveness = Liveness::new(bed.now),
            }
        }
        bed.settle();
        prop_assert_eq!(bed.state.partitions.merging().count(), 0);
        prop_assert!(bed.turn().is_empty());
    }
}
