use super::*;
use archon_types::{Epoch, PartitionId};
use proptest::prelude::*;

const ONE: NodeId = NodeId::new(1);
const TWO: NodeId = NodeId::new(2);
/// Coordinators that the member knows.
const KNOWN: &[char] = &['a', 'b', 'c'];
/// Interval between heartbeats, in milliseconds.
const EVERY: u64 = 200;

/// A member that numbers its heartbeats from one on.
struct TestMember {
    driver: HeartbeatDriver<char>,
    relays: Vec<NodeId>,
    sent: u64,
}

const fn at(millis: u64) -> Millis {
    Millis::new(millis)
}

fn granted() -> GrantOutcome {
    GrantOutcome::Granted { lapsed_ms: 0, withdrawn: Vec::<(PartitionId, Epoch)>::new() }
}

/// Draws the largest number, which never makes a member ask the coordinators directly.
fn largest(below: u32) -> u32 {
    below - 1
}

impl TestMember {
    fn new(relays: &[NodeId]) -> Self {
        let timing = LeaseTiming { heartbeat_ms: EVERY, ..LeaseTiming::default() };
        let driver = HeartbeatDriver::new(HeartbeatPace::of_node(timing), at(1_000));
        Self { driver, relays: relays.to_vec(), sent: 0 }
    }

    /// Sends the heartbeats of a step. Returns their recipients.
    fn send(&mut self, step: Step<char>, now: u64) -> Vec<AttemptTarget<char>> {
        let Step::Ask(ways) = step else { return Vec::new() };
        for way in &ways {
            self.sent += 1;
            self.driver.note_sent(self.sent, *way, at(now));
        }
        ways
    }

    fn due(&mut self, now: u64) -> Vec<AttemptTarget<char>> {
        let step = self.driver.due(at(now), || Some(self.relays.clone()), KNOWN, largest);
        self.send(step, now)
    }

    fn refused(&mut self, number: u64, why: AttemptFailure<char>, now: u64) -> Vec<AttemptTarget<char>> {
        let step = self.driver.unanswered(number, why, at(now), KNOWN, largest);
        self.send(step, now)
    }

    fn answered(&mut self, number: u64, departure_ms: Option<u64>, now: u64) -> Option<AttemptTarget<char>> {
        self.driver.answered(number, &granted(), departure_ms, at(now), largest).map(|round| round.by)
    }
}

#[test]
fn round_tries_each_way_until_one_answers() {
    let mut member = TestMember::new(&[ONE, TWO]);
    assert_eq!(member.due(999), []);
    assert_eq!(member.due(1_000), [AttemptTarget::Relay(ONE)]);
    assert_eq!(member.due(1_079), [], "the relay may still answer");
    assert_eq!(member.due(1_080), [AttemptTarget::Relay(TWO)]);
    assert_eq!(member.refused(2, AttemptFailure::Failed(None), 1_090), [AttemptTarget::Coordinator('a')]);
    assert_eq!(member.due(1_239), []);
    assert_eq!(member.due(1_240), [AttemptTarget::Coordinator('b'), AttemptTarget::Coordinator('c')]);
    assert_eq!(member.refused(4, AttemptFailure::Failed(None), 1_250), [], "the other one may answer");
    assert_eq!(member.answered(5, None, 1_260), Some(AttemptTarget::Coordinator('c')));
    assert_eq!(member.driver.wake_at(), at(1_240 + EVERY), "an interval after the answered heartbeat");
}

#[test]
fn answer_to_abandoned_attempt_ends_no_round() {
    let mut member = TestMember::new(&[ONE]);
    member.due(1_000);
    assert_eq!(member.due(1_080), [AttemptTarget::Coordinator('a')]);
    assert_eq!(member.answered(1, Some(50), 1_090), None);
    assert_eq!(member.refused(1, AttemptFailure::NoCoordinator, 1_091), [], "nor does its refusal");
    assert_eq!(member.driver.answered(2, &GrantOutcome::Foreign, None, at(1_095), largest), None);
    assert_eq!(member.answered(2, None, 1_100), Some(AttemptTarget::Coordinator('a')));
    assert_eq!(member.answered(2, None, 1_110), None, "a duplicate");
}

