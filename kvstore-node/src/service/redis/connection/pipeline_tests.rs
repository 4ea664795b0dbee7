//! Tests of the order of requests in progress, and of their places.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn request(text: &str) -> Vec<Bytes> {
    text.split(' ').map(|part| Bytes::copy_from_slice(part.as_bytes())).collect()
}

fn access_of(text: &str) -> Option<Access> {
    Place::of(&request(text)).map(|place| place.access)
}

fn window(texts: &[&str]) -> Window<u64> {
    let mut window = Window::new(REPLY_BYTES_MIN);
    for text in texts {
        let request = request(text);
        window.push(Place::of(&request).expect("a request on a key"), request);
    }
    window
}

/// Takes all steps until a request in progress is to finish; returns the numbers of the requests that begin, and those
/// with replies.
fn steps(window: &mut Window<u64>) -> (Vec<u64>, Vec<u64>) {
    let (mut begun, mut replied) = (Vec::new(), Vec::new());
    loop {
        match window.step() {
            Step::Begin { number, .. } => begun.push(number),
            Step::Reply(number) => replied.push(number),
            Step::Wait => {
                assert!(window.running > 0, "it waits for no request");
                return (begun, replied);
            }
            Step::End => return (begun, replied),
        }
    }
}

fn begun(window: &mut Window<u64>) -> Vec<u64> {
    steps(window).0
}

#[test]
fn commands_have_their_access() {
    assert_eq!(access_of("GET k"), Some(Access::Read));
    assert_eq!(access_of("set k v EX 10 NX"), Some(Access::Write));
    assert_eq!(access_of("SET get v"), Some(Access::Write));
    for text in ["SET k v xx", "SET k v GET", "SET k v IFEQ a", "APPEND k v", "DEL {k}1 {k}2"] {
        assert_eq!(access_of(text), Some(Access::Exclusive), "{text}");
    }
    // Alone: connection state, nodes, several slots, and errors.
    for text in ["PING", "RESET", "SELECT 0", "CLIENT REPLY OFF", "SCAN 0", "WAIT 1 0", "DEL a b", "GET", "LPUSH l 1"] {
        assert_eq!(access_of(text), None, "{text}");
    }
}

#[test]
fn transactions_and_scripts_run_alone() {
    for text in [
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH k",
        "WATCH {t}1 {t}2",
        "UNWATCH",
        "EVAL script 1 k",
        "EVALSHA digest 1 k",
        "SCRIPT LOAD script",
    ] {
        assert_eq!(access_of(text), None, "{text}");
    }
}

#[test]
fn commands_on_several_keys_have_their_slot_to_themselves() {
    for text in [
        "MGET {t}1 {t}2",
        "MSET {t}1 v {t}2 v",
        "MSETNX {t}1 v {t}2 v",
        "EXISTS {t}1 {t}1",
        "TOUCH {t}1 {t}2",
        "UNLINK {t}1 {t}2",
        "RENAME {t}1 {t}2",
        "RENAMENX {t}1 {t}2",
        "COPY {t}1 {t}2 REPLACE",
    ] {
        assert_eq!(access_of(text), Some(Access::Exclusive), "{text}");
        let mut window = window(&["SET {t}3 v", text, "GET {t}4", "GET other"]);
        assert_eq!(begun(&mut window), [0, 3], "{text}");
        window.finish(0, 0, 0);
        assert_eq!(begun(&mut window), [1], "{text}");
        window.finish(1, 1, 0);
        assert_eq!(begun(&mut window), [2], "{text}");
    }
    for text in ["MGET a b", "MSET a v b v", "MSETNX a v b v", "RENAME a b", "COPY a b"] {
        assert_eq!(access_of(text), None, "{text}");
    }
}

#[test]
fn writes_of_different_keys_of_a_slot_overlap() {
    let mut window = window(&["SET {t}1 v", "SET {t}2 v", "DEL {t}3", "SET {t}1 w"]);
    assert_eq!(begun(&mut window), [0, 1, 2], "the same key waits");
    window.finish(1, 1, 0);
    assert_eq!(steps(&mut window), (vec![], vec![]));
    window.finish(0, 0, 0);
    assert_eq!(steps(&mut window), (vec![3], vec![0, 1]));
}

#[test]
fn read_behind_write_of_its_slot_waits() {
    let mut window = window(&["SET {t}1 v", "GET {t}2", "GET other", "GET {t}3", "SET {t}4 v"]);
    assert_eq!(begun(&mut window), [0, 2]);
    window.finish(0, 0, 0);
    assert_eq!(begun(&mut window), [1, 3]);
    window.finish(1, 1, 0);
    assert_eq!(begun(&mut window), [0u64; 0], "a read is in progress");
    window.finish(3, 3, 0);
    assert_eq!(begun(&mut window), [4]);
    window.finish(4, 4, 0);
    window.finish(2, 2, 0);
    assert_eq!(steps(&mut window), (vec![], vec![2, 3, 4]));
    assert!(window.entries.is_empty() && window.blocked == 0);
}

#[test]
fn request_does_not_overtake_one_that_waits() {
    let mut window = window(&["INCR {t}1", "APPEND {t}2 v", "INCR {t}3"]);
    assert_eq!(begun(&mut window), [0]);
    window.finish(0, 0, 0);
    assert_eq!(begun(&mut window), [1]);
    window.finish(1, 1, 0);
    assert_eq!(begun(&mut window), [2]);
}

