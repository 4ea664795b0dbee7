//! The rules about leases, heartbeats and quorum rounds disabled, one at a time, as in `mutants`.

use crate::bed::{TestBed, part};
use crate::mutants::{elects, leads, running};
use archon_coordinator_core::*;
use archon_types::*;

archon_types::shown_by! {
    NoQuorumRound => no_lease_is_granted_without_round_in_its_term,
    CoordinatorForgets => new_coordinator_waits_for_earlier_leases,
    NodeWideLease => answer_lists_withdrawn_leaderships,
    GrantWhileDeciding => node_being_failed_is_not_answered,
    TermForgotten => later_session_keeps_failures_and_withdrawals,
    FailingIsOver => node_being_failed_gets_retryable_error,
    FailFromHeard => failure_waits_for_last_answer,
    LeaseChanges => lease_length_does_not_change,
    RoundShared => round_does_not_serve_later_heartbeats,
    JudgedAtArrival => incarnation_is_judged_after_the_round,
    FormerNotListed => leaderships_ended_by_state_are_listed_as_withdrawn,
    AnsweredPerRound => every_answer_of_a_round_is_recorded,
    OldBeatCounts => old_heartbeat_is_no_sign_of_life,
    ElectForgets => election_waits_for_holders_lease,
    FormerForgotten => former_holder_is_remembered,
}

/// The first session of a term decides a failure and a withdrawal. Both are still uncommitted when the next session
/// begins.
fn later_session_keeps_failures_and_withdrawals(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let (leader, _) = leads(&bed);
    let mut term = Term::new(7, bed.now);
    term.turn(&bed.state, bed.now);
    bed.now = bed.now.plus(2_000);
    let failures = term.turn(&bed.state, bed.now).commands;
    assert!(failures.iter().any(|command| matches!(command, Command::NodeFailed { node, .. } if *node == leader)));
    term.resume(&bed.state, bed.now);
    assert!(term.turn(&bed.state, bed.now).commands.is_empty(), "silence is counted from the beginning of the session");
    let beat =
        term::Beat { node: leader, incarnation: bed.incarnation(leader), number: 1, stopping: false, doors: None };
    let refused = term.heartbeat(&bed.state, beat, bed.now).is_err();

    let mut withdrawn = Term::new(7, bed.now);
    bed.ok(Command::Control {
        if_controls: bed.state.controls_version,
        order: Order::Bump { partition: part(0), epoch: bed.row(0).epoch },
        why: String::new(),
    });
    withdrawn.turn(&bed.state, bed.now);
    withdrawn.resume(&bed.state, bed.now);
    refused && withdrawn.liveness().withdrawn().eq([(part(0), bed.row(0).epoch)])
}

/// A longer lease is granted, and a coordinator that uses the earlier timing names a successor while it runs.
fn lease_length_does_not_change(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let changes = vec![SettingChange { setting: Setting::LeaseMs, value: 1_140 }];
    bed.one(Command::Configure { if_version: bed.state.settings_version, changes });
    bed.heartbeat(leader).expect("an answer").lease_ms == 1_000
}

fn new_coordinator_waits_for_earlier_leases(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    bed.rejoin(leader, 500);
    bed.liveness = Liveness::new(bed.now);
    let early = elects(&bed.turn());
    bed.now = bed.now.plus(2_000);
    bed.heartbeat_all();
    !early && elects(&bed.turn())
}

fn answer_lists_withdrawn_leaderships(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    bed.liveness.withdraw(&bed.state, part(0));
    bed.heartbeat(leader).expect("an answer").withdrawn == [(part(0), bed.row(0).epoch)]
}

fn node_being_failed_is_not_answered(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    bed.now = bed.now.plus(1_300);
    let commands = bed.turn();
    assert!(commands.iter().any(|command| matches!(command, Command::NodeFailed { node, .. } if *node == leader)));
    bed.heartbeat(leader).is_none()
}

fn node_being_failed_gets_retryable_error(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let incarnation = bed.incarnation(leader);
    bed.now = bed.now.plus(1_300);
    bed.turn();
    let refused = bed.liveness.heard(&bed.state, leader, incarnation, 1_000, bed.now).expect_err("it is being failed");
    refused.kind == ErrorKind::Unavailable
}

fn election_waits_for_holders_lease(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let node = leads(&bed).0;
    bed.pass(2_000, &[]);
    bed.heartbeat(node).expect("an answer");
    bed.liveness.withdraw(&bed.state, part(0));
    !elects(&bed.turn())
}

fn former_holder_is_remembered(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    bed.rejoin(leader, 500);
    bed.heartbeat_all();
    !bed.state.former_leaders.is_empty() && !elects(&bed.turn())
}

