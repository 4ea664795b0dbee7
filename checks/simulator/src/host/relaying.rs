//! Relaying of a machine, and its knowledge of the nodes: the product's relay with the world's batches, streams and
//! clocks.

use super::rounds::Round;
use crate::check::Violation;
use crate::event::{Answered, BatchId, ClusterNow, Event, MemberMessage, News, PeerMessage};
use crate::mutant::ShellMutant;
use crate::network::End;
use crate::world::World;
use archon_host::Life;
use archon_member::{
    Broken, Carried, Heartbeat, LeaseAnswer, Relay, RelayEffect, ReturnAddress, Rows, Took, Towards, Ways,
};
use archon_replica::Message;
use archon_types::{
    ClusterId, DoorReport, Incarnation, LeaseTiming, Millis, Node, NodeId, NodeStatus, Over, RelayCandidate,
    RemovedNodes, Version, carried_max, doors_of, relays, relays_of,
};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Heartbeats that wait while a process has no incarnation in which to carry them.
const WAITING_MAX: usize = 64;
/// Maximum number of machines: a stream number contains the machine, and which of its processes.
const MACHINES: u64 = 1 << 16;

/// A heartbeat as a relay sees it.
#[derive(Clone, Debug)]
pub(crate) struct CarriedBeat {
    pub(crate) heartbeat: Heartbeat,
    pub(crate) stopping: bool,
    /// Version up to which its member holds everything.
    pub(crate) holds: Version,
    /// Its member's probe results.
    pub(crate) doors: Option<DoorReport>,
    /// Time of arrival, on the relay's clock.
    pub(crate) came: Millis,
}

impl Carried for CarriedBeat {
    fn node(&self) -> NodeId {
        self.heartbeat.node()
    }

    fn incarnation(&self) -> Incarnation {
        self.heartbeat.incarnation()
    }

    fn number(&self) -> u64 {
        self.heartbeat.number()
    }
}

/// A relay's message to a member.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// A coordinator's answer or fencing, with the member's updates; the time of the next batch; and the cluster
    /// description.
    Answer {
        heartbeat: Heartbeat,
        lease: Option<LeaseAnswer>,
        news: Option<Box<News>>,
        departure_ms: u64,
        cluster: ClusterNow,
    },
    NoCoordinator,
    Busy,
    Over(Over),
}

/// Last received rows of the nodes.
#[derive(Debug, Default)]
pub(crate) struct NodeRows {
    nodes: BTreeMap<NodeId, Node>,
    removed: RemovedNodes,
    /// Maximum number of members it carries, if below that of the rows.
    few: Option<usize>,
}

impl NodeRows {
    fn alive(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes.values().filter(|node| node.status == NodeStatus::Alive)
    }

    /// Returns the probe targets of a node, each in its current incarnation.
    pub(super) fn doors_of(&self, keeper: NodeId) -> Vec<(NodeId, Incarnation)> {
        let doors = doors_of(cluster(), keeper, self.alive().map(RelayCandidate::of));
        doors.iter().filter_map(|node| Some((*node, self.nodes.get(node)?.incarnation))).collect()
    }

    /// Returns true if these are exactly the known rows.
    pub(crate) fn are<'a>(&self, rows: impl Iterator<Item = &'a Node>) -> bool {
        self.nodes.values().eq(rows)
    }

    /// Returns the address of a node.
    pub(super) fn address(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(&node).map(|row| row.address.as_str())
    }

    /// Returns the relays of a member, given their number.
    pub(super) fn relays_of(&self, member: NodeId, count: usize) -> Vec<NodeId> {
        let relays = relays(cluster(), self.alive().map(RelayCandidate::of), count);
        let zone = self.nodes.get(&member).and_then(|node| node.zone.as_deref());
        relays_of(member, zone, &relays)
    }
}

impl Rows for NodeRows {
    fn members_max(&self) -> usize {
        self.few.unwrap_or_else(|| carried_max(self.alive().count()))
    }

    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<Over> {
        if self.removed.contains(node) {
            return Some(Over { node, incarnation, version: self.removed.version });
        }
        self.nodes.get(&node)?.over(incarnation)
    }
}

/// Returns the world's only cluster.
fn cluster() -> ClusterId {
    ClusterId::new(Uuid::from_u128(1))
}

