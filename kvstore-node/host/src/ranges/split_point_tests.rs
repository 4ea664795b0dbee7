use super::*;
use crate::copies::reconcile::Action;
use crate::mutant::DisabledRule;
use crate::test_shell::{LIFE, OWN, PARTITION, TestShell, request, row, serving, settle};
use archon_kv::Effect;
use archon_types::{
    Millis, Op, Partition, PlacementId, RangeLimits, Report, RightCopy, RightStage, Seq, Split, Version,
};

const MIB: u64 = 1 << 20;
const LIMITS: RangeLimits = RangeLimits { split_above_bytes: Some(MIB), ..RangeLimits::NONE };

/// A leader of a partition whose table has these limits, with this many bytes counted.
fn leader(limits: RangeLimits, stored_bytes: Option<u64>) -> Partitions<TestShell> {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    (node.shell_mut().limits, node.shell_mut().stored_bytes) = (limits, stored_bytes);
    node
}

/// Sets the clock, extends the lease and ticks.
fn tick(node: &mut Partitions<TestShell>, at: u64) {
    node.shell_mut().now.set(Millis::new(at));
    node.shell_mut().lease_until = Millis::new(at + 10_000);
    node.begin(Millis::new(at));
    node.tick(false, 0);
    settle(node);
}

fn configure(node: &mut Partitions<TestShell>, row: Partition) {
    assert!(node.duties(LIFE.incarnation, vec![Action::Configure { partition: row, placement: OWN }]));
    settle(node);
}

/// The proposals so far, each with the version of the row.
fn proposals(node: &Partitions<TestShell>) -> Vec<(u64, Bytes, ExceededLimit)> {
    let proposal = |report: &Report| match &report.fact {
        Fact::Outgrown { at, by } => Some((report.version.get(), at.clone(), *by)),
        _ => None,
    };
    node.shell().reports.iter().filter_map(proposal).collect()
}

fn searches(node: &Partitions<TestShell>) -> usize {
    node.shell().searches.len()
}

/// Completes the walk with rows `a` to `z` of equal size.
fn walk(node: &mut Partitions<TestShell>, at: u64, bytes: u64) {
    let mut halves = ByteHalves::default();
    (b'a'..=b'z').for_each(|key| halves.add(&[key], bytes / 26));
    let search = node.shell().searches.last().cloned().expect("a search");
    node.begin(Millis::new(at));
    node.split_point(&search, Some(&halves), 500);
    settle(node);
}

#[test]
fn table_without_limits_is_not_watched() {
    let mut node = leader(RangeLimits::NONE, Some(u64::MAX));
    for at in [1_000, 3_000, 9_000] {
        tick(&mut node, at);
    }
    assert!(searches(&node) == 0 && proposals(&node).is_empty() && node.copies()[&OWN].watch.is_none());
}

#[test]
fn partition_above_limit_is_walked_and_middle_proposed() {
    let mut node = leader(LIMITS, Some(MIB));
    tick(&mut node, 2_000);
    assert_eq!(searches(&node), 0, "it is within its limit");
    node.shell_mut().stored_bytes = Some(MIB + 1);
    tick(&mut node, 2_900);
    assert_eq!(searches(&node), 0, "it is looked once a second");
    for at in [3_000, 4_000, 5_000] {
        tick(&mut node, at);
    }
    assert_eq!(node.shell().searches, [SplitSearch { partition: PARTITION, placement: OWN, range: KeyRange::ALL }]);
    walk(&mut node, 5_500, 2 * MIB);
    let bytes = 2 * MIB / 26 * 26;
    let said = (1, Bytes::from_static(b"n"), ExceededLimit::Bytes(bytes));
    assert_eq!(proposals(&node), std::slice::from_ref(&said));
    // The proposal is repeated until a split begins, and the rows are walked again after a while.
    for at in (6_000..36_000).step_by(1_000) {
        tick(&mut node, at);
    }
    assert!((12..=17).contains(&proposals(&node).len()), "{:?}", proposals(&node));
    assert!(proposals(&node).iter().all(|proposal| *proposal == said));
    tick(&mut node, 36_000);
    assert_eq!(searches(&node), 2);
}

