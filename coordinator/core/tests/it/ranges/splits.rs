//! Splits of partitions of a table by ranges: completed, abandoned, and during failures of nodes.

use crate::bed::ranges::{TIMES, key, times};
use crate::bed::{FORMED_AT, TestBed, boxed, register};
use archon_coordinator_core::*;
use archon_types::*;
use bytes::Bytes;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

archon_types::shown_by! {
    FormedStale => copy_formed_in_earlier_split_does_not_count,
    FormedLost => lost_copy_is_not_formed,
    PartBelowMin => no_split_completes_with_too_few_copies,
    RightEpochRestarts => epochs_of_new_partition_continue,
}

/// Creates three nodes and a table by ranges of one partition with a copy on each, without further changes.
pub(crate) fn ranges(replication: u8, mutant: Option<Mutant>) -> TestBed {
    let mut bed = TestBed::with_ranges(3, replication, &[], RangeLimits::NONE);
    bed.state.mutant = mutant;
    bed
}

impl TestBed {
    #[track_caller]
    pub(crate) fn begin_split(&mut self, index: u32, at: &str) -> Split {
        let plan = check_split(&self.state, times(index), &key(at)).expect("can be split");
        self.ok(plan.command);
        (**self.of_times(index).split.as_ref().expect("a split")).clone()
    }

    /// Begins a split and reports every copy as having the keys, so that they are given up.
    #[track_caller]
    pub(crate) fn begin_cut(&mut self, index: u32, at: &str) -> Split {
        let split = self.begin_split(index, at);
        for copy in &split.copies {
            self.mirrors(copy.node, index).expect("it counts");
        }
        let commands = self.turn();
        self.commit(commands);
        let split = (**self.of_times(index).split.as_ref().expect("a split")).clone();
        assert!(split.cut);
        split
    }

    /// Reports that the node's copy has the keys.
    pub(crate) fn mirrors(&mut self, node: NodeId, index: u32) -> Result<Vec<Response>, ErrorDetail> {
        self.tells(node, index, |attempt, copy| Fact::Mirroring { attempt, copy })
    }

    /// Reports that the node has formed its copy.
    pub(crate) fn forms(&mut self, node: NodeId, index: u32, position: Position) -> Result<Vec<Response>, ErrorDetail> {
        self.tells(node, index, |attempt, copy| Fact::Formed { attempt, copy, position })
    }

    pub(crate) fn tells(
        &mut self,
        node: NodeId,
        index: u32,
        fact: impl Fn(Version, PlacementId) -> Fact,
    ) -> Result<Vec<Response>, ErrorDetail> {
        let row = self.of_times(index).clone();
        let split = row.split.as_deref().expect("a split");
        let fact = fact(split.attempt, split.copy_on(node).expect("a copy").id);
        let placement = row.placement_on(node).expect("a copy of the left one").id;
        self.report(node, &Report { partition: row.id, placement, epoch: row.epoch, version: row.version, fact })
    }

    pub(crate) fn leader_of(&self, index: u32) -> Option<NodeId> {
        self.of_times(index).leader_placement().map(|leader| leader.node)
    }

    pub(crate) fn is_split(&self, index: u32) -> bool {
        self.of_times(index).split.is_some()
    }

    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        CITIES.map(|name| self.node(name)).to_vec()
    }
}

pub(crate) fn last_event(bed: &TestBed, fits: impl Fn(&EventKind) -> bool) -> bool {
    bed.state.events.iter().any(|event| fits(&event.what))
}

