//! Tests of grants, and of the rules that mutants disable.

use super::*;
use crate::heartbeat::Heartbeat;
use archon_types::{Incarnation, NodeId, TableId};
use proptest::prelude::*;

const NODE: NodeId = NodeId::new(2);
const LIFE: Incarnation = Incarnation::new(3);
const LEASE_MS: u64 = 1_000;

fn partition(index: u32) -> PartitionId {
    PartitionId::new(TableId::new(1), index)
}

fn at(ms: u64) -> Millis {
    Millis::new(ms)
}

/// The heartbeats and grants of one incarnation.
struct TestBed {
    heartbeats: Heartbeats,
    grants: Grants,
}

impl TestBed {
    fn new(mutant: Option<Mutant>) -> Self {
        Self { heartbeats: Heartbeats::new(NODE, LIFE), grants: Grants::new(DisabledRule::by(mutant)) }
    }

    fn send(&mut self, now: u64) -> Heartbeat {
        self.heartbeats.send(at(now))
    }

    fn take(&mut self, answer: LeaseAnswer, now: u64) -> GrantOutcome {
        self.grants.take(&self.heartbeats, answer, at(now))
    }

    fn covers(&self, epoch: u64, now: u64) -> bool {
        self.grants.covers(partition(1), Epoch::new(epoch), at(now))
    }
}

fn answer(heartbeat: Heartbeat) -> LeaseAnswer {
    heartbeat.answer(LEASE_MS, vec![])
}

/// Returns an answer that withdraws the leadership of partition 1 in epoch 4.
fn withdrawing(heartbeat: Heartbeat) -> LeaseAnswer {
    heartbeat.answer(LEASE_MS, vec![(partition(1), Epoch::new(4))])
}

fn granted(lapsed_ms: u64, withdrawn: Vec<(PartitionId, Epoch)>) -> GrantOutcome {
    GrantOutcome::Granted { lapsed_ms, withdrawn }
}

#[test]
fn lease_starts_at_sending_and_expires() {
    let mut bed = TestBed::new(None);
    assert!(!bed.grants.is_valid(at(0)));
    let heartbeat = bed.send(100);
    assert_eq!(bed.take(answer(heartbeat), 120), granted(0, vec![]));
    assert!(bed.grants.is_valid(at(1_099)));
    assert!(!bed.grants.is_valid(at(1_100)));
    let late = bed.send(1_200);
    assert_eq!(bed.take(answer(late), 1_300), granted(200, vec![]));
}

#[test]
fn answer_to_foreign_heartbeat_grants_nothing() {
    let mut bed = TestBed::new(None);
    let heartbeat = bed.send(100);
    let unsent = LeaseAnswer { number: 2, ..answer(heartbeat) };
    let zero = LeaseAnswer { number: 0, ..answer(heartbeat) };
    let life = LeaseAnswer { incarnation: Incarnation::new(2), ..answer(heartbeat) };
    let node = LeaseAnswer { node: NodeId::new(9), ..answer(heartbeat) };
    for foreign in [unsent, zero, life, node] {
        assert_eq!(bed.take(foreign.clone(), 120), GrantOutcome::Foreign, "{foreign:?}");
    }
    assert_eq!(bed.grants.until(), None);
}

#[test]
fn only_last_sixteen_heartbeats_are_remembered() {
    let mut bed = TestBed::new(None);
    let sent: Vec<Heartbeat> = (0..17).map(|count| bed.send(100 * count)).collect();
    assert_eq!(bed.take(answer(sent[0]), 1_700), GrantOutcome::Foreign, "its place is another one's by now");
    assert_eq!(bed.take(answer(sent[1]), 1_700), granted(0, vec![]));
    assert_eq!(bed.grants.until(), Some(at(1_100)));
    assert_eq!(bed.take(answer(sent[16]), 1_700), granted(600, vec![]));
    assert_eq!(bed.grants.until(), Some(at(2_600)));
}

fn lease_ends_its_duration_after_sending(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::new(mutant);
    let heartbeat = bed.send(100);
    bed.take(answer(heartbeat), 900);
    !bed.grants.is_valid(at(1_100))
}

fn withdrawn_leadership_is_not_covered(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::new(mutant);
    let heartbeat = bed.send(100);
    bed.take(withdrawing(heartbeat), 100);
    !bed.covers(4, 200)
}

fn lease_starts_when_the_answered_heartbeat_was_sent(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::new(mutant);
    let first = bed.send(100);
    bed.send(300);
    bed.take(answer(first), 310);
    bed.grants.until() == Some(at(1_100))
}

fn answer_to_former_incarnation_grants_nothing(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::new(mutant);
    let former = Heartbeats::new(NODE, Incarnation::new(2)).send(at(50));
    bed.send(100);
    bed.take(answer(former), 120);
    bed.grants.until().is_none()
}

