//! Merges of partitions with their right neighbours: completed, abandoned, and during failures of nodes.

use crate::bed::TestBed;
use crate::bed::ranges::{TIMES, key, times};
use archon_coordinator_core::*;
use archon_types::*;
use bytes::Bytes;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

archon_types::shown_by! {
    AbsorbedStale => absorption_of_earlier_merge_does_not_count,
}

/// Creates three nodes and a table by ranges of three partitions, split at g and p, with copies on each.
pub(crate) fn ranges(replication: u8, mutant: Option<Mutant>) -> TestBed {
    let mut bed = TestBed::with_ranges(3, replication, &["g", "p"], RangeLimits::NONE);
    bed.state.mutant = mutant;
    bed
}

fn can_be(bed: &TestBed, index: u32) -> Result<MergePlan, ErrorDetail> {
    check_merge(&bed.state, times(index), |_| None)
}

impl TestBed {
    #[track_caller]
    pub(crate) fn begin_merge(&mut self, index: u32) -> Version {
        let plan = can_be(self, index).expect("can be merged");
        self.ok(plan.command);
        self.of_times(index).absorbs().expect("a merge").0.attempt
    }

    /// Reports this fact by the leader of the partition.
    fn leader_says(&mut self, index: u32, fact: Fact) -> Result<Vec<Response>, ErrorDetail> {
        let row = self.of_times(index).clone();
        let leader = *row.leader_placement().expect("a leader");
        let (epoch, version) = (row.epoch, row.version);
        self.report(leader.node, &Report { partition: row.id, placement: leader.id, epoch, version, fact })
    }

    fn is_merging(&self) -> bool {
        self.state.partitions.of_table(TIMES).any(|row| row.merge.is_some())
    }

    fn said(&self, fits: impl Fn(&EventKind) -> bool) -> bool {
        self.state.events.iter().any(|event| fits(&event.what))
    }
}

#[test]
fn merge_absorbs_keys_and_removes_right_neighbour() {
    let mut bed = ranges(3, None);
    let attempt = bed.begin_merge(0);
    let (left, right) = (bed.of_times(0), bed.of_times(1));
    assert_eq!((left.absorbs(), left.yields()), (left.merge.as_deref().map(|merge| (merge, times(1))), None));
    assert_eq!(right.yields().map(|(merge, left)| (merge.attempt, left)), Some((attempt, times(0))));
    assert_eq!(left.absorbed_range(), Some(right.range.clone()));
    assert_eq!((left.version, right.version), (attempt, attempt));
    let mut copies: Vec<(NodeId, PlacementId)> = right.placements.iter().map(|copy| (copy.node, copy.id)).collect();
    copies.sort_unstable();
    let (leader, epoch) = (*right.leader_placement().expect("a leader"), right.epoch);
    bed.leader_says(0, Fact::Absorbed { attempt }).expect("it counts");
    let left = bed.of_times(0);
    assert_eq!(left.range, KeyRange { begin: Bytes::new(), end: Some(key("p")) });
    assert_eq!((left.absorbed, left.merge.as_ref()), (attempt, None));
    assert!(bed.state.partition(times(1)).is_none());
    assert_eq!(bed.state.condemned.iter().map(|(node, copy, _)| (node, copy)).collect::<Vec<_>>(), copies);
    let former = bed.state.former_leaders.get(times(1), epoch).expect("withdrawn");
    assert!(former.lapsed && former.placement == leader.id);
    assert!(bed.said(|what| matches!(what, EventKind::Merged { right, .. } if *right == times(1))));
    bed.settle();
    assert!(bed.state.condemned.is_empty() && bed.state.former_leaders.get(times(1), epoch).is_none());
    assert_eq!(bed.leader_says(0, Fact::Absorbed { attempt }), Ok(vec![]), "said again");
    let split = check_split(&bed.state, times(0), &key("k")).expect("can be split again");
    assert_eq!(split.right, times(3), "no number is given twice");
    bed.ok(split.command);
    bed.settle();
    assert_eq!(bed.of_times(3).absorbed, attempt, "its copies have what was absorbed, and have to");
    bed.begin_merge(3);
    bed.settle();
    bed.begin_merge(0);
    bed.settle();
    assert_eq!(bed.of_times(0).range, KeyRange::ALL);
    bed.round_trip();
}

#[test]
fn overdue_merge_is_abandoned_naming_leaderless_partition() {
    let mut bed = ranges(3, None);
    bed.begin_merge(0);
    bed.pass(9_800, &[]);
    assert!(bed.is_merging(), "it has ten seconds");
    bed.pass(400, &[]);
    assert!(!bed.is_merging() && bed.of_times(1).range.begin == key("g"));
    assert!(bed.said(|what| matches!(what, EventKind::MergeAbandoned { why, .. } if why.contains("within 10000 ms"))));
    assert!(bed.state.condemned.is_empty(), "nothing is left of it");
    bed.settle();
    bed.begin_merge(0);
    for node in CITIES[1..].iter().map(|name| bed.node(name)).collect::<Vec<_>>() {
        bed.fail(node);
    }
    let away: Vec<NodeId> = CITIES[1..].iter().map(|name| bed.node(name)).collect();
    bed.fail(bed.node("athens"));
    bed.pass(10_200, &away);
    assert!(bed.said(
        |what| matches!(what, EventKind::MergeAbandoned { why, .. } if why.contains("no leader of times/0 and times/1"))
    ));
}