#[test]
fn requests_with_large_replies_begin_one_by_one() {
    let mut window = window(&["GET a", "GET b", "GET c", "GET d"]);
    window.expected_bytes = REPLY_BYTES_MAX;
    assert_eq!(begun(&mut window), [0]);
    window.finish(0, 0, 1_000_000);
    assert_eq!(steps(&mut window), (vec![1], vec![0]));
    window.finish(1, 1, 10);
    // Half as much is expected.
    assert_eq!(steps(&mut window), (vec![2], vec![1]));
    window.finish(2, 2, 10);
    assert_eq!((steps(&mut window), window.bytes), ((vec![3], vec![2]), 250_000));
}

#[test]
fn request_without_room_is_repeated_once_it_is_first() {
    let mut window = window(&["GET {t}1", "GET {t}2", "SET {t}2 v", "GET other"]);
    assert_eq!(begun(&mut window), [0, 1, 3]);
    assert_eq!(window.retry(1, request("GET {t}2")), None);
    window.finish(0, 0, 0);
    assert_eq!(steps(&mut window), (vec![], vec![0]), "the write waits for the read");
    window.finish(3, 3, 0);
    assert_eq!(begun(&mut window), [1]);
    assert_eq!(window.retry(1, request("GET {t}2")), Some(request("GET {t}2")), "alone, it is refused");
    window.finish(1, 1, 0);
    assert_eq!(steps(&mut window), (vec![2], vec![1]));
}

#[test]
fn request_without_room_is_repeated_behind_last_in_progress() {
    let mut window = window(&["GET a", "GET b"]);
    assert_eq!(begun(&mut window), [0, 1]);
    assert_eq!(window.retry(1, request("GET b")), None);
    window.finish(0, 0, 0);
    assert!(matches!(window.step(), Step::Reply(0)));
    assert!(matches!(window.step(), Step::Begin { number: 1, is_repeated: true, .. }));
}

#[test]
fn write_is_not_repeated_behind_later_one_of_its_slot() {
    let mut window = window(&["SET {t}1 v", "SET {t}2 v", "SET other v"]);
    assert_eq!(begun(&mut window), [0, 1, 2]);
    assert_eq!(window.retry(0, request("SET {t}1 v")), Some(request("SET {t}1 v")));
    assert_eq!(window.retry(1, request("SET {t}2 v")), None);
    let later = request("SET {t}3 v");
    window.push(Place::of(&later).unwrap(), later);
    window.finish(0, 0, 0);
    window.finish(2, 2, 0);
    assert_eq!(steps(&mut window), (vec![1], vec![0]));
    window.finish(1, 1, 0);
    assert_eq!(steps(&mut window), (vec![3], vec![1, 2]));
}

#[test]
fn requests_behind_unknown_outcome_do_not_begin() {
    let mut window = window(&["SET {t}1 v", "APPEND {t}1 v", "SET other v", "APPEND third v"]);
    window.expected_bytes = REPLY_BYTES_MAX + 1;
    assert_eq!(begun(&mut window), [0, 2], "the reply to the last one may be large");
    window.halt(2);
    window.finish(2, 2, 0);
    window.finish(0, 0, 0);
    assert_eq!(steps(&mut window), (vec![1], vec![0]));
    window.finish(1, 1, 0);
    // The connection ends with the last of these.
    assert!(matches!((window.step(), window.step()), (Step::Reply(1), Step::Reply(2))));
}

proptest! {
    #[test]
    fn requests_of_a_slot_keep_their_order(
        drawn in vec((0usize..4, 0u8..3, 0u8..2), 1..40),
        choices in vec((any::<prop::sample::Index>(), any::<bool>()), 400),
    ) {
        let texts: Vec<String> = drawn
            .iter()
            .map(|(kind, key, slot)| {
                let key = format!("{{{slot}}}{key}");
                ["GET KEY", "SET KEY v", "INCR KEY", "APPEND KEY v"][*kind].replace("KEY", &key)
            })
            .collect();
        let places: Vec<Place> = texts.iter().map(|text| Place::of(&request(text)).unwrap()).collect();
        let mut window = window(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let (mut running, mut begun_ever) = (Vec::new(), BTreeSet::new());
        let (mut finished, mut replied) = (BTreeSet::new(), Vec::new());
        for (choice, is_refused) in choices {
            let (begun, more) = steps(&mut window);
            replied.extend(more);
            for number in begun {
                running.push(number);
                begun_ever.insert(number);
                let own = &places[number as usize];
                for earlier in (0..number).filter(|earlier| !finished.contains(earlier)) {
                    let other = &places[earlier as usize];
                    let overlaps = other.access == own.access && own.access != Access::Exclusive && other.key != own.key;
                    prop_assert!(other.slot != own.slot || overlaps && begun_ever.contains(&earlier), "{earlier}, {number}");
                }
            }
            if running.is_empty() {
                break;
            }
            let number = running.remove(choice.index(running.len()));
            let text = request(&texts[number as usize]);
            let is_repeated = is_refused && window.retry(number, text).is_none();
            if is_repeated {
                continue;
            }
            window.finish(number, number, 0);
            finished.insert(number);
        }
        replied.extend(steps(&mut window).1);
        prop_assert!(replied.is_sorted() && replied.iter().copied().eq(0..replied.len() as u64));
        // Without refusals, all are answered in as many steps.
        prop_assert!(!running.is_empty() || replied.len() == texts.len(), "{} of {}", replied.len(), texts.len());
    }
}
