//! Exactly-once across splits and merges (PROTOCOL rules 42, 50 and 51): user rows move to the other partition and
//! back, client records stay.

use super::*;
use crate::operations::evaluate::{Evaluation, Request, evaluate_elsewhere, evaluate_merged};
use crate::operations::log_time::LogTime;
use crate::ranges::merge_record::MergeRecord;
use crate::ranges::reshape;
use crate::rows::plain::Rows;
use crate::rows::row::{KIND_VALUE, MERGED_KEY};
use archon_types::{Answer, KeyRange, Op, Revision, Seq, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use uuid::Uuid;

archon_types::shown_by! {
    RecordTrusted => record_does_not_cover_redirected_operation_after_merge,
}

/// Keys from here on are given away and come back.
const FROM: Bytes = Bytes::from_static(b"m");

fn id(number: u64, stamp: u64) -> OpId {
    OpId { client: ClientId::new(Uuid::from_u128(1)), number, done_below: 0, stamp: Millis::new(stamp) }
}

fn increment(key: &str) -> Op {
    Op::Increment { key: Bytes::copy_from_slice(key.as_bytes()), by: 1 }
}

/// A partition as its leader has it.
#[derive(Default)]
struct Side {
    rows: Rows,
    seq: u64,
    time: LogTime,
    limits: DedupLimits,
}

impl Side {
    fn new(mutant: Option<Mutant>) -> Self {
        Self { limits: DedupLimits { mutant, ..DedupLimits::DEFAULT }, ..Self::default() }
    }

    fn note(&mut self, effect: &Effect) {
        self.seq += 1;
        self.rows.apply(effect);
    }

    fn merged(&self) -> Option<MergeRecord> {
        MergeRecord::current(&self.rows).unwrap()
    }

    /// Returns the revision of the next write.
    fn revision(&self) -> Revision {
        MergeRecord::revision(self.merged().as_ref(), Seq::new(self.seq + 1))
    }

    fn log_time(&self) -> Millis {
        self.time.clone().stamp(Millis::ZERO)
    }

    /// Runs an operation on a key that the partition has.
    fn run(&mut self, op: &Op, id: &OpId, now: u64) -> Evaluation {
        let (at, merged) = (self.time.stamp(Millis::new(now)), self.merged());
        let asked = Request { op, id: Some(id) };
        let done = evaluate_merged(asked, merged.as_ref(), &self.rows, at, self.revision(), &self.limits).unwrap();
        if let Some(effect) = &done.effect {
            self.note(effect);
        }
        done
    }

    /// Runs an operation on a key that the partition has given away.
    fn run_elsewhere(&mut self, op: &Op, id: &OpId, now: u64) -> Evaluation {
        let at = self.time.stamp(Millis::new(now));
        evaluate_elsewhere(Request { op, id: Some(id) }, &self.rows, at, &self.limits).unwrap()
    }

    fn keys_given(&self) -> Vec<RowChange> {
        let given = self.rows.0.iter().filter(|(key, _)| key[0] == KIND_VALUE && key[1..] >= FROM[..]);
        given.map(|(key, value)| RowChange::set(key.clone(), value.clone())).collect()
    }

    /// Splits keys off: user rows, the last merge, position and log time, and no client records.
    fn split_off(&mut self, now: u64) -> Self {
        let mut right = Self { seq: self.seq, time: self.time, limits: self.limits, ..Self::default() };
        let merged = self.merged().map(|merged| RowChange::set(Bytes::from_static(MERGED_KEY), merged.encode()));
        right.rows.apply(&Effect::new(Millis::ZERO, self.keys_given().into_iter().chain(merged).collect()));
        let at = self.time.stamp(Millis::new(now));
        let range = KeyRange { begin: FROM, end: None };
        self.note(&reshape::clear(at, range, Version::new(self.seq)));
        right
    }

    /// Merges the keys back in, with their revisions.
    fn absorb(&mut self, right: &Self, now: u64) {
        let at = self.time.stamp(Millis::new(now));
        self.note(&Effect::new(at, right.keys_given()));
        let (before, seq) = (self.merged(), Seq::new(self.seq + 1));
        let last = MergeRecord::revision(right.merged().as_ref(), Seq::new(right.seq));
        let merged = MergeRecord::next(before.as_ref(), Version::new(self.seq), FROM, last, seq, at);
        self.time.observe(merged.through.plus(1));
        let at = self.time.stamp(Millis::new(now));
        self.note(&reshape::absorbed(at, &merged));
    }
}

fn refused(done: &Evaluation) -> Option<ErrorKind> {
    done.answer.as_ref().err().map(|error| error.kind)
}

fn counted(done: &Evaluation) -> Option<i64> {
    match &done.answer {
        Ok(Answer::Counter { value, .. }) => Some(*value),
        _ => None,
    }
}

/// A partition that counted `z` once and was split; its client continues at the right part as redirected. Merged again
/// at 30.
fn merged_again(mutant: Option<Mutant>, meanwhile: impl Fn(&mut Side, &mut Side)) -> Side {
    let mut left = Side::new(mutant);
    assert_eq!(counted(&left.run(&increment("z"), &id(1, 0), 10)), Some(1));
    let mut right = left.split_off(20);
    meanwhile(&mut left, &mut right);
    left.absorb(&right, 30);
    left
}

/// The client gets `Moved` for its second operation, and has the right partition do it under another name.
fn sent_on(left: &mut Side, right: &mut Side) {
    assert_eq!(refused(&left.run_elsewhere(&increment("z"), &id(2, 10), 21)), Some(ErrorKind::Moved));
    assert_eq!(counted(&right.run(&increment("z"), &id(1, 0), 22)), Some(2));
}

fn record_does_not_cover_redirected_operation_after_merge(mutant: Option<Mutant>) -> bool {
    // The record was begun at 10, so it would contain any operation done here since under a stamp of 10; there is none.
    let mut left = merged_again(mutant, sent_on);
    refused(&left.run(&increment("z"), &id(2, 10), 40)) == Some(ErrorKind::MaybeApplied)
}

#[test]
fn late_duplicate_without_record_is_refused_after_merge() {
    let mut left = Side::new(None);
    let mut right = left.split_off(20);
    assert_eq!(refused(&left.run_elsewhere(&increment("z"), &id(1, 0), 21)), Some(ErrorKind::Moved));
    assert_eq!(counted(&right.run(&increment("z"), &id(1, 0), 22)), Some(1));
    left.absorb(&right, 30);
    assert_eq!(refused(&left.run(&increment("z"), &id(1, 0), 40)), Some(ErrorKind::MaybeApplied));
}

#[test]
fn operation_from_before_split_is_answered_after_merge() {
    let mut left = merged_again(None, sent_on);
    assert_eq!(counted(&left.run(&increment("z"), &id(1, 0), 40)), Some(1), "it is recorded, and answered as it was");
}

#[test]
fn records_of_merged_partition_are_not_taken_over() {
    // Both partitions have done the client's first operation there: two operations of one name.
    let mut left = merged_again(None, sent_on);
    let again = left.run(&increment("z"), &id(1, 0), 40);
    assert_eq!((counted(&again), again.effect), (Some(1), None));
    let outcomes: Vec<_> = left.rows.1.values().map(|window| window.outcomes_from(0)).collect();
    assert_eq!(outcomes, [1], "one client, and one outcome: no record came along");
}

#[test]
fn first_attempt_with_newer_stamp_is_accepted_after_merge() {
    let mut left = merged_again(None, sent_on);
    let refusal = left.run(&increment("z"), &id(3, 10), 30);
    assert_eq!(refused(&refusal), Some(ErrorKind::MaybeApplied));
    // Within the same millisecond the client gets a later time to stamp its first attempt with.
    let stamp = left.log_time();
    assert!(stamp > left.merged().unwrap().through, "{stamp}");
    assert_eq!(counted(&left.run(&increment("z"), &id(3, stamp.get()), 30)), Some(3));
    assert_eq!(counted(&left.run(&increment("z"), &id(3, stamp.get()), 50)), Some(3), "and once only");
}

#[test]
fn write_of_key_that_never_moved_is_accepted_after_merge() {
    let mut left = merged_again(None, |_, _| {});
    assert_eq!(counted(&left.run(&increment("a"), &id(2, 10), 40)), Some(1));
}

#[test]
fn second_merge_keeps_redirects_from_before_first() {
    let mut left = merged_again(None, sent_on);
    let right = left.split_off(50);
    assert_eq!(right.merged(), left.merged(), "what is split off keeps to it as well");
    left.absorb(&right, 60);
    for stamp in [10, 45, 60] {
        assert_eq!(refused(&left.run(&increment("z"), &id(2, stamp), 70)), Some(ErrorKind::MaybeApplied), "{stamp}");
    }
    assert_eq!(counted(&left.run(&increment("z"), &id(4, 61), 70)), Some(3));
}

#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Pass(u64),
    /// A client begins an operation, at the partition that has the key or, by an old table, at the left one.
    Begin { client: u128, stale: bool },
    /// A message sent earlier arrives, perhaps again, late and out of order; its client may or may not get the answer.
    Deliver { which: usize, answered: bool },
    /// Keys are given away, or come back.
    Reshape,
    /// The left partition forgets a client.
    Forget(u128),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_u64).prop_map(Step::Pass),
        4 => (1..3_u128, any::<bool>()).prop_map(|(client, stale)| Step::Begin { client, stale }),
        10 => (any::<usize>(), any::<bool>()).prop_map(|(which, answered)| Step::Deliver { which, answered }),
        2 => Just(Step::Reshape),
        1 => (1..3_u128).prop_map(Step::Forget),
    ]
}