#[test]
fn split_yields_two_partitions_that_share_the_keys() {
    let mut bed = ranges(3, None);
    let split = bed.begin_split(0, "m");
    assert_eq!((split.right, split.copies.len(), split.formed()), (1, 3, 0));
    assert!(bed.of_times(0).range.is_all() && bed.state.partition(times(1)).is_none(), "nothing has changed hands");
    bed.settle();
    let (left, right) = (bed.of_times(0), bed.of_times(1));
    assert_eq!(left.range, KeyRange { begin: Bytes::new(), end: Some(key("m")) });
    assert_eq!(right.range, KeyRange { begin: key("m"), end: None });
    assert!(left.split.is_none() && right.status == PartitionStatus::Online && right.live().count() == 3);
    let ids: Vec<PlacementId> = right.placements.iter().map(|placement| placement.id).collect();
    assert_eq!(ids, split.copies.iter().map(|copy| copy.id).collect::<Vec<_>>());
    assert_eq!(bed.state.tables[&TIMES].keys, Keys::Range { next: 2, limits: RangeLimits::NONE });
    assert!(last_event(&bed, |what| matches!(what, EventKind::Parted { right, .. } if *right == times(1))));
    bed.begin_split(1, "t");
    bed.round_trip();
    bed.settle();
    assert_eq!(bed.of_times(2).range, KeyRange { begin: key("t"), end: None });
}

#[test]
fn split_not_formed_in_time_is_abandoned_without_trace() {
    let mut bed = ranges(3, None);
    let split = bed.begin_cut(0, "m");
    bed.pass(4_800, &[]);
    assert!(bed.is_split(0), "it has five seconds");
    bed.pass(400, &[]);
    assert!(!bed.is_split(0) && bed.of_times(0).range.is_all());
    let why =
        |what: &EventKind| matches!(what, EventKind::SplitAbandoned { why, .. } if why.contains("waited for: athens"));
    assert!(last_event(&bed, why), "{:#?}", bed.state.events.back());
    let condemned = |bed: &TestBed| bed.state.condemned.iter().map(|(node, copy, _)| (node, copy)).collect::<Vec<_>>();
    assert_eq!(condemned(&bed), split.copies.iter().map(|copy| (copy.node, copy.id)).collect::<Vec<_>>());
    bed.settle();
    assert!(condemned(&bed).is_empty(), "they are deleted");
    assert_eq!(bed.begin_split(0, "m").right, 2, "no number is given twice");
    bed.settle();
    assert!(bed.state.partition(times(1)).is_none() && bed.of_times(2).range.begin == key("m"));
}

#[test]
fn straggling_copy_is_left_out_and_loaded_later() {
    let mut bed = ranges(3, None);
    let split = bed.begin_cut(0, "m");
    let nodes = bed.nodes();
    for node in &nodes[..2] {
        bed.forms(*node, 0, FORMED_AT).expect("it counts");
    }
    bed.pass(500, &[]);
    assert!(bed.is_split(0), "the third one has a second");
    bed.pass(700, &[]);
    let right = bed.of_times(1);
    assert_eq!(right.live().count(), 2);
    let third = split.copy_on(nodes[2]).expect("a copy").id;
    assert!(right.placement(third).is_none());
    assert!(bed.state.condemned.contains(nodes[2], third), "what it forms late is of no use");
    bed.settle();
    assert_eq!(bed.of_times(1).live().count(), 3, "repair has made another");
    assert!(bed.state.condemned.is_empty());
}

#[test]
fn split_ends_once_all_copies_are_formed() {
    let mut bed = ranges(3, None);
    bed.begin_cut(0, "m");
    for node in bed.nodes() {
        bed.forms(node, 0, FORMED_AT).expect("it counts");
        assert_eq!(bed.forms(node, 0, FORMED_AT), Ok(vec![]), "said again");
    }
    let commands = bed.turn();
    bed.commit(commands);
    assert!(!bed.is_split(0));
    assert_eq!(bed.of_times(1).status, PartitionStatus::Assigned);
}

#[test]
fn copy_formed_at_another_position_is_refused() {
    let mut bed = ranges(3, None);
    bed.begin_cut(0, "m");
    let nodes = bed.nodes();
    bed.forms(nodes[0], 0, FORMED_AT).expect("it counts");
    let refused = bed.forms(nodes[1], 0, Position::new(Epoch::new(2), Seq::new(8))).expect("an answer");
    assert!(refused[0].refusal().is_some_and(|why| why.message.contains("another position")), "{refused:?}");
    assert_eq!(bed.of_times(0).split.as_ref().map(|split| split.formed()), Some(1));
}

