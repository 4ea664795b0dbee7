//! Tests of the session against a modelled service with late, lost and repeated messages.

use super::tests::{LEASE, LEASE_LEFT, acquired, offer, partition, refused, released};
use super::*;
use crate::protocol::Answer;
use proptest::prelude::*;

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
struct UndeliveredLoss {
    index: u32,
    acquisition: u64,
    epoch: u64,
    /// End of the lease at the loss.
    lease_until: u64,
}

/// State of a partition at the participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HeldState {
    Acquiring(u64),
    Owned(u64),
    Releasing(u64),
}

fn run(steps: &[Step]) {
    let (mut now, mut lease_until, mut epoch, mut connections) = (0_u64, LEASE_LEFT, 0, 1);
    let mut session = ServiceSession::new(LEASE, 1, 0);
    let mut service = Service { connection: Some(1), ..Service::default() };
    let mut held: BTreeMap<u32, HeldState> = BTreeMap::new();
    // By acquisition: since when another process may be the owner.
    let mut given_up: BTreeMap<u64, u64> = BTreeMap::new();
    let mut broken = Vec::new();
    // Acquisitions by epoch, and the reverse.
    let (mut acquisitions, mut epochs) = (BTreeMap::new(), BTreeMap::new());
    let mut undelivered: Vec<UndeliveredLoss> = Vec::new();
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
                        held.insert(index, HeldState::Acquiring(sequence));
                    }
                }
            }
            Step::Release(index) => {
                if let Some(HeldState::Owned(acquisition)) = held.get(&index).copied() {
                    held.insert(index, HeldState::Releasing(acquisition));
                    if session.release(partition(index), ReleaseReason::HandedOver, None, 0, now).is_none() {
                        held.remove(&index);
                        given_up.insert(acquisition, now);
                    }
                }
            }
            Step::Lose(index) => {
                if let Some(HeldState::Acquiring(of) | HeldState::Owned(of) | HeldState::Releasing(of)) =
                    held.remove(&index)
                {
                    undelivered.push(UndeliveredLoss { index, acquisition: of, epoch: epochs[&of], lease_until });
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
                        EventPoll::Events(events, _) => events.iter().for_each(|event| service.take(event)),
                        EventPoll::Wait => {}
                        EventPoll::Close => service.connection = None,
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
                let left = if matches!(held.get(&index), Some(HeldState::Owned(_) | HeldState::Releasing(_))) {
                    lease_until.saturating_sub(now)
                } else {
                    0
                };
                if let Ok(Ownership { owned: true, epoch, valid_for_ms, .. }) =
                    session.owned("jobs", index, |_| left, now)
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
                    let of = held.values_mut().find(|held| **held == HeldState::Acquiring(sequence));
                    // Otherwise it is lost, and the session does not know it yet.
                    if let Some(of) = of {
                        *of = HeldState::Owned(sequence);
                    }
                }
                Effect::Refused { partition, .. } | Effect::Released { partition, .. } => {
                    let gone = held.remove(&partition.index);
                    if let Some(HeldState::Acquiring(of) | HeldState::Owned(of) | HeldState::Releasing(of)) = gone {
                        given_up.insert(of, now);
                    }
                }
                Effect::Drop(_) | Effect::Load { .. } | Effect::Stop => {}
            }
        }
        if session.is_over() {
            // The participant stops: releases end at once.
            for (_, HeldState::Acquiring(of) | HeldState::Owned(of) | HeldState::Releasing(of)) in
                std::mem::take(&mut held)
            {
                given_up.entry(of).or_insert(now);
            }
        }
        if now >= lease_until {
            assert!(now >= service.valid_until, "the service may act beyond the lease, after {step:?}");
            assert!(service.asked.iter().all(|(_, until)| now >= *until), "asked beyond the lease, after {step:?}");
            for (index, HeldState::Acquiring(of) | HeldState::Owned(of) | HeldState::Releasing(of)) in
                std::mem::take(&mut held)
            {
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

#[test]
fn heartbeat_beside_a_stalled_stream_extends_nothing() {
    let heartbeat =
        [Step::SendHeartbeat, Step::HeartbeatArrives { which: 0, repeated: false }, Step::PermissionArrives(0)];
    let acquire = [Step::Offer(0), Step::Read(1), Step::Answer { which: 0, refuses: false }];
    let lose = [Step::Lose(0), Step::DeliverLoss(0), Step::Wait(200), Step::ExtendLease];
    let until_others_own_it = [Step::Wait(399), Step::Wait(399), Step::Wait(50)];
    run(&[&acquire[..], &heartbeat, &lose, &heartbeat, &until_others_own_it].concat());
}

#[test]
fn heartbeat_before_the_delivery_of_a_loss_permits_nothing() {
    let heartbeat =
        [Step::SendHeartbeat, Step::HeartbeatArrives { which: 0, repeated: false }, Step::PermissionArrives(0)];
    let acquire = [Step::Offer(0), Step::Read(1), Step::Answer { which: 0, refuses: false }];
    let lose = [Step::Lose(0), Step::Wait(399), Step::Wait(399), Step::ExtendLease];
    let until_others_own_it = [Step::DeliverLoss(0), Step::Wait(399), Step::Wait(350), Step::Wait(50)];
    run(&[&acquire[..], &heartbeat, &lose, &heartbeat, &until_others_own_it].concat());
}
