//! Tests of the checker: known good and bad histories, and every tiny one against brute force.

use super::*;
use archon_testkit::Random;
use std::collections::BTreeMap;

fn record(client: u32, called: u64, returned: u64, request: Request, outcome: Outcome) -> Record {
    Record { client, called_ns: called, returned_ns: returned, request, outcome }
}

fn put(client: u32, called: u64, returned: u64, value: &str, revision: u64) -> Record {
    record(client, called, returned, Request::Put(value.into()), Outcome::Written(Some(revision)))
}

fn open_put(client: u32, called: u64, value: &str) -> Record {
    record(client, called, called + 1, Request::Put(value.into()), Outcome::Unknown)
}

fn get(client: u32, called: u64, returned: u64, found: Option<(&str, u64)>) -> Record {
    let found = found.map(|(value, revision)| (value.into(), Some(revision)));
    record(client, called, returned, Request::Get, Outcome::Value(found))
}

fn delete(client: u32, called: u64, returned: u64, existed: bool) -> Record {
    record(client, called, returned, Request::Delete, Outcome::Deleted { existed })
}

fn add(client: u32, called: u64, returned: u64, value: i64, revision: u64) -> Record {
    record(client, called, returned, Request::Increment(1), Outcome::Counter { value, revision: Some(revision) })
}

fn swap(client: u32, called: u64, returned: u64, expected: u64, value: &str, revision: u64) -> Record {
    let request = Request::CompareAndSet { expected, value: value.into() };
    record(client, called, returned, request, Outcome::Written(Some(revision)))
}

#[test]
fn linearizable_histories_are_accepted() {
    let good: BTreeMap<&str, Vec<Record>> = BTreeMap::from([
        ("nothing", vec![]),
        ("one after the other", vec![put(1, 0, 1, "a", 5), get(1, 2, 3, Some(("a", 5))), delete(1, 4, 5, true)]),
        (
            "a read beside a write sees either",
            vec![put(1, 0, 9, "a", 5), get(2, 1, 2, None), get(2, 3, 4, Some(("a", 5)))],
        ),
        (
            "an open write takes effect late",
            vec![
                open_put(1, 0, "a"),
                put(2, 5, 6, "b", 7),
                get(2, 7, 8, Some(("b", 7))),
                get(2, 9, 10, Some(("a", 9))),
            ],
        ),
        ("an open write never takes effect", vec![open_put(1, 0, "a"), get(2, 5, 6, None)]),
        ("a deletion of what an open write left", vec![open_put(1, 0, "a"), delete(2, 5, 6, true), get(2, 7, 8, None)]),
        ("counting", vec![add(1, 0, 5, 2, 8), add(2, 0, 5, 1, 7), get(1, 6, 7, Some(("2", 8)))]),
        (
            "a chain of conditions",
            vec![swap(1, 0, 1, 0, "a", 3), swap(2, 2, 3, 3, "b", 4), get(2, 4, 5, Some(("b", 4)))],
        ),
    ]);
    for (name, history) in good {
        assert_eq!(check(&history), Verdict::Linearizable, "{name}");
    }
}

#[test]
fn violating_histories_are_rejected() {
    let refused = |called, returned, expected, found| {
        let request = Request::CompareAndSet { expected, value: "x".into() };
        record(3, called, returned, request, Outcome::ConditionFailed { found })
    };
    let bad: BTreeMap<&str, Vec<Record>> = BTreeMap::from([
        ("an acknowledged write is lost", vec![put(1, 0, 1, "a", 5), get(2, 2, 3, None)]),
        ("an older value returns", vec![put(1, 0, 1, "a", 5), put(1, 2, 3, "b", 6), get(2, 4, 5, Some(("a", 5)))]),
        (
            "a read goes back behind another read",
            vec![put(1, 0, 9, "a", 5), get(2, 1, 2, Some(("a", 5))), get(3, 3, 4, None)],
        ),
        ("a value that nobody wrote", vec![put(1, 0, 1, "a", 5), get(2, 2, 3, Some(("z", 5)))]),
        ("a read before the open write was called", vec![get(2, 0, 1, Some(("a", 5))), open_put(1, 2, "a")]),
        (
            "a deleted value rises again",
            vec![put(1, 0, 1, "a", 5), delete(1, 2, 3, true), get(2, 4, 5, Some(("a", 5)))],
        ),
        ("two increments, one counted", vec![add(1, 0, 5, 1, 7), add(2, 0, 5, 1, 8)]),
        ("an increment applied twice", vec![add(1, 0, 1, 1, 7), add(2, 2, 3, 3, 9), get(1, 4, 5, Some(("3", 9)))]),
        (
            "both of two conditions on one revision held",
            vec![put(1, 0, 1, "a", 3), swap(1, 2, 9, 3, "b", 4), swap(2, 2, 9, 3, "c", 5)],
        ),
        ("a condition was refused that held", vec![put(1, 0, 1, "a", 3), refused(2, 3, 3, 3)]),
        ("a revision falls", vec![put(1, 0, 1, "a", 9), delete(1, 2, 3, true), put(1, 4, 5, "b", 7)]),
        ("one value, two revisions", vec![put(1, 0, 1, "a", 3), get(2, 2, 3, Some(("a", 4)))]),
        (
            "an open write takes effect twice",
            vec![open_put(1, 0, "a"), get(2, 2, 3, Some(("a", 5))), put(2, 4, 5, "b", 6), get(2, 6, 7, Some(("a", 8)))],
        ),
    ]);
    for (name, history) in bad {
        assert_eq!(check(&history), Verdict::Violated, "{name}");
    }
}

