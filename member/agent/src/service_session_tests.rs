//! Tests of the session, also against a modelled service with late, lost and repeated messages.

use super::*;
use archon_client::TableId;
use proptest::prelude::*;

const LEASE: u64 = 1_000;
/// Lease of the participant after a heartbeat of its own.
const LEASE_LEFT: u64 = 1_500;

fn partition(index: u32) -> PartitionId {
    PartitionId::new(TableId::new(7), index)
}

fn offer(index: u32, epoch: u64) -> Offer {
    Offer { partition: partition(index), table: "jobs".into(), epoch, lease_left_ms: 900 }
}

fn acquired(sequence: u64, partition: u32, epoch: u64) -> Answer {
    Answer::Acquired { sequence, partition, epoch, table: None }
}

fn released(sequence: u64, partition: u32, epoch: u64) -> Answer {
    Answer::Released { sequence, partition, epoch, table: None }
}

fn refused(sequence: u64, partition: u32, epoch: u64) -> Answer {
    Answer::Refused { sequence, partition, epoch, table: None, reason: "full".to_owned() }
}

fn effects(session: &mut ServiceSession) -> Vec<Effect> {
    std::iter::from_fn(|| session.next_effect()).collect()
}

fn sequences(next: Next) -> Vec<u64> {
    let Next::Events(events, _) = next else { return Vec::new() };
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
    assert_eq!(session.events_after(1, 2, 10), Next::Close);
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
    assert_eq!(session.events_after(1, 0, 1), Next::Close);
    session.tick(1);
    assert!(session.is_over() && session.events.len() <= EVENTS_MAX + 2);
}

/// A step of the world around a session.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    ExtendLease,
    Offer(u32),
    Release(u32),
    /// The participant loses a partition.
    Lose(u32),
    /// The session learns of a loss.
    DeliverLoss(usize),
    SendHeartbeat,
    /// A heartbeat reaches the agent; repeated, it stays under way.
    HeartbeatArrives {
        which: usize,
        repeated: bool,
    },
    PermissionArrives(usize),
    Read(usize),
    Answer {
        which: usize,
        refuses: bool,
    },
    Ask(u32),
    Break,
    /// The agent notices the end of a connection.
    NoticeBreak,
    Resume,
    Supersede,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_u64..400).prop_map(Step::Wait),
        4 => Just(Step::ExtendLease),
        3 => (0_u32..3).prop_map(Step::Offer),
        2 => (0_u32..3).prop_map(Step::Release),
        2 => (0_u32..3).prop_map(Step::Lose),
        3 => (0_usize..3).prop_map(Step::DeliverLoss),
        6 => Just(Step::SendHeartbeat),
        8 => (0_usize..3, any::<bool>()).prop_map(|(which, repeated)| Step::HeartbeatArrives { which, repeated }),
        8 => (0_usize..3).prop_map(Step::PermissionArrives),
        8 => (1_usize..4).prop_map(Step::Read),
        6 => (0_usize..4, any::<bool>()).prop_map(|(which, refuses)| Step::Answer { which, refuses }),
        4 => (0_u32..3).prop_map(Step::Ask),
        1 => Just(Step::Break),
        1 => Just(Step::NoticeBreak),
        1 => Just(Step::Resume),
        1 => Just(Step::Supersede),
    ]
}

/// A service that follows the protocol, behind a network that delays and repeats.
#[derive(Default)]
struct Service {
    /// Newest received event.
    received: u64,
    /// Acquisitions that it has answered, by partition: number of the `acquire`.
    owned: BTreeMap<u32, u64>,
    /// Open events of the service: it may answer them at any time, also twice.
    open: Vec<Answer>,
    valid_until: u64,
    /// Permissions that wait for events: end and sequence.
    early: Vec<(u64, u64)>,
    heartbeats: Vec<(u64, u64)>,
    permissions: Vec<(u64, Permission)>,
    connection: Option<u64>,
    /// Answers about one partition: its acquisition, and the end of the permission.
    asked: Vec<(u64, u64)>,
}

impl Service {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Acquire(event) => {
                assert_eq!(event.sequence, self.received + 1, "an event was lost or doubled");
                assert!(!self.owned.contains_key(&event.partition), "acquired twice");
                self.open.push(acquired(event.sequence, event.partition, event.epoch));
                self.received = event.sequence;
            }
            Event::Release(event) => {
                assert_eq!(event.sequence, self.received + 1, "an event was lost or doubled");
                self.open.push(released(event.sequence, event.partition, event.epoch));
                self.received = event.sequence;
            }
            Event::Lost(event) => {
                assert_eq!(event.sequence, self.received + 1, "an event was lost or doubled");
                self.owned.remove(&event.partition);
                self.received = event.sequence;
            }
            Event::Ended(event) => {
                assert_eq!(event.sequence, self.received + 1, "an event was lost or doubled");
                self.owned.clear();
                self.received = event.sequence;
            }
            Event::Hello(_) => {}
        }
        self.apply_permissions();
    }

    fn apply_permissions(&mut self) {
        let received = self.received;
        for (until, sequence) in std::mem::take(&mut self.early) {
            if sequence <= received {
                self.valid_until = self.valid_until.max(until);
            } else {
                self.early.push((until, sequence));
            }
        }
    }
}

