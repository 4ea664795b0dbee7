//! Turns of tests at the machine: bounds how many run clusters side by side, and lets some run alone.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// Turns side by side beyond the number of cores: clusters mostly wait.
const BEYOND_CORES: usize = 2;

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
    alone: bool,
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
    /// Running turns.
    running: usize,
    /// True if the only running turn is exclusive.
    alone: bool,
    /// Waiting requests, oldest first.
    queue: VecDeque<u64>,
    next: u64,
}

impl Turns {
    /// Waits for a turn.
    fn take(&self, alone: bool) {
        let mut state = self.state();
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back(ticket);
        while state.queue.front() != Some(&ticket) || !self.admits(&state, alone) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.pop_front();
        state.running += 1;
        state.alone = alone;
        drop(state);
        // The next request in the queue may be able to run beside this one.
        self.changed.notify_all();
    }

    fn give_back(&self) {
        let mut state = self.state();
        state.running -= 1;
        state.alone = false;
        drop(state);
        self.changed.notify_all();
    }

    const fn admits(&self, state: &State, alone: bool) -> bool {
        if alone { state.running == 0 } else { !state.alone && state.running < self.side_by_side_max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A test's turn at the machine, held while one of its clusters runs. Clusters mostly wait, so several tests run theirs
/// side by side. A test runs alone if its bounds are lease and failure time-outs, or if it loads the machine: another
/// cluster on the same cores would delay it.
///
/// A turn belongs to its thread: a second cluster of the same test shares the turn of the first one and never waits.
#[derive(Debug)]
pub struct Turn {
    /// Makes the type `!Send`.
    _thread: PhantomData<MutexGuard<'static, ()>>,
}

impl Turn {
    /// Waits for a turn, or shares the one of this thread. With `alone`, waits until no other test of this process has
    /// a turn, and keeps the others waiting.
    ///
    /// # Panics
    /// If `alone` is set and the turn of this thread is not exclusive.
    #[must_use]
    pub fn take(alone: bool) -> Self {
        let shared = OWN.with_borrow_mut(|own| {
            let Some(own) = own else { return false };
            // Waiting for the other tests here would deadlock: they wait for this turn to end.
            assert!(
                own.alone || !alone,
                "this test already runs a cluster beside other tests: start its first cluster with `alone`"
            );
            own.shares += 1;
            true
        });
        if !shared {
            TURNS.take(alone);
            OWN.set(Some(Own { alone, shares: 1 }));
        }
        Self { _thread: PhantomData }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let ended = OWN.with_borrow_mut(|own| {
            let Some(turn) = own else { return false };
            turn.shares -= 1;
            let ended = turn.shares == 0;
            if ended {
                *own = None;
            }
            ended
        });
        if ended {
            TURNS.give_back();
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
    fn request(turns: &Arc<Turns>, alone: bool, name: &'static str, admitted: &mpsc::Sender<&'static str>) {
        let requested = turns.state().next + 1;
        let (turns_of_thread, admitted) = (Arc::clone(turns), admitted.clone());
        thread::spawn(move || {
            turns_of_thread.take(alone);
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
            request(&turns, false, name, &sender);
        }
        assert_eq!([admitted.recv(), admitted.recv()].map(Result::unwrap).len(), 2);
        let (running, waiting) = {
            let state = turns.state();
            (state.running, state.queue.len())
        };
        assert_eq!((running, waiting), (2, 1));
        turns.give_back();
        admitted.recv().expect("the third one is admitted");
        assert_eq!(turns.state().running, 2);
    }

    #[test]
    fn exclusive_turn_is_not_starved_by_later_ones() {
        let (turns, (sender, admitted)) = (turns(4), mpsc::channel());
        turns.take(false);
        request(&turns, true, "alone", &sender);
        request(&turns, false, "later", &sender);
        assert_eq!(admitted.try_recv(), Err(mpsc::TryRecvError::Empty));
        turns.give_back();
        assert_eq!(admitted.recv(), Ok("alone"));
        assert_eq!(turns.state().running, 1);
        turns.give_back();
        assert_eq!(admitted.recv(), Ok("later"));
    }

    #[test]
    fn later_clusters_of_a_test_share_its_turn() {
        let first = Turn::take(true);
        let second = Turn::take(false);
        drop(first);
        assert!(TURNS.state().alone, "the second cluster keeps the turn");
        drop(second);
        assert!(OWN.with_borrow(Option::is_none));
    }

    #[test]
    fn exclusive_turn_is_refused_beside_own_shared_turn() {
        let refused = thread::spawn(|| {
            let _beside = Turn::take(false);
            let _alone = Turn::take(true);
        });
        let message = *refused.join().expect_err("a panic").downcast::<&'static str>().expect("a text");
        assert!(message.contains("start its first cluster with `alone`"), "{message}");
        // The turn was returned.
        thread::spawn(|| drop(Turn::take(true))).join().expect("a turn");
    }
}
