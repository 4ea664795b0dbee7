use super::*;
use archon_types::Version;
use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Beat(u64, u64, u64);

impl Carried for Beat {
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

/// It carries for so many, and knows of these lives that they are over.
struct Known(usize, Vec<Over>);

impl Rows for Known {
    fn members_max(&self) -> usize {
        self.0
    }

    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<Over> {
        self.1.iter().find(|over| (over.node, over.incarnation) == (node, incarnation)).copied()
    }
}

const MANY: Known = Known(100, Vec::new());

fn over(node: u64, incarnation: u64) -> Over {
    Over { node: NodeId::new(node), incarnation: Incarnation::new(incarnation), version: Version::new(81) }
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

/// The batch that leaves, if that is all that happens.
#[track_caller]
fn batch(effects: &[RelayEffect<Beat>], to: Towards) -> (u64, Vec<Beat>) {
    let [RelayEffect::Depart { batch, beats, towards }] = effects else { panic!("{effects:?}") };
    assert_eq!(*towards, to);
    (*batch, beats.clone())
}

fn answer(beat: Beat) -> (NodeId, Incarnation, u64) {
    (beat.node(), beat.incarnation(), beat.number())
}

#[test]
fn what_comes_before_a_departure_leaves_with_it_and_what_comes_between_within_ten_milliseconds() {
    let mut relay = relay();
    assert_eq!(relay.next_departure_ms(at(150)), 50);
    assert_eq!(relay.heard(from(1, 1), Beat(1, 1, 1), &MANY, at(191)), Took::Leaves);
    assert_eq!(relay.heard(from(2, 1), Beat(2, 1, 1), &MANY, at(199)), Took::Leaves);
    assert_eq!(relay.wake_at(), at(200));
    let (first, beats) = batch(&relay.due(at(200)), Towards::Leader);
    assert_eq!(beats, [Beat(1, 1, 1), Beat(2, 1, 1)]);
    relay.answered(first, beats.into_iter().map(answer));
    relay.heard(from(3, 1), Beat(3, 1, 1), &MANY, at(250));
    relay.heard(from(4, 1), Beat(4, 1, 1), &MANY, at(257));
    assert_eq!(relay.wake_at(), at(260));
    assert_eq!(batch(&relay.due(at(260)), Towards::Leader).1, [Beat(3, 1, 1), Beat(4, 1, 1)]);
    assert_eq!((relay.due(at(261)), relay.next_departure_ms(at(261))), (vec![], 139));
}

#[test]
fn an_answer_goes_to_the_life_that_it_names_and_to_nobody_else() {
    let mut relay = relay();
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(195));
    relay.heard(from(2, 9), Beat(2, 5, 3), &MANY, at(195));
    let (number, _) = batch(&relay.due(at(200)), Towards::Leader);
    let answers = [Beat(2, 5, 3), Beat(1, 4, 3), Beat(3, 5, 3), Beat(1, 5, 3), Beat(1, 5, 2)];
    let routed = relay.answered(number, answers.map(answer));
    assert_eq!(routed, [Some(from(2, 9)), None, None, Some(from(1, 7)), Some(from(1, 7))]);
}

#[test]
fn an_old_heartbeat_was_passed_on_after_a_newer_one_and_kept_the_dead_alive() {
    let mut relay = relay();
    assert_eq!(relay.heard(from(1, 2), Beat(1, 5, 2), &MANY, at(100)), Took::Leaves);
    for old in [Beat(1, 5, 2), Beat(1, 5, 1), Beat(1, 4, 9)] {
        assert_eq!(relay.heard(from(2, 1), old, &MANY, at(101)), Took::Old);
    }
    // It did not leave within an interval, whatever held the relay up.
    assert_eq!(relay.due(at(301)), []);
    assert_eq!(relay.heard(from(1, 2), Beat(1, 5, 2), &MANY, at(302)), Took::Old, "nor is it taken again");
    assert_eq!(relay.heard(from(3, 1), Beat(1, 6, 1), &MANY, at(303)), Took::Leaves, "another life is");
}

#[test]
fn members_hear_that_no_coordinator_answers_before_they_give_the_relay_up() {
    let mut relay = relay();
    relay.heard(from(1, 1), Beat(1, 1, 1), &MANY, at(195));
    batch(&relay.due(at(200)), Towards::Leader);
    assert_eq!(relay.wake_at(), at(250));
    let effects = relay.due(at(250));
    assert_eq!(effects.last(), Some(&RelayEffect::NoCoordinator(from(1, 1))));
    assert_eq!(batch(&effects[..1], Towards::Everybody).1, [Beat(1, 1, 1)]);
    assert_eq!(relay.silent_since(), Some(at(250)));
    // Whoever comes now hears so at once, and its heartbeat goes to whoever leads next.
    assert_eq!(relay.heard(from(2, 1), Beat(2, 1, 1), &MANY, at(260)), Took::Waits);
    assert_eq!(relay.wake_at(), at(280));
    let (number, beats) = batch(&relay.due(at(280)), Towards::Everybody);
    assert_eq!(beats, [Beat(1, 1, 1), Beat(2, 1, 1)]);
    let routed = relay.answered(number, beats.into_iter().map(answer));
    assert_eq!((routed, relay.silent_since()), (vec![Some(from(1, 1)), Some(from(2, 1))], None));
    assert_eq!(relay.heard(from(2, 2), Beat(2, 1, 2), &MANY, at(300)), Took::Leaves);
}

#[test]
fn a_coordinator_that_does_not_lead_is_no_reason_to_wait() {
    let mut relay = relay();
    relay.heard(from(1, 1), Beat(1, 1, 1), &MANY, at(195));
    let (number, _) = batch(&relay.due(at(200)), Towards::Leader);
    assert_eq!(relay.refused(number - 1, at(201)), [], "an earlier batch's refusal says nothing of this one");
    assert_eq!(relay.refused(number, at(202)).len(), 2);
    assert_eq!(relay.refused(number, at(203)), [], "all are asked already");
}

#[test]
fn an_answer_to_the_batch_before_does_not_excuse_the_last_one() {
    let mut relay = relay();
    relay.heard(from(1, 1), Beat(1, 1, 1), &MANY, at(100));
    let (first, _) = batch(&relay.due(at(110)), Towards::Leader);
    relay.heard(from(2, 1), Beat(2, 1, 1), &MANY, at(120));
    batch(&relay.due(at(130)), Towards::Leader);
    relay.answered(first, [answer(Beat(1, 1, 1))]);
    assert_eq!(relay.wake_at(), at(180));
    assert_eq!(relay.due(at(180)).last(), Some(&RelayEffect::NoCoordinator(from(2, 1))));
}

#[test]
fn it_carries_for_so_many_and_forgets_who_went() {
    let mut relay = relay();
    for member in 1..=3 {
        let took = relay.heard(from(member, 1), Beat(member, 1, 1), &Known(2, vec![]), at(1));
        assert_eq!(took, if member < 3 { Took::Leaves } else { Took::Busy });
    }
    assert_eq!(
        relay.heard(from(1, 2), Beat(1, 1, 2), &Known(2, vec![]), at(2)),
        Took::Leaves,
        "whoever is carried stays"
    );
    relay.ended(1);
    assert_eq!(relay.heard(from(3, 1), Beat(3, 1, 1), &Known(2, vec![]), at(3)), Took::Leaves);
    relay.due(at(2_500));
    assert_eq!(relay.carries(), 0, "nobody was heard for long");
}

#[test]
fn a_member_that_was_silent_is_told_that_it_is_failed_when_the_row_comes() {
    let mut relay = relay();
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(1));
    relay.heard(from(2, 9), Beat(2, 6, 3), &MANY, at(1));
    // Batches leave on time, and it is silent for the failure time-out.
    (0..8).for_each(|batch| drop(relay.due(at(200 * batch))));
    let rows = Known(100, vec![over(1, 5), over(2, 5)]);
    assert_eq!(relay.rows_changed(&rows), [RelayEffect::Over(from(1, 7), over(1, 5))]);
    assert_eq!((relay.carries(), relay.rows_changed(&rows)), (1, vec![]), "once");
    assert_eq!(relay.answered(1, [answer(Beat(1, 5, 3))]), [None], "nor is an answer brought back to it");
}

