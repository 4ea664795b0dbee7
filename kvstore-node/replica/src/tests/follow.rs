use super::script::{Script, address, at, entry, message, recovered};
use crate::{Alarm, Body, Input, Output, Position, Record, RecoveredState};
use archon_types::ReplicaState::Live;
use archon_types::{Epoch, Fact, Incarnation, PlacementId, Seq};

fn append(before: Position, entries: Vec<crate::Entry>, start: u64, commit: u64) -> Body {
    Body::Append { before, entries, start: Seq::new(start), commit: Seq::new(commit) }
}

fn nack(refused: Position, hint: Position) -> Body {
    Body::Nack { refused, hint, copying: false }
}

#[test]
fn epoch_is_durable_before_acknowledgement() {
    let mut script = Script::new(2, RecoveredState::default());
    let adopt = Body::Adopt { at: Position::ZERO, start: Seq::ZERO, commit: Seq::ZERO };
    let out = script.hear(1, 3, adopt);
    assert_eq!(out, [Output::Persist { token: 1, records: vec![Record::Epoch(Epoch::new(3))] }]);
    let adopted = script.send(1, 3, Body::Adopted { at: Position::ZERO, held: Seq::ZERO });
    assert_eq!(script.persisted(1), [adopted]);
}

#[test]
fn follower_acknowledges_durable_entries_and_applies_commit() {
    let mut script = Script::new(2, recovered(1, &[], 0));
    let out = script.hear(1, 1, append(Position::ZERO, vec![entry(1, 1), entry(1, 2)], 0, 1));
    let records = vec![Record::Entries(vec![entry(1, 1), entry(1, 2)])];
    assert_eq!(out, [Output::Persist { token: 1, records }]);
    let ack = script.send(1, 1, Body::Ack { held: Seq::new(2) });
    assert_eq!(script.persisted(1), [ack.clone(), Output::Commit { upto: Seq::new(1) }]);
    // A repeat changes nothing; it is acknowledged again, since the first answer may be lost.
    assert_eq!(script.hear(1, 1, append(Position::ZERO, vec![entry(1, 1)], 0, 1)), [ack]);
}

#[test]
fn follower_with_lagging_engine_leaves_entries_unanswered() {
    let mut script = Script::new(2, recovered(1, &[], 0));
    script.hear(1, 1, append(Position::ZERO, vec![entry(1, 1), entry(1, 2)], 0, 0));
    let ack = script.send(1, 1, Body::Ack { held: Seq::new(2) });
    assert_eq!(script.persisted(1), std::slice::from_ref(&ack));
    script.one(Input::EngineLags(true));
    // Only committed rows leave memory, so the commit position is taken.
    let out = script.hear(1, 1, append(at(1, 2), vec![entry(1, 3)], 0, 1));
    assert_eq!(out, [Output::Commit { upto: Seq::new(1) }]);
    // The leader gets a sign of life, with the entries held.
    assert_eq!(script.hear(1, 1, append(at(1, 2), vec![], 0, 1)), std::slice::from_ref(&ack));
    // The unanswered entries are not asked for again before the engine takes them; what is committed meanwhile is taken.
    let out = script.hear(1, 1, append(at(1, 3), vec![], 0, 2));
    assert_eq!(out, [ack, Output::Commit { upto: Seq::new(2) }]);
    script.one(Input::EngineLags(false));
    let refused = script.send(1, 1, nack(at(1, 3), at(1, 2)));
    assert_eq!(script.hear(1, 1, append(at(1, 3), vec![], 0, 2)), [refused]);
    let out = script.hear(1, 1, append(at(1, 2), vec![entry(1, 3)], 0, 2));
    assert_eq!(out, [Output::Persist { token: 2, records: vec![Record::Entries(vec![entry(1, 3)])] }]);
}

#[test]
fn gap_is_refused_with_hint() {
    let mut script = Script::new(2, recovered(1, &[1, 1], 0));
    let out = script.hear(1, 1, append(at(1, 4), vec![entry(1, 5)], 0, 0));
    assert_eq!(out, [script.send(1, 1, nack(at(1, 4), at(1, 2)))]);
}

#[test]
fn diverging_tail_is_cut_at_point_of_match() {
    let mut script = Script::new(2, recovered(2, &[1, 2, 2], 1));
    let out = script.hear(1, 3, append(at(1, 1), vec![entry(1, 2)], 2, 0));
    let records =
        vec![Record::Epoch(Epoch::new(3)), Record::Cut { after: Seq::new(1) }, Record::Entries(vec![entry(1, 2)])];
    assert_eq!(out, [Output::Persist { token: 1, records }]);
    assert_eq!(script.persisted(1), [script.send(1, 3, Body::Ack { held: Seq::new(2) })]);
}

