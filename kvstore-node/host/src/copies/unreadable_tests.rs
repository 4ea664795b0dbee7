use super::*;
use crate::Refusal;
use crate::log_write::LogWrite;
use crate::mutant::{DisabledRule, Mutant};
use crate::ranges::split_work::FormedCopy;
use crate::test_shell::{
    LIFE, OTHER, OWN, PARTITION, TestShell, follower, follower_row, get, hear, held, position, put, request, serving,
    settle,
};
use archon_kv::{Effect, RowChange, row};
use archon_replica::{Body, Entry, Message};
use archon_types::{Epoch, Incarnation, Millis, Placement, ReplicaState, Version};

archon_types::shown_by! {
    UnreadableDamaged => unreadable_entry_leaves_copy_and_log_untouched,
}

/// An entry that this version can read, or one of a later format.
fn entry(seq: u64, is_readable: bool) -> Entry {
    let change = RowChange::set(row::value_key(b"key"), row::encode_value(archon_types::Revision::new(seq), b"1"));
    let bytes = Effect::new(Millis::new(seq), vec![change]).encode().unwrap();
    let bytes = if is_readable { bytes } else { [&[u8::MAX][..], &bytes[1..]].concat().into() };
    Entry { at: position(seq), bytes }
}

fn append(before: u64, entries: Vec<Entry>) -> Body {
    Body::Append { before: position(before), entries, start: Seq::ZERO, commit: Seq::ZERO }
}

fn logged(node: &Partitions<TestShell>) -> Vec<u64> {
    let of = |write: &LogWrite| match write {
        LogWrite::Entries(entries) => entries.iter().map(|entry| entry.at.seq.get()).collect(),
        _ => Vec::new(),
    };
    node.shell().writes.iter().flat_map(of).collect()
}

fn acknowledged(node: &Partitions<TestShell>) -> u64 {
    let of = |message: &Message| match message.body {
        Body::Ack { held } => held.get(),
        _ => 0,
    };
    node.shell().sent.iter().map(of).max().unwrap_or_default()
}

fn facts(node: &Partitions<TestShell>) -> Vec<Fact> {
    node.shell().reports.iter().map(|report| report.fact.clone()).collect()
}

/// A follower that was sent four entries, of which it cannot read the third.
fn stopped(mutant: Option<Mutant>) -> Partitions<TestShell> {
    let mut node = follower(DisabledRule::by(mutant), follower_row());
    hear(&mut node, Body::Adopt { at: position(0), start: Seq::ZERO, commit: Seq::ZERO });
    hear(&mut node, append(0, vec![entry(1, true)]));
    hear(&mut node, append(1, vec![entry(2, true), entry(3, false)]));
    hear(&mut node, append(3, vec![entry(4, true)]));
    node
}

fn unreadable_entry_leaves_copy_and_log_untouched(mutant: Option<Mutant>) -> bool {
    let node = stopped(mutant);
    let is_kept = node.unreadable().collect::<Vec<_>>() == [(OWN, PARTITION)];
    let gives_up = facts(&node).iter().any(|fact| matches!(fact, Fact::Damaged { .. }));
    is_kept && !gives_up && logged(&node) == [1, 2] && acknowledged(&node) == 1 && node.copies().is_empty()
}

#[test]
fn unreadable_copy_reports_last_acknowledged_position() {
    let mut node = stopped(None);
    node.duties(LIFE.incarnation, vec![Action::Inspect { partition: PARTITION, placement: OWN }]);
    settle(&mut node);
    assert!(matches!(facts(&node)[..], [.., Fact::Inspected { last }] if last == position(1)), "{:?}", facts(&node));
}

#[test]
fn unreadable_copy_releases_leadership_once_per_pause() {
    let row = crate::test_shell::row(2, &[]);
    let mut node = stopped(None);
    let named = |node: &mut Partitions<TestShell>, now: u64| {
        node.begin(Millis::new(now));
        node.tick(false, 0);
        node.duties(LIFE.incarnation, vec![Action::Configure { partition: row.clone(), placement: OWN }]);
        settle(node);
        facts(node).iter().filter(|fact| matches!(fact, Fact::Released)).count()
    };
    assert_eq!([1_000, 1_001, 5_999, 6_000, 15_999, 16_000].map(|now| named(&mut node, now)), [1, 1, 1, 2, 2, 3]);
    assert_eq!(node.leading(), 0);
}

#[test]
fn unreadable_copy_found_at_start_is_not_opened() {
    let found = RecoveredCopy { unreadable: Some("entry 11 of its log".to_owned()), ..held(PARTITION) };
    let mut node =
        Partitions::new(TestShell::default(), [(OWN, found)].into(), Default::default(), DisabledRule::default());
    node.begin(Millis::new(1_000));
    let row = crate::test_shell::row(1, &[]);
    node.duties(LIFE.incarnation, vec![Action::Open { partition: row, placement: OWN, fresh: false }]);
    settle(&mut node);
    assert_eq!(node.unreadable().collect::<Vec<_>>(), [(OWN, PARTITION)]);
    assert_eq!((node.copies().len(), facts(&node)), (0, vec![Fact::Released]));
    // It is deleted when its row no longer names it, as any copy.
    node.duties(LIFE.incarnation, vec![Action::Unload { partition: PARTITION, placement: OWN }]);
    settle(&mut node);
    assert_eq!(node.unreadable().count(), 0);
}

