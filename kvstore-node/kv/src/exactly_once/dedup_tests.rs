//! Tests of the exactly-once rules, one by one and against random retries, forgetting and reordering.

use super::*;
use crate::operations::evaluate::{Evaluation, Request, evaluate};
use crate::operations::log_time::LogTime;
use crate::rows::plain::Rows;
use archon_types::{Answer, Op, Revision};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use std::collections::BTreeMap;
use uuid::Uuid;

const LIMITS: DedupLimits = DedupLimits { outcomes_max: 64, clients_max: 2, age_ms_max: 100, ..DedupLimits::DEFAULT };

fn client(number: u128) -> ClientId {
    ClientId::new(Uuid::from_u128(number))
}

fn id(owner: u128, number: u64, done_below: u64, stamp: u64) -> OpId {
    OpId { client: client(owner), number, done_below, stamp: Millis::new(stamp) }
}

fn run(rows: &mut Rows, id: &OpId, at: u64) -> Evaluation {
    run_under(rows, id, at, &LIMITS)
}

fn run_under(rows: &mut Rows, id: &OpId, at: u64, limits: &DedupLimits) -> Evaluation {
    let key = Bytes::from(format!("{}-{}", id.client, id.number));
    let op = Op::Increment { key, by: 1 };
    let request = Request { op: &op, id: Some(id) };
    let done = evaluate(request, rows, Millis::new(at), Revision::new(at), limits).unwrap();
    if let Some(effect) = &done.effect {
        rows.apply(effect);
    }
    done
}

fn refused(done: &Evaluation) -> Option<ErrorKind> {
    done.answer.as_ref().err().map(|error| error.kind)
}

#[test]
fn new_partition_accepts_first_operation_without_stamp() {
    let mut rows = Rows::default();
    assert_eq!(refused(&run(&mut rows, &id(1, 1, 0, 0), 10)), None);
}

#[test]
fn confirmed_operation_may_have_been_applied() {
    let mut rows = Rows::default();
    run(&mut rows, &id(1, 5, 5, 0), 10);
    assert_eq!(refused(&run(&mut rows, &id(1, 4, 0, 0), 11)), Some(ErrorKind::MaybeApplied));
    assert_eq!(refused(&run(&mut rows, &id(1, 6, 0, 0), 12)), None);
    assert_eq!(refused(&run(&mut rows, &id(1, 4, 0, 0), 13)), Some(ErrorKind::MaybeApplied), "the mark never falls");
}

#[test]
fn forgetting_requires_newer_stamp_or_unbroken_record() {
    let mut rows = Rows::default();
    run(&mut rows, &id(1, 1, 0, 0), 10);
    run(&mut rows, &id(2, 1, 0, 10), 20);
    rows.apply(&forget(client(1), None, &rows, Millis::new(21), &LIMITS).unwrap().unwrap());
    assert_eq!(forgotten_through(&rows).unwrap(), Some(Millis::new(10)));
    assert_eq!(rows.window(client(1)).unwrap(), None);
    assert_eq!(refused(&run(&mut rows, &id(1, 1, 0, 0), 22)), Some(ErrorKind::MaybeApplied));
    assert_eq!(refused(&run(&mut rows, &id(1, 2, 0, 10), 22)), Some(ErrorKind::MaybeApplied));
    assert_eq!(refused(&run(&mut rows, &id(1, 2, 0, 11), 22)), None);
    // Begun at 22, the record proves nothing about earlier stamps.
    assert_eq!(refused(&run(&mut rows, &id(1, 1, 0, 0), 23)), Some(ErrorKind::MaybeApplied));
    rows.apply(&forget(client(2), None, &rows, Millis::new(24), &LIMITS).unwrap().unwrap());
    let forgotten = RowChange::set(Bytes::from_static(FORGOTTEN_KEY), encode_millis(Millis::new(30)));
    rows.apply(&Effect::new(Millis::new(30), vec![forgotten]));
    assert_eq!(refused(&run(&mut rows, &id(1, 3, 0, 22), 31)), None, "stamped within its own record");
    assert_eq!(refused(&run(&mut rows, &id(1, 4, 0, 21), 31)), Some(ErrorKind::MaybeApplied));
    assert_eq!(refused(&run(&mut rows, &id(3, 1, 0, 30), 31)), Some(ErrorKind::MaybeApplied));
}

#[test]
fn future_stamp_is_refused() {
    let mut rows = Rows::default();
    assert_eq!(refused(&run(&mut rows, &id(1, 1, 0, 11), 10)), Some(ErrorKind::MaybeApplied));
    assert!(rows.0.is_empty() && rows.1.is_empty());
}

