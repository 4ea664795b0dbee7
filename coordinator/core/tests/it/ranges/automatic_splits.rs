//! Automatic splits in tables by ranges: selection, timing, concurrency, and pauses.

use crate::bed::ranges::{TIMES, key, times};
use crate::bed::{FORMED_AT, TestBed};
use crate::random::cases;
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;
const LIMITS: RangeLimits =
    RangeLimits { split_above_bytes: Some(4 * MIB), split_above_rate: Some(1_000), ..RangeLimits::NONE };
const ABOVE: ExceededLimit = ExceededLimit::Bytes(5 * MIB);

/// Creates this number of nodes and a table by ranges, split at these keys, with limits.
fn ranges(nodes: usize, replication: u8, split_at: &[&str]) -> TestBed {
    TestBed::with_ranges(nodes, replication, split_at, LIMITS)
}

impl TestBed {
    /// Reports by its leader that the partition should be split. Returns the coordinator's decision, and the error of a
    /// refusal.
    fn outgrown(&mut self, index: u32, at: &str, by: ExceededLimit) -> Result<bool, ErrorDetail> {
        let row = self.of_times(index).clone();
        let leader = *row.leader_placement().expect("a leader");
        let fact = Fact::Outgrown { at: key(at), by };
        let (epoch, version) = (row.epoch, row.version);
        let report = Report { partition: row.id, placement: leader.id, epoch, version, fact };
        self.report(leader.node, &report)?;
        Ok(self.of_times(index).split.is_some() && row.split.is_none())
    }

    fn limit(&mut self, change: TableChange) {
        let command = check_alter_table(&self.state, &self.state.tables[&TIMES], &change).expect("it may");
        self.ok(command.expect("a change"));
    }

    fn give_up(&mut self, index: u32) {
        self.ok(check_cancel_split(&self.state, times(index)).expect("under way"));
        assert_eq!(self.state.partitions.splitting().count(), 0);
    }
}

#[test]
fn partition_above_limit_is_split_with_reason() {
    for by in [ABOVE, ExceededLimit::Rate(1_001)] {
        let mut bed = ranges(3, 3, &[]);
        assert_eq!(bed.outgrown(0, "m", by), Ok(true));
        let begun = bed.state.events.iter().rev().find_map(|event| match &event.what {
            EventKind::SplitBegun { right, at, outgrown, .. } => Some((*right, at.clone(), *outgrown)),
            _ => None,
        });
        assert_eq!(begun, Some((times(1), key("m"), Some(by))));
        bed.round_trip();
        bed.settle();
        assert_eq!(bed.of_times(0).range.end, Some(key("m")));
        assert_eq!(bed.of_times(1).range.begin, key("m"));
        assert_eq!(bed.state.tables[&TIMES].keys, Keys::Range { next: 2, limits: LIMITS }, "limits stay");
        assert_eq!(bed.outgrown(1, "t", by), Ok(true), "and again");
    }
}

#[test]
fn partition_below_limits_is_not_split() {
    let mut bed = ranges(3, 3, &[]);
    for by in [ExceededLimit::Bytes(4 * MIB), ExceededLimit::Rate(1_000), ExceededLimit::Bytes(0)] {
        assert_eq!(bed.outgrown(0, "m", by), Ok(false), "{by:?}");
    }
    bed.limit(TableChange { split_above_bytes: Some(None), ..TableChange::default() });
    assert_eq!(bed.outgrown(0, "m", ABOVE), Ok(false), "that limit was taken away meanwhile");
    assert_eq!(bed.outgrown(0, "m", ExceededLimit::Rate(2_000)), Ok(true), "the other one stands");
}

#[test]
fn report_from_before_row_change_is_refused() {
    let mut bed = ranges(3, 3, &[]);
    let row = bed.of_times(0).clone();
    let leader = *row.leader_placement().expect("a leader");
    let fact = Fact::Outgrown { at: key("m"), by: ABOVE };
    let report = Report { partition: row.id, placement: leader.id, epoch: row.epoch, version: row.version, fact };
    let other = *row.placements.iter().find(|copy| copy.id != leader.id).expect("another copy");
    let follower = Report { placement: other.id, ..report.clone() };
    assert_eq!(bed.report(other.node, &follower).unwrap_err().kind, ErrorKind::NotPartitionLeader);
    bed.outgrown(0, "m", ABOVE).expect("it is split");
    bed.settle();
    // As far as the measuring leader knows, the half holds as much as the whole did.
    assert_eq!(bed.report(leader.node, &report).unwrap_err().kind, ErrorKind::StaleVersion);
    assert!(bed.of_times(0).split.is_none());
}

#[test]
fn automatic_split_passes_operators_checks() {
    let mut bed = ranges(3, 3, &[]);
    for (at, why) in [("", "key"), ("m", "is down")] {
        if at == "m" {
            let cyrene = bed.node("cyrene");
            bed.fail(cyrene);
        }
        let error = bed.outgrown(0, at, ABOVE).unwrap_err();
        assert!(error.kind == ErrorKind::Refused && error.message.contains(why), "{error:?}");
    }
}