#[test]
fn refusal_counts_once() {
    let mut member = TestMember::new(&[]);
    member.due(1_000);
    assert_eq!(
        member.refused(1, AttemptFailure::Failed(None), 1_001),
        [AttemptTarget::Coordinator('b'), AttemptTarget::Coordinator('c')]
    );
    for now in [1_002, 1_003] {
        assert_eq!(member.refused(2, AttemptFailure::Failed(None), now), []);
    }
    assert_eq!(member.answered(3, None, 1_004), Some(AttemptTarget::Coordinator('c')));
}

#[test]
fn answering_relay_sets_time_of_next_heartbeat() {
    let mut member = TestMember::new(&[ONE, TWO]);
    member.due(1_000);
    member.refused(1, AttemptFailure::Failed(None), 1_030);
    // The next batch leaves at 1_240, which is an interval after the answered heartbeat.
    assert_eq!(member.answered(2, Some(195), 1_045), Some(AttemptTarget::Relay(TWO)));
    assert_eq!(member.driver.wake_at(), at(1_230));
    assert_eq!(member.due(1_230), [AttemptTarget::Relay(TWO)], "the relay that answered is preferred");
}

#[test]
fn fallback_to_coordinators_lasts_some_rounds() {
    let mut member = TestMember::new(&[ONE]);
    member.due(1_000);
    member.due(1_080);
    assert_eq!(member.answered(2, None, 1_090), Some(AttemptTarget::Coordinator('a')));
    assert_eq!(member.due(1_280), [AttemptTarget::Coordinator('a')]);
}

#[test]
fn heartbeat_kept_by_relay_is_repeated_after_half_an_interval() {
    let mut member = TestMember::new(&[ONE]);
    member.due(1_000);
    assert_eq!(member.refused(1, AttemptFailure::NoCoordinator, 1_050), []);
    assert_eq!(member.driver.wake_at(), at(1_050 + EVERY / 2));
    assert_eq!(member.due(1_150), [AttemptTarget::Relay(ONE)]);
}

#[test]
fn failed_rounds_are_repeated_after_growing_pauses() {
    let mut member = TestMember::new(&[]);
    let mut now = 1_000;
    for longest in [20, 40, 40] {
        member.due(now);
        member.due(now + 150);
        assert_eq!(member.due(now + 300), []);
        let next = member.driver.wake_at();
        assert_eq!(next, at(now + 300 + longest - 1), "the largest number was drawn");
        now = next.get();
    }
    member.due(now);
    let number = member.sent;
    assert_eq!(member.answered(number, None, now + 10), Some(AttemptTarget::Coordinator('a')));
    let began = now + EVERY;
    member.due(began);
    member.due(began + 150);
    member.due(began + 300);
    assert_eq!(member.driver.wake_at(), at(began + 300 + 19), "an answer resets the pauses");
}

#[test]
fn late_answers_of_distant_coordinator_keep_the_interval() {
    let mut member = TestMember::new(&[]);
    member.due(1_000);
    member.due(1_150);
    assert_eq!(member.answered(1, None, 1_160), None, "after the time-out");
    assert_eq!(member.due(1_300), [AttemptTarget::Coordinator('a')], "the interval ended during the first round");
    member.due(1_450);
    assert_eq!(member.due(1_600), [AttemptTarget::Coordinator('a')], "the grant came within the interval before");
    member.due(1_750);
    assert_eq!(member.due(1_900), []);
    assert_eq!(member.driver.wake_at(), at(1_900 + 19));
}

/// Otherwise a member that stops would ask them without a pause. The coordinator is not distant: it answered in time.
#[test]
fn member_does_not_hurry_after_failed_round() {
    let mut member = TestMember::new(&[]);
    member.due(1_000);
    member.answered(1, None, 1_010);
    member.driver.hurry(at(1_011));
    member.due(1_011);
    for number in 2..=4 {
        member.refused(number, AttemptFailure::Failed(None), 1_012);
    }
    assert!(member.driver.pending().is_empty() && !member.driver.may_hurry());
    assert_eq!(member.driver.wake_at(), at(1_012 + 19));
}