#[test]
fn failed_node_is_awaited_only_if_too_few_are_left() {
    let mut bed = ranges(3, None);
    bed.begin_cut(0, "m");
    let nodes = bed.nodes();
    let least = usize::from(bed.of_times(0).min_in_sync);
    assert_eq!(least, 2);
    bed.fail(nodes[2]);
    for node in &nodes[..2] {
        bed.forms(*node, 0, FORMED_AT).expect("it counts");
    }
    bed.pass(100, &[nodes[2]]);
    assert!(!bed.is_split(0), "both that are there are formed");
    bed.settle();

    let mut bed = ranges(3, None);
    bed.begin_cut(0, "m");
    bed.fail(nodes[2]);
    bed.fail(nodes[1]);
    bed.pass(100, &[nodes[1], nodes[2]]);
    assert!(!bed.is_split(0) && bed.of_times(0).range.is_all());
    assert!(last_event(
        &bed,
        |what| matches!(what, EventKind::SplitAbandoned { why, .. } if why.contains("only 1 of 2"))
    ));
    assert_eq!(bed.state.condemned.len(), 3, "those on failed nodes are deleted when they come back");
}

#[test]
fn operator_can_cancel_unfinished_split() {
    let mut bed = ranges(3, None);
    bed.begin_split(0, "m");
    let cancel = check_cancel_split(&bed.state, times(0)).expect("under way");
    bed.ok(cancel.clone());
    assert!(!bed.is_split(0));
    assert_eq!(bed.refused(cancel), ErrorKind::StaleVersion);
    let error = check_cancel_split(&bed.state, times(0)).expect_err("it is over");
    assert!(error.kind == ErrorKind::Refused && error.message.contains("times/0 is not being split"), "{error:?}");
}

#[test]
fn drop_of_table_ends_its_split() {
    let mut bed = ranges(3, None);
    bed.begin_split(0, "m");
    bed.ok(Command::DropTable { table: TIMES });
    assert_eq!(bed.state.condemned.len(), 6);
    bed.settle();
    assert!(bed.state.condemned.is_empty());
}

#[test]
fn lost_node_loses_copies_of_both_sides() {
    let mut bed = ranges(3, None);
    bed.begin_cut(0, "m");
    let node = bed.nodes()[1];
    bed.forms(node, 0, FORMED_AT).expect("it counts");
    bed.fail(node);
    let lost = check_lose_node(&bed.state, node).expect("failed");
    bed.ok(lost.command);
    let split = bed.of_times(0).split.clone().expect("it goes on");
    assert!(split.copy_on(node).is_none() && split.formed() == 0);
}

#[test]
fn refused_split_states_reason() {
    let mut bed = ranges(3, None);
    let check = |bed: &TestBed, id, at: &str| {
        let error = check_split(&bed.state, id, &key(at)).expect_err("it cannot be");
        // At any key: errors that do not concern the key are equal.
        let leads = |copy: Placement| bed.state.partitions.get(id).and_then(|row| row.leader) == Some(copy.id);
        let anywhere = check_splittable(&bed.state, id).map(leads);
        let about_key = error.message.contains("cannot be split at");
        assert_eq!(anywhere, if about_key { Ok(true) } else { Err(error.clone()) });
        (error.kind, error.message)
    };
    let hashed = PartitionId::new(TableId::new(1), 0);
    let found = check(&bed, hashed, "m");
    assert!(found.0 == ErrorKind::InvalidArgument && found.1.contains("hash table"), "{found:?}");
    assert_eq!(check(&bed, times(7), "m").0, ErrorKind::NotFound);
    bed.begin_split(0, "m");
    let found = check(&bed, times(0), "t");
    assert!(found.0 == ErrorKind::AssignmentInProgress && found.1.contains("into times/1"), "{found:?}");
    assert!(found.1.ends_with("cancel it: `archon partition split 0 --table times --cancel`"), "{found:?}");
    bed.settle();
    let already = "from \"m\" on, so that it begins there already";
    let cases = [("m", 0, "those of times/1 already"), ("t", 0, "times/1 has that key"), ("m", 1, already)];
    for (at, id, who) in cases.into_iter().chain([("a", 1, "times/0 has that key")]) {
        let found = check(&bed, times(id), at);
        assert!(found.0 == ErrorKind::Refused && found.1.contains("cannot be split at"), "{found:?}");
        assert!(found.1.ends_with(who), "{found:?}");
    }
    bed.fail(bed.node("cyrene"));
    let found = check(&bed, times(0), "c");
    assert!(found.0 == ErrorKind::Refused && found.1.contains("cyrene"), "{found:?}");
    bed.fail(bed.node("byzantium"));
    assert!(check(&bed, times(0), "c").1.contains("2 of 3 nodes are failed"));
}

