//! The exactly-once rules, one by one and against random retries, forgetting and reordering.

use super::*;
use crate::evaluate::{Evaluation, Request, evaluate};
use crate::row::client_outcome_key;
use crate::rows::Rows;
use archon_types::{Answer, Op, Revision};
use proptest::prelude::*;
use uuid::Uuid;

const LIMITS: DedupLimits = DedupLimits { outcomes_max: 64, clients_max: 2, age_ms_max: 100 };

fn client(number: u128) -> ClientId {
    ClientId::new(Uuid::from_u128(number))
}

fn id(owner: u128, number: u64, done_below: u64, stamp: u64) -> OpId {
    OpId { client: client(owner), number, done_below, stamp: Millis::new(stamp) }
}

fn run(rows: &mut Rows, id: &OpId, at: u64) -> Evaluation {
    let key = Bytes::from(format!("{}-{}", id.client, id.number));
    let op = Op::Increment { key, by: 1 };
    let request = Request { op: &op, id: Some(id) };
    let done = evaluate(request, rows, Millis::new(at), Revision::new(at), &LIMITS).unwrap();
    if let Some(effect) = &done.effect {
        rows.apply(effect);
    }
    done
}

fn refused(done: &Evaluation) -> Option<ErrorKind> {
    done.answer.as_ref().err().map(|error| error.kind)
}

#[test]
fn a_fresh_partition_takes_the_first_operation_without_a_stamp() {
    let mut rows = Rows::default();
    assert_eq!(refused(&run(&mut rows, &id(1, 1, 0, 0), 10)), None);
}

#[test]
fn what_the_client_is_done_with_may_have_been_applied() {
    let mut rows = Rows::default();
    run(&mut rows, &id(1, 5, 5, 0), 10);
    assert_eq!(refused(&run(&mut rows, &id(1, 4, 0, 0), 11)), Some(ErrorKind::MaybeApplied));
    assert_eq!(refused(&run(&mut rows, &id(1, 6, 0, 0), 12)), None);
    assert_eq!(refused(&run(&mut rows, &id(1, 4, 0, 0), 13)), Some(ErrorKind::MaybeApplied), "the mark never falls");
}

#[test]
fn after_forgetting_only_newer_stamps_or_an_unbroken_record_pass() {
    let mut rows = Rows::default();
    run(&mut rows, &id(1, 1, 0, 0), 10);
    run(&mut rows, &id(2, 1, 0, 10), 20);
    rows.apply(&forget(client(1), &rows, Millis::new(21)).unwrap().unwrap());
    assert_eq!(forgotten_through(&rows).unwrap(), Some(Millis::new(10)));
    assert!(rows.get(&client_outcome_key(client(1), 1)).unwrap().is_none());
    assert_eq!(refused(&run(&mut rows, &id(1, 1, 0, 0), 22)), Some(ErrorKind::MaybeApplied));
    assert_eq!(refused(&run(&mut rows, &id(1, 2, 0, 10), 22)), Some(ErrorKind::MaybeApplied));
    assert_eq!(refused(&run(&mut rows, &id(1, 2, 0, 11), 22)), None);
    // Begun at 22, the record does not vouch for what was stamped before.
    assert_eq!(refused(&run(&mut rows, &id(1, 1, 0, 0), 23)), Some(ErrorKind::MaybeApplied));
    rows.apply(&forget(client(2), &rows, Millis::new(24)).unwrap().unwrap());
    rows.apply(&Effect {
        at: Millis::new(30),
        changes: vec![RowChange::set(Bytes::from_static(FORGOTTEN_KEY), encode_millis(Millis::new(30)))],
    });
    assert_eq!(refused(&run(&mut rows, &id(1, 3, 0, 22), 31)), None, "stamped within its own record");
    assert_eq!(refused(&run(&mut rows, &id(1, 4, 0, 21), 31)), Some(ErrorKind::MaybeApplied));
    assert_eq!(refused(&run(&mut rows, &id(3, 1, 0, 30), 31)), Some(ErrorKind::MaybeApplied));
}

#[test]
fn a_stamp_from_the_future_is_refused() {
    let mut rows = Rows::default();
    assert_eq!(refused(&run(&mut rows, &id(1, 1, 0, 11), 10)), Some(ErrorKind::MaybeApplied));
    assert!(rows.0.is_empty());
}

