use super::*;
use archon_types::Version;
use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Beat(u64, u64, u64);

impl RelayedHeartbeat for Beat {
    fn node(&self) -> NodeId {
        NodeId::new(self.0)
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation::new(self.1)
    }

    fn number(&self) -> u64 {
        self.2
    }
}

/// Limit of carried members, and fenced incarnations.
struct FixedRows(usize, Vec<FencingProof>);

impl Rows for FixedRows {
    fn members_max(&self) -> usize {
        self.0
    }

    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<FencingProof> {
        self.1.iter().find(|over| (over.node, over.incarnation) == (node, incarnation)).copied()
    }
}

const MANY: FixedRows = FixedRows(100, Vec::new());

fn over(node: u64, incarnation: u64) -> FencingProof {
    FencingProof { node: NodeId::new(node), incarnation: Incarnation::new(incarnation), version: Version::new(81) }
}

fn at(ms: u64) -> Millis {
    Millis::new(10_000 + ms)
}

fn from(stream: u64, frame: u64) -> ReturnAddress {
    ReturnAddress { stream, frame }
}

fn relay() -> Relay<Beat> {
    Relay::new(LeaseTiming::default(), at(0))
}

/// Returns the batch, which must be the only effect.
#[track_caller]
fn batch(effects: &[RelayEffect<Beat>], to: BatchRecipients) -> (u64, Vec<Beat>) {
    let [RelayEffect::Depart { batch, beats, towards }] = effects else { panic!("{effects:?}") };
    assert_eq!(*towards, to);
    (*batch, beats.clone())
}

fn answer(beat: Beat) -> (NodeId, Incarnation, u64) {
    (beat.node(), beat.incarnation(), beat.number())
}

#[test]
fn heartbeats_leave_with_the_batch_or_within_10_ms() {
    let mut relay = relay();
    assert_eq!(relay.next_departure_ms(at(150)), 50);
    assert_eq!(relay.heard(from(1, 1), Beat(1, 1, 1), &MANY, at(191)), RelayOutcome::Leaves);
    assert_eq!(relay.heard(from(2, 1), Beat(2, 1, 1), &MANY, at(199)), RelayOutcome::Leaves);
    assert_eq!(relay.wake_at(), at(200));
    let (first, beats) = batch(&relay.due(at(200)), BatchRecipients::Leader);
    assert_eq!(beats, [Beat(1, 1, 1), Beat(2, 1, 1)]);
    relay.answered(first, beats.into_iter().map(answer));
    relay.heard(from(3, 1), Beat(3, 1, 1), &MANY, at(250));
    relay.heard(from(4, 1), Beat(4, 1, 1), &MANY, at(257));
    assert_eq!(relay.wake_at(), at(260));
    assert_eq!(batch(&relay.due(at(260)), BatchRecipients::Leader).1, [Beat(3, 1, 1), Beat(4, 1, 1)]);
    assert_eq!((relay.due(at(261)), relay.next_departure_ms(at(261))), (vec![], 139));
}

#[test]
fn answer_goes_only_to_the_incarnation_it_names() {
    let mut relay = relay();
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(195));
    relay.heard(from(2, 9), Beat(2, 5, 3), &MANY, at(195));
    let (number, _) = batch(&relay.due(at(200)), BatchRecipients::Leader);
    let answers = [Beat(2, 5, 3), Beat(1, 4, 3), Beat(3, 5, 3), Beat(1, 5, 3), Beat(1, 5, 2)];
    let routed = relay.answered(number, answers.map(answer));
    assert_eq!(routed, [Some(from(2, 9)), None, None, Some(from(1, 7)), Some(from(1, 7))]);
}

#[test]
fn old_heartbeat_is_not_passed_on_after_a_newer_one() {
    let mut relay = relay();
    assert_eq!(relay.heard(from(1, 2), Beat(1, 5, 2), &MANY, at(100)), RelayOutcome::Leaves);
    for old in [Beat(1, 5, 2), Beat(1, 5, 1), Beat(1, 4, 9)] {
        assert_eq!(relay.heard(from(2, 1), old, &MANY, at(101)), RelayOutcome::Old);
    }
    // It was not sent within an interval, because the relay was delayed.
    assert_eq!(relay.due(at(301)), []);
    assert_eq!(relay.heard(from(1, 2), Beat(1, 5, 2), &MANY, at(302)), RelayOutcome::Old, "nor is it taken again");
    assert_eq!(relay.heard(from(3, 1), Beat(1, 6, 1), &MANY, at(303)), RelayOutcome::Leaves, "another life is");
}

