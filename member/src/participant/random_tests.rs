//! Property tests of a participant: answers late, twice or never, duties of older versions, callbacks that end at any
//! time.

use super::participation_tests::row;
use super::{Acquisition, Effect, Participation};
use crate::heartbeat::Heartbeat;
use crate::mutant::DisabledRule;
use archon_types::{
    Duty, Epoch, ErrorKind, Fact, Incarnation, Millis, NodeId, PartitionId, PlacementId, TableId, Version,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const PARTITIONS: u32 = 3;
const LEASE_MS: u64 = 100;

/// An event.
#[derive(Clone, Debug)]
enum Event {
    Passes(u64),
    Beat,
    /// The answer to the heartbeat with this index, with the partitions that it withdraws.
    Answer(usize, Vec<u32>),
    /// The coordinator changes a row: its leader, in a higher epoch.
    Row(u32, bool),
    HandOver(u32),
    /// The current duties arrive, or an older list.
    Duties,
    Late(usize),
    /// A callback of the service ends.
    CallbackEnds(usize, bool),
    Drops(u32),
    Stops,
    /// The participant registers again.
    Life,
    /// Reports are answered.
    Reported(bool),
    /// Another coordinator leads.
    Term,
}

fn happens() -> impl Strategy<Value = Event> {
    let index = 0..PARTITIONS;
    prop_oneof![
        4 => (1..60u64).prop_map(Event::Passes),
        4 => Just(Event::Beat),
        6 => (any::<usize>(), proptest::collection::vec(0..PARTITIONS, 0..2)).prop_map(|(n, w)| Event::Answer(n, w)),
        3 => (index.clone(), prop::bool::weighted(0.8)).prop_map(|(index, ours)| Event::Row(index, ours)),
        2 => index.clone().prop_map(Event::HandOver),
        5 => Just(Event::Duties),
        2 => any::<usize>().prop_map(Event::Late),
        6 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(n, well)| Event::CallbackEnds(n, well)),
        2 => index.prop_map(Event::Drops),
        1 => Just(Event::Life),
        3 => any::<bool>().prop_map(Event::Reported),
        1 => Just(Event::Term),
        1 => prop::bool::weighted(0.2).prop_map(|stops| if stops { Event::Stops } else { Event::Beat }),
    ]
}

/// A list of duties as it was sent.
type SentDuties = (Incarnation, u64, Version, Vec<Duty>);

#[derive(Default)]
struct World {
    it: Participation,
    now: u64,
    life: u64,
    term: u64,
    version: u64,
    rows: BTreeMap<u32, (u64, bool, bool)>,
    beats: Vec<Heartbeat>,
    sent: Vec<SentDuties>,
    /// Callbacks in progress; `true` for an acquisition.
    callbacks: Vec<(Acquisition, bool)>,
    /// Acquisitions without an ending, and all acquisitions.
    open: BTreeSet<Acquisition>,
    begun: BTreeSet<u64>,
    /// Lost partitions that were not acquired again.
    lost: BTreeMap<PartitionId, Epoch>,
    /// Epochs that duties have ended in this incarnation.
    over: BTreeSet<(PartitionId, Epoch)>,
    /// All reports so far.
    told: BTreeSet<(PlacementId, PartitionId, Epoch, String)>,
    stopped: bool,
}

fn id(index: u32) -> PartitionId {
    PartitionId::new(TableId::new(1), index)
}

impl World {
    fn new() -> Self {
        let mut world = Self { it: Participation::new(DisabledRule::default()), ..Self::default() };
        world.begin_life();
        world
    }

    fn at(&self) -> Millis {
        Millis::new(self.now)
    }

    fn begin_life(&mut self) {
        self.life += 1;
        self.over.clear();
        for row in self.rows.values_mut() {
            row.0 += 1; // A registration ends every leadership.
        }
        self.version += 1;
        self.it.begin_life(NodeId::new(2), Incarnation::new(self.life), self.at());
    }

