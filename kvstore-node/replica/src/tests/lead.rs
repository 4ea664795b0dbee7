use super::script::{Script, at, configuration, recovered};
use crate::{Body, Entry, Input, Limits, Output, Position, Record, RecoveredState};
use archon_types::ReplicaState::{Live, Load};
use archon_types::{Epoch, ErrorKind, Fact, Incarnation, PlacementId, Seq};
use bytes::Bytes;

fn written(epoch: u64, seq: u64, ticket: u64) -> Entry {
    Entry { at: at(epoch, seq), bytes: Bytes::from(format!("w{ticket}")) }
}

fn refuse(ticket: u64, kind: ErrorKind) -> Output {
    Output::Refuse { ticket, kind }
}

#[test]
fn proposals_of_a_turn_are_one_write_and_one_append() {
    let mut script = Script::serving(&[Live, Live], 1);
    let propose = |ticket: u64| Input::Propose { ticket, entry: Bytes::from(format!("w{ticket}")) };
    let out = script.turn([propose(7), propose(8)]);
    let entries = vec![written(1, 1, 7), written(1, 2, 8)];
    let append = Body::Append { before: Position::ZERO, entries: entries.clone(), start: Seq::ZERO, commit: Seq::ZERO };
    let expected = [
        Output::Accepted { ticket: 7, at: at(1, 1) },
        Output::Accepted { ticket: 8, at: at(1, 2) },
        Output::Persist { token: 2, records: vec![Record::Entries(entries)] },
        script.send(2, 1, append),
    ];
    assert_eq!(out, expected);
}

#[test]
fn commit_needs_all_counted_replicas_and_leader() {
    let mut script = Script::serving(&[Live, Live, Live], 2);
    script.propose(1);
    script.propose(2);
    assert_eq!(script.hear(2, 1, Body::Ack { held: Seq::new(2) }), []);
    assert_eq!(script.hear(3, 1, Body::Ack { held: Seq::new(1) }), []);
    assert_eq!(script.persisted(2), [Output::Commit { upto: Seq::new(1) }]);
    assert_eq!(script.persisted(3), []);
    assert_eq!(script.hear(3, 1, Body::Ack { held: Seq::new(2) }), [Output::Commit { upto: Seq::new(2) }]);
    // Acknowledgements of another epoch or incarnation, and impossible ones, do not count.
    script.propose(3);
    script.persisted(4);
    script.hear(2, 1, Body::Ack { held: Seq::new(3) });
    assert_eq!(script.hear(3, 0, Body::Ack { held: Seq::new(3) }), []);
    assert_eq!(script.hear(3, 1, Body::Ack { held: Seq::new(4) }), []);
    let mut other_life = super::script::message(3, 1, 1, Body::Ack { held: Seq::new(3) });
    other_life.from.incarnation = Incarnation::new(9);
    assert_eq!(script.one(Input::Message(other_life)), []);
}

#[test]
fn restarted_follower_has_acknowledged_nothing() {
    let mut script = Script::serving(&[Live, Live], 1);
    script.propose(1);
    script.hear(2, 1, Body::Ack { held: Seq::new(1) });
    let mut restarted = configuration((1, 1), 1, &[Live, Live], 1);
    restarted.peers.get_mut(&PlacementId::new(2)).unwrap().incarnation = Incarnation::new(5);
    script.one(Input::Configure(restarted));
    assert_eq!(script.persisted(2), []);
}

#[test]
fn proposal_refusal_has_its_reason() {
    let mut script = Script::new(1, RecoveredState::default());
    assert_eq!(script.propose(1), [refuse(1, ErrorKind::NotPartitionLeader)]);
    script.configure((1, 1), 1, &[Live, Live], 1);
    assert_eq!(script.propose(2), [refuse(2, ErrorKind::Unavailable)]);

    let mut script = Script::serving(&[Live], 1);
    script.one(Input::ReadOnly(true));
    assert_eq!(script.propose(3), [refuse(3, ErrorKind::ReadOnly)]);

    let limits = Limits { uncommitted_entries_max: 1, ..Limits::default() };
    let mut script = Script::with_limits(1, RecoveredState::default(), limits);
    script.configure((1, 1), 1, &[Live], 1);
    script.persisted(1);
    script.propose(4);
    assert_eq!(script.propose(5), [refuse(5, ErrorKind::Overloaded)]);
}