#[test]
fn a_client_that_finishes_nothing_is_bounded_and_one_that_does_goes_on() {
    let mut rows = Rows::default();
    let most = u64::from(LIMITS.outcomes_max);
    for number in 1..=most {
        assert_eq!(refused(&run(&mut rows, &id(1, number, 0, 0), 10)), None);
    }
    let refusal = run(&mut rows, &id(1, most + 1, 0, 0), 10).answer.unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Overloaded);
    assert!(refusal.retry_after_ms.is_some());
    assert_eq!(refused(&run(&mut rows, &id(1, 3, 0, 0), 10)), None, "a retry is answered still");
    for number in most + 1..1_000 {
        assert_eq!(refused(&run(&mut rows, &id(1, number, number - 5, 0), 10)), None);
        let outcomes = rows.0.keys().filter(|key| key[0] == KIND_CLIENT).count() - 1;
        assert!(outcomes <= LIMITS.outcomes_max as usize, "{outcomes} outcomes are kept");
        let head = ClientHead::decode(&rows.0[&client_head_key(client(1))]).unwrap();
        assert_eq!(head.outcomes as usize, outcomes);
    }
}

#[test]
fn the_oldest_client_is_forgotten_first_by_number_and_by_age() {
    let mut index = ClientIndex::default();
    for (owner, at) in [(1, 10), (2, 11), (1, 12)] {
        index.touch(client(owner), Millis::new(at));
    }
    assert_eq!(index.to_forget(Millis::new(50), &LIMITS), None);
    assert_eq!(index.to_forget(Millis::new(112), &LIMITS), Some(client(2)));
    index.touch(client(3), Millis::new(13));
    assert_eq!(index.to_forget(Millis::new(50), &LIMITS), Some(client(2)));
    index.remove(client(2));
    assert_eq!((index.to_forget(Millis::new(50), &LIMITS), index.len()), (None, 2));
}

#[test]
fn the_index_is_read_back_from_the_rows() {
    let mut rows = Rows::default();
    for (owner, number, at) in [(1, 1, 10), (u128::MAX, 1, 11), (1, 2, 12)] {
        run(&mut rows, &id(owner, number, 0, 0), at);
    }
    let index = ClientIndex::load(&rows).unwrap();
    assert_eq!(index.len(), 2);
    assert_eq!(index.by_last.first(), Some(&(Millis::new(11), client(u128::MAX))));
    rows.apply(&forget(client(u128::MAX), &rows, Millis::new(13)).unwrap().unwrap());
    assert_eq!(ClientIndex::load(&rows).unwrap().len(), 1);
    assert!(forget(client(u128::MAX), &rows, Millis::new(14)).unwrap().is_none());
}

#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Pass(u64),
    /// A client begins an operation.
    Begin(u128),
    /// A client is done with its oldest operation.
    Done(u128),
    /// A message arrives: any that was ever sent, again, late, out of order.
    Deliver(usize),
    /// Somebody's record is forgotten.
    Forget(u128),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_u64).prop_map(Step::Pass),
        4 => (1..4_u128).prop_map(Step::Begin),
        2 => (1..4_u128).prop_map(Step::Done),
        10 => any::<usize>().prop_map(Step::Deliver),
        2 => (1..4_u128).prop_map(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn no_operation_is_applied_twice_and_no_fresh_one_is_refused(steps in proptest::collection::vec(step(), 1..120)) {
        let mut rows = Rows::default();
        let mut now = 1;
        let mut sent: Vec<OpId> = Vec::new();
        let mut answers: BTreeMap<(ClientId, u64), Answer> = BTreeMap::new();
        let mut next = [1_u64; 4];
        let mut mark = [1_u64; 4];
        for step in steps {
            match step {
                Step::Pass(by) => now += by,
                Step::Begin(owner) => {
                    let at = owner as usize;
                    sent.push(id(owner, next[at], mark[at], now));
                    next[at] += 1;
                }
                Step::Done(owner) => {
                    let at = owner as usize;
                    mark[at] = (mark[at] + 1).min(next[at]);
                }
                Step::Forget(owner) => {
                    if let Some(effect) = forget(client(owner), &rows, Millis::new(now)).unwrap() {
                        rows.apply(&effect);
                    }
                }
                Step::Deliver(which) if !sent.is_empty() => {
                    let id = sent[which % sent.len()];
                    let forgotten = forgotten_through(&rows).unwrap();
                    let head = rows.get(&client_head_key(id.client)).unwrap();
                    let below = head.map_or(0, |row| ClientHead::decode(&row).unwrap().done_below);
                    let done = run(&mut rows, &id, now);
                    let first = answers.get(&(id.client, id.number));
                    match (&done.answer, first) {
                        (Ok(Answer::Counter { value, .. }), _) if *value != 1 => {
                            prop_assert!(false, "operation {id:?} was applied {value} times");
                        }
                        (Ok(answer), Some(first)) => prop_assert_eq!(answer, first),
                        (Ok(answer), None) => {
                            answers.insert((id.client, id.number), answer.clone());
                        }
                        (Err(_), first) => {
                            let fresh = first.is_none() && id.number >= below
                                && forgotten.is_none_or(|forgotten| id.stamp > forgotten);
                            prop_assert!(!fresh, "a fresh operation {id:?} was refused");
                        }
                    }
                }
                Step::Deliver(_) => {}
            }
        }
    }
}