/// A process's state as a relay and as a relayed member.
#[derive(Debug, Default)]
pub(crate) struct Relaying {
    pub(crate) rows: NodeRows,
    /// Number of relays, from the last answer.
    pub(super) count: usize,
    pub(super) ways: Ways,
    pub(super) round: Option<Round>,
    /// Number of rounds in which it may still ask the coordinators directly.
    pub(super) straight: u32,
    /// True if a relay brought the last answer.
    pub(crate) carried: bool,
    relay: Option<Relay<CarriedBeat>>,
    /// Heartbeats that arrived without an incarnation.
    waiting: Vec<(ReturnAddress, CarriedBeat)>,
}

impl Relaying {
    pub(super) fn begin_life(&mut self, timing: LeaseTiming, now: Millis, broken: Broken) {
        self.end_life();
        self.ways = Ways::default().broken_by(broken);
        self.relay = Some(Relay::new(timing, now).broken_by(broken));
    }

    pub(super) fn end_life(&mut self) {
        (self.count, self.round, self.relay, self.carried, self.straight) = (0, None, None, false, 0);
    }

    /// Takes in rows of nodes. Returns the notifications to members whose incarnations they fence.
    pub(super) fn take_rows(&mut self, rows: Vec<Node>, removed: RemovedNodes) -> Vec<RelayEffect<CarriedBeat>> {
        self.rows.nodes = rows.into_iter().map(|row| (row.id, row)).collect();
        self.rows.removed.renew(Some(removed));
        self.relay.as_mut().map(|relay| relay.rows_changed(&self.rows)).unwrap_or_default()
    }

    /// Limits the number of members it carries.
    pub(crate) fn carry_for_few(&mut self, few: Option<usize>) {
        self.rows.few = few;
    }

    /// Ends streams of members.
    pub(crate) fn break_streams(&mut self, streams: impl IntoIterator<Item = u64>) {
        if let Some(relay) = &mut self.relay {
            streams.into_iter().for_each(|stream| relay.ended(stream));
        }
    }
}

/// Returns the stream number of a machine's process.
pub(crate) fn stream(host: usize, boot: u64) -> u64 {
    boot * MACHINES + host as u64
}

impl World {
    /// Runs the due work of a relay.
    pub(super) fn keep_relaying(&mut self, host: usize) {
        let now = self.local(host);
        let Some(process) = self.hosts[host].process.as_mut().filter(|_| self.plan.relays) else { return };
        let Some(relay) = &mut process.relaying.relay else { return };
        let effects = relay.due(now);
        let waiting = std::mem::take(&mut process.relaying.waiting);
        for (from, beat) in waiting {
            self.carry_beat(host, from, beat);
        }
        self.perform(host, effects);
    }

    pub(super) fn perform(&mut self, host: usize, effects: Vec<RelayEffect<CarriedBeat>>) {
        for effect in effects {
            match effect {
                RelayEffect::Depart { batch, beats, towards } => self.depart(host, batch, beats, towards),
                RelayEffect::NoCoordinator(to) => self.say_no_coordinator(host, to),
                RelayEffect::Over(to, over) => self.tell_member(host, to, Said::Over(over)),
            }
        }
    }

    fn depart(&mut self, host: usize, number: u64, beats: Vec<CarriedBeat>, towards: Towards) {
        let now = self.local(host);
        let Some(Life { incarnation, .. }) = self.life(host) else { return };
        self.coverage.batches_carried += 1;
        self.coverage.beats_carried += beats.len() as u64;
        let heartbeat_ms = self.plan.unit_ms();
        if let Some(old) = beats.iter().find(|beat| now.since(beat.came) > heartbeat_ms) {
            let (beat, age) = (old.heartbeat, now.since(old.came));
            let detail = format!("host {host} passes on {beat:?} as a sign of life, which came {age} ms ago");
            return self.judge(Err(Violation::Relayed { detail }));
        }
        let batch = BatchId { relay: incarnation, number };
        let Some(guess) = self.hosts[host].process.as_ref().map(|process| process.guess) else { return };
        self.send_up(host, guess, towards == Towards::Everybody, &MemberMessage::Beats { batch, beats });
    }

