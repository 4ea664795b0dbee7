//! Tests of a participant's partitions, and of the rules that mutants disable.

use super::{Acquisition, Effect, Participation, ReleaseCause};
use crate::mutant::{DisabledRule, Mutant};
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

/// A participant and its duties; each list has a higher version.
struct TestBed {
    it: Participation,
    version: u64,
}

impl TestBed {
    fn new(mutant: Option<Mutant>) -> Self {
        let mut it = Participation::new(DisabledRule::by(mutant));
        it.begin_life(NodeId::new(2), LIFE, at(0));
        Self { it, version: 0 }
    }

    /// Starts with a lease from time 0 and these duties.
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

    fn acquiring(&mut self) -> Acquisition {
        match self.effects()[..] {
            [Effect::Acquire(of)] => of,
            ref other => panic!("{other:?}"),
        }
    }

    /// Acquires the only partition that the duties name.
    fn owning(&mut self, now: u64) -> Acquisition {
        let of = self.acquiring();
        self.it.acquired(of, true, at(now));
        of
    }

    fn facts(&self) -> Vec<(u64, Fact)> {
        self.it.reports(99).into_iter().map(|report| (report.epoch.get(), report.fact)).collect()
    }
}

#[test]
fn offered_partition_is_acquired_once_a_lease_covers_it() {
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
fn target_of_move_owns_nothing_yet() {
    let waits = Duty::Host { partition: row(1, 4, 4, Some(PlacementId::new(8))), placement: OWN };
    assert_eq!(TestBed::with(None, &[waits]).effects(), []);
}

#[test]
fn hand_over_is_reported_after_the_service_released() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.owning(1);
    bed.told(&[hand_over(1, 4)], 2);
    assert_eq!(bed.effects(), [Effect::Release(of, ReleaseCause::HandedOver)]);
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
fn hand_over_during_acquisition_releases_right_after() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.acquiring();
    bed.told(&[hand_over(1, 4)], 1);
    assert_eq!(bed.effects(), []);
    bed.it.acquired(of, true, at(2));
    assert_eq!(bed.effects(), [Effect::Release(of, ReleaseCause::HandedOver)]);
    bed.it.released(of, at(3));
    assert_eq!(bed.facts(), [(4, Fact::Released)]);
}

#[test]
fn cancelled_hand_over_is_forgotten_before_acquisition() {
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
fn failed_acquisition_declines_the_partition() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.acquiring();
    bed.it.acquired(of, false, at(1));
    assert_eq!((bed.effects(), bed.facts()), (vec![], vec![(4, Fact::Declined)]));
}

/// After a rolling restart the next process was kept away from these partitions.
#[test]
fn stopping_participant_declines_nothing() {
    let mut bed = TestBed::with(None, &[host(1, 4), host(2, 5)]);
    let [Effect::Acquire(first), Effect::Acquire(second)] = bed.effects()[..] else { panic!() };
    bed.it.acquired(second, true, at(1));
    assert!(bed.it.drop(id(2), at(1)));
    assert_eq!(bed.effects(), [Effect::Release(second, ReleaseCause::Declined)]);
    bed.it.stop(at(2));
    bed.it.acquired(first, false, at(3));
    bed.it.released(second, at(3));
    assert_eq!(bed.effects(), []);
    assert_eq!(bed.facts(), [(5, Fact::Online), (4, Fact::Released), (5, Fact::Released)]);
}

#[test]
fn partition_declined_before_stop_stays_declined() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.acquiring();
    bed.it.acquired(of, false, at(1));
    bed.it.stop(at(2));
    assert_eq!(bed.facts(), [(4, Fact::Declined)]);
}

#[test]
fn expired_lease_loses_all_and_next_one_acquires_again() {
    let mut bed = TestBed::with(None, &[host(1, 4), host(2, 4), host(3, 4)]);
    let [Effect::Acquire(first), Effect::Acquire(second), Effect::Acquire(third)] = bed.effects()[..] else { panic!() };
    bed.it.acquired(second, true, at(1));
    bed.it.acquired(third, true, at(1));
    assert!(bed.it.drop(id(3), at(2)));
    assert_eq!(bed.effects(), [Effect::Release(third, ReleaseCause::Declined)]);
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
fn answer_after_lease_end_does_not_hide_the_loss() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.owning(1);
    bed.lease(LEASE_MS + 500, &[]);
    let effects = bed.effects();
    assert_eq!(effects[0], Effect::Lost(of));
    assert!(matches!(effects[1], Effect::Acquire(anew) if anew.number > of.number));
}

