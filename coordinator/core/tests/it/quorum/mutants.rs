//! The rules about the members of the quorum disabled, one at a time, as in `mutants`.

use archon_coordinator_core::*;
use archon_types::*;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

archon_types::shown_by! {
    SecondChangeTaken => quorum_changes_do_not_overlap,
    NewcomerUnready => newcomer_votes_only_with_the_log,
    LeaderStays => leaving_leader_gives_way,
    VoterForgotten => voter_is_not_forgotten,
    RetiredReturns => number_is_used_once,
    CopiedDirectoryJoins => copied_directory_is_not_admitted,
    OtherDirectoryHeard => number_with_another_directory_is_not_heard,
    StrangerHeard => stranger_is_not_heard,
    ExpectedForgotten => newcomer_hears_its_admitters_until_in_its_log,
    VouchedIgnored => vouched_coordinator_is_heard,
    RemovedVouched => lagging_member_cannot_vouch_for_removed_one,
}

fn directory(number: u64) -> StorageId {
    StorageId::new(Uuid::from_u128(number.into()))
}

fn member(id: u64, voter: bool) -> (u64, Coordinator) {
    (id, Coordinator { address: format!("127.0.0.1:{id}"), storage: directory(id), voter })
}

/// Three voters and a learner, number 4; number 5 was removed.
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

fn quorum_changes_do_not_overlap(mutant: Option<Mutant>) -> bool {
    let state = wanting(mutant, QuorumChange::Promote { id: 4 });
    let second = check_quorum_change(&state, &health(0), &QuorumChange::Demote { id: 3 }, true);
    matches!(second, Err(QuorumRefusal::UnderWay { .. }))
}

fn newcomer_votes_only_with_the_log(mutant: Option<Mutant>) -> bool {
    let step = next_step(&wanting(mutant, QuorumChange::Promote { id: 4 }), &health(65));
    step == Some(QuorumStep::CatchUp(4, Some(65)))
}

fn leaving_leader_gives_way(mutant: Option<Mutant>) -> bool {
    let step = next_step(&wanting(mutant, QuorumChange::Remove { id: 1 }), &health(0));
    step == Some(QuorumStep::GiveWay([2, 3].into()))
}

fn voter_is_not_forgotten(mutant: Option<Mutant>) -> bool {
    let step = next_step(&wanting(mutant, QuorumChange::Remove { id: 3 }), &health(0));
    step == Some(QuorumStep::SetVoters([1, 2].into()))
}

fn number_is_used_once(mutant: Option<Mutant>) -> bool {
    matches!(joins(&state(mutant), 5, directory(55)), Err(QuorumRefusal::Retired { id: 5, next: 6 }))
}

fn copied_directory_is_not_admitted(mutant: Option<Mutant>) -> bool {
    let state = state(mutant);
    [2, 5].into_iter().all(|of| joins(&state, 6, directory(of)) == Err(QuorumRefusal::CopiedDirectory { id: of }))
}

fn known(mutant: Option<Mutant>) -> Acquaintances {
    Acquaintances::new((1..=3).map(|id| (id, directory(id))).collect()).broken_by(DisabledRule::by(mutant))
}

fn number_with_another_directory_is_not_heard(mutant: Option<Mutant>) -> bool {
    let known = known(mutant);
    known.standing(3, Some(directory(33)), false) == CoordinatorStanding::OtherDirectory
        && known.hears(1, 3, directory(33), &BTreeSet::new()) == Err(CoordinatorRefusal::OtherDirectory)
}

fn stranger_is_not_heard(mutant: Option<Mutant>) -> bool {
    known(mutant).hears(1, 4, directory(4), &[4].into()) == Err(CoordinatorRefusal::Stranger)
}

fn newcomer_hears_its_admitters_until_in_its_log(mutant: Option<Mutant>) -> bool {
    known(mutant).hears(7, 5, directory(5), &[5, 6].into()).is_ok()
}

fn vouched_coordinator_is_heard(mutant: Option<Mutant>) -> bool {
    let known = known(mutant).with_vouched(&BTreeMap::from([(4, directory(4))]), |_| false);
    known.hears(1, 4, directory(4), &BTreeSet::new()).is_ok()
}

/// It was heard forever, and never learned of its removal.
fn lagging_member_cannot_vouch_for_removed_one(mutant: Option<Mutant>) -> bool {
    let known = known(mutant).with_vouched(&BTreeMap::from([(4, directory(4))]), |id| id == 4);
    known.standing(4, Some(directory(4)), true) == CoordinatorStanding::Retired
}
