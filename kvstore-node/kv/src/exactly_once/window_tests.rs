//! Tests of windows: the join that replay and copies depend on, their encoding, and their decisions against the earlier
//! rules, which kept one row per outcome.

use super::*;
use crate::MemoryEngine;
use crate::engine::{Change, Engine};
use crate::exactly_once::dedup::{self, Decision, DedupLimits, forgotten_through};
use crate::mutant::Mutant;
use crate::operations::effect::Effect;
use crate::rows::memtable::Memtable;
use crate::rows::memtable_budget::MemtableBudget;
use crate::rows::plain::Rows;
use crate::rows::row::{POSITION_KEY, client_key};
use crate::rows::view::{PartitionView, Reader, View};
use archon_types::{ErrorKind, OpId, PlacementId, Revision, Seq};
use proptest::prelude::*;
use uuid::Uuid;

const SPACE: PlacementId = PlacementId::new(1);
const OTHER: PlacementId = PlacementId::new(2);

fn client(number: u128) -> ClientId {
    ClientId::new(Uuid::from_u128(number))
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        any::<u64>().prop_map(|revision| Outcome::Written(Revision::new(revision))),
        any::<bool>().prop_map(Outcome::Deleted),
        any::<u64>().prop_map(|revision| Outcome::ConditionFailed(Revision::new(revision))),
        (any::<i64>(), any::<u64>()).prop_map(|(sum, revision)| Outcome::Counter(sum, Revision::new(revision))),
        Just(Outcome::NotANumber),
    ]
}

/// An operation of a client above its last ones, or with a number in between; or one that forgets the client.
#[derive(Clone, Debug)]
enum Step {
    Record { owner: u128, ahead: u64, done: u64 },
    Forget(u128),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..3_u128, 0..4_u64, 0..6_u64).prop_map(|(owner, ahead, done)| Step::Record { owner, ahead, done }),
        1 => (1..3_u128).prop_map(Step::Forget),
    ]
}

/// A log as leaders write it: none records an operation twice, or one below the client's mark.
fn log(steps: &[Step]) -> Vec<Effect> {
    let (mut rows, mut effects) = (Rows::default(), Vec::new());
    for (at, step) in (1..).zip(steps) {
        let time = Millis::new(at);
        let mut effect = Effect::new(time, Vec::new());
        match *step {
            Step::Forget(owner) => effect.forget.push(client(owner)),
            Step::Record { owner, ahead, done } => {
                let window = rows.1.get(&client(owner));
                let first = window.map_or(1, |window| window.done_below.max(1));
                let free = |number: &u64| window.is_none_or(|window| window.outcome(*number).is_none());
                let number = (first + ahead..).find(free).unwrap();
                let (done_below, outcome) = (number.saturating_sub(done), Outcome::Written(Revision::new(at)));
                effect.record = Some(Record { client: client(owner), number, done_below, outcome });
            }
        }
        rows.apply(&effect);
        effects.push(effect);
    }
    effects
}

fn after(effects: &[Effect], upto: usize) -> BTreeMap<ClientId, Window> {
    let mut rows = Rows::default();
    effects[..upto].iter().for_each(|effect| rows.apply(effect));
    rows.1
}

fn replayed(effects: &[Effect], from: usize) -> Memtable {
    replayed_with(effects, from, None)
}

fn replayed_with(effects: &[Effect], from: usize, mutant: Option<Mutant>) -> Memtable {
    let budget = MemtableBudget::default().with_mutant(mutant);
    let mut memtable = Memtable::new(Seq::new(from as u64), budget);
    for (number, effect) in effects.iter().enumerate().skip(from) {
        memtable.push(Seq::new(number as u64 + 1), effect.clone()).unwrap();
    }
    memtable
}

fn flush(memtable: &mut Memtable, upto: usize, engine: &MemoryEngine, written: impl Fn(usize) -> bool) {
    memtable.commit(Seq::new(upto as u64));
    let Some(frozen) = memtable.freeze() else { return };
    let changes = frozen.changes(engine, SPACE).enumerate().filter(|(number, _)| written(*number));
    engine.write(&changes.map(|(_, change)| change.unwrap()).collect::<Vec<_>>()).unwrap();
}

fn seen(memtable: &Memtable, engine: &MemoryEngine, reader: Reader) -> BTreeMap<ClientId, Window> {
    let view = PartitionView::new(memtable, engine, SPACE, reader);
    let found = (1..3).map(client).filter_map(|owner| Some((owner, view.window(owner).unwrap()?.as_ref().clone())));
    found.collect()
}

