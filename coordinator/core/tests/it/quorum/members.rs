//! The members of the quorum: admissible changes, and their steps under any leader and failures.

use crate::bed::{TestBed, settings};
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

fn member(id: u64, voter: bool) -> (u64, Coordinator) {
    let storage = StorageId::new(Uuid::from_u128(id.into()));
    (id, Coordinator { address: format!("127.0.0.1:{id}"), storage, voter })
}

fn newcomer(id: u64, voter: bool) -> Newcomer {
    let (id, Coordinator { address, storage, .. }) = member(id, voter);
    Newcomer { id, address, storage, voter }
}

fn health(leader: u64, heard: &[u64]) -> QuorumHealth {
    let heard: BTreeSet<u64> = heard.iter().copied().collect();
    let behind = heard.iter().map(|id| (*id, 0)).collect();
    QuorumHealth { leader, heard, behind }
}

/// Simulates Raft as far as the steps need it.
fn take(bed: &mut TestBed, step: QuorumStep) {
    let Coordinators { mut members, joint, .. } = bed.state.coordinators.clone();
    match step {
        QuorumStep::Done | QuorumStep::CatchUp(..) | QuorumStep::GiveWay(_) => return,
        QuorumStep::LeaveJoint => assert!(joint),
        QuorumStep::AddLearner(id, coordinator) => drop(members.insert(id, coordinator)),
        QuorumStep::SetAddress(id, coordinator) => drop(members.insert(id, coordinator)),
        QuorumStep::SetVoters(voters) => {
            assert!(!voters.is_empty(), "nobody votes");
            for (id, member) in &mut members {
                member.voter = voters.contains(id);
            }
        }
        QuorumStep::Forget(gone) => members.retain(|id, member| {
            assert!(!gone.contains(id) || !member.voter, "a voter was forgotten");
            !gone.contains(id)
        }),
    }
    let index = bed.state.applied + 1;
    members_changed(&mut bed.state, index, members, false);
}

fn bed(voters: &[u64]) -> TestBed {
    let mut bed = TestBed::new(settings(1, 1, 1));
    let members = voters.iter().map(|id| member(*id, true)).collect();
    let index = bed.state.applied + 1;
    members_changed(&mut bed.state, index, members, false);
    bed
}

fn voters(bed: &TestBed) -> Vec<u64> {
    bed.state.coordinators.voters().into_iter().collect()
}

fn wish(bed: &mut TestBed, health: &QuorumHealth, change: QuorumChange) -> Result<(), QuorumRefusal> {
    if let Some(command) = check_quorum_change(&bed.state, health, &change, false)? {
        bed.ok(command);
    }
    Ok(())
}

/// Runs steps until no change is in progress; a leader that is to leave gives way.
fn finish(bed: &mut TestBed, health: &mut QuorumHealth) -> Vec<QuorumStep> {
    let mut steps = Vec::new();
    for _ in 0..20 {
        let Some(step) = next_step(&bed.state, health) else { return steps };
        if let QuorumStep::GiveWay(stay) = &step {
            health.leader = *stay.first().expect("somebody stays");
        }
        steps.push(step.clone());
        if step == QuorumStep::Done {
            bed.ok(Command::EndQuorumChange { if_version: bed.state.coordinators.version, done: true });
            return steps;
        }
        take(bed, step);
    }
    panic!("it goes on for ever: {steps:?}");
}

#[test]
fn newcomer_becomes_voter_once_it_has_the_log() {
    let mut bed = bed(&[1, 2, 3]);
    let join = check_join(&bed.state, &newcomer(4, true)).unwrap().unwrap();
    bed.ok(join);
    assert_eq!(check_join(&bed.state, &newcomer(4, true)), Ok(None), "it is on its way");
    let mut of = health(1, &[1, 2, 3]);
    let step = next_step(&bed.state, &of).unwrap();
    assert!(matches!(&step, QuorumStep::AddLearner(4, added) if !added.voter), "{step:?}");
    take(&mut bed, step);
    assert_eq!(next_step(&bed.state, &of), Some(QuorumStep::CatchUp(4, None)), "it is not heard");
    of.heard.insert(4);
    of.behind.insert(4, 65);
    assert_eq!(next_step(&bed.state, &of), Some(QuorumStep::CatchUp(4, Some(65))));
    of.behind.insert(4, 64);
    finish(&mut bed, &mut of);
    assert_eq!((voters(&bed), bed.state.coordinators.pending.clone()), (vec![1, 2, 3, 4], None));
    assert!(matches!(bed.state.events.back().unwrap().what, EventKind::QuorumChanged { .. }));
}

