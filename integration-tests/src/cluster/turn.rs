//! Turns of tests at the machine: bounds how many run clusters side by side, and gives some tests more room.

mod idle;
mod report;

use idle::IdleTime;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Clusters side by side beyond the number of cores on a busy machine.
const BEYOND_CORES: usize = 1;
/// Most clusters side by side for each core: a cluster mostly waits, and uses a seventh of a core.
const PER_CORE_MAX: usize = 6;
/// Interval at which waiting tests look at the load of the machine.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Clusters that may run on the machine while one in this room does. Rooms are taken in this order, so that tests with more
/// room run at the end of a program, when fewer clusters run anyway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Room {
    /// As many as the machine takes: another one starts while a part of the processors idles.
    #[default]
    Part,
    /// Few, as many as on a busy machine: for tests in which the processes must get a turn soon.
    Calm,
    /// No other: for tests that load the machine, and for results that depend on its speed.
    Whole,
}

/// Numbers of clusters side by side.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// On a busy machine. Beside other work, more clusters would starve each other until leases lapse and elections add
    /// to the load.
    few: usize,
    /// As long as the processors idle.
    many: usize,
}

impl Bounds {
    const fn of(cores: usize) -> Self {
        Self { few: cores + BEYOND_CORES, many: cores * PER_CORE_MAX }
    }

    /// Returns the number of clusters that may run beside one in this room, itself included.
    const fn at_most(self, room: Room, machine_idles: bool) -> usize {
        match room {
            Room::Part if machine_idles => self.many,
            Room::Part | Room::Calm => self.few,
            Room::Whole => 1,
        }
    }
}

static TURNS: LazyLock<Turns> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    Turns { bounds: Bounds::of(cores), state: Mutex::default(), changed: Condvar::new() }
});

thread_local! {
    /// The turn of the test on this thread.
    static OWN: RefCell<Option<TurnState>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct TurnState {
    room: Room,
    asked: Instant,
    began: Instant,
    /// Number of [`Turn`]s of this thread that share it.
    shares: usize,
}

/// One per process. Requests for less room are admitted first, equal ones in order of arrival. None starves, since a
/// program has a bounded number of tests.
#[derive(Debug)]
struct Turns {
    bounds: Bounds,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Rooms of running tests.
    running: Vec<Room>,
    /// Waiting requests.
    waiting: Vec<(Room, u64)>,
    next: u64,
    idle_time: IdleTime,
}

impl State {
    /// Returns true if a waiting request is the next one, and may run beside those that run.
    fn admits(&self, bounds: Bounds, request: (Room, u64)) -> bool {
        let is_next = self.waiting.iter().min() == Some(&request);
        let rooms = self.running.iter().chain([&request.0]);
        let machine_idles = self.idle_time.is_enough();
        is_next && rooms.map(|room| bounds.at_most(*room, machine_idles)).min() > Some(self.running.len())
    }
}

impl Turns {
    /// Waits for a turn.
    fn take(&self, room: Room) {
        let mut state = self.state();
        let request = (room, state.next);
        state.next += 1;
        state.waiting.push(request);
        while !state.admits(self.bounds, request) {
            let waited = self.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.idle_time.look();
        }
        state.waiting.retain(|waiting| *waiting != request);
        state.running.push(room);
        // The load of this cluster comes later.
        state.idle_time.restart();
        drop(state);
        // The next request may be able to run beside this one.
        self.changed.notify_all();
    }

    fn give_back(&self, room: Room) {
        let mut state = self.state();
        if let Some(ended) = state.running.iter().position(|running| *running == room) {
            state.running.swap_remove(ended);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A test's turn at the machine, held while one of its clusters runs. Clusters mostly wait, so several tests run theirs
/// side by side, each in its [`Room`].
///
/// A turn belongs to its thread: a second cluster of the same test shares the turn of the first one and never waits.
#[derive(Debug)]
pub struct Turn {
    /// Makes the type `!Send`.
    _thread: PhantomData<MutexGuard<'static, ()>>,
}

impl Turn {
    /// Waits for a turn, or shares the one of this thread.
    ///
    /// # Panics
    /// If the turn of this thread has less room.
    #[must_use]
    pub fn take(room: Room) -> Self {
        let shared = OWN.with_borrow_mut(|own| {
            let Some(own) = own else { return false };
            // Waiting for the other tests here would deadlock: they wait for this turn to end.
            assert!(
                own.room >= room,
                "this test already runs a cluster in less room: start its first cluster with {room:?}"
            );
            own.shares += 1;
            true
        });
        if !shared {
            let asked = Instant::now();
            TURNS.take(room);
            OWN.set(Some(TurnState { room, asked, began: Instant::now(), shares: 1 }));
        }
        Self { _thread: PhantomData }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let ended = OWN.with_borrow_mut(|own| {
            let turn = own.as_mut()?;
            turn.shares -= 1;
            if turn.shares > 0 {
                return None;
            }
            own.take()
        });
        if let Some(ended) = ended {
            TURNS.give_back(ended.room);
            report::write(ended.room, ended.began - ended.asked, ended.began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests;
