//! Tests of the session, case by case.

use super::*;
use crate::event_queue::EVENTS_MAX;
use crate::protocol::Answer;
use archon_client::TableId;

pub(super) const LEASE: u64 = 1_000;
/// Lease of the participant after a heartbeat of its own.
pub(super) const LEASE_LEFT: u64 = 1_500;

pub(super) fn partition(index: u32) -> PartitionId {
    PartitionId::new(TableId::new(7), index)
}

pub(super) fn offer(index: u32, epoch: u64) -> Offer {
    Offer { partition: partition(index), table: "jobs".into(), epoch, lease_left_ms: 900 }
}

pub(super) fn acquired(sequence: u64, partition: u32, epoch: u64) -> Answer {
    Answer::Acquired { sequence, partition, epoch, table: None }
}

pub(super) fn released(sequence: u64, partition: u32, epoch: u64) -> Answer {
    Answer::Released { sequence, partition, epoch, table: None }
}

pub(super) fn refused(sequence: u64, partition: u32, epoch: u64) -> Answer {
    Answer::Refused { sequence, partition, epoch, table: None, reason: "full".to_owned() }
}

fn effects(session: &mut ServiceSession) -> Vec<Effect> {
    std::iter::from_fn(|| session.next_effect()).collect()
}

fn sequences(next: EventPoll) -> Vec<u64> {
    let EventPoll::Events(events, _) = next else { return Vec::new() };
    let sequence = |event: &Arc<Event>| match &**event {
        Event::Hello(_) => 0,
        Event::Acquire(event) => event.sequence,
        Event::Release(event) => event.sequence,
        Event::Lost(event) => event.sequence,
        Event::Ended(event) => event.sequence,
    };
    events.iter().map(sequence).collect()
}

/// A session at time 0. Its service owns partition 3 in epoch 5, and has received everything.
fn owning() -> ServiceSession {
    let mut session = ServiceSession::new(LEASE, 1, 0);
    assert_eq!(session.acquire(offer(3, 5), 0), Some(1));
    session.answer(acquired(1, 3, 5), Some("jobs"), 0).unwrap();
    assert_eq!(effects(&mut session), [Effect::Acquired { sequence: 1 }]);
    session.heartbeat(1, 0, 0).unwrap();
    session
}

#[test]
fn permission_ends_with_the_lease_or_the_service_lease() {
    let mut session = owning();
    assert_eq!(session.heartbeat(1, 700, 100).unwrap(), Permission { valid_for_ms: 699, sequence: 1 });
    assert_eq!(session.heartbeat(1, 30_000, 200).unwrap().valid_for_ms, LEASE);
    assert_eq!(session.heartbeat(1, 0, 300).unwrap().valid_for_ms, 0, "there is no lease");
    let owned = session.owned("jobs", 3, |_| 500, 300).unwrap();
    assert!(owned.owned && !owned.releasing && (owned.epoch, owned.valid_for_ms) == (5, 499), "{owned:?}");
    assert!(!session.owned("jobs", 4, |_| 500, 300).unwrap().owned);
    assert!(!session.owned("orders", 3, |_| 500, 300).unwrap().owned);
    assert!(!session.owned("jobs", 3, |_| 0, 300).unwrap().owned, "the participant has lost it");
}

#[test]
fn only_events_and_connections_are_progress() {
    let mut session = owning();
    let mut last = session.progress();
    let mut advances = |session: &ServiceSession| std::mem::replace(&mut last, session.progress()) != last;
    session.heartbeat(1, 700, 100).unwrap();
    assert!(!advances(&session), "a heartbeat");
    session.release(partition(3), ReleaseReason::Stopped, None, 700, 200);
    assert!(advances(&session), "an event");
    session.answer(released(2, 3, 5), Some("jobs"), 200).unwrap();
    assert!(!advances(&session), "an answer");
    session.detach(1, 300);
    assert!(advances(&session), "the end of a connection");
    session.attach(2, 2, 300).unwrap();
    assert!(advances(&session), "a connection");
    session.end("the service has stopped");
    assert!(advances(&session), "the end");
}