#[test]
fn concurrent_splits_and_changes_exclude_each_other() {
    let mut bed = ranges(3, None);
    let first = check_split(&bed.state, times(0), &key("c")).expect("can be");
    let second = check_split(&bed.state, times(0), &key("t")).expect("can be");
    bed.ok(first.command);
    assert_eq!(bed.refused(second.command), ErrorKind::StaleVersion);
}

#[test]
fn split_partition_is_not_repaired_or_moved() {
    let mut bed = ranges(2, None);
    bed.begin_split(0, "m");
    let copies = bed.of_times(0).placements.clone();
    let change = TableChange { replication: Some(3), ..TableChange::default() };
    bed.ok(check_alter_table(&bed.state, &bed.state.tables[&TIMES], &change).expect("it may").expect("a change"));
    bed.pass(2_000, &[]);
    assert_eq!(bed.of_times(0).placements, copies);
    bed.settle();
    assert_eq!((bed.of_times(0).live().count(), bed.of_times(1).live().count()), (3, 3));
}

fn copy_formed_in_earlier_split_does_not_count(mutant: Option<Mutant>) -> bool {
    let mut bed = ranges(3, mutant);
    let early = bed.begin_split(0, "m");
    bed.ok(check_cancel_split(&bed.state, times(0)).expect("under way"));
    bed.begin_split(0, "m");
    let row = bed.of_times(0).clone();
    let split = row.split.as_ref().expect("a split");
    let copy = split.copies[0];
    let incarnation = bed.incarnation(copy.node);
    let (attempt, placement) = (early.attempt, copy.id);
    let edit = Edit::Formed { attempt, placement, incarnation, position: FORMED_AT };
    bed.one(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)]));
    bed.of_times(0).split.as_ref().is_some_and(|split| split.formed() == 0)
}

fn lost_copy_is_not_formed(mutant: Option<Mutant>) -> bool {
    let mut bed = ranges(3, mutant);
    bed.begin_cut(0, "m");
    let node = bed.node("cyrene");
    bed.forms(node, 0, FORMED_AT).expect("it counts");
    bed.fail(node);
    // It comes back with everything but the copy that it formed.
    let row = bed.state.node(node).expect("known").clone();
    let held =
        bed.state.partitions.on_node(node).filter_map(|row| row.placement_on(node)).map(|copy| copy.id).collect();
    let again = Register { held, last_incarnation: row.activated, ..register("cyrene", 3, 9_003) };
    let Response::Registered { node, incarnation } = bed.ok(boxed(again)) else { panic!("not registered") };
    bed.ok(Command::Activate { node, incarnation });
    bed.of_times(0).split.as_ref().is_some_and(|split| split.formed() == 0)
}

fn no_split_completes_with_too_few_copies(mutant: Option<Mutant>) -> bool {
    let mut bed = ranges(3, mutant);
    bed.begin_cut(0, "m");
    let node = bed.nodes()[0];
    bed.forms(node, 0, FORMED_AT).expect("it counts");
    let row = bed.of_times(0).clone();
    let leader = row.split.as_ref().and_then(|split| split.copy_on(node)).expect("a copy").id;
    let edit = Edit::Part { leader, incarnation: bed.incarnation(node) };
    bed.one(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)])).refusal().is_some()
}

fn epochs_of_new_partition_continue(mutant: Option<Mutant>) -> bool {
    let mut bed = ranges(3, mutant);
    let leader = bed.of_times(0).leader_placement().expect("a leader").node;
    bed.fail(leader);
    bed.rejoin(leader, 9_001);
    bed.settle();
    bed.begin_split(0, "m");
    let before = bed.of_times(0).epoch;
    bed.settle();
    assert!(before > Epoch::new(1));
    bed.of_times(1).epoch > before
}

