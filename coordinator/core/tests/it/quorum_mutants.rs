//! The rules about the members of the quorum taken away, one at a time, as in `mutants`.

use archon_coordinator_core::*;
use archon_types::*;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

archon_types::shown_by! {
    SecondChangeTaken => one_change_is_over_before_another_begins,
    NewcomerUnready => a_newcomer_votes_once_it_has_the_log,
    LeaderStays => a_leader_that_is_to_go_gives_way,
    VoterForgotten => nobody_is_forgotten_whose_vote_counts,
    RetiredReturns => a_number_is_used_once,
    CopiedDirectoryJoins => a_copy_of_a_directory_is_not_let_in,
    OtherDirectoryHeard => a_number_with_another_directory_is_nobody,
    StrangerHeard => a_stranger_is_not_heard_whatever_it_says,
    ExpectedForgotten => a_newcomer_hears_those_that_let_it_in_until_its_log_names_it,
    VouchedIgnored => whoever_a_member_vouches_for_is_heard,
    RemovedVouched => a_member_that_lagged_vouched_for_one_that_was_removed,
}

fn directory(number: u64) -> StorageId {
    StorageId::new(Uuid::from_u128(number.into()))
}

fn member(id: u64, voter: bool) -> (u64, Coordinator) {
    (id, Coordinator { address: format!("127.0.0.1:{id}"), storage: directory(id), voter })
}

/// Three voters and a learner, who is the fourth; the fifth was removed.
fn state(mutant: Option<Mutant>) -> ClusterState {
    let mut state = ClusterState::new();
    let members = [(1, true), (2, true), (3, true), (4, false), (5, false)].map(|(id, voter)| member(id, voter));
    members_changed(&mut state, 1, members.clone().into(), false);
    members_changed(&mut state, 2, members.into_iter().take(4).collect(), false);
    state.mutant = mutant;
    state
}

fn wanting(mutant: Option<Mutant>, change: QuorumChange) -> ClusterState {
    let mut state = state(mutant);
    let (wish, who) = (Wish::Change(change), Actor::Coordinator(1));
    state.coordinators.pending = Some(PendingChange { wish, who, at: Millis::ZERO, since: Version::new(3) });
    state
}

fn health(behind: u64) -> QuorumHealth {
    let heard: BTreeSet<u64> = (1..=4).collect();
    QuorumHealth { leader: 1, behind: heard.iter().map(|id| (*id, behind)).collect(), heard }
}

fn joins(state: &ClusterState, id: u64, storage: StorageId) -> Result<Option<Command>, QuorumRefusal> {
    check_join(state, &Newcomer { id, address: format!("127.0.0.1:{id}"), storage, voter: true })
}

fn one_change_is_over_before_another_begins(mutant: Option<Mutant>) -> bool {
    let state = wanting(mutant, QuorumChange::Promote { id: 4 });
    let second = check_quorum_change(&state, &health(0), &QuorumChange::Demote { id: 3 }, true);
    matches!(second, Err(QuorumRefusal::UnderWay { .. }))
}

fn a_newcomer_votes_once_it_has_the_log(mutant: Option<Mutant>) -> bool {
    let step = next_step(&wanting(mutant, QuorumChange::Promote { id: 4 }), &health(65));
    step == Some(QuorumStep::CatchUp(4, Some(65)))
}

fn a_leader_that_is_to_go_gives_way(mutant: Option<Mutant>) -> bool {
    let step = next_step(&wanting(mutant, QuorumChange::Remove { id: 1 }), &health(0));
    step == Some(QuorumStep::GiveWay([2, 3].into()))
}

fn nobody_is_forgotten_whose_vote_counts(mutant: Option<Mutant>) -> bool {
    let step = next_step(&wanting(mutant, QuorumChange::Remove { id: 3 }), &health(0));
    step == Some(QuorumStep::SetVoters([1, 2].into()))
}

fn a_number_is_used_once(mutant: Option<Mutant>) -> bool {
    matches!(joins(&state(mutant), 5, directory(55)), Err(QuorumRefusal::Retired { id: 5, next: 6 }))
}

fn a_copy_of_a_directory_is_not_let_in(mutant: Option<Mutant>) -> bool {
    let state = state(mutant);
    [2, 5].into_iter().all(|of| joins(&state, 6, directory(of)) == Err(QuorumRefusal::CopiedDirectory { id: of }))
}

fn known(mutant: Option<Mutant>) -> Acquaintances {
    Acquaintances::new((1..=3).map(|id| (id, directory(id))).collect()).broken_by(Broken::by(mutant))
}

fn a_number_with_another_directory_is_nobody(mutant: Option<Mutant>) -> bool {
    let known = known(mutant);
    known.standing(3, Some(directory(33)), false) == CoordinatorStanding::OtherDirectory
        && known.hears(1, 3, directory(33), &BTreeSet::new()) == Err(Unheard::OtherDirectory)
}

fn a_stranger_is_not_heard_whatever_it_says(mutant: Option<Mutant>) -> bool {
    known(mutant).hears(1, 4, directory(4), &[4].into()) == Err(Unheard::Stranger)
}

fn a_newcomer_hears_those_that_let_it_in_until_its_log_names_it(mutant: Option<Mutant>) -> bool {
    known(mutant).hears(7, 5, directory(5), &[5, 6].into()).is_ok()
}

fn whoever_a_member_vouches_for_is_heard(mutant: Option<Mutant>) -> bool {
    let known = known(mutant).with_vouched(&BTreeMap::from([(4, directory(4))]), |_| false);
    known.hears(1, 4, directory(4), &BTreeSet::new()).is_ok()
}

/// It was heard for ever, and never told that it was removed.
fn a_member_that_lagged_vouched_for_one_that_was_removed(mutant: Option<Mutant>) -> bool {
    let known = known(mutant).with_vouched(&BTreeMap::from([(4, directory(4))]), |id| id == 4);
    known.standing(4, Some(directory(4)), true) == CoordinatorStanding::Retired
}