#[test]
fn a_life_that_is_over_is_told_so_when_it_calls_and_is_not_carried() {
    let mut relay = relay();
    let rows = Known(100, vec![over(1, 5)]);
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(191));
    assert_eq!(relay.heard(from(1, 8), Beat(1, 5, 4), &rows, at(192)), Took::Over(over(1, 5)));
    assert_eq!((relay.carries(), relay.due(at(200))), (0, vec![]));
    assert_eq!(relay.heard(from(2, 1), Beat(1, 6, 1), &rows, at(201)), Took::Leaves, "another life of it is");
    assert_eq!(relay.heard(from(1, 9), Beat(1, 5, 5), &rows, at(202)), Took::Over(over(1, 5)));
    assert_eq!(batch(&relay.due(at(211)), Towards::Leader).1, [Beat(1, 6, 1)], "which its former one does not end");
}

fn broken(mutant: Option<Mutant>) -> Relay<Beat> {
    relay().broken_by(Broken::by(mutant))
}

/// The heartbeats of all batches that leave.
fn departed(effects: &[RelayEffect<Beat>]) -> Vec<Beat> {
    let beats = effects.iter().filter_map(|effect| match effect {
        RelayEffect::Depart { beats, .. } => Some(beats.clone()),
        RelayEffect::NoCoordinator(_) | RelayEffect::Over(..) => None,
    });
    beats.flatten().collect()
}