#[test]
fn too_large_right_partition_is_not_merged() {
    let mut bed = ranges(3, None);
    let error = check_merge(&bed.state, times(0), |of| (of == times(1)).then_some(MERGE_BYTES_MAX + 1)).unwrap_err();
    assert!(error.kind == ErrorKind::Refused && error.message.contains("has 16.0 MiB or more"), "{error:?}");
    assert!(check_merge(&bed.state, times(0), |_| Some(MERGE_BYTES_MAX)).is_ok());
    let attempt = bed.begin_merge(0);
    assert_eq!(bed.leader_says(0, Fact::Unabsorbable { attempt: Version::new(1), bytes: 9 }), Ok(vec![]));
    bed.leader_says(0, Fact::Unabsorbable { attempt, bytes: 17_000_000 }).expect("it counts");
    assert!(!bed.is_merging());
    assert!(
        bed.said(|what| matches!(what, EventKind::MergeAbandoned { why, .. } if why.contains("times/1 has 16.2 MiB")))
    );
}

#[test]
fn merge_above_split_limit_is_refused() {
    const MIB: u64 = 1 << 20;
    let limits = RangeLimits { split_above_bytes: Some(MIB), ..RangeLimits::NONE };
    let bed = TestBed::with_ranges(3, 3, &["g", "p"], limits);
    let check = |left: Option<u64>, right: Option<u64>| {
        let bytes_of = |of: PartitionId| if of == times(0) { left } else { right };
        check_merge(&bed.state, times(0), bytes_of).map_err(|error| (error.kind, error.message))
    };
    for (left, right) in [(Some(MIB - 10), Some(11)), (None, Some(MIB + 1)), (Some(MIB + 1), None)] {
        let (kind, why) = check(left, right).expect_err("it would be split again");
        assert!(kind == ErrorKind::Refused && why.contains("1048577 bytes together"), "{why}");
        assert!(why.contains("above 1048576") && why.contains("table alter times --split-above none"), "{why}");
    }
    assert!(check(Some(MIB - 10), Some(10)).is_ok() && check(None, None).is_ok());
}

#[test]
fn operator_can_cancel_unfinished_merge() {
    let mut bed = ranges(3, None);
    let cancelled = |bed: &TestBed, index| check_cancel_merge(&bed.state, times(index)).map_err(|error| error.message);
    assert!(cancelled(&bed, 0).unwrap_err().contains("times/0 is not being merged"));
    let attempt = bed.begin_merge(0);
    assert!(cancelled(&bed, 1).unwrap_err().contains("cancel the merge of times/0"));
    let (right, cancel) = check_cancel_merge(&bed.state, times(0)).expect("under way");
    assert_eq!(right, times(1));
    bed.ok(cancel.clone());
    assert!(!bed.is_merging());
    assert_eq!(bed.refused(cancel), ErrorKind::StaleVersion);
    assert_eq!(bed.leader_says(0, Fact::Absorbed { attempt }), Ok(vec![]), "it is over");
    assert_eq!(bed.of_times(0).range.end, Some(key("g")));
}

#[test]
fn concurrent_merge_commands_exclude_each_other() {
    let mut bed = ranges(3, None);
    let (first, second, split) =
        (can_be(&bed, 0).unwrap(), can_be(&bed, 1).unwrap(), check_split(&bed.state, times(1), &key("k")).unwrap());
    bed.ok(first.command);
    assert_eq!(bed.refused(second.command), ErrorKind::StaleVersion, "its row changed as well");
    assert_eq!(bed.refused(split.command), ErrorKind::StaleVersion);
    let (_, cancel) = check_cancel_merge(&bed.state, times(0)).unwrap();
    bed.ok(cancel);
    let plan = can_be(&bed, 0).unwrap();
    // The other one of the two rows changes.
    let row = bed.of_times(1).clone();
    bed.ok(Command::Change(vec![PartitionChange::one(row.id, row.version, Edit::Refuse)]));
    assert_eq!(bed.refused(plan.command), ErrorKind::StaleVersion);
    assert!(!bed.is_merging());
}

