//! Tests of what a participant does with its partitions, and of the rules that mutants take away.

use super::{Acquired, Effect, Participation, Why};
use crate::mutant::{Broken, Mutant};
use archon_types::{
    Duty, Epoch, Fact, Incarnation, KeyRange, Millis, NodeId, Partition, PartitionId, PartitionStatus, Placement,
    PlacementId, ReplicaState, TableId, Version,
};

const LIFE: Incarnation = Incarnation::new(3);
const OWN: PlacementId = PlacementId::new(7);
const LEASE_MS: u64 = 1_000;

fn id(index: u32) -> PartitionId {
    PartitionId::new(TableId::new(1), index)
}

fn at(ms: u64) -> Millis {
    Millis::new(ms)
}

pub(super) fn row(index: u32, epoch: u64, version: u64, leader: Option<PlacementId>) -> Partition {
    Partition {
        id: id(index),
        epoch: Epoch::new(epoch),
        version: Version::new(version),
        leader,
        placements: vec![Placement { id: OWN, node: NodeId::new(2), state: ReplicaState::Live }],
        min_in_sync: 1,
        status: PartitionStatus::Assigned,
        range: KeyRange::ALL,
        split: None,
        merge: None,
        absorbed: Version::ZERO,
    }
}

fn host(index: u32, epoch: u64) -> Duty {
    Duty::Host { partition: row(index, epoch, epoch, Some(OWN)), placement: OWN }
}

fn hand_over(index: u32, epoch: u64) -> Duty {
    Duty::HandOver { partition: row(index, epoch, epoch, Some(OWN)), placement: OWN, to: PlacementId::new(8) }
}

/// A participant and its duties, each list of a higher version.
struct TestBed {
    it: Participation,
    version: u64,
}

impl TestBed {
    fn new(mutant: Option<Mutant>) -> Self {
        let mut it = Participation::new(Broken::by(mutant));
        it.begin_life(NodeId::new(2), LIFE, at(0));
        Self { it, version: 0 }
    }

    /// It has a lease from `now` on, and these duties.
    fn with(mutant: Option<Mutant>, duties: &[Duty]) -> Self {
        let mut bed = Self::new(mutant);
        bed.lease(0, &[]);
        bed.told(duties, 0);
        bed
    }

    fn lease(&mut self, now: u64, withdrawn: &[(u32, u64)]) {
        let heartbeat = self.it.send(at(now));
        let withdrawn = withdrawn.iter().map(|(index, epoch)| (id(*index), Epoch::new(*epoch))).collect();
        self.it.granted(heartbeat.answer(LEASE_MS, withdrawn), at(now));
    }

    fn told(&mut self, duties: &[Duty], now: u64) {
        self.version += 1;
        assert!(self.it.duties(LIFE, 1, Version::new(self.version), duties, at(now)));
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.it.next_effect()).collect()
    }

    fn acquiring(&mut self) -> Acquired {
        match self.effects()[..] {
            [Effect::Acquire(of)] => of,
            ref other => panic!("{other:?}"),
        }
    }

    /// It owns the one partition that its duties name.
    fn owning(&mut self, now: u64) -> Acquired {
        let of = self.acquiring();
        self.it.acquired(of, true, at(now));
        of
    }

    fn facts(&self) -> Vec<(u64, Fact)> {
        self.it.reports(99).into_iter().map(|report| (report.epoch.get(), report.fact)).collect()
    }
}

#[test]
fn what_is_offered_is_acquired_once_a_lease_covers_it() {
    let mut bed = TestBed::new(None);
    bed.told(&[host(1, 4)], 0);
    assert_eq!(bed.effects(), []);
    bed.lease(10, &[(1, 4)]);
    assert_eq!(bed.effects(), [], "the lease does not cover it");
    bed.lease(20, &[]);
    let of = bed.acquiring();
    assert_eq!((of.partition, of.epoch), (id(1), Epoch::new(4)));
    assert_eq!(bed.it.holdings().have(id(1), at(30)), None, "the service is not ready");
    bed.it.acquired(of, true, at(30));
    assert_eq!(bed.it.holdings().have(id(1), at(30)), Some(of));
    assert_eq!(bed.facts(), [(4, Fact::Online)]);
}

