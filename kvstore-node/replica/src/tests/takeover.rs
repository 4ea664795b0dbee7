use super::script::{Script, at, recovered, unheard};
use crate::{Body, Input, Output, Record, RecoveredState};
use archon_types::ReplicaState::{Live, Load};
use archon_types::{Epoch, ErrorKind, Fact, Incarnation, Seq};

#[test]
fn sole_copy_serves_once_its_epoch_is_durable() {
    let mut script = Script::new(1, RecoveredState::default());
    let persist = Output::Persist { token: 1, records: vec![Record::Epoch(Epoch::new(1))] };
    assert_eq!(script.configure((1, 1), 1, &[Live], 1), [persist]);
    let online = script.report(1, 1, Fact::Online);
    assert_eq!(script.persisted(1), [Output::Serve(true), online]);
}

#[test]
fn takeover_commits_recovered_tail() {
    let mut script = Script::new(1, recovered(3, &[1, 1, 3], 2));
    script.configure((5, 9), 1, &[Live], 1);
    let online = script.report(5, 9, Fact::Online);
    assert_eq!(script.persisted(1), [Output::Commit { upto: Seq::new(3) }, Output::Serve(true), online]);
}

#[test]
fn takeover_waits_for_whole_log_on_every_live_follower() {
    let mut script = Script::new(1, recovered(1, &[1, 1], 0));
    let (start, commit) = (Seq::new(2), Seq::ZERO);
    let out = script.configure((2, 4), 1, &[Live, Live, Live], 2);
    let adopt = |to| script.send(to, 2, Body::Adopt { at: at(1, 2), start, commit });
    let persist = Output::Persist { token: 1, records: vec![Record::Epoch(Epoch::new(2))] };
    assert_eq!(out, [persist, adopt(2), adopt(3)]);
    assert_eq!(script.persisted(1), []);
    assert_eq!(script.hear(2, 2, Body::Adopted { at: at(1, 2), held: Seq::new(2) }), []);
    // A follower that matches without holding everything is not enough.
    assert_eq!(script.hear(3, 2, Body::Adopted { at: at(1, 2), held: Seq::new(1) }), []);
    let online = script.report(2, 4, Fact::Online);
    let served = [Output::Commit { upto: Seq::new(2) }, Output::Serve(true), online];
    assert_eq!(script.hear(3, 2, Body::Ack { held: Seq::new(2) }), served);
}

#[test]
fn leader_below_min_in_sync_does_not_serve() {
    let mut script = Script::new(1, RecoveredState::default());
    script.configure((1, 1), 1, &[Live, Load], 2);
    assert_eq!(script.persisted(1), []);
    script.one(Input::Lease(true));
    // A loader that holds the whole log is requested; the leader serves only once that is known to be granted.
    let caught_up = script.report(1, 1, Fact::CaughtUp { joiner: super::script::name(2) });
    assert_eq!(script.hear(2, 1, Body::Adopted { at: at(0, 0), held: Seq::ZERO }), [caught_up]);
    let online = script.report(1, 2, Fact::Online);
    assert_eq!(script.configure((1, 2), 1, &[Live, Live], 2), [Output::Serve(true), online]);
}

#[test]
fn takeover_with_undroppable_dead_follower_adds_loader() {
    let mut script = Script::new(1, recovered(1, &[1], 1));
    script.configure((2, 4), 1, &[Live, Live, Load], 2);
    script.persisted(1);
    script.one(Input::Lease(true));
    // Two are Live, the required minimum, and one of them never answers.
    assert_eq!(script.hear(3, 2, Body::Adopted { at: at(1, 1), held: Seq::new(1) }), []);
    let silent = script.report(2, 4, Fact::Silent { followers: vec![super::script::name(2)] });
    assert!(script.tick_after(1_000).contains(&silent));
    // Refused: that would leave one. The loader holds everything: with it there are enough without the other.
    script.configure((2, 5), 1, &[Live, Live, Load], 2);
    let caught_up = script.report(2, 5, Fact::CaughtUp { joiner: super::script::name(3) });
    assert!(script.tick_after(20).contains(&caught_up));
    script.configure((2, 6), 1, &[Live, Live, Live], 2);
    let silent = script.report(2, 6, Fact::Silent { followers: vec![super::script::name(2)] });
    assert!((0..60).any(|_| script.tick_after(20).contains(&silent)));
    assert!(script.configure((2, 7), 1, &[Live, Load, Live], 2).contains(&Output::Serve(true)));
}

#[test]
fn restarted_leader_does_not_resume_its_epoch() {
    let mut script = Script::new(1, recovered(5, &[5], 0));
    // Its registration ended the epoch; if the row does not show that, it asks for another one.
    let told = script.report(5, 9, Fact::Overtaken { by: Epoch::new(5) });
    assert_eq!(script.configure((5, 9), 1, &[Live], 1), [told]);
    assert!(script.replica.admit().is_err());
}

#[test]
fn new_registration_ends_leadership() {
    let mut script = Script::serving(&[Live], 1);
    let out = script.one(Input::Renew { node: archon_types::NodeId::new(1), incarnation: Incarnation::new(2) });
    assert_eq!(out, [Output::Serve(false)]);
    let told = script.report(1, 2, Fact::Overtaken { by: Epoch::new(1) });
    assert_eq!(script.configure((1, 2), 1, &[Live], 1), [told]);
}

/// A write acknowledged before the coordinator has recorded any leader would be lost silently if the disks were lost
/// next: the copies count as never created, and start empty.
#[test]
fn no_write_is_acknowledged_before_first_leader_is_recorded() {
    let mut script = Script::new(1, RecoveredState::default());
    script.one(Input::Configure(unheard((1, 1), 1, &[Live, Live], 1)));
    script.persisted(1);
    let online = script.report(1, 1, Fact::Online);
    let adopted = Body::Adopted { at: at(0, 0), held: Seq::ZERO };
    assert_eq!(script.hear(2, 1, adopted), std::slice::from_ref(&online), "it is ready, says so, and does not serve");
    assert_eq!(script.propose(1), [Output::Refuse { ticket: 1, kind: ErrorKind::Unavailable }]);
    // The report is lost and repeated.
    assert_eq!(script.tick_after(100), []);
    assert!(script.tick_after(1_000).contains(&online));
    assert_eq!(script.configure((1, 2), 1, &[Live, Live], 1), [Output::Serve(true)]);
    assert!(script.replica.admit().is_ok());
}

/// A log with any entry proves that an earlier leader was recorded: failovers need not wait.
#[test]
fn leader_with_log_serves_before_it_is_recorded() {
    let mut script = Script::new(1, recovered(3, &[3], 1));
    script.one(Input::Configure(unheard((5, 9), 1, &[Live], 1)));
    assert!(script.persisted(1).contains(&Output::Serve(true)));
}