#[test]
fn abandoned_attempt_is_retried_with_growing_pause() {
    let mut bed = ranges(3, 3, &[]);
    for pause_ms in [10_000, 20_000, 40_000] {
        assert_eq!(bed.outgrown(0, "m", ABOVE), Ok(true));
        assert_eq!(bed.outgrown(0, "m", ABOVE), Ok(false), "it is under way");
        bed.give_up(0);
        let error = bed.outgrown(0, "m", ABOVE).unwrap_err();
        assert!(error.message.contains("abandoned"), "{error:?}");
        bed.pass(pause_ms - 2_000, &[]);
        assert_eq!(bed.outgrown(0, "m", ABOVE).unwrap_err().kind, ErrorKind::Refused);
        bed.pass(2_000, &[]);
    }
    assert_eq!(bed.outgrown(0, "m", ABOVE), Ok(true));
    bed.settle();
    assert_eq!(bed.outgrown(0, "c", ABOVE), Ok(true), "one that was done ends that");
    bed.ok(check_cancel_split(&bed.state, times(0)).expect("under way"));
    assert_eq!(bed.outgrown(0, "c", ABOVE).unwrap_err().kind, ErrorKind::Refused, "an operator wants none of it");
    bed.pass(10_200, &[]);
    assert_eq!(bed.outgrown(0, "c", ABOVE), Ok(true));
}

#[test]
fn automatic_split_continues_under_another_coordinator() {
    let mut bed = ranges(3, 3, &[]);
    bed.outgrown(0, "m", ABOVE).expect("it is split");
    bed.liveness = Liveness::new(bed.now);
    bed.settle();
    assert!(bed.of_times(0).split.is_none() && bed.state.partition(times(1)).is_some());
    assert_eq!(bed.outgrown(0, "c", ABOVE), Ok(true));
}