#[test]
fn members_learn_of_silent_coordinator_before_time_out() {
    let mut relay = relay();
    relay.heard(from(1, 1), Beat(1, 1, 1), &MANY, at(195));
    batch(&relay.due(at(200)), BatchRecipients::Leader);
    assert_eq!(relay.wake_at(), at(250));
    let effects = relay.due(at(250));
    assert_eq!(effects.last(), Some(&RelayEffect::NoCoordinator(from(1, 1))));
    assert_eq!(batch(&effects[..1], BatchRecipients::Everybody).1, [Beat(1, 1, 1)]);
    assert_eq!(relay.silent_since(), Some(at(250)));
    // A heartbeat that arrives now is answered at once, and kept for the next leader.
    assert_eq!(relay.heard(from(2, 1), Beat(2, 1, 1), &MANY, at(260)), RelayOutcome::Waits);
    assert_eq!(relay.wake_at(), at(280));
    let (number, beats) = batch(&relay.due(at(280)), BatchRecipients::Everybody);
    assert_eq!(beats, [Beat(1, 1, 1), Beat(2, 1, 1)]);
    let routed = relay.answered(number, beats.into_iter().map(answer));
    assert_eq!((routed, relay.silent_since()), (vec![Some(from(1, 1)), Some(from(2, 1))], None));
    assert_eq!(relay.heard(from(2, 2), Beat(2, 1, 2), &MANY, at(300)), RelayOutcome::Leaves);
}

#[test]
fn refusal_by_follower_asks_all_coordinators_at_once() {
    let mut relay = relay();
    relay.heard(from(1, 1), Beat(1, 1, 1), &MANY, at(195));
    let (number, _) = batch(&relay.due(at(200)), BatchRecipients::Leader);
    assert_eq!(relay.refused(number - 1, at(201)), [], "an earlier batch's refusal says nothing of this one");
    assert_eq!(relay.refused(number, at(202)).len(), 2);
    assert_eq!(relay.refused(number, at(203)), [], "all are asked already");
}

#[test]
fn answer_to_earlier_batch_does_not_cover_the_last_one() {
    let mut relay = relay();
    relay.heard(from(1, 1), Beat(1, 1, 1), &MANY, at(100));
    let (first, _) = batch(&relay.due(at(110)), BatchRecipients::Leader);
    relay.heard(from(2, 1), Beat(2, 1, 1), &MANY, at(120));
    batch(&relay.due(at(130)), BatchRecipients::Leader);
    relay.answered(first, [answer(Beat(1, 1, 1))]);
    assert_eq!(relay.wake_at(), at(180));
    assert_eq!(relay.due(at(180)).last(), Some(&RelayEffect::NoCoordinator(from(2, 1))));
}

#[test]
fn relay_limits_members_and_forgets_departed_ones() {
    let mut relay = relay();
    for member in 1..=3 {
        let took = relay.heard(from(member, 1), Beat(member, 1, 1), &FixedRows(2, vec![]), at(1));
        assert_eq!(took, if member < 3 { RelayOutcome::Leaves } else { RelayOutcome::Busy });
    }
    assert_eq!(
        relay.heard(from(1, 2), Beat(1, 1, 2), &FixedRows(2, vec![]), at(2)),
        RelayOutcome::Leaves,
        "whoever is carried stays"
    );
    relay.ended(1);
    assert_eq!(relay.heard(from(3, 1), Beat(3, 1, 1), &FixedRows(2, vec![]), at(3)), RelayOutcome::Leaves);
    relay.due(at(2_500));
    assert_eq!(relay.carries(), 0, "nobody was heard for long");
}

#[test]
fn silent_member_is_notified_when_its_fencing_row_arrives() {
    let mut relay = relay();
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(1));
    relay.heard(from(2, 9), Beat(2, 6, 3), &MANY, at(1));
    // Batches leave on time, and the member is silent for the failure time-out.
    (0..8).for_each(|batch| drop(relay.due(at(200 * batch))));
    let rows = FixedRows(100, vec![over(1, 5), over(2, 5)]);
    assert_eq!(relay.rows_changed(&rows), [RelayEffect::Over(from(1, 7), over(1, 5))]);
    assert_eq!((relay.carries(), relay.rows_changed(&rows)), (1, vec![]), "once");
    assert_eq!(relay.answered(1, [answer(Beat(1, 5, 3))]), [None], "nor is an answer brought back to it");
}

#[test]
fn fenced_incarnation_is_notified_and_not_carried() {
    let mut relay = relay();
    let rows = FixedRows(100, vec![over(1, 5)]);
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(191));
    assert_eq!(relay.heard(from(1, 8), Beat(1, 5, 4), &rows, at(192)), RelayOutcome::Over(over(1, 5)));
    assert_eq!((relay.carries(), relay.due(at(200))), (0, vec![]));
    assert_eq!(relay.heard(from(2, 1), Beat(1, 6, 1), &rows, at(201)), RelayOutcome::Leaves, "another life of it is");
    assert_eq!(relay.heard(from(1, 9), Beat(1, 5, 5), &rows, at(202)), RelayOutcome::Over(over(1, 5)));
    assert_eq!(
        batch(&relay.due(at(211)), BatchRecipients::Leader).1,
        [Beat(1, 6, 1)],
        "which its former one does not end"
    );
}

fn broken(mutant: Option<Mutant>) -> Relay<Beat> {
    relay().broken_by(DisabledRule::by(mutant))
}