fn listed(memtable: &Memtable, engine: &MemoryEngine) -> Vec<(ClientId, Millis)> {
    let view = PartitionView::new(memtable, engine, SPACE, Reader::Newest);
    let (mut all, mut from) = (Vec::new(), Some(ClientId::NIL));
    while let Some(next) = from {
        let (page, more) = view.clients(next, 1).unwrap();
        all.extend(page);
        from = more;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Any rows of a batch may be lost in a crash, and the log is replayed from the position before it.
    #[test]
    fn engine_and_replayed_log_give_same_windows(
        steps in proptest::collection::vec(step(), 1..14),
        complete in any::<proptest::sample::Index>(),
        torn in any::<proptest::sample::Index>(),
        lost in proptest::collection::vec(any::<bool>(), 8),
    ) {
        let effects = log(&steps);
        let complete = complete.index(effects.len() + 1);
        let torn = complete + torn.index(effects.len() + 1 - complete);
        let engine = MemoryEngine::new();
        let mut memtable = replayed(&effects, 0);
        flush(&mut memtable, complete, &engine, |_| true);
        memtable.flushed(Seq::new(complete as u64));
        flush(&mut memtable, torn, &engine, |number| !lost[number % lost.len()]);
        prop_assert_eq!(seen(&memtable, &engine, Reader::Committed), after(&effects, torn));
        prop_assert_eq!(seen(&memtable, &engine, Reader::Newest), after(&effects, effects.len()));
        for again in torn..=effects.len() {
            let mut memtable = replayed(&effects, complete);
            prop_assert_eq!(seen(&memtable, &engine, Reader::Newest), after(&effects, effects.len()));
            memtable.commit(Seq::new(again as u64));
            prop_assert_eq!(seen(&memtable, &engine, Reader::Committed), after(&effects, again));
            prop_assert_eq!(seen(&memtable, &engine, Reader::Newest), after(&effects, effects.len()));
            let last = |(owner, window): (&ClientId, &Window)| (*owner, window.last);
            let expected: Vec<_> = after(&effects, again).iter().map(last).collect();
            prop_assert_eq!(listed(&memtable, &engine), expected);
        }
        let mut memtable = replayed(&effects, complete);
        flush(&mut memtable, effects.len(), &engine, |_| true);
        memtable.flushed(Seq::new(effects.len() as u64));
        prop_assert_eq!(seen(&memtable, &engine, Reader::Committed), after(&effects, effects.len()));
    }

    /// Each row of a copy is read at another moment; the log from the beginning of the copy is applied over them.
    #[test]
    fn copy_of_rows_of_several_positions_converges(
        steps in proptest::collection::vec(step(), 1..14),
        start in any::<proptest::sample::Index>(),
        read in proptest::collection::vec(any::<proptest::sample::Index>(), 2),
        middle in any::<proptest::sample::Index>(),
        lost in proptest::collection::vec(any::<bool>(), 4),
    ) {
        let effects = log(&steps);
        let start = start.index(effects.len() + 1);
        let engine = MemoryEngine::new();
        for (owner, at) in (1..3).map(client).zip(read) {
            let at = start + at.index(effects.len() + 1 - start);
            let value = after(&effects, at).get(&owner).map(Window::encode);
            engine.write(&[Change { space: SPACE, key: client_key(owner), value }]).unwrap();
        }
        let mut memtable = replayed(&effects, start);
        prop_assert_eq!(seen(&memtable, &engine, Reader::Newest), after(&effects, effects.len()));
        // The receiver flushes entries below those in its rows, loses a part of that, and restarts: before the flush
        // counts as complete, and after a second one.
        let middle = start + middle.index(effects.len() + 1 - start);
        flush(&mut memtable, middle, &engine, |number| !lost[number % lost.len()]);
        let mut memtable = replayed(&effects, start);
        prop_assert_eq!(seen(&memtable, &engine, Reader::Newest), after(&effects, effects.len()));
        flush(&mut memtable, middle, &engine, |_| true);
        memtable.flushed(Seq::new(middle as u64));
        for mut memtable in [memtable, replayed(&effects, middle)] {
            prop_assert_eq!(seen(&memtable, &engine, Reader::Newest), after(&effects, effects.len()));
            flush(&mut memtable, effects.len(), &engine, |_| true);
            memtable.flushed(Seq::new(effects.len() as u64));
            prop_assert_eq!(seen(&memtable, &engine, Reader::Committed), after(&effects, effects.len()));
        }
    }

    /// A leader's entries are truncated after it has evaluated operations over them.
    #[test]
    fn truncated_records_leave_window(
        steps in proptest::collection::vec(step(), 1..14),
        commit in any::<proptest::sample::Index>(),
        keep in any::<proptest::sample::Index>(),
        other in proptest::collection::vec(step(), 0..4),
    ) {
        let effects = log(&steps);
        let commit = commit.index(effects.len() + 1);
        let keep = commit + keep.index(effects.len() + 1 - commit);
        let engine = MemoryEngine::new();
        let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
        for (number, effect) in effects.iter().enumerate() {
            memtable.push(Seq::new(number as u64 + 1), effect.clone()).unwrap();
            prop_assert_eq!(seen(&memtable, &engine, Reader::Newest), after(&effects, number + 1));
        }
        memtable.commit(Seq::new(commit as u64));
        flush(&mut memtable, commit, &engine, |_| true);
        memtable.truncate(Seq::new(keep as u64)).unwrap();
        prop_assert_eq!(seen(&memtable, &engine, Reader::Newest), after(&effects, keep));
        let effects = log(&[&steps[..keep], &other].concat());
        for (number, effect) in effects.iter().enumerate().skip(keep) {
            memtable.push(Seq::new(number as u64 + 1), effect.clone()).unwrap();
            prop_assert_eq!(seen(&memtable, &engine, Reader::Newest), after(&effects, number + 1));
        }
        prop_assert_eq!(seen(&memtable, &engine, Reader::Committed), after(&effects, commit));
        flush(&mut memtable, effects.len(), &engine, |_| true);
        prop_assert_eq!(seen(&memtable, &engine, Reader::Committed), after(&effects, effects.len()));
    }

    #[test]
    fn windows_round_trip(
        head in (any::<u64>(), any::<u64>(), 0..u64::MAX / 2),
        outcomes in proptest::collection::vec((0..1_u64 << 40, outcome()), 0..20),
    ) {
        let (created, last, done_below) = head;
        let mut window =
            Window { created: Millis::new(created), last: Millis::new(last), done_below, outcomes: VecDeque::new() };
        outcomes.into_iter().for_each(|(above, outcome)| window.insert(done_below + above, outcome));
        prop_assert_eq!(Window::decode(&window.encode()).unwrap(), window);
    }

    #[test]
    fn decode_rejects_or_round_trips_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
        outcomes in proptest::collection::vec(outcome(), 0..6),
        at: proptest::sample::Index,
        byte: u8,
    ) {
        let record = |number, outcome| Record { client: client(1), number, done_below: 3, outcome };
        let mut window = Window::new(&record(4, Outcome::NotANumber), Millis::new(7));
        (5..).zip(outcomes).for_each(|(number, outcome)| window.record(&record(number, outcome), Millis::new(8)));
        let mut damaged = window.encode().to_vec();
        let length = damaged.len();
        damaged[at.index(length)] = byte;
        for row in [bytes, damaged] {
            if let Ok(window) = Window::decode(&row) {
                prop_assert_eq!(&window.encode()[..], &row[..]);
            }
        }
    }
}