#[test]
fn few_automatic_splits_run_one_per_node() {
    let mut bed = ranges(6, 1, &["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]);
    let mut busy = BTreeSet::new();
    let points = (0..12).zip(["a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1", "i1", "j1", "k1", "l1"]);
    let leader = |index| bed.of_times(index).leader_placement().expect("a leader").node;
    let mut points: Vec<_> = points.map(|(index, at)| (leader(index), index, at)).collect();
    // In order of nodes, each of which has two.
    points.sort_unstable();
    for (node, index, at) in points {
        let room = busy.len() < 4 && !busy.contains(&node);
        match bed.outgrown(index, at, ABOVE) {
            Ok(begun) => assert!(begun && room && busy.insert(node), "partition {index} on {node:?}, beside {busy:?}"),
            Err(error) => assert!(error.kind == ErrorKind::Refused && !room, "partition {index}: {error:?}"),
        }
    }
    assert_eq!((busy.len(), bed.state.partitions.splitting().count()), (4, 4));
    bed.settle();
    assert_eq!(bed.state.partitions.count_of(TIMES), 16);
}

#[test]
fn void_proposal_is_made_again() {
    let mut bed = ranges(3, 3, &[]);
    let row = bed.of_times(0).clone();
    let leader = *row.leader_placement().expect("a leader");
    let fact = Fact::Outgrown { at: key("m"), by: ABOVE };
    let report = Report { partition: row.id, placement: leader.id, epoch: row.epoch, version: row.version, fact };
    let incarnation = bed.incarnation(leader.node);
    let mut propose = |now| on_report(&bed.state, &mut bed.liveness, now, leader.node, incarnation, &report);
    assert_eq!(propose(bed.now).map(|commands| commands.len()), Ok(1));
    assert_eq!(propose(bed.now.plus(900)), Ok(vec![]), "it may be on its way");
    assert_eq!(propose(bed.now.plus(1_100)).map(|commands| commands.len()), Ok(1));
}

#[test]
fn split_limits_need_range_table_and_a_minimum() {
    let mut bed = ranges(3, 3, &[]);
    let bytes = |bytes| TableChange { split_above_bytes: Some(bytes), ..TableChange::default() };
    let check = |bed: &TestBed, table, change| check_alter_table(&bed.state, &bed.state.tables[&table], &change);
    let hashed = TableId::new(1);
    for limit in [None, Some(4 * MIB)] {
        let error = check(&bed, hashed, bytes(limit)).unwrap_err();
        assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains("--range"), "{error:?}");
    }
    assert_eq!(check(&bed, TIMES, bytes(Some(MIB - 1))).unwrap_err().kind, ErrorKind::InvalidArgument);
    assert_eq!(check(&bed, TIMES, bytes(LIMITS.split_above_bytes)), Ok(None), "it is so already");
    let version = bed.state.tables[&TIMES].version;
    let traits =
        |bytes| TableTraits { replication: 3, limits: RangeLimits { split_above_bytes: bytes, ..RangeLimits::NONE } };
    let alter = |table, if_version, bytes| Command::AlterTable { table, if_version, traits: traits(bytes) };
    assert_eq!(bed.refused(alter(TIMES, version, Some(7))), ErrorKind::InvalidArgument);
    let version_of_hashed = bed.state.tables[&hashed].version;
    assert_eq!(bed.refused(alter(hashed, version_of_hashed, Some(MIB))), ErrorKind::InvalidArgument);
    bed.ok(alter(TIMES, version, Some(MIB)));
    assert_eq!(bed.state.tables[&TIMES].traits(), traits(Some(MIB)));
    let partitioning = Partitioning::Range {
        split_at: vec![],
        limits: RangeLimits { split_above_bytes: Some(1), ..RangeLimits::NONE },
    };
    let dust = Command::CreateTable { name: "dust".into(), partitioning, replication: 1, holds: TableContent::Data };
    assert_eq!(bed.refused(dust), ErrorKind::InvalidArgument);
    bed.round_trip();
}

#[derive(Clone, Debug)]
enum Event {
    Outgrown { partition: usize, byte: u8, above: bool },
    Formed { partition: usize },
    Cancelled { partition: usize },
    Pass(u64),
    NewCoordinator,
}

fn happens() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (any::<usize>(), b'a'..=b'z', prop::bool::weighted(0.9))
            .prop_map(|(partition, byte, above)| Event::Outgrown { partition, byte, above }),
        4 => any::<usize>().prop_map(|partition| Event::Formed { partition }),
        1 => any::<usize>().prop_map(|partition| Event::Cancelled { partition }),
        4 => (100..8_000_u64).prop_map(Event::Pass),
        1 => Just(Event::NewCoordinator),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// For any reports and coordinators: only partitions above a limit are split, no node takes part in two splits, few
    /// are in progress, and an abandoned split pauses.
    #[test]
    fn automatic_splits_are_few_and_justified(steps in proptest::collection::vec(happens(), 1..60)) {
        let mut bed = ranges(5, 1, &["d", "k", "r"]);
        let mut rests: std::collections::BTreeMap<PartitionId, Millis> = Default::default();
        for step in steps {
            let splitting = |bed: &TestBed| -> Vec<PartitionId> { bed.state.partitions.splitting().map(|row| row.id).collect() };
            let before = splitting(&bed);
            let rows: Vec<PartitionId> = bed.state.partitions.of_table(TIMES).map(|row| row.id).collect();
            let of = |number: usize| rows[number % rows.len()].index;
            match step {
                Event::Outgrown { partition, byte, above } if bed.of_times(of(partition)).leader.is_some() => {
                    let index = of(partition);
                    let by = if above { ABOVE } else { ExceededLimit::Bytes(MIB) };
                    let begun = bed.outgrown(index, &char::from(byte).to_string(), by);
                    if begun == Ok(true) {
                        prop_assert!(above);
                        let rested = rests.get(&times(index)).is_none_or(|until| bed.now >= *until);
                        prop_assert!(rested, "{index} begins at {:?}, before {:?}", bed.now, rests);
                        rests.remove(&times(index));
                        prop_assert!(bed.state.partitions.splitting().count() <= 4);
                        let nodes: Vec<NodeId> = bed.state.partitions.splitting().flat_map(|row| row.placements.iter().map(|copy| copy.node)).collect();
                        prop_assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len());
                    }
                }
                Event::Formed { partition } => {
                    let index = of(partition);
                    if let Some(split) = bed.of_times(index).split.clone() {
                        let node = split.copies[0].node;
                        let told = if split.cut { bed.forms(node, index, FORMED_AT) } else { bed.mirrors(node, index) };
                        told.expect("it counts");
                    }
                }
                Event::Cancelled { partition } => {
                    if let Ok(command) = check_cancel_split(&bed.state, times(of(partition))) {
                        bed.ok(command);
                    }
                }
                Event::Pass(ms) => bed.pass(ms, &[]),
                Event::NewCoordinator => {
                    bed.liveness = Liveness::new(bed.now);
                    rests.clear();
                    // A new coordinator does not know the automatic ones in progress.
                    bed.settle();
                }
                Event::Outgrown { .. } => {}
            }
            for left in before.into_iter().filter(|left| !splitting(&bed).contains(left)) {
                let done = bed.state.events.iter().rev().find_map(|event| match &event.what {
                    EventKind::Parted { partition, .. } if *partition == left => Some(None),
                    EventKind::SplitAbandoned { partition, .. } if *partition == left => Some(Some(event.at)),
                    _ => None,
                });
                if let Some(Some(given_up)) = done {
                    rests.insert(left, given_up.plus(10_000));
                }
            }
        }
        bed.settle();
        prop_assert_eq!(bed.state.partitions.splitting().count(), 0);
    }
}