fn no_lease_is_granted_without_round_in_its_term(mutant: Option<Mutant>) -> bool {
    let bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let mut term = Term::new(7, bed.now);
    let heartbeat = heard(&mut term, &bed, leader, 1);
    let round = term.begin_round();
    let unproven = [None, Some(6), Some(8)].map(|led| term.confirmed(&bed.state, heartbeat, round, led));
    let confirmed = term.confirmed(&bed.state, heartbeat, round, Some(7)).expect("a majority says that it leads");
    assert!(term.answers(&bed.state, [confirmed], bed.now)[0].is_ok());
    unproven.iter().all(Option::is_none)
}

/// Accepts a new heartbeat of a node's present incarnation.
fn heard(term: &mut Term, bed: &TestBed, node: NodeId, number: u64) -> term::UnconfirmedHeartbeat {
    let beat = term::Beat { node, incarnation: bed.incarnation(node), number, stopping: false, doors: None };
    term.heartbeat(&bed.state, beat, bed.now).expect("it is of a life that goes on").expect("it is news")
}

fn round_does_not_serve_later_heartbeats(mutant: Option<Mutant>) -> bool {
    let bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let mut term = Term::new(7, bed.now);
    let round = term.begin_round();
    let heartbeat = heard(&mut term, &bed, leader, 1);
    term.confirmed(&bed.state, heartbeat, round, Some(7)).is_none()
}

fn incarnation_is_judged_after_the_round(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let mut term = Term::new(7, bed.now);
    let heartbeat = heard(&mut term, &bed, leader, 1);
    let round = term.begin_round();
    // The round takes so long that the incarnation is failed before it ends.
    bed.now = bed.now.plus(1_300);
    let commands = term.turn(&bed.state, bed.now).commands;
    assert!(commands.iter().any(|command| matches!(command, Command::NodeFailed { node, .. } if *node == leader)));
    let confirmed = term.confirmed(&bed.state, heartbeat, round, Some(7)).expect("a majority says that it leads");
    term.answers(&bed.state, [confirmed], bed.now)[0].is_err()
}

/// The holder's incarnation goes on, and another copy was named once its lease had ended.
fn leaderships_ended_by_state_are_listed_as_withdrawn(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let (leader, epoch) = (leads(&bed).0, bed.row(0).epoch);
    bed.liveness.withdraw(&bed.state, part(0));
    bed.pass(1_500, &[]);
    assert!(bed.row(0).epoch > epoch, "another copy leads");
    bed.heartbeat(leader).expect("an answer").withdrawn == [(part(0), epoch)]
}

/// Two answers leave after one round, the holder's second.
fn every_answer_of_a_round_is_recorded(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let follower = bed.alive().into_iter().find(|node| *node != leader).expect("another node");
    let mut term = Term::new(7, bed.now);
    let beats = [heard(&mut term, &bed, follower, 1), heard(&mut term, &bed, leader, 1)];
    let round = term.begin_round();
    // The round took a second.
    bed.now = bed.now.plus(1_000);
    let confirmed = beats.map(|beat| term.confirmed(&bed.state, beat, round, Some(7)).expect("it leads"));
    assert!(term.answers(&bed.state, confirmed, bed.now).iter().all(Result::is_ok));
    bed.now = bed.now.plus(1_200);
    let commands = term.turn(&bed.state, bed.now).commands;
    !commands.iter().any(|command| matches!(command, Command::NodeFailed { node, .. } if *node == leader))
}

fn old_heartbeat_is_no_sign_of_life(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let incarnation = bed.incarnation(leader);
    bed.beats += 1;
    let number = bed.beats;
    let mut signs = 0;
    for _ in 0..20 {
        // The same one arrives repeatedly.
        let sign = bed.liveness.heard(&bed.state, leader, incarnation, number, bed.now);
        signs += u32::from(sign.is_ok_and(|sign| sign));
        bed.now = bed.now.plus(100);
    }
    signs == 1
}

fn failure_waits_for_last_answer(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    bed.pass(2_000, &[]);
    let (leader, _) = leads(&bed);
    bed.heartbeat_all();
    // The quorum round for that heartbeat took a second.
    bed.now = bed.now.plus(1_000);
    let (now, incarnation) = (bed.now, bed.incarnation(leader));
    bed.liveness.answer(&bed.state, leader, incarnation, now).expect("an answer");
    bed.now = bed.now.plus(1_200);
    let commands = bed.turn();
    !commands.iter().any(|command| matches!(command, Command::NodeFailed { node, .. } if *node == leader))
}