#[test]
fn tail_beyond_leaders_log_is_cut_without_conflict() {
    let mut script = Script::new(2, recovered(2, &[1, 1, 1], 1));
    let out = script.hear(1, 3, Body::Adopt { at: at(1, 2), start: Seq::new(2), commit: Seq::ZERO });
    let records = vec![Record::Epoch(Epoch::new(3)), Record::Cut { after: Seq::new(2) }];
    assert_eq!(out, [Output::Persist { token: 1, records }]);
    // But not while the match lies below the leader's end: later entries may be in its log.
    let mut script = Script::new(2, recovered(2, &[1, 1, 1], 1));
    let out = script.hear(1, 3, Body::Adopt { at: at(1, 2), start: Seq::new(3), commit: Seq::ZERO });
    assert_eq!(out, [Output::Persist { token: 1, records: vec![Record::Epoch(Epoch::new(3))] }]);
}

#[test]
fn committed_entries_are_never_cut() {
    let alarm = |agreed| {
        let (leader, own, commit) = (address(1), PlacementId::new(2), Seq::new(2));
        Output::Alarm(Alarm::LostData { leader, epoch: Epoch::new(3), own, commit, agreed: Seq::new(agreed) })
    };
    let epoch = Output::Persist { token: 1, records: vec![Record::Epoch(Epoch::new(3))] };
    let mut script = Script::new(2, recovered(2, &[1, 2, 2], 2));
    let out = script.hear(1, 3, append(at(1, 1), vec![entry(1, 2)], 2, 0));
    let told = |script: &Script, agreed| {
        let (leader, commit, agreed) = (PlacementId::new(1), Seq::new(2), Seq::new(agreed));
        script.report(3, 0, Fact::LostData { leader, commit, agreed })
    };
    assert_eq!(out, [alarm(1), told(&script, 1), epoch.clone()]);
    // Nothing is acknowledged afterwards, and the alarm is raised once.
    assert_eq!(script.persisted(1), []);
    assert_eq!(script.hear(1, 3, append(at(1, 1), vec![entry(1, 2)], 2, 0)), []);
    // The leader's whole old log ends below the commit position here.
    let mut script = Script::new(2, recovered(2, &[1, 2, 2], 2));
    let out = script.hear(1, 3, Body::Adopt { at: at(1, 1), start: Seq::new(1), commit: Seq::ZERO });
    assert_eq!(out, [alarm(1), told(&script, 1), epoch]);
}

#[test]
fn follower_rejects_old_epochs_and_other_leaders() {
    let mut script = Script::new(2, recovered(4, &[4], 0));
    let out = script.hear(1, 3, append(Position::ZERO, vec![], 0, 0));
    assert_eq!(out, [script.send(1, 4, nack(Position::ZERO, Position::ZERO))]);
    let mut other_life = message(1, 2, 5, append(Position::ZERO, vec![], 0, 0));
    other_life.to.incarnation = Incarnation::new(2);
    assert_eq!(script.one(Input::Message(other_life)), []);
    script.configure((5, 7), 3, &[Live, Live, Live], 1);
    assert_eq!(script.hear(1, 5, append(Position::ZERO, vec![], 0, 0)), []);
    script.hear(3, 6, append(at(4, 1), vec![], 1, 0));
    assert_eq!(script.hear(1, 6, append(at(4, 1), vec![], 1, 0)), []);
}

#[test]
fn malformed_appends_change_nothing() {
    let mut script = Script::new(2, recovered(4, &[2], 0));
    let bad = [vec![entry(4, 3)], vec![entry(4, 2), entry(3, 3)], vec![entry(5, 2)], vec![entry(1, 2)]];
    for entries in bad {
        assert_eq!(script.hear(1, 4, append(at(2, 1), entries, 1, 0)), []);
    }
    assert_eq!(script.replica.last(), at(2, 1));
}

#[test]
fn commit_position_advances_only_over_matched_entries() {
    let mut script = Script::new(2, recovered(3, &[1, 2, 2], 0));
    // The leader has committed 3 positions; only the first of ours is known to be the same.
    let out = script.hear(1, 3, Body::Adopt { at: at(1, 1), start: Seq::new(3), commit: Seq::new(3) });
    let adopted = script.send(1, 3, Body::Adopted { at: at(1, 1), held: Seq::new(1) });
    assert_eq!(out, [adopted, Output::Commit { upto: Seq::new(1) }]);
}
