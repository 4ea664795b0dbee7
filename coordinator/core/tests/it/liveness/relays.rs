//! Relays of participants' heartbeats, as coordinators announce them (PROTOCOL rule 81).

use crate::bed::{TestBed, register, settings};
use archon_coordinator_core::term::KnownRelays;
use archon_coordinator_core::*;
use archon_types::*;

const NODES: [&str; 9] = ["athens", "byzantium", "cyrene", "delos", "ephesus", "gela", "himera", "ithaca", "knidos"];

/// Creates nine nodes, of which three relay, and a participant.
fn relaying() -> (TestBed, NodeId) {
    let mut bed = TestBed::running(settings(9, 3, 2), &NODES);
    bed.state.settings.relays_from = 4;
    let served = Participant { tables: vec!["jobs".into()], timing: None };
    let participant = bed.join_with(Register { participant: Some(served), ..register("w1", 900, 901) });
    (bed, participant)
}

#[test]
fn participant_gets_relays_that_a_node_would_compute() {
    let (bed, participant) = relaying();
    let alive = bed.state.nodes.values().map(|row| RelayCandidate::of(&row.node));
    let computed = relays_of(participant, None, &relays(bed.state.cluster, alive, 3));
    let told = KnownRelays::new().of(&bed.state, participant);
    assert_eq!(told.iter().map(|relay| relay.node).collect::<Vec<_>>(), computed);
    let [first, _] = &told[..] else { panic!("{told:?}") };
    let row = &bed.state.node(first.node).unwrap().node;
    assert_eq!((&first.name, &first.address), (&row.name, &row.address));
}

#[test]
fn next_poll_reflects_relay_failure_and_setting() {
    let (mut bed, participant) = relaying();
    let mut known = KnownRelays::new();
    let before = known.of(&bed.state, participant);
    bed.fail(before[0].node);
    let now = known.of(&bed.state, participant);
    assert!(now.len() == 2 && now.contains(&before[1]) && !now.contains(&before[0]), "{before:?}, {now:?}");
    bed.state.settings.relays_from = 9;
    assert_eq!(known.of(&bed.state, participant), []);
}