/// The earlier rules: one row per outcome, removed some time after the client confirmed it.
#[derive(Default)]
struct EarlierRules {
    heads: BTreeMap<ClientId, (Millis, Millis, u64)>,
    outcomes: BTreeMap<(ClientId, u64), Outcome>,
    forgotten: Option<Millis>,
}

#[derive(PartialEq, Debug)]
enum Verdict {
    Apply,
    Repeat(Outcome),
    Refuse(ErrorKind),
}

impl EarlierRules {
    fn check(&self, id: &OpId, at: Millis, outcomes_max: u32) -> Verdict {
        let head = self.heads.get(&id.client);
        if let Some(outcome) = self.outcomes.get(&(id.client, id.number)) {
            return Verdict::Repeat(*outcome);
        }
        let below = head.is_some_and(|(_, _, done_below)| id.number < *done_below);
        let proven = head.is_some_and(|(created, ..)| id.stamp >= *created);
        let old = !proven && self.forgotten.is_some_and(|forgotten| id.stamp <= forgotten);
        if below || id.stamp > at || old {
            return Verdict::Refuse(ErrorKind::MaybeApplied);
        }
        let done_below = head.map_or(0, |(_, _, done_below)| *done_below).max(id.done_below);
        let kept = self.outcomes.range((id.client, done_below)..=(id.client, u64::MAX)).count();
        if kept >= outcomes_max as usize { Verdict::Refuse(ErrorKind::Overloaded) } else { Verdict::Apply }
    }