/// An attempt under a name, which may arrive any number of times.
#[derive(Clone, Copy)]
struct Message {
    /// Number of the right partition that it is for; none for the left one.
    right: Option<usize>,
    id: OpId,
    operation: usize,
}

/// A client's operation: each counts at a key of its own.
struct Operation {
    client: u128,
    /// The last message about it, while its client waits.
    waits: Option<usize>,
}

/// Two partitions that exchange keys, and clients that follow the rules.
struct Scene {
    left: Side,
    right: Option<Side>,
    rights: usize,
    now: u64,
    sent: Vec<Message>,
    operations: Vec<Operation>,
    /// Operation numbers per client and partition.
    numbers: BTreeMap<(u128, Option<usize>), u64>,
}

impl Scene {
    fn new(mutant: Option<Mutant>) -> Self {
        let (right, rights, now) = (None, 0, 1);
        let (sent, operations, numbers) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { left: Side::new(mutant), right, rights, now, sent, operations, numbers }
    }

    /// Returns the number of the present right partition.
    fn present(&self) -> Option<usize> {
        self.right.as_ref().map(|_| self.rights)
    }

    fn send(&mut self, operation: usize, at: Option<usize>) {
        let client = self.operations[operation].client;
        let number = self.numbers.entry((client, at)).or_insert(0);
        *number += 1;
        let side = if at.is_some() { self.right.as_ref() } else { Some(&self.left) };
        let stamp = side.map_or(Millis::ZERO, Side::log_time);
        let id = OpId { client: ClientId::new(Uuid::from_u128(client)), number: *number, done_below: 0, stamp };
        self.operations[operation].waits = Some(self.sent.len());
        self.sent.push(Message { right: at, id, operation });
    }