#[test]
fn outcomes_of_client_without_confirmations_are_bounded() {
    let mut rows = Rows::default();
    let most = u64::from(LIMITS.outcomes_max);
    for number in 1..=most {
        assert_eq!(refused(&run(&mut rows, &id(1, number, 0, 0), 10)), None);
        assert_eq!(rows.1[&client(1)].outcomes_from(0) as u64, number);
    }
    let refusal = run(&mut rows, &id(1, most + 1, 0, 0), 10).answer.unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Overloaded);
    assert!(refusal.retry_after_ms.is_some());
    assert_eq!(refused(&run(&mut rows, &id(1, 3, 0, 0), 10)), None, "a retry is answered still");
    for number in most + 1..1_000 {
        assert_eq!(refused(&run(&mut rows, &id(1, number, number - 5, 0), 10)), None);
        assert_eq!(rows.1[&client(1)].outcomes_from(0), 6, "the confirmed ones are dropped");
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Pass(u64),
    /// A client begins an operation.
    Begin(u128),
    /// A client confirms its oldest operation.
    Done(u128),
    /// A message sent earlier arrives, perhaps again, late and out of order.
    Deliver(usize),
    /// A client's record is forgotten.
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

/// Plays a history of messages on a partition, and checks it against the answers that clients got.
fn play(steps: &[Step], mutant: Option<Mutant>) -> Result<(), String> {
    // Few, so that confirmed outcomes are soon removed.
    let limits = DedupLimits { mutant, outcomes_max: 3, ..LIMITS };
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
                let at = *owner as usize;
                sent.push(id(*owner, next[at], mark[at], now));
                next[at] += 1;
            }
            Step::Done(owner) => {
                let at = *owner as usize;
                mark[at] = (mark[at] + 1).min(next[at]);
            }
            Step::Forget(owner) => {
                if let Some(effect) = forget(client(*owner), None, &rows, Millis::new(now), &limits).unwrap() {
                    rows.apply(&effect);
                }
            }
            Step::Deliver(which) if !sent.is_empty() => {
                let id = sent[which % sent.len()];
                let forgotten = forgotten_through(&rows).unwrap();
                let below = rows.window(id.client).unwrap().map_or(0, |window| window.done_below);
                let done = run_under(&mut rows, &id, now, &limits);
                let first = answers.get(&(id.client, id.number));
                match (&done.answer, first) {
                    (Ok(Answer::Counter { value, .. }), _) if *value != 1 => {
                        return Err(format!("operation {id:?} was applied {value} times"));
                    }
                    (Ok(answer), Some(first)) if answer != first => {
                        return Err(format!("operation {id:?} was answered {first:?}, then {answer:?}"));
                    }
                    (Ok(answer), _) => {
                        answers.insert((id.client, id.number), answer.clone());
                    }
                    (Err(error), _) if error.kind == ErrorKind::Overloaded => {}
                    (Err(_), first) => {
                        let fresh = first.is_none()
                            && id.number >= below
                            && forgotten.is_none_or(|forgotten| id.stamp > forgotten);
                        if fresh {
                            return Err(format!("a fresh operation {id:?} was refused"));
                        }
                    }
                }
            }
            Step::Deliver(_) => {}
        }
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn no_operation_applies_twice_and_no_new_one_is_refused(steps in steps()) {
        prop_assert_eq!(play(&steps, None), Ok(()));
    }
}

