//! Tests of the cache of newest windows: its bounds, its charge, and the reads that it saves.

use super::*;
use crate::exactly_once::window::Record;
use crate::operations::effect::Effect;
use crate::rows::row::Outcome;
use std::cell::Cell;
use uuid::Uuid;

fn client(number: usize) -> ClientId {
    ClientId::new(Uuid::from_u128(number as u128))
}

fn record(owner: usize, number: u64) -> Record {
    Record { client: client(owner), number, done_below: 0, outcome: Outcome::NotANumber }
}

fn push(memtable: &mut Memtable, effect: Effect) {
    memtable.push(Seq::new(memtable.last().get() + 1), effect).unwrap();
}

fn put(memtable: &mut Memtable, owner: usize, number: u64) {
    push(memtable, Effect { record: Some(record(owner, number)), ..Effect::new(Millis::new(number), Vec::new()) });
}

/// A memtable, and the number of windows that it has read in the engine.
struct Rig {
    memtable: Memtable,
    reads: Cell<usize>,
}

impl Rig {
    fn new(budget: &MemtableBudget) -> Self {
        Self { memtable: Memtable::new(Seq::ZERO, budget.clone()), reads: Cell::default() }
    }

    /// Looks a window up, over an engine in which all clients have one, or none has.
    fn look_up(&self, owner: usize, stored: bool) -> Option<Arc<Window>> {
        let window = stored.then(|| Window::new(&record(owner, 1), Millis::new(1)));
        let read = || {
            self.reads.set(self.reads.get() + 1);
            Ok(window)
        };
        self.memtable.window(client(owner), Reader::Newest, read).unwrap()
    }

    fn commit_and_flush(&mut self) {
        self.memtable.commit(self.memtable.last());
        let upto = self.memtable.freeze().unwrap().upto;
        self.memtable.flushed(upto);
    }

    fn cached(&self) -> (usize, usize) {
        let newest = self.memtable.newest_windows.borrow();
        assert_eq!(newest.bytes, newest.windows.values().map(|cached| cost(&cached.window)).sum::<usize>());
        (newest.bytes, newest.windows.len())
    }
}

#[test]
fn cache_stays_within_bound_as_windows_grow() {
    let mut rig = Rig::new(&MemtableBudget::default());
    (1..=200).for_each(|owner| drop(rig.look_up(owner, true)));
    assert_eq!(rig.cached().1, 200);
    for number in 2..1_000 {
        (1..=200).for_each(|owner| put(&mut rig.memtable, owner, number));
        let (bytes, windows) = rig.cached();
        assert!(bytes <= CACHE_BYTES_MAX && windows > 0, "{bytes} bytes of {windows} windows");
    }
}

#[test]
fn full_cache_evicts_single_unused_windows() {
    let rig = Rig::new(&MemtableBudget::default());
    let most = CACHE_BYTES_MAX / (CACHED_OVERHEAD_BYTES + Window::new(&record(1, 1), Millis::new(1)).bytes());
    (1..=2 * most).for_each(|owner| {
        rig.look_up(owner, true);
        rig.look_up(1, true);
    });
    assert!(rig.cached().1 > most / 2, "{} windows", rig.cached().1);
    let often = rig.reads.get() - 2 * most;
    assert!(often <= 2, "the window in use was read again {often} times");
}

#[test]
fn caches_of_all_partitions_share_a_bound_and_are_charged() {
    let budget = MemtableBudget::new(1024 * 1024);
    let rigs: Vec<Rig> = (0..8).map(|_| Rig::new(&budget)).collect();
    for rig in &rigs {
        (1..=200).for_each(|owner| drop(rig.look_up(owner, true)));
    }
    let bytes: usize = rigs.iter().map(|rig| rig.cached().0).sum();
    assert_eq!(budget.bytes_used(), bytes);
    assert!((1024 * 1024 / 32..=1024 * 1024 / 16).contains(&bytes), "{bytes} bytes");
    drop(rigs);
    assert_eq!(budget.bytes_used(), 0);
}

/// The first partitions with many clients took the whole share, and all others read each window again each time.
#[test]
fn partitions_with_many_clients_leave_equal_parts_to_others() {
    let budget = MemtableBudget::new(1024 * 1024);
    let rigs: Vec<Rig> = (0..16).map(|_| Rig::new(&budget)).collect();
    for _ in 0..4 {
        for rig in &rigs {
            (1..=200).for_each(|owner| drop(rig.look_up(owner, true)));
        }
    }
    let part = 1024 * 1024 / 16 / 2 / rigs.len();
    let cached: Vec<usize> = rigs.iter().map(|rig| rig.cached().0).collect();
    assert!(cached.iter().all(|bytes| (part / 2..=3 * part).contains(bytes)), "{cached:?}, the part of each is {part}");
    // Those in use are kept by the others, too.
    let reads = rigs[15].reads.get();
    (0..100).for_each(|_| drop((rigs[15].look_up(1, true), rigs[0].look_up(1, true))));
    assert!(rigs[15].reads.get() <= reads + 1, "{} reads", rigs[15].reads.get() - reads);
}

