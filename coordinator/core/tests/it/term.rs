//! What a coordinator does with heartbeats and reports while it leads.

use crate::bed::{Bed, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

const NUMBER: u64 = 7;

fn bed() -> (Bed, Term) {
    let bed = Bed::running(settings(1, 3, 3), &["athens", "byzantium", "cyrene"]);
    let term = Term::new(NUMBER, bed.now);
    (bed, term)
}

/// The lives that a turn activates.
fn activated(term: &mut Term, bed: &Bed) -> Vec<(NodeId, Incarnation)> {
    let commands = term.turn(&bed.state, bed.now).commands;
    let life = |command: &Command| match command {
        Command::Activate { node, incarnation } => Some((*node, *incarnation)),
        _ => None,
    };
    commands.iter().filter_map(life).collect()
}

#[test]
fn a_life_that_is_heard_is_activated_by_the_next_turn_and_known_ones_are_not() {
    let (mut bed, mut term) = bed();
    let athens = bed.node("athens");
    let known = term.heartbeat(&bed.state, athens, bed.incarnation(athens), false, bed.now).expect("it is heard");
    assert!(!known.turn_due() && activated(&mut term, &bed).is_empty());
    let again = Register { expects: Some(bed.incarnation(athens)), ..register("athens", 1, 900) };
    bed.ok(Command::Register(Box::new(again)));
    let incarnation = bed.incarnation(athens);
    let mut heard = || term.heartbeat(&bed.state, athens, incarnation, false, bed.now).expect("it is heard");
    assert!(heard().turn_due());
    assert!(!heard().turn_due(), "a turn is due already");
    assert_eq!(activated(&mut term, &bed), [(athens, incarnation)]);
    assert!(activated(&mut term, &bed).is_empty(), "once for each heartbeat, and not for each turn");
}

#[test]
fn a_node_that_says_it_is_about_to_exit_makes_a_turn_due_once() {
    let (bed, mut term) = bed();
    let athens = bed.node("athens");
    let incarnation = bed.incarnation(athens);
    term.turn(&bed.state, bed.now);
    let mut leaves = || term.heartbeat(&bed.state, athens, incarnation, true, bed.now).expect("it is heard");
    assert!(leaves().turn_due());
    assert!(!leaves().turn_due());
}

#[test]
fn what_is_answered_without_a_commit_needs_a_round() {
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
fn a_turn_is_followed_by_another_before_long() {
    let (bed, mut term) = bed();
    let turn = term.turn(&bed.state, bed.now);
    assert!(turn.wake_at <= bed.now.plus(term::PAUSE_MAX_MS));
}