#[test]
fn leaving_leader_gives_way_first() {
    let mut bed = bed(&[1, 2, 3]);
    let mut of = health(1, &[1, 2, 3]);
    let refused = wish(&mut bed, &of, QuorumChange::Remove { id: 1 }).unwrap_err();
    assert_eq!(refused, QuorumRefusal::LosesSpare { id: 1, voters: 2 });
    // Removing a silent voter reduces no spare.
    of.heard.remove(&3);
    wish(&mut bed, &of, QuorumChange::Remove { id: 3 }).unwrap();
    finish(&mut bed, &mut of);
    let join = check_join(&bed.state, &newcomer(4, false)).unwrap().unwrap();
    bed.ok(join);
    of = health(1, &[1, 2, 4]);
    finish(&mut bed, &mut of);
    of = health(1, &[1, 2]);
    let silent = wish(&mut bed, &of, QuorumChange::Replace { old: 1, new: 4 }).unwrap_err();
    assert_eq!(silent, QuorumRefusal::Silent { id: 4 });
    of = health(1, &[1, 2, 4]);
    wish(&mut bed, &of, QuorumChange::Replace { old: 1, new: 4 }).unwrap();
    let steps = finish(&mut bed, &mut of);
    let names = [
        QuorumStep::GiveWay([2].into()),
        QuorumStep::SetVoters([2, 4].into()),
        QuorumStep::Forget([1].into()),
        QuorumStep::Done,
    ];
    assert_eq!(steps, names);
    assert_eq!((voters(&bed), bed.state.coordinators.retired.len()), (vec![2, 4], 2));
}

#[test]
fn removal_of_second_copy_of_log_needs_force() {
    let mut bed = bed(&[1, 2]);
    let of = health(1, &[1, 2]);
    for change in [QuorumChange::Demote { id: 2 }, QuorumChange::Remove { id: 2 }] {
        assert_eq!(wish(&mut bed, &of, change), Err(QuorumRefusal::LastCopy { id: 2 }));
    }
    let demoted = check_quorum_change(&bed.state, &of, &QuorumChange::Demote { id: 2 }, true).unwrap().unwrap();
    bed.ok(demoted);
    finish(&mut bed, &mut of.clone());
    // Only the learner has another copy; once it is dead, nothing is lost with it.
    assert_eq!(wish(&mut bed, &of, QuorumChange::Remove { id: 2 }), Err(QuorumRefusal::LastCopy { id: 2 }));
    wish(&mut bed, &health(1, &[1]), QuorumChange::Remove { id: 2 }).unwrap();
}

#[test]
fn single_coordinator_can_be_replaced() {
    let mut bed = bed(&[1]);
    bed.ok(check_join(&bed.state, &newcomer(4, false)).unwrap().unwrap());
    let mut of = health(1, &[1, 4]);
    finish(&mut bed, &mut of);
    wish(&mut bed, &of, QuorumChange::Replace { old: 1, new: 4 }).unwrap();
}

#[test]
fn quorum_without_spare_raises_alert() {
    let thresholds = Thresholds { stale_after_ms: None, members_min: None, held_for_ms: 86_400_000 };
    let found = |bed: &TestBed| {
        let found = alerts(&bed.state, &bed.liveness, bed.now, thresholds);
        found.into_iter().map(|alert| (alert.severity, alert.facts)).collect::<Vec<_>>()
    };
    // A quorum that was never larger is intended.
    let few = |voters, had_more| {
        let severity = if had_more { Severity::Warning } else { Severity::Notice };
        vec![(severity, Facts::TooFewVoters { voters_total: voters, had_more })]
    };
    assert_eq!(found(&bed(&[1, 2, 3])), []);
    assert_eq!(found(&bed(&[1])), few(1, false));
    let mut two = bed(&[1, 2, 3]);
    let (left, index) = ([1, 2].map(|id| member(id, true)).into(), two.state.applied + 1);
    members_changed(&mut two.state, index, left, false);
    assert_eq!(found(&two), few(2, true));
    let mut recovered = bed(&[1]);
    recovered.state.generation = 2;
    assert_eq!(found(&recovered), few(1, true));
}