/// Returns the heartbeats of all sent batches.
fn departed(effects: &[RelayEffect<Beat>]) -> Vec<Beat> {
    let beats = effects.iter().filter_map(|effect| match effect {
        RelayEffect::Depart { beats, .. } => Some(beats.clone()),
        RelayEffect::NoCoordinator(_) | RelayEffect::Over(..) => None,
    });
    beats.flatten().collect()
}

fn answer_to_former_incarnation_is_dropped(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(195));
    relay.due(at(200));
    relay.answered(1, [answer(Beat(1, 4, 3))]) == [None]
}

/// The member died, and no coordinator answers for long.
fn last_heartbeat_does_not_keep_dead_member_alive(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    relay.heard(from(1, 1), Beat(1, 5, 3), &MANY, at(195));
    let left = (200..2_000).flat_map(|ms| departed(&relay.due(at(ms))).into_iter().map(move |_| ms));
    left.last().is_some_and(|last| last <= 395)
}

fn overtaken_heartbeat_does_not_replace_newer_one(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    relay.heard(from(1, 2), Beat(1, 5, 2), &MANY, at(191));
    relay.heard(from(1, 1), Beat(1, 5, 1), &MANY, at(192));
    departed(&relay.due(at(200))) == [Beat(1, 5, 2)]
}

/// Sends a batch that gets no answer.
fn unanswered(mutant: Option<Mutant>) -> (Relay<Beat>, Vec<RelayEffect<Beat>>) {
    let mut relay = broken(mutant);
    relay.heard(from(1, 1), Beat(1, 5, 3), &MANY, at(195));
    relay.due(at(200));
    let effects = relay.due(at(250));
    (relay, effects)
}

fn member_is_notified_that_no_coordinator_answers(mutant: Option<Mutant>) -> bool {
    unanswered(mutant).1.contains(&RelayEffect::NoCoordinator(from(1, 1)))
}

fn next_leader_gets_kept_heartbeats(mutant: Option<Mutant>) -> bool {
    departed(&unanswered(mutant).0.due(at(280))) == [Beat(1, 5, 3)]
}

fn fenced_member_is_notified_at_once(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(1));
    relay.rows_changed(&FixedRows(100, vec![over(1, 5)])) == [RelayEffect::Over(from(1, 7), over(1, 5))]
}

/// Members below ten are nodes.
struct OneNode;

impl Rows for OneNode {
    fn members_max(&self) -> usize {
        1
    }

    fn is_node(&self, member: NodeId) -> bool {
        member < NodeId::new(10)
    }

    fn over(&self, _: NodeId, _: Incarnation) -> Option<FencingProof> {
        None
    }
}

fn participants_take_no_places_of_nodes(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    let many = PARTICIPANTS_CARRIED_MAX as u64;
    let took: Vec<RelayOutcome> =
        (0..=many).map(|member| relay.heard(from(member, 1), Beat(10 + member, 5, 1), &OneNode, at(1))).collect();
    let (last, others) = took.split_last().unwrap();
    let node = relay.heard(from(5_000, 1), Beat(1, 5, 1), &OneNode, at(2));
    let other = relay.heard(from(5_001, 1), Beat(2, 5, 1), &OneNode, at(2));
    (*last, node, other) == (RelayOutcome::Busy, RelayOutcome::Leaves, RelayOutcome::Busy)
        && others.iter().all(|took| *took == RelayOutcome::Leaves)
}

/// Counts the calls of `is_node`, which returns `nodes`.
#[derive(Default)]
struct CallCounter {
    times: Cell<u32>,
    nodes: Cell<bool>,
}

impl Rows for CallCounter {
    fn members_max(&self) -> usize {
        1
    }

    fn is_node(&self, _: NodeId) -> bool {
        self.times.set(self.times.get() + 1);
        self.nodes.get()
    }

    fn over(&self, _: NodeId, _: Incarnation) -> Option<FencingProof> {
        None
    }
}

#[test]
fn rows_are_read_once_per_member_and_update() {
    let (mut relay, rows) = (broken(None), CallCounter::default());
    for number in 1..=5 {
        assert_eq!(relay.heard(from(1, number), Beat(1, 5, number), &rows, at(number)), RelayOutcome::Leaves);
    }
    assert_eq!(rows.times.get(), 1);
    // Its row arrives: from then on it takes the place of a node.
    rows.nodes.set(true);
    assert_eq!(relay.rows_changed(&rows), []);
    assert_eq!(relay.heard(from(2, 1), Beat(2, 5, 1), &rows, at(6)), RelayOutcome::Busy);
}

archon_types::shown_by! {
    ParticipantsCrowdOut => participants_take_no_places_of_nodes,
    AnswerToAnotherLife => answer_to_former_incarnation_is_dropped,
    OldBeatPassedOn => last_heartbeat_does_not_keep_dead_member_alive,
    OlderBeatTaken => overtaken_heartbeat_does_not_replace_newer_one,
    SilenceUntold => member_is_notified_that_no_coordinator_answers,
    BeatsNotKept => next_leader_gets_kept_heartbeats,
    OverUntold => fenced_member_is_notified_at_once,
}
