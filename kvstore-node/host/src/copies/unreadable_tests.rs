use super::*;
use crate::log_write::LogWrite;
use crate::mutant::{Broken, Mutant};
use crate::test_shell::{LIFE, OWN, PARTITION, TestShell, follower, follower_row, hear, held, position, settle};
use archon_kv::{Effect, RowChange, row};
use archon_replica::{Body, Entry, Message};
use archon_types::Millis;

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
    let mut node = follower(Broken::by(mutant), follower_row());
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
    assert_eq!([1_000, 1_001, 5_999, 6_000].map(|now| named(&mut node, now)), [1, 1, 1, 2]);
    assert_eq!(node.leading(), 0);
}

#[test]
fn unreadable_copy_found_at_start_is_not_opened() {
    let found = Found { unreadable: Some("entry 11 of its log".to_owned()), ..held(PARTITION) };
    let mut node = Partitions::new(TestShell::default(), [(OWN, found)].into(), Default::default(), Broken::default());
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