fn an_answer_to_a_former_life_is_brought_to_nobody(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(195));
    relay.due(at(200));
    relay.answered(1, [answer(Beat(1, 4, 3))]) == [None]
}

/// Its member died, and no coordinator answers for long.
fn the_dead_are_not_kept_alive_by_their_last_heartbeat(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    relay.heard(from(1, 1), Beat(1, 5, 3), &MANY, at(195));
    let left = (200..2_000).flat_map(|ms| departed(&relay.due(at(ms))).into_iter().map(move |_| ms));
    left.last().is_some_and(|last| last <= 395)
}

fn a_heartbeat_that_was_overtaken_takes_no_place(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    relay.heard(from(1, 2), Beat(1, 5, 2), &MANY, at(191));
    relay.heard(from(1, 1), Beat(1, 5, 1), &MANY, at(192));
    departed(&relay.due(at(200))) == [Beat(1, 5, 2)]
}

/// A batch left, and nothing came back.
fn unanswered(mutant: Option<Mutant>) -> (Relay<Beat>, Vec<RelayEffect<Beat>>) {
    let mut relay = broken(mutant);
    relay.heard(from(1, 1), Beat(1, 5, 3), &MANY, at(195));
    relay.due(at(200));
    let effects = relay.due(at(250));
    (relay, effects)
}

fn a_member_is_told_that_no_coordinator_answers(mutant: Option<Mutant>) -> bool {
    unanswered(mutant).1.contains(&RelayEffect::NoCoordinator(from(1, 1)))
}

fn whoever_leads_next_gets_what_was_kept(mutant: Option<Mutant>) -> bool {
    departed(&unanswered(mutant).0.due(at(280))) == [Beat(1, 5, 3)]
}

fn a_member_hears_at_once_that_its_life_is_over(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    relay.heard(from(1, 7), Beat(1, 5, 3), &MANY, at(1));
    relay.rows_changed(&Known(100, vec![over(1, 5)])) == [RelayEffect::Over(from(1, 7), over(1, 5))]
}

/// Of which members below ten are nodes.
struct OneNode;

impl Rows for OneNode {
    fn members_max(&self) -> usize {
        1
    }

    fn is_node(&self, member: NodeId) -> bool {
        member < NodeId::new(10)
    }

    fn over(&self, _: NodeId, _: Incarnation) -> Option<Over> {
        None
    }
}

fn participants_leave_nodes_their_places(mutant: Option<Mutant>) -> bool {
    let mut relay = broken(mutant);
    let many = PARTICIPANTS_CARRIED_MAX as u64;
    let took: Vec<Took> =
        (0..=many).map(|member| relay.heard(from(member, 1), Beat(10 + member, 5, 1), &OneNode, at(1))).collect();
    let (last, others) = took.split_last().unwrap();
    let node = relay.heard(from(5_000, 1), Beat(1, 5, 1), &OneNode, at(2));
    let other = relay.heard(from(5_001, 1), Beat(2, 5, 1), &OneNode, at(2));
    (*last, node, other) == (Took::Busy, Took::Leaves, Took::Busy) && others.iter().all(|took| *took == Took::Leaves)
}

/// Counts how often it is asked who is a node; nobody is, until somebody is.
#[derive(Default)]
struct Asked {
    times: Cell<u32>,
    nodes: Cell<bool>,
}

impl Rows for Asked {
    fn members_max(&self) -> usize {
        1
    }

    fn is_node(&self, _: NodeId) -> bool {
        self.times.set(self.times.get() + 1);
        self.nodes.get()
    }

    fn over(&self, _: NodeId, _: Incarnation) -> Option<Over> {
        None
    }
}

#[test]
fn each_heartbeat_had_the_rows_asked_again_whether_it_is_a_nodes() {
    let (mut relay, rows) = (broken(None), Asked::default());
    for number in 1..=5 {
        assert_eq!(relay.heard(from(1, number), Beat(1, 5, number), &rows, at(number)), Took::Leaves);
    }
    assert_eq!(rows.times.get(), 1);
    // Its row comes: from then on it takes a node's place.
    rows.nodes.set(true);
    assert_eq!(relay.rows_changed(&rows), []);
    assert_eq!(relay.heard(from(2, 1), Beat(2, 5, 1), &rows, at(6)), Took::Busy);
}

archon_types::shown_by! {
    ParticipantsCrowdOut => participants_leave_nodes_their_places,
    AnswerToAnotherLife => an_answer_to_a_former_life_is_brought_to_nobody,
    OldBeatPassedOn => the_dead_are_not_kept_alive_by_their_last_heartbeat,
    OlderBeatTaken => a_heartbeat_that_was_overtaken_takes_no_place,
    SilenceUntold => a_member_is_told_that_no_coordinator_answers,
    BeatsNotKept => whoever_leads_next_gets_what_was_kept,
    OverUntold => a_member_hears_at_once_that_its_life_is_over,
}