fn older_answer_does_not_restore_withdrawn_leadership(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::new(mutant);
    let (first, second) = (bed.send(50), bed.send(100));
    bed.take(withdrawing(second), 110);
    bed.take(answer(first), 120);
    !bed.covers(4, 200)
}

fn over(node: NodeId, incarnation: u64) -> FencingProof {
    FencingProof { node, incarnation: Incarnation::new(incarnation), version: archon_types::Version::new(99) }
}

/// A node that registered again receives a late notice for its former incarnation, or one for another node.
fn fencing_notice_for_another_incarnation_is_ignored(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::new(mutant);
    let beat = bed.send(100);
    bed.take(answer(beat), 110);
    let others = [over(NODE, LIFE.get() - 1), over(NODE, LIFE.get() + 1), over(NodeId::new(9), LIFE.get())];
    let ended = others.map(|over| bed.grants.told_over(NODE, LIFE, over));
    ended == [false; 3] && bed.covers(4, 200)
}

archon_types::shown_by! {
    LeaseFromReceipt => lease_ends_its_duration_after_sending,
    NodeWideLease => withdrawn_leadership_is_not_covered,
    AnswerForLatest => lease_starts_when_the_answered_heartbeat_was_sent,
    LifeNotNamed => answer_to_former_incarnation_grants_nothing,
    OlderAnswerTaken => older_answer_does_not_restore_withdrawn_leadership,
    OverWithoutLife => fencing_notice_for_another_incarnation_is_ignored,
}

#[test]
fn withdrawal_affects_only_its_leadership() {
    let mut bed = TestBed::new(None);
    let (first, second) = (bed.send(50), bed.send(100));
    assert_eq!(bed.take(withdrawing(second), 110), granted(0, vec![(partition(1), Epoch::new(4))]));
    assert_eq!(bed.take(answer(first), 120), GrantOutcome::Overtaken);
    assert_eq!(bed.take(answer(second), 130), GrantOutcome::Overtaken, "the same one once more");
    assert!(!bed.covers(4, 200) && bed.covers(5, 200));
    assert!(bed.grants.covers(partition(2), Epoch::new(4), at(200)));
}

#[test]
fn answers_after_the_end_are_ignored() {
    let mut bed = TestBed::new(None);
    let (first, second) = (bed.send(100), bed.send(100));
    assert_eq!(bed.take(answer(first), 100), granted(0, vec![]));
    bed.grants.end();
    assert_eq!(bed.take(answer(second), 100), GrantOutcome::Overtaken);
    assert!(!bed.grants.is_valid(at(101)));
}

proptest! {
    /// Answers arrive in any order, repeatedly, late or never, also to heartbeats that were never sent: the lease is
    /// that of the newest heartbeat whose answer came while it was remembered, and covers what that answer says.
    #[test]
    fn newest_heartbeat_counts_in_any_order_of_answers(
        story in prop::collection::vec(prop_oneof![Just(None), (0_u64..40, any::<bool>()).prop_map(Some)], 1..120),
    ) {
        let mut bed = TestBed::new(None);
        let (mut sent, mut now, mut newest) = (Vec::new(), 0, (0, 0, false));
        for step in story {
            now += 30;
            let Some((number, withdraws)) = step else {
                bed.send(now);
                sent.push(now);
                continue;
            };
            let count = sent.len() as u64;
            let remembered = (1..=count).contains(&number) && count - number < 16;
            let news = remembered && number > newest.0;
            let withdrawn = if withdraws { vec![(partition(1), Epoch::new(4))] } else { vec![] };
            let answer = LeaseAnswer { node: NODE, incarnation: LIFE, number, lease_ms: LEASE_MS, withdrawn };
            let taken = bed.take(answer, now);
            prop_assert_eq!(matches!(taken, GrantOutcome::Granted { .. }), news);
            prop_assert_eq!(taken == GrantOutcome::Foreign, !remembered);
            if news {
                newest = (number, sent[number as usize - 1] + LEASE_MS, withdraws);
            }
            let (number, until, withdraws) = newest;
            prop_assert_eq!(bed.grants.until(), (number > 0).then_some(at(until)));
            prop_assert_eq!(bed.covers(4, now), now < until && !withdraws);
        }
    }
}

#[test]
fn fencing_notice_ends_lease_for_good() {
    let mut bed = TestBed::new(None);
    let (first, second) = (bed.send(100), bed.send(300));
    bed.take(answer(first), 110);
    assert!(bed.covers(4, 310));
    assert!(bed.grants.told_over(NODE, LIFE, over(NODE, LIFE.get())));
    assert!(!bed.grants.is_valid(at(310)) && bed.grants.until().is_none());
    assert_eq!(bed.take(answer(second), 320), GrantOutcome::Overtaken, "an answer that was on its way");
    assert!(!bed.covers(4, 330));
    assert!(!bed.grants.told_over(NODE, LIFE, over(NODE, LIFE.get())), "the second to say so ends nothing");
}