#[test]
fn unused_windows_leave_without_a_freeze() {
    let mut rig = Rig::new(&MemtableBudget::default());
    rig.look_up(1, true);
    rig.memtable.review_windows(Millis::new(REVIEW_MS));
    rig.memtable.review_windows(Millis::new(2 * REVIEW_MS - 1));
    rig.memtable.review_windows(Millis::new(2 * REVIEW_MS));
    assert_eq!(rig.cached().1, 1, "it was looked up since");
    rig.memtable.review_windows(Millis::new(3 * REVIEW_MS));
    assert_eq!(rig.cached(), (0, 0));
}

/// The freeze has marked all windows as unused, and a review just after it dropped those in use.
#[test]
fn review_waits_for_its_interval_after_a_freeze() {
    let mut rig = Rig::new(&MemtableBudget::default());
    rig.memtable.review_windows(Millis::new(1));
    rig.look_up(1, true);
    put(&mut rig.memtable, 1, 2);
    rig.commit_and_flush();
    rig.memtable.review_windows(Millis::new(REVIEW_MS + 1));
    rig.memtable.review_windows(Millis::new(REVIEW_MS + 2));
    assert_eq!(rig.cached().1, 1);
    rig.memtable.review_windows(Millis::new(2 * REVIEW_MS + 1));
    assert_eq!(rig.cached().1, 0);
}

/// Idle partitions that had filled the share left no room for the windows of a busy one for two minutes.
#[test]
fn idle_windows_leave_soon_while_share_is_exceeded() {
    let budget = MemtableBudget::new(1024 * 1024);
    let mut idle = Rig::new(&budget);
    idle.memtable.review_windows(Millis::new(1));
    (1..=20).for_each(|owner| drop(idle.look_up(owner, true)));
    let others = 1024 * 1024 / 16;
    budget.charge_cache(0, others);
    idle.memtable.review_windows(Millis::new(1_001));
    assert_eq!(idle.cached().1, 20, "they were looked up since the last review");
    idle.memtable.review_windows(Millis::new(2_001));
    assert_eq!(idle.cached().1, 0);
    budget.charge_cache(others, 0);
}

/// Most operations of a new client come soon after its first one.
#[test]
fn new_client_is_read_in_the_engine_once() {
    let mut rig = Rig::new(&MemtableBudget::default());
    for owner in 1..=20 {
        assert_eq!(rig.look_up(owner, false), None);
        put(&mut rig.memtable, owner, 1);
        assert!(rig.look_up(owner, false).unwrap().outcome(1).is_some());
    }
    assert_eq!(rig.reads.get(), 20);
}

#[test]
fn window_in_use_is_not_read_again_after_a_flush() {
    let mut rig = Rig::new(&MemtableBudget::default());
    for number in 1..=20 {
        rig.look_up(1, true);
        put(&mut rig.memtable, 1, number);
        rig.commit_and_flush();
    }
    assert_eq!(rig.reads.get(), 1);
    // No longer looked up, as after the leadership: it leaves, and with it the index.
    put(&mut rig.memtable, 1, 21);
    rig.commit_and_flush();
    assert_eq!(rig.cached(), (0, 0));
    assert!(rig.memtable.newest_windows.borrow().entries.is_none());
}

/// A look-up costs the entries of its client, not those of all.
#[test]
fn uncommitted_entries_are_found_by_client() {
    let mut rig = Rig::new(&MemtableBudget::default());
    rig.look_up(9, false);
    for number in 1..=3 {
        (1..=3).for_each(|owner| put(&mut rig.memtable, owner, number));
    }
    push(&mut rig.memtable, Effect { forget: vec![client(2)], ..Effect::new(Millis::new(9), Vec::new()) });
    put(&mut rig.memtable, 2, 4);
    rig.memtable.commit(Seq::new(4));
    let entries = |rig: &Rig, owner: usize| {
        let newest = rig.memtable.newest_windows.borrow();
        let entries = newest.entries.as_ref().unwrap().iter().filter(|(held, _)| *held == client(owner));
        entries.map(|(_, seq)| seq.get()).collect::<Vec<_>>()
    };
    assert_eq!([1, 2, 3].map(|owner| entries(&rig, owner)), [vec![7], vec![5, 8, 10, 11], vec![6, 9]]);
    let outcomes = |owner| rig.look_up(owner, false).map(|window| (window.outcomes_from(0), window.created.get()));
    assert_eq!([1, 2, 3, 4].map(outcomes), [Some((3, 1)), Some((1, 4)), Some((3, 1)), None]);
    rig.memtable.truncate(Seq::new(9)).unwrap();
    let outcomes = |owner| rig.look_up(owner, false).map(|window| window.outcomes_from(0));
    assert_eq!([1, 2, 3].map(outcomes), [Some(3); 3]);
    assert_eq!(rig.memtable.differing_cached_window(|_| Ok(None)).unwrap(), None);
}