    fn deliver(&mut self, which: usize, answered: bool) -> Result<(), String> {
        let Message { right, id, operation } = self.sent[which];
        let op = increment(&format!("m{operation}"));
        let now = self.now;
        let done = match (right, &mut self.right) {
            (None, None) => self.left.run(&op, &id, now),
            (None, Some(_)) => self.left.run_elsewhere(&op, &id, now),
            (Some(at), Some(side)) if at == self.rights => side.run(&op, &id, now),
            (Some(_), _) => return Ok(()),
        };
        if counted(&done).is_some_and(|value| value != 1) {
            return Err(format!("operation {operation} was done twice, the second time as {id:?}"));
        }
        if self.operations[operation].waits != Some(which) || !answered {
            return Ok(());
        }
        match refused(&done) {
            // Neither done under this name nor ever will be: the client retries at the partition that has the key.
            Some(ErrorKind::Moved) => self.send(operation, self.present()),
            Some(ErrorKind::MaybeApplied) if self.may_be_refused(right, &id) => self.operations[operation].waits = None,
            None => self.operations[operation].waits = None,
            Some(kind) => return Err(format!("a fresh operation {id:?} was refused: {kind:?}")),
        }
        Ok(())
    }

    /// Returns whether a client was forgotten since a name was stamped, or keys came back.
    fn may_be_refused(&self, right: Option<usize>, id: &OpId) -> bool {
        let side = if right.is_some() { self.right.as_ref() } else { Some(&self.left) };
        let until = side.map_or(Millis::ZERO, |side| {
            let through = side.merged().map_or(Millis::ZERO, |merged| merged.through);
            through.max(forgotten_through(&side.rows).unwrap().unwrap_or_default())
        });
        id.stamp <= until
    }

    fn reshape(&mut self) {
        let Some(right) = self.right.take() else {
            self.rights += 1;
            self.right = Some(self.left.split_off(self.now));
            return;
        };
        self.left.absorb(&right, self.now);
        // Open operations there may have been done: their clients do not retry.
        for operation in &mut self.operations {
            operation.waits = operation.waits.filter(|sent| self.sent[*sent].right.is_none());
        }
    }
}

fn play(steps: &[Step], mutant: Option<Mutant>) -> Result<(), String> {
    let mut scene = Scene::new(mutant);
    for step in steps {
        match step {
            Step::Pass(by) => scene.now += by,
            Step::Begin { client, stale } => {
                scene.operations.push(Operation { client: *client, waits: None });
                let at = scene.present().filter(|_| !stale);
                scene.send(scene.operations.len() - 1, at);
            }
            Step::Deliver { .. } if scene.sent.is_empty() => {}
            Step::Deliver { which, answered } => scene.deliver(which % scene.sent.len(), *answered)?,
            Step::Reshape => scene.reshape(),
            Step::Forget(client) => {
                let client = ClientId::new(Uuid::from_u128(*client));
                let at = scene.left.time.stamp(Millis::new(scene.now));
                if let Some(effect) = forget(client, None, &scene.left.rows, at, &scene.left.limits).unwrap() {
                    scene.left.note(&effect);
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn operation_applies_once_while_its_key_moves(steps in proptest::collection::vec(step(), 1..120)) {
        prop_assert_eq!(play(&steps, None), Ok(()));
    }
}