    fn record(&mut self, record: &Record, at: Millis) {
        let (_, last, done_below) = self.heads.entry(record.client).or_insert((at, at, 0));
        (*last, *done_below) = ((*last).max(at), (*done_below).max(record.done_below));
        self.outcomes.insert((record.client, record.number), record.outcome);
    }

    fn forget(&mut self, owner: ClientId) {
        if let Some((_, last, _)) = self.heads.remove(&owner) {
            self.forgotten = self.forgotten.max(Some(last));
            self.outcomes.retain(|(client, _), _| *client != owner);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// The one difference: what the client has confirmed is refused at once, not only after its outcome was removed.
    #[test]
    fn decisions_agree_with_earlier_rules(
        steps in proptest::collection::vec((1..4_u128, 1..12_u64, 0..12_u64, 0..9_u64, 0..10_u8), 1..80),
    ) {
        let limits = DedupLimits { outcomes_max: 4, ..DedupLimits::DEFAULT };
        let (mut former, mut rows) = (EarlierRules::default(), Rows::default());
        for (at, (owner, number, done, ago, kind)) in (10..).zip(steps) {
            let time = Millis::new(at / 2);
            if kind == 0 {
                former.forget(client(owner));
                let effect = dedup::forget(client(owner), None, &rows, time, &limits).unwrap();
                effect.iter().for_each(|effect| rows.apply(effect));
                prop_assert_eq!(forgotten_through(&rows).unwrap(), former.forgotten);
                continue;
            }
            let stamp = Millis::new((at / 2 + 1).saturating_sub(ago));
            let id = OpId { client: client(owner), number, done_below: number.saturating_sub(done), stamp };
            let expected = former.check(&id, time, limits.outcomes_max);
            let found = match dedup::check(&id, &rows, time, &limits).unwrap() {
                Decision::Apply => Verdict::Apply,
                Decision::Repeat(outcome) => Verdict::Repeat(outcome),
                Decision::Refuse(detail) => Verdict::Refuse(detail.kind),
            };
            let confirmed = former.heads.get(&id.client).is_some_and(|(_, _, done_below)| number < *done_below);
            match expected {
                Verdict::Repeat(_) if confirmed => prop_assert_eq!(found, Verdict::Refuse(ErrorKind::MaybeApplied)),
                expected => prop_assert_eq!(&found, &expected),
            }
            if expected_applies(&former, &id, time, &limits) {
                let record = dedup::recorded(&id, Outcome::Written(Revision::new(at)));
                former.record(&record, time);
                rows.apply(&Effect { record: Some(record), ..Effect::new(time, Vec::new()) });
            }
        }
    }
}

fn expected_applies(former: &EarlierRules, id: &OpId, at: Millis, limits: &DedupLimits) -> bool {
    former.check(id, at, limits.outcomes_max) == Verdict::Apply
}

archon_types::shown_by! {
    ForgottenKept => forgotten_window_of_engine_is_gone,
    WindowBegunLater => window_keeps_its_beginning_over_flush,
    WindowOutlivesCut => truncated_operation_is_not_recorded,
}

fn record(number: u64) -> Record {
    Record { client: client(1), number, done_below: 0, outcome: Outcome::NotANumber }
}

/// An entry that records an operation, at log time 10 times its number.
fn recorded(number: u64) -> Effect {
    Effect { record: Some(record(number)), ..Effect::new(Millis::new(10 * number), Vec::new()) }
}

fn forgotten_window_of_engine_is_gone(mutant: Option<Mutant>) -> bool {
    let forget = Effect { forget: vec![client(1)], ..Effect::new(Millis::new(20), Vec::new()) };
    let (effects, engine) = ([recorded(1), forget], MemoryEngine::new());
    let mut memtable = replayed_with(&effects, 0, mutant);
    flush(&mut memtable, 1, &engine, |_| true);
    memtable.flushed(Seq::new(1));
    memtable.commit(Seq::new(2));
    seen(&memtable, &engine, Reader::Committed).is_empty()
}

/// A later beginning would make a stamp from before it count as unproven.
fn window_keeps_its_beginning_over_flush(mutant: Option<Mutant>) -> bool {
    let (effects, engine) = ([recorded(1), recorded(2)], MemoryEngine::new());
    let mut memtable = replayed_with(&effects, 0, mutant);
    flush(&mut memtable, 1, &engine, |_| true);
    memtable.flushed(Seq::new(1));
    memtable.commit(Seq::new(2));
    seen(&memtable, &engine, Reader::Committed)[&client(1)].created == Millis::new(10)
}

/// A leader evaluated over an entry that another leader's log replaces: its operation was not done.
fn truncated_operation_is_not_recorded(mutant: Option<Mutant>) -> bool {
    let (effects, engine) = ([recorded(1), recorded(2)], MemoryEngine::new());
    let mut memtable = replayed_with(&effects, 0, mutant);
    assert!(seen(&memtable, &engine, Reader::Newest)[&client(1)].outcome(2).is_some());
    memtable.truncate(Seq::new(1)).unwrap();
    seen(&memtable, &engine, Reader::Newest)[&client(1)].outcome(2).is_none()
}

#[test]
fn windows_come_between_user_rows_and_position() {
    let engine = MemoryEngine::new();
    let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
    let put = crate::RowChange::set(crate::rows::row::value_key(b"k"), Bytes::from_static(b"v"));
    let record = Record { client: client(1), number: 1, done_below: 1, outcome: Outcome::Deleted(true) };
    let effect = Effect { record: Some(record), ..Effect::new(Millis::new(5), vec![put]) };
    memtable.push(Seq::new(1), effect).unwrap();
    memtable.commit(Seq::new(1));
    let changes: Vec<_> = memtable.freeze().unwrap().changes(&engine, SPACE).map(Result::unwrap).collect();
    let keys: Vec<_> = changes.iter().map(|change| change.key.clone()).collect();
    let at = keys.iter().position(|key| key == POSITION_KEY).unwrap();
    assert_eq!(keys[..2], [crate::rows::row::value_key(b"k"), client_key(client(1))]);
    assert!(at >= 2 && changes.iter().all(|change| change.space == SPACE), "{keys:?}");
}

#[test]
fn malformed_window_is_damage() {
    let engine = MemoryEngine::new();
    let value = Some(Bytes::from_static(b"\x01an earlier head row"));
    for space in [SPACE, OTHER] {
        engine.write(&[Change { space, key: client_key(client(1)), value: value.clone() }]).unwrap();
    }
    let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
    let view = PartitionView::new(&memtable, &engine, SPACE, Reader::Newest);
    assert!(view.window(client(1)).unwrap_err().is_damage());
    let record = Record { client: client(1), number: 1, done_below: 1, outcome: Outcome::NotANumber };
    memtable.push(Seq::new(1), Effect { record: Some(record), ..Effect::new(Millis::new(5), vec![]) }).unwrap();
    memtable.commit(Seq::new(1));
    let last = memtable.freeze().unwrap().changes(&engine, OTHER).last().unwrap();
    assert!(last.unwrap_err().is_damage(), "nothing comes after it");
}

/// All of a partition's windows may have 80 MiB together.
#[test]
fn flush_joins_one_window_at_a_time() {
    let engine = MemoryEngine::new();
    let malformed = Change { space: SPACE, key: client_key(client(2)), value: Some(Bytes::from_static(b"?")) };
    engine.write(&[malformed]).unwrap();
    let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
    for owner in 1..=3 {
        let record = Record { client: client(u128::from(owner)), ..record(owner) };
        let effect = Effect { record: Some(record), ..Effect::new(Millis::new(5), Vec::new()) };
        memtable.push(Seq::new(owner), effect).unwrap();
    }
    memtable.commit(Seq::new(3));
    let mut changes = memtable.freeze().unwrap().changes(&engine, SPACE);
    assert_eq!(changes.next().unwrap().unwrap().key, client_key(client(1)), "the second window is not read yet");
    assert!(changes.next().unwrap().unwrap_err().is_damage());
    assert!(changes.next().is_none(), "neither the third window nor the position row");
}

#[test]
fn window_drops_capacity_after_burst() {
    let record = |number, done_below| Record { client: client(1), number, done_below, outcome: Outcome::NotANumber };
    let mut window = Window::new(&record(1, 0), Millis::new(1));
    (2..=4_096).for_each(|number| window.record(&record(number, 0), Millis::new(1)));
    assert_eq!(window.outcomes_from(4_000), 97);
    window.record(&record(4_097, 4_097), Millis::new(2));
    assert_eq!((window.outcomes.len(), window.outcome(4_096)), (1, None));
    assert!(window.outcomes.capacity() <= 4 * OUTCOMES_KEPT, "{}", window.outcomes.capacity());
    assert_eq!(window.bytes(), window.outcomes.capacity() * OUTCOME_BYTES, "what is kept is charged");
}
