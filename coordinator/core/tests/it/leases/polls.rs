//! Polls of participants for their duties.

use crate::bed::{Jobs, boxed, worker};
use archon_coordinator_core::term::{PollAnswer, Polls};
use archon_coordinator_core::*;
use archon_types::*;

const TERM: u64 = 7;
const UNKNOWN: (u64, Version) = (0, Version::ZERO);

/// Polls as a participant that obeys these duties.
fn poll(polls: &mut Polls, state: &ClusterState, node: NodeId, obeyed: (u64, Version)) -> PollAnswer {
    let poll = polls.begin(node, state.incarnation(node).expect("a registered node"), obeyed);
    polls.answer(state, TERM, poll).expect("an answer")
}

/// Returns the version of duties that were answered.
fn version(polled: PollAnswer) -> Version {
    let PollAnswer::News(version, duties) = polled else { panic!("{polled:?}") };
    assert!(!duties.is_empty());
    version
}

#[test]
fn poll_is_answered_once_per_change_of_duties() {
    let mut jobs = Jobs::with_workers(6, 2);
    let (node, mut polls) = (jobs.worker(0), Polls::default());
    let first = version(poll(&mut polls, &jobs.bed.state, node, UNKNOWN));
    assert_eq!(poll(&mut polls, &jobs.bed.state, node, (TERM, first)), PollAnswer::Nothing);
    for obeyed in [(TERM, Version::ZERO), (TERM - 1, first)] {
        let again = version(poll(&mut polls, &jobs.bed.state, node, obeyed));
        assert_eq!(again, first, "the duties of another term or version are repeated");
    }
    jobs.bed.join_with(worker(2));
    jobs.bed.settle();
    let next = version(poll(&mut polls, &jobs.bed.state, node, (TERM, first)));
    assert!(next > first);
    assert_eq!(poll(&mut polls, &jobs.bed.state, node, (TERM, next)), PollAnswer::Nothing);
    let other = jobs.worker(1);
    version(poll(&mut polls, &jobs.bed.state, other, (TERM, next)));
}

#[test]
fn newer_poll_ends_the_parked_one() {
    let jobs = Jobs::with_workers(6, 2);
    let (state, node, mut polls) = (&jobs.bed.state, jobs.worker(0), Polls::default());
    let obeyed = (TERM, version(poll(&mut polls, state, node, UNKNOWN)));
    let life = state.incarnation(node).unwrap();
    let parked = polls.begin(node, life, obeyed);
    assert_eq!(polls.answer(state, TERM, parked).unwrap(), PollAnswer::Nothing);
    let newer = polls.begin(node, life, obeyed);
    assert_eq!(polls.answer(state, TERM, parked).unwrap(), PollAnswer::Overtaken);
    assert_eq!(polls.answer(state, TERM, newer).unwrap(), PollAnswer::Nothing);
    polls.retain(|other| other != node);
    assert_eq!(polls.answer(state, TERM, newer).unwrap(), PollAnswer::Overtaken, "the participant is gone");
}

#[test]
fn participant_gets_no_duties_before_it_is_active() {
    let mut jobs = Jobs::with_workers(6, 2);
    let registered = jobs.bed.one(boxed(worker(2)));
    let Response::Registered { node, incarnation } = registered else { panic!("{registered:?}") };
    let mut polls = Polls::default();
    let parked = polls.begin(node, incarnation, UNKNOWN);
    assert_eq!(polls.answer(&jobs.bed.state, TERM, parked).unwrap(), PollAnswer::NotActive);
    jobs.bed.ok(Command::Activate { node, incarnation });
    assert!(matches!(polls.answer(&jobs.bed.state, TERM, parked).unwrap(), PollAnswer::News(..)));
    let former = polls.begin(node, Incarnation::ZERO, UNKNOWN);
    let error = polls.answer(&jobs.bed.state, TERM, former).unwrap_err();
    assert_eq!(error.kind, ErrorKind::StaleIncarnation);
}