/// The lease lasts for one and a half intervals: after another interval it would be over.
#[test]
fn participant_with_long_interval_repeats_failed_round_soon() {
    let timing = LeaseTiming { heartbeat_ms: 120_000, lease_ms: 180_000, ..LeaseTiming::default() };
    let driver = HeartbeatDriver::new(HeartbeatPace::of_participant(timing, EVERY), at(1_000));
    let mut member = TestMember { driver, relays: Vec::new(), sent: 0 };
    member.due(1_000);
    member.answered(1, None, 1_010);
    member.due(121_000);
    for number in 2..=4 {
        member.refused(number, AttemptFailure::Failed(None), 121_010);
    }
    let next = member.driver.wake_at();
    assert!(member.driver.pending().is_empty() && next < at(122_100), "{next:?}");
}

#[test]
fn withheld_round_is_due_again_after_an_interval() {
    let mut member = TestMember::new(&[ONE]);
    let step = member.driver.due(at(1_000), || None, KNOWN, largest);
    assert_eq!((step, member.driver.wake_at()), (Step::Wait, at(1_000 + EVERY)));
    assert_eq!(member.due(1_200), [AttemptTarget::Relay(ONE)]);
    member.answered(1, None, 1_210);
    let step = member.driver.due(at(1_400), || None, KNOWN, largest);
    assert_eq!((step, member.driver.may_hurry()), (Step::Wait, false), "a hurry would not wait for the interval");
}

#[test]
fn hurried_member_sends_at_once_after_answered_round_only() {
    let mut member = TestMember::new(&[ONE]);
    member.due(1_000);
    member.driver.hurry(at(1_001));
    assert_eq!(member.due(1_001), [], "a round is in progress");
    member.refused(1, AttemptFailure::NoCoordinator, 1_010);
    member.driver.hurry(at(1_011));
    assert!(!member.driver.may_hurry());
    assert_eq!(member.due(1_011), [], "it would send heartbeats without a pause");
    member.due(1_110);
    member.answered(2, None, 1_120);
    member.driver.hurry(at(1_130));
    assert_eq!(member.due(1_130), [AttemptTarget::Relay(ONE)]);
}

#[test]
fn participants_spread_and_use_no_relay_for_rare_heartbeats() {
    let timing = LeaseTiming { heartbeat_ms: 4_000, lease_ms: 12_000, ..LeaseTiming::default() };
    let answered = |timing, drawn: fn(u32) -> u32| {
        let pace = HeartbeatPace::of_participant(timing, EVERY);
        let mut driver = HeartbeatDriver::new(pace, at(1_000));
        let Step::Ask(ways) = driver.due(at(1_000), || Some(vec![ONE]), KNOWN, largest) else { panic!("{driver:?}") };
        driver.note_sent(1, ways[0], at(1_000));
        let waits_ms = driver.wake_at().since(at(1_000));
        driver.answered(1, &granted(), None, at(1_010), drawn);
        (ways[0], waits_ms, driver.wake_at())
    };
    assert_eq!(answered(timing, |_| 0), (AttemptTarget::Relay(ONE), RELAY_ANSWER_MS, at(5_000)));
    assert_eq!(answered(timing, largest).2, at(4_000), "a quarter of the interval earlier");
    let rare = LeaseTiming { heartbeat_ms: 5_001, ..timing };
    assert_eq!(answered(rare, |_| 0), (AttemptTarget::Coordinator('a'), 1_500, at(6_001)));
}

proptest! {
    /// A shell that plans no second call for the same time would lose a member that is due again at once.
    #[test]
    fn next_call_is_later_than_each_call(
        relays in 0_usize..=2, deeds in prop::collection::vec((0_u64..160, 0_u8..5), 1..60),
    ) {
        let mut member = TestMember::new(&[ONE, TWO][..relays]);
        let mut now = 1_000;
        for (later, deed) in deeds {
            now += later;
            let number = member.sent;
            match deed {
                0 => drop(member.answered(number, None, now)),
                1 => drop(member.answered(number, Some(later), now)),
                2 => drop(member.refused(number, AttemptFailure::NoCoordinator, now)),
                3 => drop(member.refused(number, AttemptFailure::Failed(None), now)),
                _ => {}
            }
            member.due(now);
            prop_assert!(member.driver.wake_at() > at(now), "{:?} at {now}", member.driver);
        }
    }
}