#[test]
fn hanging_service_loses_its_partitions_after_its_lease() {
    let mut session = owning();
    session.heartbeat(1, 30_000, 400).unwrap();
    session.tick(1_400);
    assert!(!session.is_over());
    session.tick(1_401);
    assert!(session.is_over() && session.heartbeat(1, 30_000, 1_401).unwrap_err().kind == ErrorKind::Ended);
    assert_eq!(session.release(partition(3), ReleaseReason::Stopped, None, 0, 1_401), None, "nothing to wait for");
    assert_eq!(session.acquire(offer(4, 1), 1_401), None);
}

#[test]
fn service_that_receives_no_events_loses_its_partitions() {
    let mut session = owning();
    session.acquire(offer(4, 1), 100);
    assert!(session.heartbeat(1, 30_000, 100).unwrap().valid_for_ms > 0, "the event may be under way");
    for now in (350..1_100).step_by(250) {
        assert_eq!(session.heartbeat(1, 30_000, now).unwrap().valid_for_ms, 0);
    }
    assert!(session.heartbeat(1, 30_000, 1_101).is_err() && session.is_over());
    assert!(matches!(&effects(&mut session)[..], [Effect::Refused { sequence: 2, .. }]));
}

#[test]
fn closed_connection_hands_over_once_the_permission_ends() {
    let mut session = owning();
    session.heartbeat(1, 500, 100).unwrap();
    session.detach(1, 150);
    assert_eq!((session.is_over(), session.state()), (false, SessionState::Interrupted));
    assert_eq!(session.heartbeat(1, 500, 200).unwrap().valid_for_ms, 0, "nothing is permitted meanwhile");
    assert!(!session.owned("jobs", 3, |_| 500, 200).unwrap().owned);
    assert_eq!(session.deadline(), Some(600));
    session.tick(600);
    assert!(session.is_over());
}

#[test]
fn reconnected_service_continues_after_its_last_event() {
    let mut session = owning();
    session.heartbeat(1, 900, 100).unwrap();
    session.acquire(offer(4, 1), 110);
    session.acquire(offer(5, 1), 110);
    assert_eq!(sequences(session.events_after(1, 1, 10)), [2, 3]);
    session.detach(1, 120);
    session.attach(2, 2, 200).unwrap();
    session.detach(1, 201);
    assert_eq!(session.state(), SessionState::Connected, "the end of the former connection changes nothing");
    assert_eq!(sequences(session.events_after(2, 2, 10)), [3]);
    assert_eq!(session.events_after(1, 2, 10), EventPoll::Close);
    assert_eq!(session.attach(3, 9, 300).unwrap_err().kind, ErrorKind::Invalid, "there is no event 9");
    assert_eq!(session.attach(3, 1, 300).unwrap_err().kind, ErrorKind::Invalid, "event 2 was received");
    assert_eq!(session.lost(partition(4), 9, 310), None, "another epoch");
    assert_eq!(session.lost(partition(4), 1, 310), Some(2));
    assert_eq!(sequences(session.events_after(2, 3, 10)), [4]);
}

#[test]
fn wrong_answers_are_refused_and_change_nothing() {
    let mut session = owning();
    session.acquire(offer(4, 8), 0);
    for (answer, why) in [
        (acquired(2, 4, 7), "not partition 4 of jobs in epoch 7"),
        (acquired(2, 3, 8), "is about partition 4"),
        (released(2, 4, 8), "answer `acquired` or `refused`"),
        (released(1, 3, 5), "answer `acquired` or `refused`"),
        (refused(1, 3, 5), "give a partition up by `drop`"),
        (acquired(9, 4, 8), "awaits no answer"),
        (Answer::Drop { partition: 3, epoch: 4, table: None }, "not owned in epoch 4"),
        (Answer::Drop { partition: 4, epoch: 8, table: None }, "answer `refused`"),
    ] {
        let error = session.answer(answer, Some("jobs"), 0).unwrap_err();
        assert!(error.kind == ErrorKind::Stale && error.message.contains(why), "{error:?}");
    }
    assert_eq!(session.answer(acquired(2, 4, 8), None, 0).unwrap_err().kind, ErrorKind::Invalid, "several tables");
    assert_eq!(effects(&mut session), []);
    session.answer(acquired(2, 4, 8), Some("jobs"), 0).unwrap();
    assert_eq!(effects(&mut session), [Effect::Acquired { sequence: 2 }]);
}

