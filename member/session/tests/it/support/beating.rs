//! A member that sends heartbeats, and records their answers.

use super::SOON;
use archon_member::{AnsweredRound, AttemptTarget, GrantOutcome, HeartbeatPace, LeaseAnswer};
use archon_proto::convert::members::beats::{Beat, ClusterNow};
use archon_proto::convert::members::session::Member;
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_security::BeatKey;
use archon_session::{BeatingMember, BootClock, Coordinators, send_heartbeats};
use archon_types::{ErrorDetail, ErrorKind, FencingProof, NodeId, RelayAddress, Version};
use std::convert::Infallible;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// An event of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// It processed the lease of this heartbeat, of so many milliseconds.
    Taken(u64, u64),
    /// This heartbeat ended a round: a relay brought its answer and named the next departure, or a coordinator.
    Answered(u64, Option<u64>),
    /// A round failed.
    Failed,
    /// The process at this address reported a fenced incarnation.
    Over(FencingProof, String),
    /// Table updates came, complete up to this version, or with an error.
    News(Result<Version, ErrorKind>),
    /// The incarnation is fenced, and its last heartbeat was sent.
    Fenced,
}

/// The events of a member, in order.
pub struct Events(mpsc::UnboundedReceiver<Event>);

impl Events {
    /// Returns all events up to the next one for which `is_last`.
    pub async fn until(&mut self, is_last: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        while !events.last().is_some_and(&is_last) {
            let next = timeout(SOON, self.0.recv()).await;
            events.push(next.unwrap_or_else(|_| panic!("no further event after {events:?}")).expect("a sender"));
        }
        events
    }

    /// Returns all events up to the first processed lease.
    pub async fn until_taken(&mut self) -> Vec<Event> {
        self.until(|event| matches!(event, Event::Taken(..))).await
    }

    /// Returns all events up to the first answered round.
    pub async fn until_answered(&mut self) -> Vec<Event> {
        self.until(|event| matches!(event, Event::Answered(..))).await
    }

    /// Returns all events up to this one.
    pub async fn until_event(&mut self, last: Event) -> Vec<Event> {
        self.until(|event| *event == last).await
    }
}

/// A member, with its relays.
pub struct TestMember<'a> {
    pub coordinators: &'a Coordinators,
    pub member: Member,
    pub relays: Vec<RelayAddress>,
    pub key: Option<BeatKey>,
    pub pace: HeartbeatPace,
    /// The cluster data that answers must have.
    pub now: ClusterNow,
}

impl TestMember<'_> {
    /// Runs `test` with the events of this member, while it sends heartbeats.
    pub async fn run<T>(&self, test: impl AsyncFnOnce(&mut Events) -> T) -> T {
        let (fenced, heard) = mpsc::unbounded_channel();
        let mut beating = Beating { member: self, sent: 0, events: fenced.clone() };
        let sends = async {
            let (key, pace) = (self.key.as_ref(), self.pace);
            send_heartbeats(self.coordinators, &BootClock, self.member, key, pace, &mut beating).await;
            fenced.send(Event::Fenced).unwrap();
            std::future::pending::<Infallible>().await
        };
        let mut events = Events(heard);
        tokio::select! {
            never = sends => match never {},
            result = test(&mut events) => result,
        }
    }
}

struct Beating<'a> {
    member: &'a TestMember<'a>,
    /// Number of the last heartbeat.
    sent: u64,
    events: mpsc::UnboundedSender<Event>,
}

impl Beating<'_> {
    fn note(&self, event: Event) {
        // A test that has ended needs no events.
        let _ = self.events.send(event);
    }

    fn node(&self) -> NodeId {
        self.member.member.node
    }
}

impl BeatingMember for Beating<'_> {
    fn begin_round(&mut self) -> Option<Vec<RelayAddress>> {
        Some(self.member.relays.clone())
    }

    fn next_beat(&mut self) -> Beat {
        self.sent += 1;
        super::beat(self.node(), self.member.member.incarnation, self.sent)
    }

    fn take_lease(&mut self, answer: LeaseAnswer, now: ClusterNow) -> GrantOutcome {
        assert_eq!((answer.node, now), (self.node(), self.member.now));
        self.note(Event::Taken(answer.number, answer.lease_ms));
        GrantOutcome::Granted { lapsed_ms: 0, withdrawn: answer.withdrawn }
    }

    fn round_answered(&mut self, round: &AnsweredRound<String>) {
        assert_eq!(round.departure_ms.is_some(), matches!(round.by, AttemptTarget::Relay(_)));
        self.note(Event::Answered(round.number, round.departure_ms));
    }

    fn round_failed(&mut self) {
        self.note(Event::Failed);
    }

    fn told_over(&mut self, over: FencingProof, sender: &str) -> bool {
        self.note(Event::Over(over, sender.to_owned()));
        (over.node, over.incarnation) == (self.node(), self.member.member.incarnation)
    }

    fn take_news(&mut self, news: Result<TableUpdates, ErrorDetail>) {
        self.note(Event::News(news.map(|news| news.complete).map_err(|detail| detail.kind)));
    }

    async fn hurried(&self) {
        std::future::pending().await
    }
}