#[test]
fn hand_over_waits_for_proposals_and_is_final() {
    let mut script = Script::serving(&[Live, Live], 1);
    script.propose(1);
    script.persisted(2);
    let hand_over = Input::HandOver { epoch: Epoch::new(1), to: PlacementId::new(2) };
    assert_eq!(script.one(hand_over.clone()), []);
    assert_eq!(script.propose(2), [refuse(2, ErrorKind::Unavailable)]);
    let released = script.report(1, 1, Fact::Released);
    let done = [Output::Commit { upto: Seq::new(1) }, Output::Serve(false), released.clone()];
    assert_eq!(script.hear(2, 1, Body::Ack { held: Seq::new(1) }), done);
    // The report is repeated; nothing restores the leadership of this epoch.
    assert_eq!(script.one(hand_over), std::slice::from_ref(&released));
    assert_eq!(script.tick_after(1_000), [released]);
    assert_eq!(script.one(Input::KeepLeading { epoch: Epoch::new(1) }), []);
    assert_eq!(script.configure((1, 5), 1, &[Live, Live], 1), []);
    assert_eq!(script.propose(3), [refuse(3, ErrorKind::NotPartitionLeader)]);
}

#[test]
fn withdrawn_leadership_commits_proposals_and_is_not_kept() {
    let mut script = Script::serving(&[Live, Live], 1);
    script.propose(1);
    script.persisted(2);
    assert_eq!(script.one(Input::Withdrawn { epoch: Epoch::new(2) }), [], "another leadership");
    assert_eq!(script.one(Input::Withdrawn { epoch: Epoch::new(1) }), []);
    script.one(Input::KeepLeading { epoch: Epoch::new(1) });
    assert_eq!(script.propose(2), [refuse(2, ErrorKind::Unavailable)]);
    let done = [Output::Commit { upto: Seq::new(1) }, Output::Serve(false), script.report(1, 1, Fact::Released)];
    assert_eq!(script.hear(2, 1, Body::Ack { held: Seq::new(1) }), done);
}

#[test]
fn withdrawn_leadership_is_released_without_commit() {
    let mut script = Script::serving(&[Live, Live], 2);
    script.propose(1);
    script.persisted(2);
    script.one(Input::Withdrawn { epoch: Epoch::new(1) });
    let released = script.report(1, 1, Fact::Released);
    assert!(!script.tick_after(999).contains(&released));
    let out = script.tick_after(1);
    assert!(out.ends_with(&[Output::Serve(false), Output::Abandon { tickets: vec![1] }, released]), "{out:?}");
    // Nor does one that never served block the next leader.
    let mut script = Script::new(1, recovered(1, &[1], 1));
    script.configure((2, 2), 1, &[Live, Live], 2);
    let out = script.one(Input::Withdrawn { epoch: Epoch::new(2) });
    assert_eq!(out, [script.report(2, 2, Fact::Released)]);
}

/// Every answer of the coordinator lists withdrawn leaderships until it receives their end, as long as the node lives.
#[test]
fn follower_reports_end_of_withdrawn_leadership() {
    let withdrawn = |epoch| Input::Withdrawn { epoch: Epoch::new(epoch) };
    // It led in epoch 1 and was deposed by epoch 2, which it follows.
    let mut script = Script::serving(&[Live, Live], 1);
    script.hear(2, 2, Body::Adopt { at: Position::ZERO, start: Seq::ZERO, commit: Seq::ZERO });
    assert_eq!(script.one(withdrawn(1)), [script.report(1, 1, Fact::Released)]);
    assert_eq!(script.propose(1), [refuse(1, ErrorKind::NotPartitionLeader)]);
    // Nor does one that leads again in a later epoch keep an earlier one.
    script.configure((3, 3), 1, &[Live, Live], 1);
    assert_eq!(script.one(withdrawn(1)), [script.report(1, 3, Fact::Released)]);
    // A replica that does not know of a leadership yet may still take it up, so it reports nothing until that epoch has
    // ended for all.
    let mut script = Script::new(1, recovered(1, &[1], 1));
    script.configure((1, 1), 2, &[Live, Live], 1);
    assert_eq!(script.one(withdrawn(2)), []);
    script.configure((3, 3), 2, &[Live, Live], 1);
    assert_eq!(script.one(withdrawn(2)), [script.report(2, 3, Fact::Released)]);
}

#[test]
fn hand_over_can_be_cancelled_before_release() {
    let mut script = Script::serving(&[Live, Live], 1);
    script.propose(1);
    script.one(Input::HandOver { epoch: Epoch::new(1), to: PlacementId::new(2) });
    script.one(Input::KeepLeading { epoch: Epoch::new(1) });
    assert_eq!(script.replica.admit(), Ok(()));
}