#[test]
fn formed_copy_of_replaced_directory_is_not_counted() {
    let mut bed = ranges(3, None);
    bed.begin_cut(0, "m");
    let leader = bed.leader_of(0).expect("led");
    let gone = bed.nodes().into_iter().find(|node| *node != leader).expect("three nodes");
    let last = bed.nodes().into_iter().find(|node| *node != leader && *node != gone).expect("three nodes");
    bed.forms(gone, 0, FORMED_AT).expect("it counts");
    bed.fail(gone);
    let name = bed.state.node(gone).expect("known").node.name.clone();
    bed.join(&name, 77);
    assert_eq!(bed.state.node(gone).expect("known").node.status, NodeStatus::Lost);
    assert!(bed.is_split(0), "{:?}", bed.state.events.back());
    bed.fail(last);
    bed.forms(leader, 0, FORMED_AT).expect("it counts");
    bed.pass(3_000, &[gone, last]);
    let on_lost = |row: &Partition| {
        row.live().any(|copy| bed.state.node(copy.node).is_some_and(|row| row.node.status == NodeStatus::Lost))
    };
    let bad: Vec<&Partition> = bed.state.partitions.of_table(TIMES).filter(|row| on_lost(row)).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn split_does_not_complete_with_copy_on_down_node() {
    let mut bed = ranges(3, None);
    bed.begin_cut(0, "m");
    let leader = bed.leader_of(0).expect("led");
    let down = bed.nodes().into_iter().find(|node| *node != leader).expect("three nodes");
    bed.forms(down, 0, FORMED_AT).expect("it counts");
    bed.fail(down);
    bed.forms(leader, 0, FORMED_AT).expect("it counts");
    for _ in 0..15 {
        bed.pass(100, &[down]);
    }
    if let Some(right) = bed.state.partition(times(1)) {
        let alive = right.live().filter(|copy| bed.state.is_alive(copy.node)).count();
        assert!(alive >= usize::from(right.min_in_sync), "nobody can serve it: {right:#?}");
    }
}

#[test]
fn unload_copy_on_failed_node_does_not_block_split() {
    let mut bed = ranges(3, None);
    bed.join("delphi", 4);
    let down = bed.node("cyrene");
    bed.fail(down);
    bed.pass(bed.state.settings.replace_after_ms + 5_000, &[down]);
    bed.settle();
    let row = bed.of_times(0);
    assert_eq!(row.live().filter(|copy| bed.state.is_alive(copy.node)).count(), 3, "repair has made another: {row:?}");
    assert_eq!(row.status, PartitionStatus::Online);
    let found = check_split(&bed.state, times(0), &key("m"));
    assert!(found.is_ok(), "three copies count and are at hand: {found:?}");
}

#[test]
fn offline_order_abandons_split() {
    let mut bed = ranges(3, None);
    bed.begin_cut(0, "m");
    let order = Order::Offline { partition: times(0) };
    bed.ok(Command::Control {
        if_controls: bed.state.controls_version,
        order,
        why: "it shows what nobody may see".into(),
    });
    assert!(!bed.is_split(0), "the split is abandoned");
    assert!(check_split(&bed.state, times(0), &key("m")).is_err());
    bed.settle();
    let served: Vec<PartitionId> = bed
        .state
        .partitions
        .of_table(TIMES)
        .filter(|row| row.status == PartitionStatus::Online)
        .map(|row| row.id)
        .collect();
    assert!(served.is_empty(), "{served:?}");
}

#[test]
fn new_partition_inherits_bars() {
    let mut bed = ranges(3, None);
    bed.join("delphi", 4);
    bed.begin_split(0, "m");
    let member = bed.node("cyrene");
    let order = Order::Bar { bar: Bar::Partition(times(0)), member };
    bed.ok(Command::Control { if_controls: bed.state.controls_version, order, why: "it must not be there".into() });
    bed.settle();
    let there: Vec<PartitionId> =
        bed.state.partitions.on_node(member).filter(|row| row.id.table == TIMES).map(|row| row.id).collect();
    assert!(there.is_empty(), "{there:?}");
}