/// A leader with an engine that began to refuse reads, after a client has asked for a key, and the row that names it.
fn unread_leader(others: &[(PlacementId, ReplicaState)]) -> (Partitions<TestShell>, Partition) {
    let mut node = serving(DisabledRule::default(), crate::test_shell::row(1, &[]));
    let row = crate::test_shell::row(2, others);
    node.duties(LIFE.incarnation, vec![Action::Configure { partition: row.clone(), placement: OWN }]);
    settle(&mut node);
    node.shell_mut().reads_fail = true;
    node.operate(request(get("key"), "read"));
    settle(&mut node);
    assert!(matches!(node.shell().refusals[..], [("read", Refusal::Unreadable(_))]), "{:?}", node.shell().refusals);
    assert_eq!(node.unreadable().collect::<Vec<_>>(), [(OWN, PARTITION)]);
    assert_eq!((node.leading(), node.copies().len()), (0, 0));
    (node, row)
}

fn releases(node: &Partitions<TestShell>) -> usize {
    facts(node).iter().filter(|fact| matches!(fact, Fact::Released)).count()
}

#[test]
fn leader_without_reads_hands_over_to_live_copy() {
    let (mut node, row) = unread_leader(&[(OTHER, ReplicaState::Live)]);
    assert_eq!(releases(&node), 1);
    node.duties(LIFE.incarnation, vec![Action::Configure { partition: row, placement: OWN }]);
    settle(&mut node);
    assert_eq!((node.leading(), releases(&node)), (0, 1), "the same row does not make it lead again");
}

/// The first release shows the coordinators that the partition is not served. More of them would change nothing.
#[test]
fn sole_leader_without_reads_is_released_once_and_refuses() {
    for others in [&[][..], &[(OTHER, ReplicaState::Load)]] {
        let (mut node, row) = unread_leader(others);
        node.shell_mut().leader = Some(LIFE.node);
        for epoch in 2..4 {
            let again = Partition { epoch: Epoch::new(epoch), version: Version::new(epoch + 1), ..row.clone() };
            node.begin(Millis::new(epoch * 10_000));
            node.duties(LIFE.incarnation, vec![Action::Configure { partition: again, placement: OWN }]);
            node.tick(false, 0);
            settle(&mut node);
        }
        node.operate(request(put("key"), "write"));
        settle(&mut node);
        assert_eq!(node.shell().refusals.last(), Some(&("write", Refusal::Unread)));
        assert_eq!((releases(&node), node.shell().answers.len()), (1, 0));
        assert!(!facts(&node).iter().any(|fact| matches!(fact, Fact::Damaged { .. })), "{:?}", facts(&node));
    }
}

/// Without its seal it would serve keys that its log gave away.
#[test]
fn new_leader_without_readable_seal_does_not_serve() {
    let mut node = follower(DisabledRule::default(), follower_row());
    hear(&mut node, Body::Adopt { at: position(0), start: Seq::ZERO, commit: Seq::ZERO });
    hear(&mut node, append(0, vec![entry(1, true)]));
    node.shell_mut().reads_fail = true;
    let row = Partition { epoch: Epoch::new(2), ..crate::test_shell::row(2, &[]) };
    node.duties(LIFE.incarnation, vec![Action::Configure { partition: row, placement: OWN }]);
    settle(&mut node);
    assert_eq!((node.shell().began_to_serve, node.leading()), (0, 0));
    assert!(!facts(&node).contains(&Fact::Online), "{:?}", facts(&node));
    assert_eq!(node.unreadable().collect::<Vec<_>>(), [(OWN, PARTITION)]);
}

#[test]
fn follower_without_reads_acknowledges_nothing_more() {
    let mut node = follower(DisabledRule::default(), follower_row());
    hear(&mut node, Body::Adopt { at: position(0), start: Seq::ZERO, commit: Seq::ZERO });
    hear(&mut node, append(0, vec![entry(1, true)]));
    hear(&mut node, append(1, vec![entry(2, true)]));
    let acknowledged_before = acknowledged(&node);
    node.shell_mut().reads_fail = true;
    assert!(node.read_stale(PARTITION, b"key").is_err());
    settle(&mut node);
    hear(&mut node, append(2, vec![entry(3, true)]));
    assert_eq!((acknowledged(&node), logged(&node)), (acknowledged_before, vec![1, 2]));
    assert!(acknowledged_before > 0);
}

