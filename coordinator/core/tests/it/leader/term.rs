//! Heartbeats and reports at a leading coordinator.

use crate::bed::{TestBed, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

const NUMBER: u64 = 7;

fn bed() -> (TestBed, Term) {
    let bed = TestBed::running(settings(1, 3, 3), &["athens", "byzantium", "cyrene"]);
    let term = Term::new(NUMBER, bed.now);
    (bed, term)
}

/// Returns the incarnations that a turn activates.
fn activated(term: &mut Term, bed: &TestBed) -> Vec<(NodeId, Incarnation)> {
    let commands = term.turn(&bed.state, bed.now).commands;
    let life = |command: &Command| match command {
        Command::Activate { node, incarnation } => Some((*node, *incarnation)),
        _ => None,
    };
    commands.iter().filter_map(life).collect()
}

/// Accepts a new heartbeat of a node's present incarnation.
fn heard(term: &mut Term, bed: &TestBed, node: NodeId, number: u64, stopping: bool) -> term::UnconfirmedHeartbeat {
    let beat = term::Beat { node, incarnation: bed.incarnation(node), number, stopping, doors: None };
    term.heartbeat(&bed.state, beat, bed.now).expect("it is of a life that goes on").expect("it is news")
}

#[test]
fn first_heartbeat_activates_incarnation_once() {
    let (mut bed, mut term) = bed();
    let athens = bed.node("athens");
    let known = heard(&mut term, &bed, athens, 1, false);
    assert!(!known.turn_due() && activated(&mut term, &bed).is_empty());
    let again = Register { expects: Some(bed.incarnation(athens)), ..register("athens", 1, 900) };
    bed.ok(Command::Register(Box::new(again)));
    let incarnation = bed.incarnation(athens);
    assert!(heard(&mut term, &bed, athens, 1, false).turn_due());
    assert!(!heard(&mut term, &bed, athens, 2, false).turn_due(), "a turn is due already");
    assert_eq!(activated(&mut term, &bed), [(athens, incarnation)]);
    assert!(activated(&mut term, &bed).is_empty(), "once for each heartbeat, and not for each turn");
}

#[test]
fn stopping_node_makes_turn_due_once() {
    let (bed, mut term) = bed();
    let athens = bed.node("athens");
    term.turn(&bed.state, bed.now);
    assert!(heard(&mut term, &bed, athens, 1, true).turn_due());
    assert!(!heard(&mut term, &bed, athens, 2, true).turn_due());
}

#[test]
fn round_serves_earlier_heartbeats_judged_one_by_one() {
    let (mut bed, mut term) = bed();
    let cities = ["athens", "byzantium", "cyrene"].map(|name| bed.node(name));
    let early = cities.map(|node| heard(&mut term, &bed, node, 1, false));
    let round = term.begin_round();
    let late = heard(&mut term, &bed, cities[0], 2, false);
    assert!(early.iter().all(|beat| term.covers(&bed.state, round, *beat)) && !term.covers(&bed.state, round, late));
    // One of them begins another incarnation during the round.
    bed.rejoin(cities[1], 900);
    let confirmed = early.iter().filter_map(|beat| term.confirmed(&bed.state, *beat, round, Some(NUMBER)));
    let confirmed: Vec<term::ConfirmedHeartbeat> = confirmed.collect();
    let answers = term.answers(&bed.state, confirmed, bed.now);
    let refused: Vec<bool> = answers.iter().map(Result::is_err).collect();
    assert_eq!(refused, [false, true, false]);
    assert_eq!(term.confirmed(&bed.state, late, round, Some(NUMBER)), None, "it waits for another round");
    let next = term.begin_round();
    assert!(term.confirmed(&bed.state, late, next, Some(NUMBER)).is_some());
}

#[test]
fn heartbeat_numbers_restart_with_incarnation() {
    let (mut bed, mut term) = bed();
    let athens = bed.node("athens");
    let _ = heard(&mut term, &bed, athens, 40, false);
    bed.rejoin(athens, 900);
    let _ = heard(&mut term, &bed, athens, 1, false);
}

#[test]
fn answer_without_commit_needs_a_round() {
    let (bed, mut term) = bed();
    let leader = bed.leader(0).expect("a leader");
    let (own, incarnation) = (bed.row(0).leader.expect("a leader"), bed.incarnation(leader));
    let released = bed.fact(0, own, Fact::Released);
    let of_dropped = Report { partition: PartitionId::new(TableId::new(9), 0), ..released.clone() };
    let mut told = |reports: &[Report]| term.reports(&bed.state, bed.now, leader, incarnation, reports);
    let refused = told(std::slice::from_ref(&of_dropped));
    assert!(refused.needs_round() && refused.refused.len() == 1);
    let both = told(&[of_dropped, released]);
    assert!(!both.needs_round(), "a commit proves it");
    assert_eq!((both.refused.len(), both.commands[0].0), (2, 1));
    assert!(matches!(&both.commands[0].1, Command::Change(changes) if changes[0].partition == part(0)));
}

#[test]
fn next_turn_is_due_soon() {
    let (bed, mut term) = bed();
    let turn = term.turn(&bed.state, bed.now);
    assert!(turn.wake_at <= bed.now.plus(term::PAUSE_MAX_MS));
}

/// Returns true if the term accepts a node's heartbeat.
fn is_heard(term: &mut Term, bed: &TestBed, node: NodeId, number: u64) -> bool {
    let beat = term::Beat { node, incarnation: bed.incarnation(node), number, stopping: false, doors: None };
    term.heartbeat(&bed.state, beat, bed.now).is_ok()
}

#[test]
fn read_only_quorum_fails_no_node_and_withdraws_nothing() {
    let (mut bed, mut term) = bed();
    term.turn(&bed.state, bed.now);
    let athens = bed.node("athens");
    let bump = Order::Bump { partition: part(0), epoch: bed.row(0).epoch };
    bed.ok(Command::Control { if_controls: bed.state.controls_version, order: bump, why: String::new() });
    bed.now = bed.now.plus(2_000);
    assert_eq!(term.observe(&bed.state, bed.now).commands, []);
    assert!(is_heard(&mut term, &bed, athens, 1), "a pause costs no lease while nothing can be committed");
    assert_eq!(term.liveness().withdrawn().count(), 0);
    // Nodes that are still silent fail once there is space again.
    let failed = term.turn(&bed.state, bed.now).commands;
    let of = |node| {
        failed.iter().any(|command| matches!(command, Command::NodeFailed { node: failed, .. } if *failed == node))
    };
    assert!(!of(athens) && of(bed.node("byzantium")) && of(bed.node("cyrene")));
    assert_eq!(term.liveness().withdrawn().count(), 1);
}

#[test]
fn node_is_answered_again_if_failure_was_not_proposed() {
    let (mut bed, mut term) = bed();
    term.turn(&bed.state, bed.now);
    let athens = bed.node("athens");
    bed.now = bed.now.plus(2_000);
    let first = term.turn(&bed.state, bed.now).commands;
    assert!(!is_heard(&mut term, &bed, athens, 1));
    term.retract(&first);
    assert!(is_heard(&mut term, &bed, athens, 2));
    // The first proposal may still be committed although the second one was never made.
    bed.now = bed.now.plus(2_000);
    term.turn(&bed.state, bed.now);
    bed.now = bed.now.plus(1_000);
    let second = term.turn(&bed.state, bed.now).commands;
    assert!(second.iter().any(|command| matches!(command, Command::NodeFailed { .. })));
    term.retract(&second);
    assert!(!is_heard(&mut term, &bed, athens, 3));
}