#[test]
fn the_target_of_a_move_owns_nothing_yet() {
    let waits = Duty::Host { partition: row(1, 4, 4, Some(PlacementId::new(8))), placement: OWN };
    assert_eq!(TestBed::with(None, &[waits]).effects(), []);
}

#[test]
fn a_hand_over_is_told_after_the_service_has_released() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.owning(1);
    bed.told(&[hand_over(1, 4)], 2);
    assert_eq!(bed.effects(), [Effect::Release(of, Why::HandedOver)]);
    assert_eq!(bed.it.holdings().have(id(1), at(3)), None, "no new work");
    assert!(bed.it.holdings().check(of, at(3)), "it still owns it, to flush");
    assert_eq!(bed.facts(), [(4, Fact::Online)]);
    bed.it.released(of, at(4));
    assert!(!bed.it.holdings().check(of, at(4)));
    assert!(bed.facts().contains(&(4, Fact::Released)));
    bed.told(&[host(1, 4)], 5);
    bed.lease(6, &[]);
    assert_eq!(bed.effects(), [], "it is given up for good in this epoch");
    bed.told(&[host(1, 6)], 7);
    assert_eq!(bed.acquiring().epoch, Epoch::new(6));
}

#[test]
fn what_is_to_be_handed_over_while_it_is_acquired_is_released_right_after() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.acquiring();
    bed.told(&[hand_over(1, 4)], 1);
    assert_eq!(bed.effects(), []);
    bed.it.acquired(of, true, at(2));
    assert_eq!(bed.effects(), [Effect::Release(of, Why::HandedOver)]);
    bed.it.released(of, at(3));
    assert_eq!(bed.facts(), [(4, Fact::Released)]);
}

#[test]
fn a_hand_over_that_is_no_longer_asked_for_before_anything_began_is_forgotten() {
    let mut bed = TestBed::new(None);
    bed.told(&[hand_over(1, 4)], 0);
    bed.told(&[host(1, 4)], 1);
    bed.lease(2, &[]);
    bed.acquiring();
    let mut bed = TestBed::new(None);
    bed.told(&[hand_over(1, 4)], 0);
    bed.lease(2, &[]);
    assert_eq!((bed.effects(), bed.facts()), (vec![], vec![(4, Fact::Released)]), "it is handed over unopened");
}

#[test]
fn a_service_that_cannot_acquire_drops_it() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.acquiring();
    bed.it.acquired(of, false, at(1));
    assert_eq!((bed.effects(), bed.facts()), (vec![], vec![(4, Fact::Declined)]));
}

#[test]
fn everything_is_lost_when_the_lease_ends_and_acquired_anew_under_the_next() {
    let mut bed = TestBed::with(None, &[host(1, 4), host(2, 4), host(3, 4)]);
    let [Effect::Acquire(first), Effect::Acquire(second), Effect::Acquire(third)] = bed.effects()[..] else { panic!() };
    bed.it.acquired(second, true, at(1));
    bed.it.acquired(third, true, at(1));
    assert!(bed.it.drop(id(3), at(2)));
    assert_eq!(bed.effects(), [Effect::Release(third, Why::Declined)]);
    bed.it.tick(at(LEASE_MS));
    assert_eq!(bed.effects(), [first, second, third].map(Effect::Lost));
    assert_eq!(bed.facts(), [], "nothing is told of what is lost");
    bed.it.acquired(first, true, at(LEASE_MS));
    bed.it.released(third, at(LEASE_MS));
    assert_eq!((bed.effects(), bed.facts()), (vec![], vec![]), "a late word changes nothing");
    bed.lease(LEASE_MS + 1, &[]);
    let again = bed.effects();
    assert_eq!(again.len(), 3);
    let Effect::Acquire(anew) = again[1] else { panic!("{again:?}") };
    bed.it.acquired(anew, true, at(LEASE_MS + 2));
    assert!(!bed.it.holdings().check(second, at(LEASE_MS + 2)), "what was lost does not come back");
    assert!(bed.it.holdings().check(anew, at(LEASE_MS + 2)));
}

