//! Turns of tests at the machine: bounds how many run clusters side by side, and lets some have more of it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// Turns side by side beyond the number of cores: clusters mostly wait, and use a fifth of a core each (ADR 0111).
const BEYOND_CORES: usize = 4;

/// Part of the machine that the clusters of a test take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Room {
    /// One of the clusters that run side by side.
    #[default]
    Part,
    /// All of it: for tests that load the machine, and for results that depend on its speed.
    Whole,
}

impl Room {
    /// Returns its size in ordinary clusters, of which the machine runs `side_by_side_max`.
    const fn clusters(self, side_by_side_max: usize) -> usize {
        match self {
            Self::Part => 1,
            Self::Whole => side_by_side_max,
        }
    }
}

static TURNS: LazyLock<Turns> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    Turns { side_by_side_max: cores + BEYOND_CORES, state: Mutex::default(), changed: Condvar::new() }
});

thread_local! {
    /// The turn of the test on this thread.
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Own {
    room: Room,
    /// Number of [`Turn`]s of this thread that share it.
    shares: usize,
}

/// One per process. Requests are admitted in order of arrival, so that none starves.
#[derive(Debug)]
struct Turns {
    side_by_side_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Taken places of ordinary clusters.
    taken: usize,
    /// Waiting requests, oldest first.
    queue: VecDeque<u64>,
    next: u64,
}

impl Turns {
    /// Waits for a turn.
    fn take(&self, room: Room) {
        let places = room.clusters(self.side_by_side_max);
        let mut state = self.state();
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back(ticket);
        while state.queue.front() != Some(&ticket) || state.taken + places > self.side_by_side_max {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.pop_front();
        state.taken += places;
        drop(state);
        // The next request in the queue may be able to run beside this one.
        self.changed.notify_all();
    }

    fn give_back(&self, room: Room) {
        self.state().taken -= room.clusters(self.side_by_side_max);
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
            TURNS.take(room);
            OWN.set(Some(Own { room, shares: 1 }));
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::thread;

    fn turns(side_by_side_max: usize) -> Arc<Turns> {
        Arc::new(Turns { side_by_side_max, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Requests a turn on another thread; returns once the request is queued or admitted.
    fn request(turns: &Arc<Turns>, room: Room, name: &'static str, admitted: &mpsc::Sender<&'static str>) {
        let requested = turns.state().next + 1;
        let (turns_of_thread, admitted) = (Arc::clone(turns), admitted.clone());
        thread::spawn(move || {
            turns_of_thread.take(room);
            admitted.send(name).expect("the test waits");
        });
        while turns.state().next < requested {
            thread::yield_now();
        }
    }

    #[test]
    fn concurrent_turns_are_bounded() {
        let (turns, (sender, admitted)) = (turns(2), mpsc::channel());
        for name in ["first", "second", "third"] {
            request(&turns, Room::Part, name, &sender);
        }
        assert_eq!([admitted.recv(), admitted.recv()].map(Result::unwrap).len(), 2);
        let (taken, waiting) = {
            let state = turns.state();
            (state.taken, state.queue.len())
        };
        assert_eq!((taken, waiting), (2, 1));
        turns.give_back(Room::Part);
        admitted.recv().expect("the third one is admitted");
        assert_eq!(turns.state().taken, 2);
    }

    #[test]
    fn exclusive_turn_is_not_starved_by_later_ones() {
        let (turns, (sender, admitted)) = (turns(4), mpsc::channel());
        turns.take(Room::Part);
        request(&turns, Room::Whole, "alone", &sender);
        request(&turns, Room::Part, "later", &sender);
        assert_eq!(admitted.try_recv(), Err(mpsc::TryRecvError::Empty));
        turns.give_back(Room::Part);
        assert_eq!(admitted.recv(), Ok("alone"));
        assert_eq!(turns.state().taken, 4);
        turns.give_back(Room::Whole);
        assert_eq!(admitted.recv(), Ok("later"));
    }

    #[test]
    fn later_clusters_of_a_test_share_its_turn() {
        let first = Turn::take(Room::Whole);
        let second = Turn::take(Room::Part);
        drop(first);
        assert_eq!(TURNS.state().taken, TURNS.side_by_side_max, "the second cluster keeps the turn");
        drop(second);
        assert!(OWN.with_borrow(Option::is_none));
    }

    #[test]
    fn exclusive_turn_is_refused_beside_own_shared_turn() {
        let refused = thread::spawn(|| {
            let _beside = Turn::take(Room::Part);
            let _alone = Turn::take(Room::Whole);
        });
        let message = *refused.join().expect_err("a panic").downcast::<String>().expect("a text");
        assert!(message.contains("start its first cluster with Whole"), "{message}");
        // The turn was returned.
        thread::spawn(|| drop(Turn::take(Room::Whole))).join().expect("a turn");
    }
}