#[test]
fn withdrawn_unnamed_or_reassigned_partitions_are_lost() {
    let mut bed = TestBed::with(None, &[host(1, 4), host(2, 4), host(3, 4)]);
    let begun: Vec<Acquisition> = bed
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
fn partition_of_dropped_table_is_lost_and_reported_unloaded() {
    let mut bed = TestBed::with(None, &[host(0, 5)]);
    let owned = bed.owning(0);
    bed.it.reports(10).iter().for_each(|report| assert!(bed.it.reported(report, None)));
    bed.told(&[Duty::Unload { partition: id(0), placement: OWN }], 10);
    assert_eq!(bed.effects(), [Effect::Lost(owned)]);
    assert_eq!(bed.facts(), [(0, Fact::Unloaded)]);
}

/// Otherwise the list of withdrawn leaderships grows with each lapsed lease for as long as the incarnation lasts.
#[test]
fn lapsed_leadership_is_reported_released() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let owned = bed.owning(1);
    bed.it.reports(10).iter().for_each(|report| assert!(bed.it.reported(report, None)));
    bed.it.tick(at(5_000));
    assert_eq!(bed.effects(), [Effect::Lost(owned)]);
    assert_eq!(bed.facts(), [], "the row may still name it");
    bed.told(&[], 11);
    assert_eq!(bed.facts(), [(4, Fact::Released)]);
    // A new leader may be behind: its list restores nothing that was reported as ended.
    bed.it.duties(LIFE, 2, Version::new(9), &[host(1, 4)], at(5_000));
    bed.lease(2, &[]);
    assert_eq!(bed.effects(), []);
    assert_eq!(bed.facts(), [(4, Fact::Released)]);
}

/// The participant was paused while it owned the partition in epoch 4, and saw epoch 6 next.
#[test]
fn unseen_withdrawn_epoch_is_reported_released() {
    let mut bed = TestBed::with(None, &[host(1, 6)]);
    bed.owning(1);
    bed.it.reports(10).iter().for_each(|report| assert!(bed.it.reported(report, None)));
    bed.lease(2, &[(1, 4)]);
    assert_eq!(bed.facts(), [(4, Fact::Released)]);
    assert_eq!(bed.it.holdings().owned(at(3)).count(), 1, "in epoch 6");
}

#[test]
fn older_or_foreign_duties_change_nothing() {
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
fn new_registration_loses_everything() {
    let mut bed = TestBed::with(None, &[host(1, 4)]);
    let of = bed.owning(1);
    bed.it.begin_life(NodeId::new(2), Incarnation::new(9), at(2));
    assert_eq!((bed.effects(), bed.facts()), (vec![Effect::Lost(of)], vec![]));
    assert_eq!(bed.it.obeyed(), (0, Version::ZERO));
    assert!(!bed.it.holdings().is_valid(at(2)));
}

#[test]
fn stopping_participant_releases_all_and_acquires_nothing() {
    let mut bed = TestBed::with(None, &[host(1, 4), host(2, 4)]);
    let [Effect::Acquire(first), Effect::Acquire(second)] = bed.effects()[..] else { panic!() };
    bed.it.acquired(first, true, at(1));
    bed.it.stop(at(2));
    assert_eq!(bed.effects(), [Effect::Release(first, ReleaseCause::Stopped)]);
    bed.it.acquired(second, true, at(3));
    assert_eq!(bed.effects(), [Effect::Release(second, ReleaseCause::Stopped)]);
    bed.told(&[host(1, 4), host(2, 4), host(3, 4)], 4);
    assert_eq!(bed.effects(), []);
    bed.it.released(first, at(5));
    assert!(!bed.it.has_given_up() && !bed.it.is_done());
    bed.it.released(second, at(6));
    assert!(bed.it.has_given_up());
    assert!(!bed.it.is_done(), "it is to be told");
    for report in bed.it.reports(99) {
        bed.it.reported(&report, None);
    }
    assert!(bed.it.is_done());
}

fn ownership_is_checked_at_each_use(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::with(mutant, &[host(1, 4)]);
    let of = bed.owning(1);
    let holdings = bed.it.holdings().clone();
    assert!(holdings.check(of, at(LEASE_MS - 1)));
    !holdings.check(of, at(LEASE_MS))
}

fn lost_partition_is_not_reported_as_released(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::with(mutant, &[host(1, 4)]);
    bed.owning(1);
    bed.it.tick(at(LEASE_MS));
    bed.facts().is_empty()
}

fn dropped_partition_is_reported_after_its_end(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::with(mutant, &[host(1, 4)]);
    let of = bed.owning(1);
    assert!(bed.it.drop(id(1), at(2)));
    let early = bed.facts().iter().any(|(_, fact)| *fact == Fact::Declined) && bed.it.holdings().check(of, at(2));
    bed.it.released(of, at(3));
    assert!(bed.facts().contains(&(4, Fact::Declined)));
    !early
}

archon_types::shown_by! {
    CheckBeforeUse => ownership_is_checked_at_each_use,
    LostAsReleased => lost_partition_is_not_reported_as_released,
    DropTellsFirst => dropped_partition_is_reported_after_its_end,
}

/// A duty to hand over is not sent twice; otherwise the next owner waits until the leadership is withdrawn.
#[test]
fn hand_over_survives_lapsed_lease() {
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