/// Tries every order of every subset of open operations.
fn brute_force(history: &[Record]) -> bool {
    fn explains(left: &[&Record], state: &Register) -> bool {
        if left.iter().all(|record| record.is_open()) {
            return true;
        }
        (0..left.len()).any(|index| {
            let record = left[index];
            let first = left.iter().all(|other| record.called_ns <= other.effective_by_ns());
            let mut rest = left.to_vec();
            rest.remove(index);
            first && state.after(record).is_some_and(|next| explains(&rest, &next))
        })
    }
    explains(&history.iter().collect::<Vec<_>>(), &Register::default())
}

fn tiny_history(dice: &mut Random) -> Vec<Record> {
    let values = ["1", "2", "x"];
    (0..2 + dice.below(4))
        .map(|client| {
            let called = dice.below(8);
            let returned = called + 1 + dice.below(4);
            let value: std::sync::Arc<str> = (*dice.pick(&values)).into();
            // Interfaces without revisions report none.
            let revision = (dice.below(4) > 0).then(|| 1 + dice.below(4));
            let open = dice.below(4) == 0;
            let (request, outcome) = match dice.below(7) {
                0 | 1 => (Request::Get, Outcome::Value((dice.below(3) > 0).then_some((value, revision)))),
                2 => (Request::Put(value), Outcome::Written(revision)),
                3 => (Request::Delete, Outcome::Deleted { existed: dice.below(2) == 0 }),
                4 => {
                    let expected = dice.below(3);
                    let told = [Outcome::Written(revision), Outcome::ConditionFailed { found: dice.below(3) }];
                    (Request::CompareAndSet { expected, value }, dice.pick(&told).clone())
                }
                5 => {
                    let expected = (dice.below(3) > 0).then(|| (*dice.pick(&values)).into());
                    let told = [Outcome::Written(revision), Outcome::ValueDiffers];
                    (Request::Replace { expected, value }, dice.pick(&told).clone())
                }
                _ => {
                    let value = 1 + i64::try_from(dice.below(3)).unwrap_or(0);
                    (Request::Increment(1), Outcome::Counter { value, revision })
                }
            };
            let outcome = if open { Outcome::Unknown } else { outcome };
            record(u32::try_from(client).unwrap_or(0), called, returned, request, outcome)
        })
        .collect()
}

#[test]
fn verdicts_on_tiny_histories_match_brute_force() {
    let mut dice = Random::new(7);
    let mut good = 0;
    for round in 0..60_000 {
        let history = tiny_history(&mut dice);
        let expected = brute_force(&history);
        good += u32::from(expected);
        let verdict = check(&history);
        assert_eq!(verdict == Verdict::Linearizable, expected, "round {round}: {verdict:?} of {history:#?}");
        assert_ne!(verdict, Verdict::Undecided);
    }
    assert!((3_000..57_000).contains(&good), "both verdicts must be common: {good} of 60000 are good");
}

#[test]
fn long_history_with_open_operations_is_judged_quickly() {
    // Eight concurrent clients on a register that orders operations by return time.
    let mut dice = Random::new(11);
    let mut history = Vec::new();
    let mut revision = 0;
    for step in 0..300_u64 {
        let (called, returned) = ((step * 10).saturating_sub(dice.below(70)), step * 10 + 5);
        let client = u32::try_from(step % 8).unwrap_or(0);
        if step % 40 == 39 {
            history.push(open_put(client, called, &format!("open-{step}")));
        } else if step % 3 == 0 || revision == 0 {
            revision += 1;
            history.push(put(client, called, returned, &format!("value-{revision}"), revision));
        } else {
            history.push(get(client, returned - 4, returned, Some((&format!("value-{revision}"), revision))));
        }
    }
    assert_eq!(check(&history), Verdict::Linearizable);
    // One stale read at the end: an open write cannot explain it, since its revision is old.
    history.push(get(1, 5_000, 5_001, Some(("value-1", 1))));
    assert_eq!(check(&history), Verdict::Violated);
}

#[test]
fn violation_is_minimised_to_few_operations() {
    let mut history: Vec<Record> = Vec::new();
    for step in 0..20_u64 {
        history.push(put(1, step * 10, step * 10 + 1, &format!("v{step}"), step + 1));
        history.push(get(2, step * 10 + 2, step * 10 + 3, Some((&format!("v{step}"), step + 1))));
    }
    history.push(get(3, 52, 54, Some(("v2", 3))));
    let violation = Violation::minimise("hot", &history);
    assert_eq!(check(&violation.part), Verdict::Violated);
    assert_eq!(violation.part.iter().filter(|record| record.is_read()).count(), 1, "{violation}");
    let text = violation.to_string();
    assert!(text.contains("\"hot\"") && text.contains("get → v2 (revision 3)") && !text.contains("v7"), "{text}");
}
