//! Tests of Raft's rules about members, votes and commits.

use super::{Body, Disk, Entry, EntryContent, Membership, Voter};
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

/// Returns a member whose log names these.
fn voter(id: u64, members: &Membership) -> Voter {
    let mut disk = Disk::new(id, storage(id));
    disk.push(Arc::new(Entry { term: 0, what: EntryContent::Members(members.clone()) }));
    disk.started = true;
    Voter::founder(disk)
}

fn of(ids: &[u64]) -> impl Fn(u64) -> bool {
    let ids: BTreeSet<u64> = ids.iter().copied().collect();
    move |id| ids.contains(&id)
}

#[test]
fn joint_consensus_needs_majorities_of_both_sets() {
    let before = with_learner(&with_learner(&members(&[1, 2, 3]), 4), 5);
    let change = QuorumStep::SetVoters([3, 4, 5].into());
    let joint = before.after(&change, true).expect("it changes");
    assert!(!joint.decides(of(&[1, 2])) && !joint.decides(of(&[4, 5])) && joint.decides(of(&[2, 3, 4])));
    // In one step two majorities can be disjoint: both would elect a leader.
    let at_once = before.after(&change, false).expect("it changes");
    assert!(before.decides(of(&[1, 2])) && at_once.decides(of(&[4, 5])));
    assert_eq!(joint.after(&QuorumStep::SetVoters([1].into()), true), None, "one change at a time");
    assert_eq!(joint.after(&QuorumStep::Forget([1].into()), true), None, "its vote counts");
    let after = joint.after(&QuorumStep::LeaveJoint, true).expect("it ends");
    assert!(!after.is_voter(1) && after.decides(of(&[4, 5])));
    assert!(after.after(&QuorumStep::Forget([1, 2].into()), true).is_some());
}

#[test]
fn voter_votes_once_per_term_and_only_for_complete_logs() {
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
fn earlier_terms_commit_with_an_entry_of_the_leaders_term() {
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
fn removed_voter_may_stand_until_removal_is_committed() {
    let mut one = voter(1, &members(&[1, 2]));
    let joint = members(&[1, 2]).after(&QuorumStep::SetVoters([2].into()), true).expect("it changes");
    let after = joint.after(&QuorumStep::LeaveJoint, true).expect("it ends");
    for (term, members) in [(1, joint), (1, after)] {
        one.disk.push(Arc::new(Entry { term, what: EntryContent::Members(members) }));
    }
    assert!(one.may_stand());
    one.take(1, 2, Body::Append { term: 1, before: (3, 1), entries: Vec::new(), commit: 3 });
    assert!(!one.may_stand(), "it is committed that it votes no more");
}
