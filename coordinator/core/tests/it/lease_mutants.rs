//! The rules about leases, heartbeats and quorum rounds taken away, one at a time, as in `mutants`.

use crate::bed::{TestBed, part};
use crate::mutants::{elects, leads, running};
use archon_coordinator_core::*;
use archon_types::*;

archon_types::shown_by! {
    NoQuorumRound => nothing_is_granted_without_a_round_in_its_term,
    CoordinatorForgets => a_new_coordinator_waits_for_earlier_leases,
    NodeWideLease => an_answer_lists_what_is_withdrawn,
    GrantWhileDeciding => a_life_being_failed_is_not_answered,
    TermForgotten => a_later_session_keeps_failures_and_withdrawals,
    FailingIsOver => a_life_being_failed_is_told_to_ask_again,
    FailFromHeard => a_failure_waits_for_the_last_answer,
    LeaseChanges => a_lease_is_as_long_as_before,
    RoundShared => no_round_serves_what_came_after_it_began,
    JudgedAtArrival => whether_a_life_goes_on_is_judged_after_the_round,
    FormerNotListed => what_the_state_has_ended_is_listed_as_withdrawn,
    AnsweredPerRound => each_answer_of_a_round_is_noted,
    OldBeatCounts => an_old_heartbeat_keeps_nobody_alive,
    ElectForgets => an_election_waits_for_the_holders_lease,
    FormerForgotten => the_former_holder_is_remembered,
}

/// The first session of a term decides a failure and a withdrawal. Both are still uncommitted when the next session begins.
fn a_later_session_keeps_failures_and_withdrawals(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let (leader, _) = leads(&bed);
    let mut term = Term::new(7, bed.now);
    term.turn(&bed.state, bed.now);
    bed.now = bed.now.plus(2_000);
    let failures = term.turn(&bed.state, bed.now).commands;
    assert!(failures.iter().any(|command| matches!(command, Command::NodeFailed { node, .. } if *node == leader)));
    term.resume(&bed.state, bed.now);
    assert!(term.turn(&bed.state, bed.now).commands.is_empty(), "silence is counted from the beginning of the session");
    let beat = term::Beat { node: leader, incarnation: bed.incarnation(leader), number: 1, stopping: false };
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

/// A longer lease is granted, and a coordinator that reckons with the earlier timing names a successor while it runs.
fn a_lease_is_as_long_as_before(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let changes = vec![SettingChange { setting: Setting::LeaseMs, value: 1_140 }];
    bed.one(Command::Configure { if_version: bed.state.settings_version, changes });
    bed.heartbeat(leader).expect("an answer").lease_ms == 1_000
}

fn a_new_coordinator_waits_for_earlier_leases(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    bed.rejoin(leader, 500);
    bed.liveness = Liveness::new(bed.now);
    let early = elects(&bed.turn());
    bed.now = bed.now.plus(2_000);
    bed.heartbeat_all();
    !early && elects(&bed.turn())
}

fn an_answer_lists_what_is_withdrawn(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    bed.liveness.withdraw(&bed.state, part(0));
    bed.heartbeat(leader).expect("an answer").withdrawn == [(part(0), bed.row(0).epoch)]
}

fn a_life_being_failed_is_not_answered(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    bed.now = bed.now.plus(1_300);
    let commands = bed.turn();
    assert!(commands.iter().any(|command| matches!(command, Command::NodeFailed { node, .. } if *node == leader)));
    bed.heartbeat(leader).is_none()
}

fn a_life_being_failed_is_told_to_ask_again(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let incarnation = bed.incarnation(leader);
    bed.now = bed.now.plus(1_300);
    bed.turn();
    let refused = bed.liveness.heard(&bed.state, leader, incarnation, 1_000, bed.now).expect_err("it is being failed");
    refused.kind == ErrorKind::Unavailable
}

fn an_election_waits_for_the_holders_lease(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let node = leads(&bed).0;
    bed.pass(2_000, &[]);
    bed.heartbeat(node).expect("an answer");
    bed.liveness.withdraw(&bed.state, part(0));
    !elects(&bed.turn())
}

fn the_former_holder_is_remembered(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    bed.rejoin(leader, 500);
    bed.heartbeat_all();
    !bed.state.former_leaders.is_empty() && !elects(&bed.turn())
}

fn nothing_is_granted_without_a_round_in_its_term(mutant: Option<Mutant>) -> bool {
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

/// A heartbeat of a node's present life, which is news.
fn heard(term: &mut Term, bed: &TestBed, node: NodeId, number: u64) -> term::Unconfirmed {
    let beat = term::Beat { node, incarnation: bed.incarnation(node), number, stopping: false };
    term.heartbeat(&bed.state, beat, bed.now).expect("it is of a life that goes on").expect("it is news")
}

fn no_round_serves_what_came_after_it_began(mutant: Option<Mutant>) -> bool {
    let bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let mut term = Term::new(7, bed.now);
    let round = term.begin_round();
    let heartbeat = heard(&mut term, &bed, leader, 1);
    term.confirmed(&bed.state, heartbeat, round, Some(7)).is_none()
}

fn whether_a_life_goes_on_is_judged_after_the_round(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let mut term = Term::new(7, bed.now);
    let heartbeat = heard(&mut term, &bed, leader, 1);
    let round = term.begin_round();
    // The round takes so long that the life is given up before it ends.
    bed.now = bed.now.plus(1_300);
    let commands = term.turn(&bed.state, bed.now).commands;
    assert!(commands.iter().any(|command| matches!(command, Command::NodeFailed { node, .. } if *node == leader)));
    let confirmed = term.confirmed(&bed.state, heartbeat, round, Some(7)).expect("a majority says that it leads");
    term.answers(&bed.state, [confirmed], bed.now)[0].is_err()
}

/// The holder's life goes on, and another copy was named once its lease was over.
fn what_the_state_has_ended_is_listed_as_withdrawn(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let (leader, epoch) = (leads(&bed).0, bed.row(0).epoch);
    bed.liveness.withdraw(&bed.state, part(0));
    bed.pass(1_500, &[]);
    assert!(bed.row(0).epoch > epoch, "another copy leads");
    bed.heartbeat(leader).expect("an answer").withdrawn == [(part(0), epoch)]
}

/// Two answers leave after one round, the holder's second.
fn each_answer_of_a_round_is_noted(mutant: Option<Mutant>) -> bool {
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

fn an_old_heartbeat_keeps_nobody_alive(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let incarnation = bed.incarnation(leader);
    bed.beats += 1;
    let number = bed.beats;
    let mut signs = 0;
    for _ in 0..20 {
        // The same one arrives again and again.
        let sign = bed.liveness.heard(&bed.state, leader, incarnation, number, bed.now);
        signs += u32::from(sign.is_ok_and(|sign| sign));
        bed.now = bed.now.plus(100);
    }
    signs == 1
}

fn a_failure_waits_for_the_last_answer(mutant: Option<Mutant>) -> bool {
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
