use super::script::Script;
use crate::{Body, Input, Output, Position, RecoveredState};
use archon_types::ReplicaState::{Live, Load};
use archon_types::Seq;

fn done(tickets: &[u64], ok: bool) -> Output {
    Output::ConfirmDone { tickets: tickets.to_vec(), ok }
}

#[test]
fn round_serves_only_reads_that_waited_at_its_start() {
    let mut script = Script::serving(&[Live, Live, Live], 2);
    let out = script.turn([Input::Confirm { ticket: 1 }, Input::Confirm { ticket: 2 }]);
    let ask = |round, to| Script::new(1, RecoveredState::default()).send(to, 1, Body::Confirm { round });
    assert_eq!(out, [ask(1, 2), ask(1, 3)]);
    assert_eq!(script.one(Input::Confirm { ticket: 3 }), []);
    assert_eq!(script.hear(2, 1, Body::Confirmed { round: 1 }), []);
    let out = script.hear(3, 1, Body::Confirmed { round: 1 });
    assert_eq!(out, [done(&[1, 2], true), ask(2, 2), ask(2, 3)]);
    // Answers to the former round no longer count.
    script.hear(2, 1, Body::Confirmed { round: 1 });
    assert_eq!(script.hear(3, 1, Body::Confirmed { round: 2 }), []);
    assert_eq!(script.hear(2, 1, Body::Confirmed { round: 2 }), [done(&[3], true)]);
}

#[test]
fn requested_joiner_has_to_confirm() {
    let mut script = Script::serving(&[Live, Live, Load], 1);
    script.one(Input::Lease(true));
    script.hear(3, 1, Body::Adopted { at: Position::ZERO, held: Seq::ZERO });
    script.one(Input::Confirm { ticket: 1 });
    assert_eq!(script.hear(2, 1, Body::Confirmed { round: 1 }), []);
    assert_eq!(script.hear(3, 1, Body::Confirmed { round: 1 }), [done(&[1], true)]);
}

#[test]
fn sole_or_unanswered_leader_confirms_no_read() {
    let mut alone = Script::serving(&[Live], 1);
    assert_eq!(alone.one(Input::Confirm { ticket: 1 }), [done(&[1], false)]);
    let mut script = Script::serving(&[Live, Live], 1);
    script.one(Input::Confirm { ticket: 1 });
    assert!(script.tick_after(1_000).contains(&done(&[1], false)));
}

#[test]
fn follower_confirms_unless_it_knows_higher_epoch() {
    let mut script = Script::new(2, super::script::recovered(4, &[], 0));
    assert_eq!(script.hear(1, 4, Body::Confirm { round: 7 }), [script.send(1, 4, Body::Confirmed { round: 7 })]);
    let nack = Body::Nack { refused: Position::ZERO, hint: Position::ZERO, copying: false };
    assert_eq!(script.hear(1, 3, Body::Confirm { round: 8 }), [script.send(1, 4, nack)]);
}
