//! Tests of the order and the number of turns.

use super::*;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

/// Room for two clusters on a busy machine, and for three on an idle one.
const SMALL: Bounds = Bounds { few: 2, many: 3 };

fn turns(bounds: Bounds) -> Arc<Turns> {
    Arc::new(Turns { bounds, state: Mutex::default(), changed: Condvar::new() })
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

/// Returns the state with these rooms running and these requests waiting.
fn state(running: &[Room], waiting: &[Room]) -> State {
    let waiting = waiting.iter().copied().zip(0..).collect();
    State { running: running.to_vec(), waiting, ..State::default() }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    Always,
    OnAnIdleMachine,
    Never,
}

#[test]
fn fewer_clusters_run_beside_one_with_more_room() {
    use Admission::{Always, Never, OnAnIdleMachine};
    use Room::{Calm, Part, Whole};
    for (running, request, admitted) in [
        (&[][..], Whole, Always),
        (&[Part], Whole, Never),
        (&[Whole], Part, Never),
        (&[Part], Calm, Always),
        (&[Part, Part], Calm, Never),
        (&[Calm], Part, Always),
        (&[Calm, Part], Part, Never),
        (&[Part], Part, Always),
        (&[Part, Part], Part, OnAnIdleMachine),
        (&[Part, Part, Part], Part, Never),
    ] {
        for (idles, expected) in [(false, admitted == Always), (true, admitted != Never)] {
            let state = State { idle_time: IdleTime::known(idles), ..state(running, &[request]) };
            assert_eq!(state.admits(SMALL, (request, 0)), expected, "{request:?} beside {running:?}, idle: {idles}");
        }
    }
}

#[test]
fn request_for_least_room_that_waits_longest_is_next() {
    use Room::{Calm, Part, Whole};
    let state = state(&[], &[Whole, Part, Calm, Part]);
    let next: Vec<u64> = state.waiting.iter().filter(|one| state.admits(SMALL, **one)).map(|one| one.1).collect();
    assert_eq!(next, [1]);
}

#[test]
fn concurrent_turns_are_bounded() {
    let (turns, (sender, admitted)) = (turns(Bounds { few: 2, many: 2 }), mpsc::channel());
    for name in ["first", "second", "third"] {
        request(&turns, Room::Part, name, &sender);
    }
    assert_eq!([admitted.recv(), admitted.recv()].map(Result::unwrap).len(), 2);
    let (running, waiting) = {
        let state = turns.state();
        (state.running.len(), state.waiting.len())
    };
    assert_eq!((running, waiting), (2, 1));
    turns.give_back(Room::Part);
    admitted.recv().expect("the third one is admitted");
    assert_eq!(turns.state().running.len(), 2);
}

#[test]
fn exclusive_turn_begins_once_no_other_waits() {
    let (turns, (sender, admitted)) = (turns(Bounds { few: 1, many: 1 }), mpsc::channel());
    turns.take(Room::Calm);
    request(&turns, Room::Whole, "alone", &sender);
    request(&turns, Room::Part, "later", &sender);
    assert_eq!(admitted.try_recv(), Err(mpsc::TryRecvError::Empty));
    turns.give_back(Room::Calm);
    assert_eq!(admitted.recv(), Ok("later"));
    turns.give_back(Room::Part);
    assert_eq!(admitted.recv(), Ok("alone"));
    assert_eq!(turns.state().running, [Room::Whole]);
}

#[test]
fn later_clusters_of_a_test_share_its_turn() {
    let first = Turn::take(Room::Whole);
    let second = Turn::take(Room::Part);
    drop(first);
    assert_eq!(TURNS.state().running, [Room::Whole], "the second cluster keeps the turn");
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