/// Returns whether each of many histories agrees with its clients' answers.
fn every_history_holds(mutant: Option<Mutant>) -> bool {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_000) };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&steps(), |steps| play(&steps, mutant).map_err(proptest::test_runner::TestCaseError::fail));
    match result {
        Ok(()) => true,
        Err(TestError::Fail(..)) => false,
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

fn recorded_operation_is_not_applied_again(mutant: Option<Mutant>) -> bool {
    every_history_holds(mutant)
}

fn confirmed_operation_is_not_applied_again(mutant: Option<Mutant>) -> bool {
    every_history_holds(mutant)
}

fn old_stamp_needs_record_that_proves_it_new(mutant: Option<Mutant>) -> bool {
    every_history_holds(mutant)
}

fn record_proves_nothing_about_earlier_stamps(mutant: Option<Mutant>) -> bool {
    every_history_holds(mutant)
}

fn forgotten_operation_is_not_applied_again(mutant: Option<Mutant>) -> bool {
    every_history_holds(mutant)
}

archon_types::shown_by! {
    RetryApplied => recorded_operation_is_not_applied_again,
    DoneMarkIgnored => confirmed_operation_is_not_applied_again,
    StampIgnored => old_stamp_needs_record_that_proves_it_new,
    AnyRecordProves => record_proves_nothing_about_earlier_stamps,
    ForgottenNotRaised => forgotten_operation_is_not_applied_again,
    FutureStampTaken => future_stamp_does_not_outlive_forgotten_record,
    FailureUnrecorded => failed_condition_is_recorded_against_late_duplicate,
    LogTimeFalls => log_time_does_not_fall_with_new_leader,
}

#[test]
fn every_mutant_fails_a_test() {
    for mutant in Mutant::ALL {
        assert!(
            [
                SHOWN,
                merge_tests::SHOWN,
                crate::operations::leadership::tests::SHOWN,
                crate::exactly_once::window::tests::SHOWN,
                crate::operations::evaluate::tests::SHOWN,
                crate::operations::transaction::tests::SHOWN
            ]
            .iter()
            .any(|shown| shown.contains(mutant)),
            "nothing misses {mutant:?}"
        );
    }
}

fn future_stamp_does_not_outlive_forgotten_record(mutant: Option<Mutant>) -> bool {
    // Applied at 10 with a stamp of 50, forgotten with its record's last use at 10, delivered again: applied again.
    let limits = DedupLimits { mutant, ..LIMITS };
    let mut rows = Rows::default();
    run_under(&mut rows, &id(1, 1, 0, 50), 10, &limits);
    if let Some(effect) = forget(client(1), None, &rows, Millis::new(20), &limits).unwrap() {
        rows.apply(&effect);
    }
    let again = run_under(&mut rows, &id(1, 1, 0, 50), 60, &limits);
    !matches!(again.answer, Ok(Answer::Counter { value: 2, .. }))
}

fn failed_condition_is_recorded_against_late_duplicate(mutant: Option<Mutant>) -> bool {
    let limits = DedupLimits { mutant, ..LIMITS };
    let mut rows = Rows::default();
    let key = Bytes::from_static(b"k");
    let set = Op::CompareAndSet { key: key.clone(), expected: Revision::new(5), value: key.clone() };
    let id = id(1, 1, 0, 0);
    let attempt = |rows: &mut Rows, at: u64| {
        let request = Request { op: &set, id: Some(&id) };
        let done = evaluate(request, rows, Millis::new(at), Revision::new(at), &limits).unwrap();
        done.effect.iter().for_each(|effect| rows.apply(effect));
        done.answer
    };
    let first = attempt(&mut rows, 1);
    let put = Op::Put { key: key.clone(), value: Bytes::new() };
    let request = Request { op: &put, id: None };
    let done = evaluate(request, &rows, Millis::new(5), Revision::new(5), &limits).unwrap();
    rows.apply(&done.effect.unwrap());
    attempt(&mut rows, 6) == first
}

/// A client saw log time 100; then a node with a clock at 40 leads.
fn log_time_of_a_leader_that_is_behind(mutant: Option<Mutant>) -> Millis {
    let mut time = LogTime::starting_at(Millis::new(100));
    time.set_mutant(mutant);
    time.stamp(Millis::new(40))
}

fn log_time_does_not_fall_with_new_leader(mutant: Option<Mutant>) -> bool {
    log_time_of_a_leader_that_is_behind(mutant) == Millis::new(100)
}

#[test]
fn falling_log_time_breaks_exactly_once() {
    let at = log_time_of_a_leader_that_is_behind(Some(Mutant::LogTimeFalls)).get();
    // The stamp from the future is refused, and with it an operation that was never applied. If it were accepted, its
    // record would be last used "before" its stamp, so that forgetting the record would not cover it.
    let late = id(1, 1, 0, 100);
    assert_eq!(refused(&run(&mut Rows::default(), &late, at)), Some(ErrorKind::MaybeApplied));
    let limits = DedupLimits { mutant: Some(Mutant::FutureStampTaken), ..LIMITS };
    let mut rows = Rows::default();
    run_under(&mut rows, &late, at, &limits);
    rows.apply(&forget(client(1), None, &rows, Millis::new(at), &limits).unwrap().unwrap());
    let again = run_under(&mut rows, &late, 200, &limits);
    assert!(matches!(again.answer, Ok(Answer::Counter { value: 2, .. })), "{again:?}");
}