#[test]
fn repeated_answers_take_effect_once() {
    let mut session = owning();
    session.answer(acquired(1, 3, 5), Some("jobs"), 0).unwrap();
    assert_eq!(session.release(partition(3), ReleaseReason::HandedOver, Some(10_000), 500, 0), Some(2));
    session.answer(released(2, 3, 5), Some("jobs"), 0).unwrap();
    session.answer(released(2, 3, 5), Some("jobs"), 0).unwrap();
    assert_eq!(effects(&mut session), [Effect::Released { sequence: 2, partition: partition(3) }]);
    session.acquire(offer(3, 6), 0);
    session.answer(refused(3, 3, 6), Some("jobs"), 0).unwrap();
    session.answer(refused(3, 3, 6), Some("jobs"), 0).unwrap();
    assert_eq!(effects(&mut session).len(), 1);
    let late = session.answer(acquired(3, 3, 6), Some("jobs"), 0).unwrap_err();
    assert!(late.kind == ErrorKind::Stale && late.message.contains("was answered"), "{late:?}");
    session.answer(Answer::Stop, None, 0).unwrap();
    session.answer(Answer::Stop, None, 0).unwrap();
    assert_eq!(effects(&mut session), [Effect::Stop]);
}

/// The same epoch is acquired again after a lease that lapsed.
#[test]
fn late_answer_does_not_confirm_a_later_acquisition() {
    let mut session = owning();
    assert_eq!(session.acquire(offer(4, 8), 0), Some(2));
    assert_eq!(session.lost(partition(4), 8, 0), Some(2));
    assert_eq!(session.acquire(offer(4, 8), 0), Some(4));
    assert_eq!(session.answer(acquired(2, 4, 8), Some("jobs"), 0).unwrap_err().kind, ErrorKind::Stale);
    assert_eq!(effects(&mut session), []);
}

#[test]
fn new_process_waits_for_the_permission_of_the_former_one() {
    let mut session = owning();
    session.heartbeat(1, 500, 100).unwrap();
    assert_eq!(session.supersede(150), SessionState::Connected, "a connected service stays");
    session.detach(1, 160);
    assert_eq!(session.supersede(170), SessionState::Ending);
    assert_eq!(session.attach(2, 1, 180).unwrap_err().kind, ErrorKind::Ended, "the former one cannot come back");
    assert!(!session.is_over());
    session.tick(600);
    assert!(session.is_over());
}

#[test]
fn unread_events_are_bounded() {
    let mut session = ServiceSession::new(LEASE, 1, 0);
    let count = u32::try_from(EVENTS_MAX).unwrap();
    for index in 0..count {
        assert!(session.acquire(offer(index, 1), 0).is_some());
    }
    session.acquire(offer(count, 1), 0);
    assert_eq!(session.events_after(1, 0, 1), EventPoll::Close);
    session.tick(1);
    assert!(session.is_over() && session.events.unread() <= EVENTS_MAX + 2);
}

/// The permission after a loss counts only once the loss has arrived.
/// The participant knows of a loss earlier than the session.
#[test]
fn service_may_take_longer_than_its_lease_to_start() {
    let mut session = ServiceSession::new(LEASE, 1, 0);
    session.allow_start(60_000, 0);
    session.tick(59_000);
    assert!(!session.is_over() && !session.is_heard());
    session.heartbeat(0, 0, 59_000).unwrap();
    assert!(session.is_heard());
    session.tick(59_000 + LEASE + 1);
    assert!(session.is_over(), "its lease counts from the first heartbeat on");
    let mut session = ServiceSession::new(LEASE, 1, 0);
    session.allow_start(60_000, 0);
    session.tick(60_001);
    assert!(session.is_over() && !session.is_heard());
}

#[test]
fn exit_of_a_part_of_the_service_cuts_no_permission() {
    let mut session = owning();
    session.heartbeat(1, 500, 100).unwrap();
    assert!(session.retire("the program has ended", 200));
    assert_eq!(session.heartbeat(1, 500, 300).unwrap_err().kind, ErrorKind::Ended);
    session.tick(599);
    assert!(!session.is_over());
    assert!(session.gone("the program has ended", 599) && session.is_over(), "nothing of it is left");
    let mut session = owning();
    session.heartbeat(1, 500, 100).unwrap();
    session.retire("the program has ended", 200);
    session.tick(600);
    assert!(session.is_over());
}