#[test]
fn an_answer_that_comes_after_the_lease_does_not_hide_that_it_was_lost() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.owning(1);
    bed.lease(LEASE_MS + 500, &[]);
    let effects = bed.effects();
    assert_eq!(effects[0], Effect::Lost(of));
    assert!(matches!(effects[1], Effect::Acquire(anew) if anew.number > of.number));
}

#[test]
fn what_is_withdrawn_or_named_no_more_or_in_another_epoch_is_lost() {
    let mut bed = TestBed::with(None, &[host(1, 4), host(2, 4), host(3, 4)]);
    let begun: Vec<Acquired> = bed
        .effects()
        .into_iter()
        .map(|effect| match effect {
            Effect::Acquire(of) => of,
            other => panic!("{other:?}"),
        })
        .collect();
    begun.iter().for_each(|of| bed.it.acquired(*of, true, at(1)));
    bed.lease(2, &[(1, 4)]);
    assert_eq!(bed.effects(), [Effect::Lost(begun[0])]);
    bed.told(&[host(1, 4), host(2, 5)], 3);
    let effects = bed.effects();
    assert_eq!(effects[..2], [Effect::Lost(begun[1]), Effect::Lost(begun[2])]);
    assert!(matches!(effects[2..], [Effect::Acquire(of)] if (of.partition, of.epoch) == (id(2), Epoch::new(5))));
}

#[test]
fn what_was_owned_of_a_dropped_table_is_lost_and_told_to_be_deleted() {
    let mut bed = TestBed::with(None, &[host(0, 5)]);
    let owned = bed.owning(0);
    bed.it.reports(10).iter().for_each(|report| assert!(bed.it.reported(report, None)));
    bed.told(&[Duty::Unload { partition: id(0), placement: OWN }], 10);
    assert_eq!(bed.effects(), [Effect::Lost(owned)]);
    assert_eq!(bed.facts(), [(0, Fact::Unloaded)]);
}

/// The list of those withdrawn grew with each lapse for as long as the life went on.
#[test]
fn a_leadership_that_lapsed_was_listed_for_ever() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let owned = bed.owning(1);
    bed.it.reports(10).iter().for_each(|report| assert!(bed.it.reported(report, None)));
    bed.it.tick(at(5_000));
    assert_eq!(bed.effects(), [Effect::Lost(owned)]);
    assert_eq!(bed.facts(), [], "the row may still name it");
    bed.told(&[], 11);
    assert_eq!(bed.facts(), [(4, Fact::Released)]);
    // A coordinator that leads anew may be behind: its list brings nothing back that is told to be over.
    bed.it.duties(LIFE, 2, Version::new(9), &[host(1, 4)], at(5_000));
    bed.lease(2, &[]);
    assert_eq!(bed.effects(), []);
    assert_eq!(bed.facts(), [(4, Fact::Released)]);
}

/// It was paused while it was the owner in epoch 4, and heard of epoch 6 first.
#[test]
fn an_epoch_that_a_participant_never_heard_of_was_listed_for_ever() {
    let mut bed = TestBed::with(None, &[host(1, 6)]);
    bed.owning(1);
    bed.it.reports(10).iter().for_each(|report| assert!(bed.it.reported(report, None)));
    bed.lease(2, &[(1, 4)]);
    assert_eq!(bed.facts(), [(4, Fact::Released)]);
    assert_eq!(bed.it.holdings().owned(at(3)).count(), 1, "in epoch 6");
}