#[test]
fn long_walk_delays_next_walk() {
    let mut node = leader(LIMITS, None);
    tick(&mut node, 2_000);
    assert_eq!(searches(&node), 1);
    walk(&mut node, 2_500, MIB / 2);
    assert!(proposals(&node).is_empty(), "it is within its limit");
    for at in (3_000..7_500).step_by(500) {
        tick(&mut node, at);
        assert_eq!(searches(&node), 1, "at {at}");
    }
    tick(&mut node, 8_500);
    assert_eq!(searches(&node), 2);
    // Time spent waiting for other walks does not count, only its own duration.
    node.begin(Millis::new(60_000));
    let search = node.shell().searches[1].clone();
    node.split_point(&search, Some(&ByteHalves::default()), 1);
    tick(&mut node, 61_000);
    assert_eq!(searches(&node), 2, "two seconds at least");
    tick(&mut node, 63_000);
    assert_eq!(searches(&node), 3);
}

#[test]
fn growth_past_limit_ends_pause_after_long_walk() {
    let mut node = leader(LIMITS, None);
    tick(&mut node, 2_000);
    // Half a minute passes until the next walk, unless more is known by then.
    walk_long(&mut node, 2_500);
    tick(&mut node, 4_000);
    assert_eq!(searches(&node), 1);
    node.shell_mut().stored_bytes = Some(MIB + MIB / 10);
    tick(&mut node, 5_000);
    assert_eq!(searches(&node), 2, "it was counted meanwhile");
    // Half of the stored bytes are not user rows.
    walk_long(&mut node, 5_500);
    for (at, stored) in [(6_000, MIB + MIB / 10), (7_000, MIB + MIB / 2)] {
        node.shell_mut().stored_bytes = Some(stored);
        tick(&mut node, at);
        assert_eq!(searches(&node), 2, "it has room for that");
    }
    node.shell_mut().stored_bytes = Some(2 * MIB);
    tick(&mut node, 8_000);
    assert_eq!(searches(&node), 3);
}

/// Completes a walk of three seconds that found half of the limit.
fn walk_long(node: &mut Partitions<TestShell>, at: u64) {
    let mut halves = ByteHalves::default();
    (b'a'..=b'z').for_each(|key| halves.add(&[key], MIB / 52));
    let search = node.shell().searches.last().cloned().expect("a search");
    node.begin(Millis::new(at));
    node.split_point(&search, Some(&halves), 3_000);
}

/// Copying half of a partition took longer than writing as much again.
#[test]
fn time_series_is_split_near_its_end() {
    let mut node = leader(LIMITS, Some(MIB + 1));
    let last = archon_kv::row::value_key(b"m");
    node.copies.get_mut(&OWN).expect("a copy").memtable.begin_count(Some(last));
    let value = Bytes::from(vec![7; 300 * 1024]);
    node.operate(request(Op::Put { key: Bytes::from_static(b"y"), value }, "put"));
    settle(&mut node);
    tick(&mut node, 2_000);
    walk(&mut node, 2_500, MIB + MIB / 16);
    let at: Vec<Bytes> = proposals(&node).into_iter().map(|(_, at, _)| at).collect();
    assert_eq!(at, [Bytes::from_static(b"x")], "an eighth of 26 rows is parted off");
}

#[test]
fn small_partition_is_reported_after_a_minute() {
    let small = RangeLimits { merge_below_bytes: Some(MIB), ..RangeLimits::NONE };
    let mut node = leader(small, Some(MIB));
    let said = |node: &Partitions<TestShell>| {
        let fact = |report: &Report| match report.fact {
            Fact::Undersized(has) => Some(has.bytes),
            _ => None,
        };
        node.shell().reports.iter().filter_map(fact).collect::<Vec<_>>()
    };
    for at in (2_000..62_000).step_by(1_000) {
        tick(&mut node, at);
    }
    assert!(said(&node).is_empty() && searches(&node) == 0, "nothing is walked over for that");
    node.shell_mut().stored_bytes = Some(7);
    tick(&mut node, 62_000);
    assert_eq!(said(&node), [7]);
    for at in (63_000..73_000).step_by(1_000) {
        tick(&mut node, at);
    }
    assert_eq!(said(&node), [7, 7], "ten seconds later");
    node.shell_mut().stored_bytes = Some(MIB + 1);
    for at in (73_000..140_000).step_by(1_000) {
        tick(&mut node, at);
    }
    assert_eq!(said(&node).len(), 2);
}

#[test]
fn failed_walk_is_repeated() {
    let mut node = leader(LIMITS, None);
    tick(&mut node, 2_000);
    let search = node.shell().searches[0].clone();
    node.split_point(&search, None, 0);
    tick(&mut node, 3_000);
    assert_eq!(searches(&node), 1);
    tick(&mut node, 5_000);
    assert_eq!(searches(&node), 2);
}