#[test]
fn formed_copy_without_reads_is_kept_and_not_opened() {
    let mut node = serving(DisabledRule::default(), crate::test_shell::row(1, &[]));
    node.shell_mut().reads_fail = true;
    let formed = PartitionId { index: 1, ..PARTITION };
    node.adopt(FormedCopy { partition: formed, placement: OTHER, at: position(3) });
    settle(&mut node);
    assert_eq!(node.unreadable().collect::<Vec<_>>(), [(OTHER, formed)]);
    assert_eq!(node.dormant().count(), 0);
}

/// Before a replica takes up a leadership, it looks for rows without a log. It never gets the row if that fails.
#[test]
fn leadership_that_unread_copy_cannot_take_up_is_released() {
    let mut node = follower(DisabledRule::default(), follower_row());
    node.shell_mut().reads_fail = true;
    let row = Partition { epoch: Epoch::new(2), ..crate::test_shell::row(2, &[(OTHER, ReplicaState::Live)]) };
    node.duties(LIFE.incarnation, vec![Action::Configure { partition: row, placement: OWN }]);
    settle(&mut node);
    assert_eq!(node.unreadable().collect::<Vec<_>>(), [(OWN, PARTITION)]);
    let released: Vec<Epoch> = node.shell().reports.iter().map(|report| report.epoch).collect();
    assert_eq!((released, facts(&node)), (vec![Epoch::new(2)], vec![Fact::Released]));
}

/// Several copies of a partition may be unread. They would pass the leadership around.
#[test]
fn unread_copies_pass_leadership_on_with_growing_pauses() {
    let (mut node, row) = unread_leader(&[(OTHER, ReplicaState::Live)]);
    let mut released = Vec::new();
    for second in 2..1_400 {
        let mut again = Partition { epoch: Epoch::new(second), version: Version::new(second + 1), ..row.clone() };
        if second == 1_320 {
            again.leader = Some(OTHER);
        }
        if second == 1_000 {
            node.shell_mut().peers_incarnation = Incarnation::new(2);
        }
        let before = releases(&node);
        node.begin(Millis::new(second * 1_000));
        node.duties(LIFE.incarnation, vec![Action::Configure { partition: again, placement: OWN }]);
        settle(&mut node);
        if releases(&node) > before {
            released.push(second);
        }
    }
    // The first one was at 1 s.
    let (same, registered) = ([6, 16, 36, 76, 156, 316, 616, 916], [1_000, 1_005, 1_015, 1_035, 1_075, 1_155, 1_315]);
    let served = [1_321, 1_331, 1_351, 1_391];
    assert_eq!(released, [&same[..], &registered, &served].concat());
}

/// The coordinators wait for the answer, or else for the end of the lease.
#[test]
fn unread_copy_confirms_withdrawn_leadership() {
    let (mut node, row) = unread_leader(&[(OTHER, ReplicaState::Live)]);
    let before = releases(&node);
    let moved = Partition { epoch: Epoch::new(3), version: Version::new(4), leader: Some(OTHER), ..row };
    node.duties(LIFE.incarnation, vec![Action::Configure { partition: moved, placement: OWN }]);
    settle(&mut node);
    assert_eq!(releases(&node), before);
    node.withdrawn(vec![(PARTITION, Epoch::new(2))]);
    settle(&mut node);
    assert_eq!(releases(&node), before + 1);
    assert_eq!(node.shell().reports.last().map(|report| report.epoch), Some(Epoch::new(2)));
}

/// The duty may arrive before the log has the copy on disk.
#[test]
fn formed_copy_without_reads_is_kept_when_its_duty_arrives() {
    for fresh in [false, true] {
        let mut node = serving(DisabledRule::default(), crate::test_shell::row(1, &[]));
        let opens = |node: &Partitions<TestShell>| {
            let opened = |write: &&LogWrite| matches!(write, LogWrite::Open(_));
            node.shell().writes.iter().filter(opened).count()
        };
        let before = opens(&node);
        node.shell_mut().reads_fail = true;
        let formed = FormedCopy { partition: PartitionId { index: 1, ..PARTITION }, placement: OTHER, at: position(3) };
        node.adopt(formed);
        let row = Partition {
            id: formed.partition,
            leader: Some(OTHER),
            placements: vec![Placement { id: OTHER, node: LIFE.node, state: ReplicaState::Live }],
            ..crate::test_shell::row(2, &[])
        };
        node.duties(LIFE.incarnation, vec![Action::Open { partition: row, placement: OTHER, fresh }]);
        settle(&mut node);
        assert_eq!(node.unreadable().collect::<Vec<_>>(), [(OTHER, formed.partition)]);
        assert_eq!((opens(&node), releases(&node)), (before, 1), "{:?}", facts(&node));
        assert!(!facts(&node).iter().any(|fact| matches!(fact, Fact::Damaged { .. })), "{:?}", facts(&node));
        // Another attempt to adopt it does not begin its log again.
        let writes = node.shell().writes.len();
        node.adopt(formed);
        settle(&mut node);
        assert_eq!(node.shell().writes.len(), writes);
    }
}
