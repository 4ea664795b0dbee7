use super::script::{Script, at, recovered, unheard};
use crate::{Body, Input, Output, Record, Recovered};
use archon_types::ReplicaState::{Live, Load};
use archon_types::{Epoch, ErrorKind, Fact, Incarnation, Seq};

#[test]
fn alone_it_serves_once_its_epoch_is_durable() {
    let mut script = Script::new(1, Recovered::default());
    let persist = Output::Persist { token: 1, records: vec![Record::Epoch(Epoch::new(1))] };
    assert_eq!(script.configure((1, 1), 1, &[Live], 1), [persist]);
    let online = script.report(1, 1, Fact::Online);
    assert_eq!(script.persisted(1), [Output::Serve(true), online]);
}

#[test]
fn its_recovered_tail_is_committed_by_the_take_over() {
    let mut script = Script::new(1, recovered(3, &[1, 1, 3], 2));
    script.configure((5, 9), 1, &[Live], 1);
    let online = script.report(5, 9, Fact::Online);
    assert_eq!(script.persisted(1), [Output::Commit { upto: Seq::new(3) }, Output::Serve(true), online]);
}

#[test]
fn every_live_follower_must_hold_the_whole_log_first() {
    let mut script = Script::new(1, recovered(1, &[1, 1], 0));
    let (start, commit) = (Seq::new(2), Seq::ZERO);
    let out = script.configure((2, 4), 1, &[Live, Live, Live], 2);
    let adopt = |to| script.send(to, 2, Body::Adopt { at: at(1, 2), start, commit });
    let persist = Output::Persist { token: 1, records: vec![Record::Epoch(Epoch::new(2))] };
    assert_eq!(out, [persist, adopt(2), adopt(3)]);
    assert_eq!(script.persisted(1), []);
    assert_eq!(script.hear(2, 2, Body::Adopted { at: at(1, 2), held: Seq::new(2) }), []);
    // One that matches without holding everything is not enough.
    assert_eq!(script.hear(3, 2, Body::Adopted { at: at(1, 2), held: Seq::new(1) }), []);
    let online = script.report(2, 4, Fact::Online);
    let served = [Output::Commit { upto: Seq::new(2) }, Output::Serve(true), online];
    assert_eq!(script.hear(3, 2, Body::Ack { held: Seq::new(2) }), served);
}

#[test]
fn below_the_minimum_nobody_serves() {
    let mut script = Script::new(1, Recovered::default());
    script.configure((1, 1), 1, &[Live, Load], 2);
    assert_eq!(script.persisted(1), []);
    script.one(Input::Lease(true));
    // A loader that holds the whole log is asked for; it serves only once that is known to be granted.
    let caught_up = script.report(1, 1, Fact::CaughtUp { joiner: super::script::name(2) });
    assert_eq!(script.hear(2, 1, Body::Adopted { at: at(0, 0), held: Seq::ZERO }), [caught_up]);
    let online = script.report(1, 2, Fact::Online);
    assert_eq!(script.configure((1, 2), 1, &[Live, Live], 2), [Output::Serve(true), online]);
}

#[test]
fn a_take_over_whose_follower_is_dead_and_may_not_be_dropped_goes_on_with_a_loader() {
    let mut script = Script::new(1, recovered(1, &[1], 1));
    script.configure((2, 4), 1, &[Live, Live, Load], 2);
    script.persisted(1);
    script.one(Input::Lease(true));
    // Two are Live, as many as there must be, and one of them never answers.
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
fn a_restarted_leader_does_not_go_on_in_its_old_epoch() {
    let mut script = Script::new(1, recovered(5, &[5], 0));
    // Its registration ended the epoch; should the row not say so, it asks for another one.
    let told = script.report(5, 9, Fact::Overtaken { by: Epoch::new(5) });
    assert_eq!(script.configure((5, 9), 1, &[Live], 1), [told]);
    assert!(script.replica.admit().is_err());
}

#[test]
fn another_registration_of_the_same_process_ends_a_leadership() {
    let mut script = Script::serving(&[Live], 1);
    let out = script.one(Input::Renew { node: archon_types::NodeId::new(1), incarnation: Incarnation::new(2) });
    assert_eq!(out, [Output::Serve(false)]);
    let told = script.report(1, 2, Fact::Overtaken { by: Epoch::new(1) });
    assert_eq!(script.configure((1, 2), 1, &[Live], 1), [told]);
}

/// A write that is acknowledged before the coordinator knows that the partition was ever led is lost without a word if the
/// disks are lost next: the copies count as never made, and begin empty.
#[test]
fn nothing_is_acknowledged_before_the_coordinator_knows_that_the_partition_is_led() {
    let mut script = Script::new(1, Recovered::default());
    script.one(Input::Configure(unheard((1, 1), 1, &[Live, Live], 1)));
    script.persisted(1);
    let online = script.report(1, 1, Fact::Online);
    let adopted = Body::Adopted { at: at(0, 0), held: Seq::ZERO };
    assert_eq!(script.hear(2, 1, adopted), std::slice::from_ref(&online), "it is ready, says so, and does not serve");
    assert_eq!(script.propose(1), [Output::Refuse { ticket: 1, kind: ErrorKind::Unavailable }]);
    // The report is lost: it is made again.
    assert_eq!(script.tick_after(100), []);
    assert!(script.tick_after(1_000).contains(&online));
    assert_eq!(script.configure((1, 2), 1, &[Live, Live], 1), [Output::Serve(true)]);
    assert!(script.replica.admit().is_ok());
}

/// Where the log holds anything, the coordinator heard of some leader before that: no failover waits.
#[test]
fn a_leader_with_a_log_serves_without_waiting_to_be_heard_of() {
    let mut script = Script::new(1, recovered(3, &[3], 1));
    script.one(Input::Configure(unheard((5, 9), 1, &[Live], 1)));
    assert!(script.persisted(1).contains(&Output::Serve(true)));
}