    fn list(&self) -> SentDuties {
        let own = PlacementId::new(7);
        let duty = |(index, (epoch, ours, over)): (&u32, &(u64, bool, bool))| {
            let leader = if *ours { own } else { PlacementId::new(8) };
            let partition = row(*index, *epoch, self.version, Some(leader));
            match *ours && *over {
                true => Duty::HandOver { partition, placement: own, to: PlacementId::new(8) },
                false => Duty::Host { partition, placement: own },
            }
        };
        let duties = self.rows.iter().map(duty).collect();
        (Incarnation::new(self.life), self.term, Version::new(self.version), duties)
    }

    fn take(&mut self, (life, term, version, duties): &SentDuties) -> bool {
        let lost: Vec<(PartitionId, Epoch)> = self.lost.iter().map(|(id, epoch)| (*id, *epoch)).collect();
        let held: Vec<(PartitionId, Epoch)> = self.open.iter().map(|of| (of.partition, of.epoch)).chain(lost).collect();
        let taken = self.it.duties(*life, *term, *version, duties, self.at());
        let named = |id: PartitionId, epoch: Epoch| {
            duties.iter().any(|duty| match duty {
                Duty::Host { partition, placement } => {
                    (partition.id, partition.epoch, partition.leader) == (id, epoch, Some(*placement))
                }
                Duty::HandOver { partition, .. } => (partition.id, partition.epoch) == (id, epoch),
                Duty::Unload { .. } | Duty::Inspect { .. } => false,
            })
        };
        if taken {
            self.over.extend(held.into_iter().filter(|(id, epoch)| !named(*id, *epoch)));
        }
        taken
    }

    fn play(&mut self, happens: &Event) {
        let now = self.at();
        match happens {
            Event::Passes(ms) => {
                self.now += ms;
                self.it.tick(self.at());
            }
            Event::Beat => {
                let beat = self.it.send(now);
                self.beats.push(beat);
            }
            Event::Answer(which, withdrawn) => {
                let Some(beat) = self.beats.get(which % self.beats.len().max(1)).copied() else { return };
                let withdrawn = withdrawn.iter().filter_map(|index| Some((id(*index), self.rows.get(index)?.0)));
                let withdrawn = withdrawn.map(|(id, epoch)| (id, Epoch::new(epoch))).collect();
                self.it.granted(beat.answer(LEASE_MS, withdrawn), now);
            }
            Event::Row(index, ours) => {
                self.version += 1;
                let epoch = self.rows.get(index).map_or(1, |row| row.0 + 1);
                self.rows.insert(*index, (epoch, *ours, false));
            }
            Event::HandOver(index) => {
                self.version += 1;
                if let Some(row) = self.rows.get_mut(index) {
                    row.2 = true;
                }
            }
            Event::Duties => {
                let list = self.list();
                self.take(&list);
                self.sent.push(list);
            }
            Event::Late(which) => {
                let Some(list) = self.sent.get(which % self.sent.len().max(1)).cloned() else { return };
                let before = (self.it.holdings().owned(now).collect::<Vec<_>>(), self.it.reports(99));
                let newest = self.it.obeyed() >= (list.1, list.2) || list.0.get() != self.life;
                let taken = self.take(&list);
                if newest {
                    let after = (self.it.holdings().owned(now).collect::<Vec<_>>(), self.it.reports(99));
                    assert!(!taken && after == before, "a late list changed something");
                }
            }
            Event::CallbackEnds(which, well) => {
                if self.callbacks.is_empty() {
                    return;
                }
                let (of, acquires) = self.callbacks.remove(which % self.callbacks.len());
                if acquires {
                    self.it.acquired(of, *well, now);
                    if !well {
                        self.open.remove(&of); // Its ending, unless it was lost before.
                    }
                } else {
                    self.it.released(of, now);
                    self.open.remove(&of);
                }
            }
            Event::Drops(index) => {
                self.it.drop(id(*index), now);
                assert_eq!(self.it.holdings().have(id(*index), now), None);
            }
            Event::Stops => {
                self.stopped = true;
                self.it.stop(now);
            }
            Event::Life => self.begin_life(),
            Event::Reported(well) => {
                for report in self.it.reports(99) {
                    self.it.reported(&report, (!well).then_some(ErrorKind::NoQuorum));
                }
            }
            Event::Term => {
                self.term += 1;
                self.version = self.version.saturating_sub(1);
            }
        }
    }