/// A loss that the session does not know of.
#[derive(Clone, Copy, Debug)]
struct Undelivered {
    index: u32,
    acquisition: u64,
    epoch: u64,
    /// End of the lease at the loss.
    lease_until: u64,
}

/// State of a partition at the participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Acquiring(u64),
    Owned(u64),
    Releasing(u64),
}

fn run(steps: &[Step]) {
    let (mut now, mut lease_until, mut epoch, mut connections) = (0_u64, LEASE_LEFT, 0, 1);
    let mut session = ServiceSession::new(LEASE, 1, 0);
    let mut service = Service { connection: Some(1), ..Service::default() };
    let mut held: BTreeMap<u32, Held> = BTreeMap::new();
    // By acquisition: since when another process may be the owner.
    let mut given_up: BTreeMap<u64, u64> = BTreeMap::new();
    let mut broken = Vec::new();
    // Acquisitions by epoch, and the reverse.
    let (mut acquisitions, mut epochs) = (BTreeMap::new(), BTreeMap::new());
    let mut undelivered: Vec<Undelivered> = Vec::new();
    for step in steps {
        match *step {
            Step::Wait(time) => now += time,
            Step::ExtendLease => lease_until = lease_until.max(now + LEASE_LEFT),
            Step::Offer(index) => {
                let is_losing = undelivered.iter().any(|lost| lost.index == index);
                if !held.contains_key(&index) && !is_losing && now < lease_until {
                    epoch += 1;
                    if let Some(sequence) = session.acquire(offer(index, epoch), now) {
                        acquisitions.insert(epoch, sequence);
                        epochs.insert(sequence, epoch);
                        held.insert(index, Held::Acquiring(sequence));
                    }
                }
            }
            Step::Release(index) => {
                if let Some(Held::Owned(acquisition)) = held.get(&index).copied() {
                    held.insert(index, Held::Releasing(acquisition));
                    if session.release(partition(index), ReleaseReason::HandedOver, None, 0, now).is_none() {
                        held.remove(&index);
                        given_up.insert(acquisition, now);
                    }
                }
            }
            Step::Lose(index) => {
                if let Some(Held::Acquiring(of) | Held::Owned(of) | Held::Releasing(of)) = held.remove(&index) {
                    undelivered.push(Undelivered { index, acquisition: of, epoch: epochs[&of], lease_until });
                }
            }
            Step::DeliverLoss(which) => {
                if which < undelivered.len() {
                    let lost = undelivered.remove(which);
                    session.lost(partition(lost.index), lost.epoch, now);
                    // The participant holds its reports back for this time.
                    given_up.insert(lost.acquisition, (now + LEASE + 1).min(lost.lease_until));
                }
            }
            Step::SendHeartbeat => service.heartbeats.push((now, service.received)),
            Step::HeartbeatArrives { which, repeated } => {
                if let Some((sent, seen)) = service.heartbeats.get(which).copied() {
                    if !repeated {
                        service.heartbeats.remove(which);
                    }
                    // As the library does: the lease permits nothing while a loss is being delivered.
                    let left = if undelivered.is_empty() { lease_until.saturating_sub(now) } else { 0 };
                    if let Ok(permission) = session.heartbeat(seen, left, now) {
                        service.permissions.push((sent, permission));
                    }
                }
            }
            Step::PermissionArrives(which) => {
                if which < service.permissions.len() {
                    let (sent, permission) = service.permissions.remove(which);
                    service.early.push((sent + permission.valid_for_ms, permission.sequence));
                    service.apply_permissions();
                }
            }
            Step::Read(most) => {
                if let Some(connection) = service.connection {
                    match session.events_after(connection, service.received, most) {
                        Next::Events(events, _) => events.iter().for_each(|event| service.take(event)),
                        Next::Wait => {}
                        Next::Close => service.connection = None,
                    }
                }
            }
            Step::Answer { which, refuses } => {
                if let Some(answer) = service.open.get(which).cloned() {
                    let answer = match answer {
                        Answer::Acquired { sequence, partition, epoch, .. } if refuses => {
                            refused(sequence, partition, epoch)
                        }
                        other => other,
                    };
                    if let Answer::Released { partition, .. } = &answer {
                        // Before the answer is sent.
                        let released = session.works.get(&self::partition(*partition)).map(|work| work.acquire);
                        if service.owned.get(partition).copied() == released {
                            service.owned.remove(partition);
                        }
                        service.asked.retain(|(acquisition, _)| Some(*acquisition) != released);
                    }
                    let taken = session.answer(answer.clone(), Some("jobs"), now);
                    if let (Ok(()), Answer::Acquired { sequence, partition, .. }) = (&taken, &answer)
                        && session.by_sequence.contains_key(sequence)
                    {
                        service.owned.insert(*partition, *sequence);
                    }
                    if service.open.len() > 4 {
                        service.open.remove(0);
                    }
                }
            }
            Step::Ask(index) => {
                let left = if matches!(held.get(&index), Some(Held::Owned(_) | Held::Releasing(_))) {
                    lease_until.saturating_sub(now)
                } else {
                    0
                };
                if let Ok(Owned { owned: true, epoch, valid_for_ms, .. }) = session.owned("jobs", index, |_| left, now)
                {
                    service.asked.push((acquisitions[&epoch], now + valid_for_ms));
                }
            }
            Step::Break => broken.extend(service.connection.take()),
            Step::NoticeBreak => broken.drain(..).for_each(|connection| session.detach(connection, now)),
            Step::Resume => {
                connections += 1;
                if service.connection.is_none() && session.attach(connections, service.received, now).is_ok() {
                    service.connection = Some(connections);
                }
            }
            Step::Supersede => drop(session.supersede(now)),
        }
        session.tick(now);
        while let Some(effect) = session.next_effect() {
            match effect {
                Effect::Acquired { sequence } => {
                    let of = held.values_mut().find(|held| **held == Held::Acquiring(sequence));
                    // Otherwise it is lost, and the session does not know it yet.
                    if let Some(of) = of {
                        *of = Held::Owned(sequence);
                    }
                }
                Effect::Refused { partition, .. } | Effect::Released { partition, .. } => {
                    let gone = held.remove(&partition.index);
                    if let Some(Held::Acquiring(of) | Held::Owned(of) | Held::Releasing(of)) = gone {
                        given_up.insert(of, now);
                    }
                }
                Effect::Drop(_) | Effect::Load { .. } | Effect::Stop => {}
            }
        }
        if session.is_over() {
            // The participant stops: releases end at once.
            for (_, Held::Acquiring(of) | Held::Owned(of) | Held::Releasing(of)) in std::mem::take(&mut held) {
                given_up.entry(of).or_insert(now);
            }
        }
        if now >= lease_until {
            assert!(now >= service.valid_until, "the service may act beyond the lease, after {step:?}");
            assert!(service.asked.iter().all(|(_, until)| now >= *until), "asked beyond the lease, after {step:?}");
            for (index, Held::Acquiring(of) | Held::Owned(of) | Held::Releasing(of)) in std::mem::take(&mut held) {
                session.lost(partition(index), epochs[&of], now);
            }
        }
        for (index, acquisition) in &service.owned {
            let over = given_up.get(acquisition).is_some_and(|since| *since <= now);
            assert!(!over || now >= service.valid_until, "two owners of partition {index} after {step:?}");
        }
        for (acquisition, until) in &service.asked {
            let over = given_up.get(acquisition).is_some_and(|since| *since <= now);
            assert!(!over || now >= *until, "two owners of acquisition {acquisition} after {step:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn service_never_acts_beside_the_next_owner(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps);
    }
}

/// The permission after a loss counts only once the loss has arrived.
#[test]
fn heartbeat_beside_a_stalled_stream_extends_nothing() {
    let heartbeat =
        [Step::SendHeartbeat, Step::HeartbeatArrives { which: 0, repeated: false }, Step::PermissionArrives(0)];
    let acquire = [Step::Offer(0), Step::Read(1), Step::Answer { which: 0, refuses: false }];
    let lose = [Step::Lose(0), Step::DeliverLoss(0), Step::Wait(200), Step::ExtendLease];
    let until_others_own_it = [Step::Wait(399), Step::Wait(399), Step::Wait(50)];
    run(&[&acquire[..], &heartbeat, &lose, &heartbeat, &until_others_own_it].concat());
}

/// The participant knows of a loss earlier than the session.
#[test]
fn heartbeat_before_the_delivery_of_a_loss_permits_nothing() {
    let heartbeat =
        [Step::SendHeartbeat, Step::HeartbeatArrives { which: 0, repeated: false }, Step::PermissionArrives(0)];
    let acquire = [Step::Offer(0), Step::Read(1), Step::Answer { which: 0, refuses: false }];
    let lose = [Step::Lose(0), Step::Wait(399), Step::Wait(399), Step::ExtendLease];
    let until_others_own_it = [Step::DeliverLoss(0), Step::Wait(399), Step::Wait(350), Step::Wait(50)];
    run(&[&acquire[..], &heartbeat, &lose, &heartbeat, &until_others_own_it].concat());
}

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
