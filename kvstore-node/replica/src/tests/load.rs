use super::script::{Script, address, at, entry, recovered};
use crate::{Body, Input, Output, Position, Record, RecoveredState};
use archon_types::ReplicaState::{Live, Load};
use archon_types::{Epoch, Seq, Version};

fn start_copy(copy: u64, epoch: u64) -> Output {
    Output::StartCopy { copy, leader: address(1), epoch: Epoch::new(epoch) }
}

#[test]
fn new_loader_copies_and_then_follows() {
    let mut script = Script::new(2, RecoveredState { epoch: Epoch::new(1), ..RecoveredState::default() });
    script.configure((1, 2), 1, &[Live, Load], 1);
    assert_eq!(script.hear(1, 1, Body::Behind { base: at(1, 5) }), [start_copy(1, 1)]);
    assert_eq!(script.hear(1, 1, Body::Behind { base: at(1, 5) }), []);
    let adopt = Body::Adopt { at: at(1, 5), start: Seq::ZERO, commit: Seq::new(8) };
    let copying = Body::Nack { refused: Position::ZERO, hint: Position::ZERO, copying: true };
    assert_eq!(script.hear(1, 1, adopt.clone()), [script.send(1, 1, copying)]);
    assert_eq!(script.one(Input::Copied { copy: 9, at: at(1, 7), version: Version::new(1) }), []);
    let out = script.one(Input::Copied { copy: 1, at: at(1, 7), version: Version::new(1) });
    let hint = script.send(1, 1, Body::Nack { refused: Position::ZERO, hint: at(1, 7), copying: false });
    assert_eq!(out, [hint, Output::Persist { token: 1, records: vec![Record::Reset { base: at(1, 7) }] }]);
    // Nothing counts as held for the leader until it is durable.
    let adopt = Body::Adopt { at: at(1, 7), start: Seq::ZERO, commit: Seq::new(8) };
    let adopted = script.send(1, 1, Body::Adopted { at: at(1, 7), held: Seq::ZERO });
    assert_eq!(script.hear(1, 1, adopt), [adopted]);
    assert_eq!(script.persisted(1), [script.send(1, 1, Body::Ack { held: Seq::new(7) })]);
    let append = Body::Append { before: at(1, 7), entries: vec![entry(1, 8)], start: Seq::ZERO, commit: Seq::new(8) };
    script.hear(1, 1, append);
    let ack = script.send(1, 1, Body::Ack { held: Seq::new(8) });
    assert_eq!(script.persisted(2), [ack, Output::Commit { upto: Seq::new(8) }]);
}

#[test]
fn old_log_is_removed_from_disk_before_pull() {
    let mut script = Script::new(2, recovered(1, &[1, 1], 2));
    script.configure((1, 2), 1, &[Live, Load], 1);
    let out = script.hear(1, 1, Body::Behind { base: at(1, 5) });
    assert_eq!(out, [Output::Persist { token: 1, records: vec![Record::Reset { base: Position::ZERO }] }]);
    assert_eq!(script.persisted(1), [start_copy(1, 1)]);
}

#[test]
fn delayed_message_does_not_reset_caught_up_replica() {
    let mut script = Script::new(2, recovered(1, &[1, 1, 1], 1));
    script.configure((1, 2), 1, &[Live, Load], 1);
    assert_eq!(script.hear(1, 1, Body::Behind { base: at(1, 3) }), []);
    let mut live = Script::new(2, recovered(1, &[1], 1));
    live.configure((1, 2), 1, &[Live, Live], 1);
    assert_eq!(live.hear(1, 1, Body::Behind { base: at(1, 3) }), []);
    let mut unknown = Script::new(2, recovered(1, &[1], 1));
    assert_eq!(unknown.hear(1, 1, Body::Behind { base: at(1, 3) }), []);
}

#[test]
fn new_leader_ends_pull() {
    let mut script = Script::new(2, RecoveredState { epoch: Epoch::new(1), ..RecoveredState::default() });
    script.configure((1, 2), 1, &[Live, Load, Live], 1);
    script.hear(1, 1, Body::Behind { base: at(1, 5) });
    let out = script.hear(3, 2, Body::Adopt { at: at(1, 5), start: Seq::new(5), commit: Seq::new(5) });
    let nack = Body::Nack { refused: at(1, 5), hint: Position::ZERO, copying: false };
    let epoch = Output::Persist { token: 1, records: vec![Record::Epoch(Epoch::new(2))] };
    assert_eq!(out, [Output::StopCopy { copy: 1 }, script.send(3, 2, nack), epoch]);
    assert_eq!(script.one(Input::Copied { copy: 1, at: at(1, 7), version: Version::new(1) }), []);
}

#[test]
fn source_in_new_epoch_is_copied_again() {
    let mut script = Script::new(2, RecoveredState { epoch: Epoch::new(1), ..RecoveredState::default() });
    script.configure((1, 2), 1, &[Live, Load, Live], 1);
    script.hear(1, 1, Body::Behind { base: at(1, 5) });
    let out = script.hear(1, 3, Body::Adopt { at: at(1, 5), start: Seq::new(5), commit: Seq::new(5) });
    assert_eq!(out.first(), Some(&Output::StopCopy { copy: 1 }), "{out:?}");
    // Once the epoch is on disk.
    assert_eq!(script.hear(1, 3, Body::Behind { base: at(1, 5) }), []);
    assert_eq!(script.persisted(1), [start_copy(2, 3)]);
}