#[test]
fn refused_merge_states_reason() {
    let mut bed = ranges(3, None);
    let check = |bed: &TestBed, id| {
        let error = check_merge(&bed.state, id, |_| None).expect_err("it cannot be");
        (error.kind, error.message)
    };
    let found = check(&bed, PartitionId::new(TableId::new(1), 0));
    assert!(found.0 == ErrorKind::InvalidArgument && found.1.contains("hash table"), "{found:?}");
    assert_eq!(check(&bed, times(7)).0, ErrorKind::NotFound);
    let found = check(&bed, times(2));
    assert!(found.0 == ErrorKind::Refused && found.1.contains("no right neighbour"), "{found:?}");
    bed.begin_merge(0);
    for (index, name) in [(0, "times/0"), (1, "times/1")] {
        let found = check(&bed, times(index));
        assert!(found.0 == ErrorKind::AssignmentInProgress && found.1.contains(name), "{found:?}");
        let cancel = "cancel it: `archon partition merge 0 --table times --cancel`";
        assert!(found.1.contains(cancel), "a merge is named after the one that gets the keys: {found:?}");
    }
    let found = check_split(&bed.state, times(1), &key("k")).unwrap_err();
    assert!(found.kind == ErrorKind::AssignmentInProgress && found.message.contains("merged"), "{found:?}");
    bed.settle();
    let split = check_split(&bed.state, times(2), &key("t")).expect("can be");
    bed.ok(split.command);
    let found = check(&bed, times(0));
    assert!(found.0 == ErrorKind::AssignmentInProgress && found.1.contains("times/2 is being split"), "{found:?}");
    bed.settle();
    bed.fail(bed.node("cyrene"));
    let found = check(&bed, times(0));
    assert!(found.0 == ErrorKind::Refused && found.1.contains("cyrene"), "{found:?}");
    bed.fail(bed.node("byzantium"));
    assert!(check(&bed, times(0)).1.contains("2 of 3 nodes are failed"));
}

#[test]
fn drop_of_table_ends_its_merge() {
    let mut bed = ranges(3, None);
    bed.begin_merge(0);
    bed.ok(Command::DropTable { table: TIMES });
    assert_eq!(bed.state.condemned.len(), 9);
    bed.settle();
    assert!(bed.state.condemned.is_empty() && bed.state.partitions.merging().next().is_none());
}

#[test]
fn accepted_loss_ends_merge_on_either_side() {
    for index in [0, 1] {
        let mut bed = ranges(1, None);
        let attempt = bed.begin_merge(0);
        let row = bed.of_times(index).clone();
        bed.fail(row.placements[0].node);
        let if_version = bed.of_times(index).version;
        bed.ok(Command::AcceptLoss { partition: row.id, if_version, outcome: LossOutcome::Empty });
        assert!(!bed.is_merging(), "of {index}");
        if index == 1 {
            assert_eq!(bed.leader_says(0, Fact::Absorbed { attempt }), Ok(vec![]));
        }
    }
}

/// Returns the copies of two partitions that are merged, before a third copy of each is wanted and some time after.
pub(crate) fn copies_when_more_are_wanted(bed: &mut TestBed) -> ([Vec<Placement>; 2], [Vec<Placement>; 2]) {
    let copies = |bed: &TestBed| [0, 1].map(|index| bed.of_times(index).placements.clone());
    let before = copies(bed);
    let traits = TableTraits { replication: 3, limits: RangeLimits::NONE };
    bed.ok(Command::AlterTable { table: TIMES, if_version: bed.state.tables[&TIMES].version, traits });
    bed.pass(2_000, &[]);
    (before, copies(bed))
}

#[test]
fn merging_partition_is_not_repaired_or_moved() {
    let mut bed = ranges(2, None);
    bed.begin_merge(0);
    let (before, after) = copies_when_more_are_wanted(&mut bed);
    assert_eq!(after, before);
    bed.settle();
    assert_eq!(bed.of_times(0).live().count(), 3);
}

fn absorption_of_earlier_merge_does_not_count(mutant: Option<Mutant>) -> bool {
    let mut bed = ranges(3, mutant);
    let early = bed.begin_merge(0);
    bed.ok(check_cancel_merge(&bed.state, times(0)).expect("under way").1);
    bed.begin_merge(0);
    bed.leader_says(0, Fact::Absorbed { attempt: early }).expect("an answer");
    bed.is_merging()
}

#[test]
fn keys_taken_offline_are_not_served_after_merge() {
    let mut bed = ranges(3, None);
    let attempt = bed.begin_merge(0);
    let order = Order::Offline { partition: times(1) };
    bed.ok(Command::Control {
        if_controls: bed.state.controls_version,
        order,
        why: "it shows what nobody may see".into(),
    });
    bed.leader_says(0, Fact::Absorbed { attempt }).expect("an answer");
    bed.settle();
    let row = bed.of_times(0);
    assert!(!(row.range.contains(b"h") && row.status == PartitionStatus::Online), "{row:?}");
}

#[test]
fn merge_without_right_neighbour_is_refused() {
    let bed = TestBed::with_ranges(3, 3, &[], RangeLimits::NONE);
    let error = check_merge(&bed.state, times(0), |_| None).expect_err("there is no other");
    assert!(error.message.ends_with("the only one of its table and has no neighbour"), "{error:?}");
    let bed = ranges(3, None);
    let error = check_merge(&bed.state, times(2), |_| None).expect_err("it is the last");
    assert!(error.message.ends_with("to merge it into its left neighbour, merge times/1"), "{error:?}");
}

#[test]
fn merge_during_split_names_cancel_command() {
    let mut bed = ranges(3, None);
    bed.begin_split(1, "j");
    let error = check_merge(&bed.state, times(0), |_| None).expect_err("its neighbour is being split");
    assert!(error.message.ends_with("cancel it: `archon partition split 1 --table times --cancel`"), "{error:?}");
}