    /// Relays a member's heartbeat.
    pub(super) fn carry_beat(&mut self, host: usize, from: ReturnAddress, beat: CarriedBeat) {
        let (now, lease_ms) = (self.local(host), self.plan.settings.timing.lease_ms);
        let alone = self.breaks(ShellMutant::RelayAnswersAlone);
        let Some(process) = &mut self.hosts[host].process else { return };
        let relaying = &mut process.relaying;
        let Some(relay) = &mut relaying.relay else {
            if relaying.waiting.len() < WAITING_MAX {
                relaying.waiting.push((from, beat));
            }
            return;
        };
        let (heartbeat, came) = (beat.heartbeat, beat.came);
        match relay.heard(from, beat, &relaying.rows, came) {
            Took::Leaves | Took::Old => {}
            Took::Over(over) => self.tell_member(host, from, Said::Over(over)),
            Took::Waits if alone => {
                let (lease, departure_ms) =
                    (Some(heartbeat.answer(lease_ms, Vec::new())), relay.next_departure_ms(now));
                let cluster = ClusterNow { relays: relaying.count, door_every_ms: process.knocking.every_ms() };
                self.tell_member(host, from, Said::Answer { heartbeat, lease, news: None, departure_ms, cluster });
            }
            Took::Waits => self.say_no_coordinator(host, from),
            Took::Busy => {
                self.coverage.relays_busy += 1;
                self.tell_member(host, from, Said::Busy);
            }
        }
    }

    /// Handles a coordinator's answer to a batch of this incarnation.
    pub(super) fn pass_back(
        &mut self,
        host: usize,
        by: usize,
        batch: BatchId,
        answers: Vec<Answered>,
        cluster: ClusterNow,
    ) {
        let now = self.local(host);
        if !self.lives(host, batch.relay) {
            return;
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(relay) = &mut process.relaying.relay else { return };
        process.guess = by;
        let named = answers.iter().map(|(beat, ..)| (beat.node(), beat.incarnation(), beat.number()));
        let routes = relay.answered(batch.number, named);
        let departure_ms = relay.next_departure_ms(now);
        for ((heartbeat, lease, news), to) in answers.into_iter().zip(routes) {
            let Some(to) = to else { continue };
            self.coverage.answers_routed += 1;
            self.tell_member(host, to, Said::Answer { heartbeat, lease, news, departure_ms, cluster });
        }
    }

    /// Handles a refusal of a batch of this incarnation: its receiver does not lead.
    pub(super) fn batch_refused(&mut self, host: usize, batch: BatchId, leader: Option<usize>) {
        let now = self.local(host);
        let Some(guess) = self.hosts[host].process.as_ref().map(|process| process.guess) else { return };
        let guess = self.next_guess(host, guess, leader);
        let lives = self.lives(host, batch.relay);
        let Some(process) = self.hosts[host].process.as_mut().filter(|_| lives) else { return };
        process.guess = guess;
        let Some(relay) = &mut process.relaying.relay else { return };
        let effects = relay.refused(batch.number, now);
        self.perform(host, effects);
    }

    fn say_no_coordinator(&mut self, host: usize, to: ReturnAddress) {
        self.coverage.no_coordinator_told += 1;
        self.tell_member(host, to, Said::NoCoordinator);
    }

    fn tell_member(&mut self, host: usize, to: ReturnAddress, said: Said) {
        let Ok(member) = usize::try_from(to.stream % MACHINES) else { return };
        self.pass_to_peer(host, member, PeerMessage::Relayed { to, said });
    }

    /// Sends a message to another machine, or back to this one.
    pub(super) fn pass_to_peer(&mut self, host: usize, other: usize, message: PeerMessage) {
        let event = Event::PeerMessage { host: other, message: Box::new(message) };
        if other == host {
            return self.after(1, event);
        }
        self.send(End::Host(host), End::Host(other), event);
    }

    /// Notifies the sender of a fenced incarnation, by a row held here, and ignores its message.
    pub(super) fn says_over(&mut self, host: usize, message: &Message) -> bool {
        if !self.plan.relays {
            return false;
        }
        let from = Life { node: message.from.node, incarnation: message.from.incarnation };
        let Some(process) = &self.hosts[host].process else { return false };
        let Some(over) = process.relaying.rows.over(from.node, from.incarnation) else { return false };
        // On the stream by which it came.
        let sender = (0..self.hosts.len()).find(|other| self.life(*other).is_some_and(|life| life.node == from.node));
        if let Some(sender) = sender {
            self.pass_to_peer(host, sender, PeerMessage::Over(over));
        }
        true
    }
}