    /// Processes the effects and checks all rules.
    fn look(&mut self) {
        let now = self.at();
        while let Some(effect) = self.it.next_effect() {
            match effect {
                Effect::Acquire(of) => {
                    assert!(self.begun.insert(of.number), "{of:?} begins twice");
                    assert!(
                        self.open.iter().all(|other| other.partition != of.partition),
                        "{of:?} before the last ended"
                    );
                    assert!(self.it.holdings().is_valid(now), "{of:?} without a lease");
                    assert!(!self.over.contains(&(of.partition, of.epoch)), "{of:?} was ended by duties");
                    self.open.insert(of);
                    self.lost.remove(&of.partition);
                    self.callbacks.push((of, true));
                }
                Effect::Release(of, _) => {
                    assert!(self.open.contains(&of) && self.it.holdings().check(of, now), "{of:?} is not owned");
                    self.callbacks.push((of, false));
                }
                Effect::Lost(of) => {
                    assert!(self.open.remove(&of), "{of:?} has ended already");
                    self.lost.insert(of.partition, of.epoch);
                    // The shell aborts callbacks of lost partitions; some of them finish anyway and report late.
                }
            }
        }
        for of in self.it.holdings().owned(now) {
            assert!(self.it.holdings().is_valid(now) && self.open.contains(&of), "{of:?} is owned without a lease");
        }
        let later = Millis::new(self.now + LEASE_MS);
        assert!(self.it.holdings().owned(later).next().is_none(), "longer than a lease");
        for of in &self.open {
            assert!(!self.it.holdings().check(*of, later), "{of:?} is good for longer than a lease");
        }
        for report in self.it.reports(99) {
            let gives_up = matches!(report.fact, Fact::Released | Fact::Declined);
            let open = self.open.iter().any(|of| (of.partition, of.epoch) == (report.partition, report.epoch));
            assert!(!(gives_up && open), "{report:?} before it ended");
            // A lost partition may be offered again: then a lease covers it before a new report on it, unless duties
            // have ended it.
            let lost = self.lost.get(&report.partition) == Some(&report.epoch)
                && !self.over.contains(&(report.partition, report.epoch));
            let covered = self.it.holdings().grants.covers(report.partition, report.epoch, now);
            let news =
                self.told.insert((report.placement, report.partition, report.epoch, format!("{:?}", report.fact)));
            assert!(!lost || !news || covered, "{report:?} of what is lost");
            let declines = news && report.fact == Fact::Declined;
            assert!(!(declines && self.stopped), "{report:?} by a participant that stops");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn acquisitions_end_once_and_ownership_needs_a_lease(
        story in proptest::collection::vec(happens(), 1..120),
    ) {
        let mut world = World::new();
        for happens in &story {
            world.play(happens);
            world.look();
        }
        // Once the lease has ended, all acquisitions must have ended.
        world.now += LEASE_MS;
        world.it.tick(world.at());
        world.look();
        prop_assert!(world.open.is_empty(), "{:?} have no ending", world.open);
    }

    #[test]
    fn repeated_duties_of_new_leader_change_nothing(
        story in proptest::collection::vec(happens(), 1..60),
    ) {
        let mut world = World::new();
        for happens in &story {
            world.play(happens);
            world.look();
        }
        let list = world.list();
        world.take(&list);
        world.look();
        let before = (world.it.holdings().owned(world.at()).collect::<Vec<_>>(), world.it.reports(99));
        world.term += 1;
        let repeated = (list.0, world.term, list.2, list.3);
        world.take(&repeated);
        prop_assert_eq!(world.it.next_effect(), None);
        let after = (world.it.holdings().owned(world.at()).collect::<Vec<_>>(), world.it.reports(99));
        prop_assert_eq!(before, after);
    }
}