#[test]
fn higher_epoch_ends_leadership_and_abandons_proposals() {
    let mut script = Script::serving(&[Live, Live], 1);
    script.propose(1);
    script.propose(2);
    let nack = Body::Nack { refused: Position::ZERO, hint: Position::ZERO, copying: false };
    // It reports that its row does not show the higher epoch.
    let told = script.report(1, 1, Fact::Overtaken { by: Epoch::new(4) });
    assert_eq!(script.hear(2, 4, nack), [Output::Serve(false), Output::Abandon { tickets: vec![1, 2] }, told]);

    let mut script = Script::serving(&[Live, Live], 1);
    script.propose(1);
    let out = script.configure((2, 8), 2, &[Live, Live], 1);
    assert_eq!(out, [Output::Serve(false), Output::Abandon { tickets: vec![1] }]);
}

#[test]
fn lost_append_is_detected_and_sent_again() {
    let mut script = Script::serving(&[Live, Live], 1);
    (1..=3).for_each(|ticket| drop(script.propose(ticket)));
    let ping = Body::Append { before: at(1, 3), entries: vec![], start: Seq::ZERO, commit: Seq::ZERO };
    let ping = script.send(2, 1, ping);
    assert_eq!(script.tick_after(250), [ping]);
    let out = script.hear(2, 1, Body::Nack { refused: at(1, 3), hint: at(1, 1), copying: false });
    let entries = vec![written(1, 2, 2), written(1, 3, 3)];
    let again = Body::Append { before: at(1, 1), entries, start: Seq::ZERO, commit: Seq::ZERO };
    assert_eq!(out, [script.send(2, 1, again)]);
}

#[test]
fn point_of_match_is_found_below_diverging_tails() {
    // Ours: 1 1 3 3; theirs: 1 1 2 2 2.
    let mut script = Script::new(1, recovered(3, &[1, 1, 3, 3], 1));
    script.configure((4, 9), 1, &[Live, Live], 1);
    let out = script.hear(2, 4, Body::Nack { refused: at(3, 4), hint: at(2, 4), copying: false });
    assert_eq!(out, [script.send(2, 4, Body::Adopt { at: at(1, 2), start: Seq::new(4), commit: Seq::new(1) })]);
    // The entries are not in memory after a restart.
    let out = script.hear(2, 4, Body::Adopted { at: at(1, 2), held: Seq::new(2) });
    let (read, reader, upto) = (1, PlacementId::new(2), Seq::new(4));
    let bytes_max = Limits::default().append_bytes_max;
    assert_eq!(out, [Output::ReadLog { read, reader, from: Seq::new(3), upto, bytes_max }]);
    let entries = vec![super::script::entry(3, 3), super::script::entry(3, 4)];
    let out = script.one(Input::LogRead { read, reader, entries: entries.clone() });
    let append = Body::Append { before: at(1, 2), entries, start: Seq::new(4), commit: Seq::new(1) };
    assert_eq!(out, [script.send(2, 4, append)]);
}

#[test]
fn loader_behind_log_base_pulls_copy() {
    let mut script = Script::serving(&[Live], 1);
    (1..=3).for_each(|ticket| drop(script.propose(ticket)));
    script.one(Input::Trimmed { upto: Seq::new(2) });
    assert_eq!(script.replica.base(), Position::ZERO, "never beyond the commit position");
    script.persisted(4);
    script.one(Input::Trimmed { upto: Seq::new(2) });
    script.configure((1, 2), 1, &[Live, Load], 1);
    let out = script.hear(2, 1, Body::Nack { refused: at(1, 3), hint: Position::ZERO, copying: false });
    assert_eq!(out, [script.send(2, 1, Body::Behind { base: at(1, 2) })]);
    assert_eq!(script.hear(2, 1, Body::Nack { refused: Position::ZERO, hint: Position::ZERO, copying: true }), []);
    // The copy is complete.
    let out = script.hear(2, 1, Body::Nack { refused: Position::ZERO, hint: at(1, 2), copying: false });
    assert_eq!(out, [script.send(2, 1, Body::Adopt { at: at(1, 2), start: Seq::ZERO, commit: Seq::new(3) })]);
    let out = script.hear(2, 1, Body::Adopted { at: at(1, 2), held: Seq::new(2) });
    assert!(matches!(out.as_slice(), [Output::ReadLog { from, .. }] if *from == Seq::new(3)), "{out:?}");
}
