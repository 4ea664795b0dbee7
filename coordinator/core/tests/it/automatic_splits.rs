//! Partitions of a table by ranges that are split without anybody asking: which are, when, how many at once, and how soon again.

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
const ABOVE: Outgrown = Outgrown::Bytes(5 * MIB);

/// So many nodes and a table by ranges, split at these keys, with limits.
fn ranges(nodes: usize, replication: u8, split_at: &[&str]) -> TestBed {
    TestBed::with_ranges(nodes, replication, split_at, LIMITS)
}

impl TestBed {
    /// Its leader says that the partition should be split; what the coordinator decides, and the error if it is refused.
    fn outgrown(&mut self, index: u32, at: &str, by: Outgrown) -> Result<bool, ErrorDetail> {
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
fn a_partition_above_its_limit_is_split_and_it_is_said_why() {
    for by in [ABOVE, Outgrown::Rate(1_001)] {
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
fn what_is_above_no_limit_is_not_split() {
    let mut bed = ranges(3, 3, &[]);
    for by in [Outgrown::Bytes(4 * MIB), Outgrown::Rate(1_000), Outgrown::Bytes(0)] {
        assert_eq!(bed.outgrown(0, "m", by), Ok(false), "{by:?}");
    }
    bed.limit(TableChange { split_above_bytes: Some(None), ..TableChange::default() });
    assert_eq!(bed.outgrown(0, "m", ABOVE), Ok(false), "that limit was taken away meanwhile");
    assert_eq!(bed.outgrown(0, "m", Outgrown::Rate(2_000)), Ok(true), "the other one stands");
}

#[test]
fn what_a_leader_knew_before_the_row_changed_is_not_believed() {
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
    // The half has what the whole had, as far as the leader that measured it knows.
    assert_eq!(bed.report(leader.node, &report).unwrap_err().kind, ErrorKind::StaleVersion);
    assert!(bed.of_times(0).split.is_none());
}

#[test]
fn it_is_judged_as_an_operators_split_is() {
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
fn one_that_was_given_up_is_tried_again_later_and_later() {
    let mut bed = ranges(3, 3, &[]);
    for pause_ms in [10_000, 20_000, 40_000] {
        assert_eq!(bed.outgrown(0, "m", ABOVE), Ok(true));
        assert_eq!(bed.outgrown(0, "m", ABOVE), Ok(false), "it is under way");
        bed.give_up(0);
        let error = bed.outgrown(0, "m", ABOVE).unwrap_err();
        assert!(error.message.contains("given up"), "{error:?}");
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
fn another_coordinator_goes_on_with_it() {
    let mut bed = ranges(3, 3, &[]);
    bed.outgrown(0, "m", ABOVE).expect("it is split");
    bed.liveness = Liveness::new(bed.now);
    bed.settle();
    assert!(bed.of_times(0).split.is_none() && bed.state.partition(times(1)).is_some());
    assert_eq!(bed.outgrown(0, "c", ABOVE), Ok(true));
}

#[test]
fn no_node_copies_for_two_at_once_and_few_are_under_way() {
    let mut bed = ranges(6, 1, &["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]);
    let mut busy = BTreeSet::new();
    let points = (0..12).zip(["a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1", "i1", "j1", "k1", "l1"]);
    let leader = |index| bed.of_times(index).leader_placement().expect("a leader").node;
    let mut points: Vec<_> = points.map(|(index, at)| (leader(index), index, at)).collect();
    // One node after the other, each of which has two.
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
fn a_proposal_that_came_to_nothing_is_made_again() {
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
fn limits_are_for_tables_by_ranges_and_not_for_dust() {
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
    let dust = Command::CreateTable { name: "dust".into(), partitioning, replication: 1, holds: Holds::Data };
    assert_eq!(bed.refused(dust), ErrorKind::InvalidArgument);
    bed.round_trip();
}

#[derive(Clone, Debug)]
enum Happens {
    Outgrown { partition: usize, byte: u8, above: bool },
    Formed { partition: usize },
    Cancelled { partition: usize },
    Pass(u64),
    NewCoordinator,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => (any::<usize>(), b'a'..=b'z', prop::bool::weighted(0.9))
            .prop_map(|(partition, byte, above)| Happens::Outgrown { partition, byte, above }),
        4 => any::<usize>().prop_map(|partition| Happens::Formed { partition }),
        1 => any::<usize>().prop_map(|partition| Happens::Cancelled { partition }),
        4 => (100..8_000_u64).prop_map(Happens::Pass),
        1 => Just(Happens::NewCoordinator),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever leaders say, and whoever coordinates: only what is above a limit is split, no node takes part in two, few are under
    /// way, and what was given up has its rest.
    #[test]
    fn splits_that_begin_by_themselves_are_few_and_have_a_cause(steps in proptest::collection::vec(happens(), 1..60)) {
        let mut bed = ranges(5, 1, &["d", "k", "r"]);
        let mut rests: std::collections::BTreeMap<PartitionId, Millis> = Default::default();
        for step in steps {
            let splitting = |bed: &TestBed| -> Vec<PartitionId> { bed.state.partitions.splitting().map(|row| row.id).collect() };
            let before = splitting(&bed);
            let rows: Vec<PartitionId> = bed.state.partitions.of_table(TIMES).map(|row| row.id).collect();
            let of = |number: usize| rows[number % rows.len()].index;
            match step {
                Happens::Outgrown { partition, byte, above } if bed.of_times(of(partition)).leader.is_some() => {
                    let index = of(partition);
                    let by = if above { ABOVE } else { Outgrown::Bytes(MIB) };
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
                Happens::Formed { partition } => {
                    let index = of(partition);
                    if let Some(split) = bed.of_times(index).split.clone() {
                        let node = split.copies[0].node;
                        let told = if split.cut { bed.forms(node, index, FORMED_AT) } else { bed.mirrors(node, index) };
                        told.expect("it counts");
                    }
                }
                Happens::Cancelled { partition } => {
                    if let Ok(command) = check_cancel_split(&bed.state, times(of(partition))) {
                        bed.ok(command);
                    }
                }
                Happens::Pass(ms) => bed.pass(ms, &[]),
                Happens::NewCoordinator => {
                    bed.liveness = Liveness::new(bed.now);
                    rests.clear();
                    // It does not know which of those under way began by themselves.
                    bed.settle();
                }
                Happens::Outgrown { .. } => {}
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