#[test]
fn refused_newcomer_gets_remedy() {
    let mut bed = bed(&[1, 2, 3]);
    let mut of = health(1, &[1, 2]);
    wish(&mut bed, &of, QuorumChange::Remove { id: 3 }).unwrap();
    let two = check_quorum_change(&bed.state, &of, &QuorumChange::Demote { id: 2 }, true).unwrap_err();
    assert!(matches!(two, QuorumRefusal::UnderWay { .. }), "{two}");
    finish(&mut bed, &mut of);
    let refused = |newcomer: Newcomer| check_join(&bed.state, &newcomer).unwrap_err();
    assert_eq!(refused(newcomer(3, true)), QuorumRefusal::Retired { id: 3, next: 4 });
    let wiped = Newcomer { storage: StorageId::new(Uuid::from_u128(99)), ..newcomer(2, true) };
    assert_eq!(refused(wiped), QuorumRefusal::Wiped { id: 2, next: 4 });
    for of in [2, 3] {
        let copied = Newcomer { storage: newcomer(of, true).storage, ..newcomer(4, true) };
        assert_eq!(refused(copied), QuorumRefusal::CopiedDirectory { id: of });
    }
    let taken = Newcomer { address: "127.0.0.1:2".into(), ..newcomer(4, true) };
    assert!(matches!(refused(taken), QuorumRefusal::AddressTaken { id: 2, .. }));
    let nowhere = Newcomer { address: "nowhere".into(), ..newcomer(4, true) };
    assert!(matches!(refused(nowhere), QuorumRefusal::Address(_)));
    // A member that was started at another address announces it itself.
    let moved = Newcomer { address: "127.0.0.1:22".into(), ..newcomer(2, true) };
    bed.ok(check_join(&bed.state, &moved).unwrap().unwrap());
    finish(&mut bed, &mut of);
    assert_eq!(bed.state.coordinators.members[&2].address, "127.0.0.1:22");
}

#[test]
fn cancelled_quorum_change_keeps_voters() {
    let mut bed = bed(&[1, 2, 3]);
    let mut of = health(1, &[1, 2, 3]);
    assert_eq!(check_cancel_quorum_change(&bed.state), Err(QuorumRefusal::NothingPending));
    bed.ok(check_join(&bed.state, &newcomer(4, true)).unwrap().unwrap());
    let step = next_step(&bed.state, &of).unwrap();
    take(&mut bed, step);
    bed.ok(check_cancel_quorum_change(&bed.state).unwrap());
    assert_eq!((voters(&bed), next_step(&bed.state, &of)), (vec![1, 2, 3], None));
    // The leader failed between the two entries: the next one completes the change.
    bed.ok(check_quorum_change(&bed.state, &health(1, &[1, 2, 3, 4]), &QuorumChange::Promote { id: 4 }, false)
        .unwrap()
        .unwrap());
    let members: BTreeMap<u64, Coordinator> = [1, 2, 3, 4].map(|id| member(id, true)).into();
    members_changed(&mut bed.state, 900, members, true);
    assert_eq!(check_cancel_quorum_change(&bed.state), Err(QuorumRefusal::TooLate));
    assert_eq!(next_step(&bed.state, &of), Some(QuorumStep::LeaveJoint));
    finish(&mut bed, &mut of);
    assert_eq!(voters(&bed), [1, 2, 3, 4]);
}

fn changes() -> impl Strategy<Value = QuorumChange> {
    let id = 1u64..7;
    prop_oneof![
        id.clone().prop_map(|id| QuorumChange::Promote { id }),
        id.clone().prop_map(|id| QuorumChange::Demote { id }),
        id.clone().prop_map(|id| QuorumChange::Remove { id }),
        (id.clone(), id.clone()).prop_map(|(old, new)| QuorumChange::Replace { old, new }),
        (id, 1u16..9).prop_map(|(id, port)| QuorumChange::SetAddress { id, address: format!("127.0.0.1:{port}") }),
    ]
}

proptest! {
    /// For any requests, a majority of the voters answers at all times, numbers are used once, and each change ends.
    #[test]
    fn admitted_changes_never_end_the_quorum(
        asked in proptest::collection::vec((changes(), any::<bool>(), 0u64..7, any::<bool>()), 1..20)
    ) {
        let mut bed = bed(&[1, 2, 3]);
        let mut next = 4;
        let mut heard: BTreeSet<u64> = [1, 2, 3].into();
        for (change, joins, silent, force) in asked {
            let leader = *bed.state.coordinators.voters().intersection(&heard).next().unwrap();
            // Only a coordinator that is not needed falls silent.
            let less: BTreeSet<u64> = heard.iter().copied().filter(|id| *id != silent || *id == leader).collect();
            let of = |heard: &BTreeSet<u64>| health(leader, &heard.iter().copied().collect::<Vec<_>>());
            if of(&less).spare(&bed.state.coordinators.voters()).is_some() {
                heard = less;
            }
            let mut of = of(&heard);
            let begun = if joins {
                check_join(&bed.state, &newcomer(next, silent % 2 == 0))
            } else {
                check_quorum_change(&bed.state, &of, &change, force)
            };
            let Ok(Some(command)) = begun else { continue };
            bed.ok(command);
            if joins {
                heard.insert(next);
                of = health(leader, &heard.iter().copied().collect::<Vec<_>>());
                next += 1;
            }
            finish(&mut bed, &mut of);
            let Coordinators { members, retired, pending, .. } = &bed.state.coordinators;
            prop_assert!(pending.is_none() && retired.keys().all(|id| !members.contains_key(id)));
            prop_assert!(of.spare(&bed.state.coordinators.voters()).is_some(), "{members:?} {heard:?}");
            heard.retain(|id| members.contains_key(id));
        }
    }
}