#[test]
fn size_counted_before_clear_is_not_used() {
    let mut node = leader(LIMITS, Some(MIB));
    tick(&mut node, 2_000);
    assert_eq!(searches(&node), 0, "it is within its limit");
    let memtable = &mut node.copies.get_mut(&OWN).expect("a copy").memtable;
    let at = Seq::new(memtable.last().get() + 1);
    let gone = KeyRange { begin: Bytes::from_static(b"m"), end: None };
    memtable.push(at, Effect { clear: Some(gone), ..Effect::new(Millis::new(2_000), Vec::new()) }).expect("the next");
    memtable.commit(at);
    tick(&mut node, 3_000);
    assert_eq!(searches(&node), 1, "nobody knows its size");
}

#[test]
fn walk_result_for_changed_range_is_ignored() {
    let mut node = leader(LIMITS, None);
    tick(&mut node, 2_000);
    let range = KeyRange { begin: Bytes::new(), end: Some(Bytes::from_static(b"t")) };
    configure(&mut node, Partition { range: range.clone(), ..row(3, &[]) });
    walk(&mut node, 2_500, 2 * MIB);
    assert!(proposals(&node).is_empty(), "some of that is another partition's by now");
    // Neither does a result from before the row changed.
    let mut node = leader(LIMITS, None);
    tick(&mut node, 2_000);
    walk(&mut node, 2_500, 2 * MIB);
    assert_eq!(proposals(&node).len(), 1);
    configure(&mut node, Partition { range, ..row(3, &[]) });
    tick(&mut node, 9_000);
    assert_eq!((proposals(&node).len(), searches(&node)), (1, 2), "it is walked over anew");
}

#[test]
fn proposal_has_version_of_newest_row() {
    let mut node = leader(LIMITS, None);
    tick(&mut node, 2_000);
    configure(&mut node, row(7, &[]));
    walk(&mut node, 2_500, 2 * MIB);
    assert_eq!(proposals(&node)[0].0, 7);
}

#[test]
fn partition_in_split_or_led_elsewhere_is_not_watched() {
    let mut node = leader(LIMITS, None);
    let copies = vec![RightCopy { id: PlacementId::new(20), node: LIFE.node, stage: RightStage::Copying }];
    let at = Bytes::from_static(b"m");
    let split = Split { attempt: Version::new(2), at, right: 1, copies, cut: false, position: None };
    configure(&mut node, Partition { split: Some(Box::new(split)), ..row(2, &[]) });
    tick(&mut node, 2_000);
    assert_eq!(searches(&node), 0);
    configure(&mut node, row(3, &[]));
    tick(&mut node, 4_000);
    assert_eq!(searches(&node), 1, "nothing came of it");
    node.release();
    settle(&mut node);
    tick(&mut node, 6_000);
    walk(&mut node, 6_000, 2 * MIB);
    assert!(proposals(&node).is_empty() && node.copies()[&OWN].watch.is_none(), "it leads no more");
}

/// Gets of these keys in turn, `each_second` in each second up to `until`.
fn load(node: &mut Partitions<TestShell>, from: u64, until: u64, each_second: u64, keys: &[&'static str]) {
    for at in (from..until).step_by(1_000) {
        tick(node, at);
        for (_, key) in (0..each_second).zip(keys.iter().cycle()) {
            node.operate(request(Op::Get { key: Bytes::from_static(key.as_bytes()) }, "get"));
        }
        settle(node);
    }
}

#[test]
fn lasting_load_above_limit_is_halved() {
    let rate = RangeLimits { split_above_rate: Some(100), ..RangeLimits::NONE };
    let keys = ["a", "b", "c", "d"];
    let mut node = leader(rate, None);
    load(&mut node, 2_000, 15_000, 150, &keys);
    let said = proposals(&node);
    assert!(said.len() == 1 && matches!(said[0], (1, ref at, ExceededLimit::Rate(150)) if at == "c"), "{said:?}");
    assert_eq!(searches(&node), 0, "nothing is limited that would have to be walked over");
    let mut node = leader(rate, None);
    load(&mut node, 2_000, 30_000, 90, &keys);
    load(&mut node, 30_000, 60_000, 150, &["a"]);
    assert!(proposals(&node).is_empty(), "{:?}", proposals(&node));
    node.shell_mut().limits = RangeLimits::NONE;
    tick(&mut node, 61_000);
    assert!(node.copies()[&OWN].watch.is_none(), "the limit was taken away");
}