#[test]
fn older_duties_and_those_of_another_life_change_nothing() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    bed.owning(1);
    for (life, term, version) in [(LIFE, 1, 1), (LIFE, 0, 9), (Incarnation::new(2), 9, 9)] {
        assert!(!bed.it.duties(life, term, Version::new(version), &[], at(2)), "{term} {version}");
    }
    assert_eq!(bed.effects(), []);
    assert!(bed.it.duties(LIFE, 2, Version::new(1), &[host(1, 4)], at(2)), "another coordinator leads");
    assert_eq!(bed.effects(), []);
    assert!(bed.it.holdings().have(id(1), at(3)).is_some());
}

#[test]
fn with_another_registration_everything_is_lost() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.owning(1);
    bed.it.begin_life(NodeId::new(2), Incarnation::new(9), at(2));
    assert_eq!((bed.effects(), bed.facts()), (vec![Effect::Lost(of)], vec![]));
    assert_eq!(bed.it.obeyed(), (0, Version::ZERO));
    assert!(!bed.it.holdings().is_valid(at(2)));
}

#[test]
fn whoever_stops_releases_everything_and_acquires_nothing() {
    let mut bed = TestBed::with(None, &[host(1, 4), host(2, 4)]);
    let [Effect::Acquire(first), Effect::Acquire(second)] = bed.effects()[..] else { panic!() };
    bed.it.acquired(first, true, at(1));
    bed.it.stop(at(2));
    assert_eq!(bed.effects(), [Effect::Release(first, Why::Stopped)]);
    bed.it.acquired(second, true, at(3));
    assert_eq!(bed.effects(), [Effect::Release(second, Why::Stopped)]);
    bed.told(&[host(1, 4), host(2, 4), host(3, 4)], 4);
    assert_eq!(bed.effects(), []);
    bed.it.released(first, at(5));
    assert!(!bed.it.is_done());
    bed.it.released(second, at(6));
    assert!(!bed.it.is_done(), "it is to be told");
    for report in bed.it.reports(99) {
        bed.it.reported(&report, None);
    }
    assert!(bed.it.is_done());
}

fn it_is_looked_at_anew_at_each_use(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::with(mutant, &[host(1, 4)]);
    let of = bed.owning(1);
    let holdings = bed.it.holdings().clone();
    assert!(holdings.check(of, at(LEASE_MS - 1)));
    !holdings.check(of, at(LEASE_MS))
}

fn what_is_lost_is_not_told_as_released(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::with(mutant, &[host(1, 4)]);
    bed.owning(1);
    bed.it.tick(at(LEASE_MS));
    bed.facts().is_empty()
}

fn what_is_dropped_is_told_after_it_ended(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::with(mutant, &[host(1, 4)]);
    let of = bed.owning(1);
    assert!(bed.it.drop(id(1), at(2)));
    let early = bed.facts().iter().any(|(_, fact)| *fact == Fact::Declined) && bed.it.holdings().check(of, at(2));
    bed.it.released(of, at(3));
    assert!(bed.facts().contains(&(4, Fact::Declined)));
    !early
}

archon_types::shown_by! {
    CheckBeforeUse => it_is_looked_at_anew_at_each_use,
    LostAsReleased => what_is_lost_is_not_told_as_released,
    DropTellsFirst => what_is_dropped_is_told_after_it_ended,
}

/// The duties that ask for it are not told twice, so the next owner waited until the leadership was withdrawn.
#[test]
fn what_was_to_be_handed_over_was_acquired_again_when_the_lease_had_lapsed() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.owning(0);
    bed.told(&[hand_over(1, 4)], 10);
    assert!(matches!(bed.effects()[..], [Effect::Release(..)]));
    let late = LEASE_MS + 50;
    bed.it.tick(at(late));
    assert_eq!(bed.effects(), [Effect::Lost(of)]);
    bed.lease(late, &[]);
    assert_eq!(bed.effects(), [], "nobody asked for it to begin again");
    assert!(bed.facts().contains(&(4, Fact::Released)), "{:?}", bed.facts());
}
