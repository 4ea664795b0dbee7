//! Raft's rules about members, votes and what is committed.

use super::{Body, Disk, Entry, Membership, Voter, What};
use archon_coordinator_core::{Coordinator, QuorumStep};
use archon_types::StorageId;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

fn storage(id: u64) -> StorageId {
    StorageId::new(Uuid::from_u128(id.into()))
}

fn members(ids: &[u64]) -> Membership {
    Membership::founding(ids.iter().map(|id| (*id, (format!("c{id}:7000"), storage(*id)))).collect())
}

fn with_learner(members: &Membership, id: u64) -> Membership {
    let coordinator = Coordinator { address: format!("c{id}:7000"), storage: storage(id), voter: false };
    members.after(&QuorumStep::AddLearner(id, coordinator), true).expect("it is new")
}

/// A member whose log names these.
fn voter(id: u64, members: &Membership) -> Voter {
    let mut disk = Disk::new(id, storage(id));
    disk.push(Arc::new(Entry { term: 0, what: What::Members(members.clone()) }));
    disk.started = true;
    Voter::founder(disk)
}

fn of(ids: &[u64]) -> impl Fn(u64) -> bool {
    let ids: BTreeSet<u64> = ids.iter().copied().collect();
    move |id| ids.contains(&id)
}

#[test]
fn while_voters_change_both_sets_decide() {
    let before = with_learner(&with_learner(&members(&[1, 2, 3]), 4), 5);
    let change = QuorumStep::SetVoters([3, 4, 5].into());
    let joint = before.after(&change, true).expect("it changes");
    assert!(!joint.decides(of(&[1, 2])) && !joint.decides(of(&[4, 5])) && joint.decides(of(&[2, 3, 4])));
    // In one step two majorities have nobody in common: both would elect somebody.
    let at_once = before.after(&change, false).expect("it changes");
    assert!(before.decides(of(&[1, 2])) && at_once.decides(of(&[4, 5])));
    assert_eq!(joint.after(&QuorumStep::SetVoters([1].into()), true), None, "one change at a time");
    assert_eq!(joint.after(&QuorumStep::Forget([1].into()), true), None, "its vote counts");
    let after = joint.after(&QuorumStep::LeaveJoint, true).expect("it ends");
    assert!(!after.is_voter(1) && after.decides(of(&[4, 5])));
    assert!(after.after(&QuorumStep::Forget([1, 2].into()), true).is_some());
}

#[test]
fn a_voter_votes_once_in_a_term_and_for_nobody_who_lacks_what_it_has() {
    let mut one = voter(1, &members(&[1, 2, 3]));
    let mut ask = |from, term, last| one.take(1, from, Body::AskVote { term, last });
    let granted = |said: Vec<(u64, Body)>| matches!(said[..], [(_, Body::Vote { granted: true, .. })]);
    assert!(!granted(ask(2, 1, (0, 0))), "it has an entry more");
    assert!(granted(ask(2, 2, (0, 1))));
    assert!(granted(ask(2, 2, (0, 1))), "it is asked again");
    assert!(!granted(ask(3, 2, (0, 1))), "it has voted");
    assert!(granted(ask(3, 3, (0, 1))));
}

#[test]
fn what_a_majority_has_is_committed_once_something_of_the_leaders_term_is() {
    let mut one = voter(1, &members(&[1, 2, 3]));
    assert_eq!(one.campaign(1).len(), 2);
    let answer = |upto| Body::Appended { term: 1, upto };
    one.take(2, 2, Body::Vote { term: 1, granted: true });
    assert!(one.leads() && one.disk.end() == 2 && one.commit() == 1);
    one.take(3, 2, answer(Ok(1)));
    assert_eq!(one.commit(), 1);
    one.take(3, 2, answer(Ok(2)));
    assert_eq!(one.commit(), 2);
    // Another one leads in a later term.
    one.take(4, 3, Body::Append { term: 2, before: (2, 1), entries: Vec::new(), commit: 2 });
    assert!(!one.leads() && one.cut_committed.is_none());
}

#[test]
fn one_that_is_to_go_may_stand_until_that_is_committed() {
    let mut one = voter(1, &members(&[1, 2]));
    let joint = members(&[1, 2]).after(&QuorumStep::SetVoters([2].into()), true).expect("it changes");
    let after = joint.after(&QuorumStep::LeaveJoint, true).expect("it ends");
    for (term, members) in [(1, joint), (1, after)] {
        one.disk.push(Arc::new(Entry { term, what: What::Members(members) }));
    }
    assert!(one.may_stand());
    one.take(1, 2, Body::Append { term: 1, before: (3, 1), entries: Vec::new(), commit: 3 });
    assert!(!one.may_stand(), "it is committed that it votes no more");
}
