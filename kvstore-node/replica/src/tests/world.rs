//! World of several replicas, a lossy network, disks that lose writes, and a coordinator, driven by one seed.

use super::coordinator::{Coordinator, PARTITION};
use super::disk::Disk;
use super::random::Random;
use crate::invariants::{DurableState, Epochs, Ledger, Violation, live_hold_acknowledged};
use crate::{Configuration, Entry, Identity, Input, Limits, Message, Mutant, Position, Replica};
use archon_types::{Incarnation, Millis, NodeId, PlacementId, ReplicaState, Report, Seq};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A copy being pulled: its source, its pinned position, and the last key.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) number: u64,
    pub(super) from: crate::ReplicaAddress,
    pub(super) at: Option<Position>,
    pub(super) key: u16,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) placement: PlacementId,
    pub(super) incarnation: Incarnation,
    pub(super) replica: Option<Replica>,
    pub(super) disk: Disk,
    /// The log as the shell knows it: entries handed to the disk, durable or not.
    pub(super) window: Vec<Entry>,
    pub(super) copy: Option<Copy>,
    pub(super) serving: bool,
}

#[derive(Debug)]
pub(super) struct World {
    random: Random,
    pub(super) now: Millis,
    pub(super) coordinator: Coordinator,
    pub(super) nodes: Vec<Node>,
    pub(super) network: Vec<Message>,
    pub(super) reports: Vec<(PlacementId, Incarnation, Report)>,
    pub(super) pushes: Vec<(PlacementId, Incarnation, Configuration)>,
    pub(super) ledger: Ledger,
    pub(super) epochs: Epochs,
    pub(super) acknowledged: Seq,
    tickets: u64,
    pub(super) reads: BTreeMap<u64, Seq>,
    mutant: Option<Mutant>,
    pub(super) faults: bool,
    /// Replicas cut off from the others and from the coordinator, and until when.
    pub(super) away: (BTreeSet<PlacementId>, Millis),
    /// Frequency of elections and crashes in this run, in percent of the maximum.
    turmoil: u64,
    pub(super) served: u64,
    pub(super) copies: u64,
    pub(super) reads_done: u64,
    trace: VecDeque<String>,
}

pub(super) type CheckResult = Result<(), Violation>;

fn limits() -> Limits {
    Limits {
        append_entries_max: 3,
        append_bytes_max: 64,
        in_flight_appends_max: 3,
        catch_up_bytes_max: 1_024,
        recent_bytes_max: 24,
        ..Limits::default()
    }
}

impl World {
    pub(super) fn new(seed: u64, states: &[ReplicaState], min: u8, mutant: Option<Mutant>) -> Self {
        let coordinator = Coordinator::new(states, min);
        let nodes = coordinator.row.placements.iter().map(|placement| Node {
            placement: placement.id,
            incarnation: Incarnation::new(1),
            replica: None,
            disk: Disk::default(),
            window: Vec::new(),
            copy: None,
            serving: false,
        });
        let mut world = Self {
            nodes: nodes.collect(),
            random: Random::new(seed),
            now: Millis::new(1_000),
            coordinator,
            network: Vec::new(),
            reports: Vec::new(),
            pushes: Vec::new(),
            ledger: Ledger::default(),
            epochs: Epochs::default(),
            acknowledged: Seq::ZERO,
            tickets: 0,
            reads: BTreeMap::new(),
            mutant,
            faults: true,
            away: (BTreeSet::new(), Millis::ZERO),
            turmoil: 0,
            served: 0,
            copies: 0,
            reads_done: 0,
            trace: VecDeque::new(),
        };
        world.turmoil = [5, 20, 100][world.random.below(3)];
        for index in 0..world.nodes.len() {
            world.start(index, Incarnation::new(1));
        }
        world
    }

    pub(super) fn start(&mut self, index: usize, incarnation: Incarnation) {
        let node = &mut self.nodes[index];
        let recovered = node.disk.crash();
        node.window = node.disk.entries.clone();
        node.incarnation = incarnation;
        node.copy = None;
        node.serving = false;
        let identity = Identity {
            partition: PARTITION,
            placement: node.placement,
            node: NodeId::new(node.placement.get()),
            incarnation,
        };
        let mut replica = Replica::new(identity, recovered, limits()).unwrap();
        replica.set_mutant(self.mutant);
        node.replica = Some(replica);
        self.push(index);
    }

    pub(super) fn push(&mut self, index: usize) {
        let node = &self.nodes[index];
        self.pushes.push((node.placement, node.incarnation, self.coordinator.configuration()));
    }

    pub(super) fn push_all(&mut self) {
        (0..self.nodes.len()).for_each(|index| self.push(index));
    }

    pub(super) fn index(&self, placement: PlacementId) -> usize {
        self.nodes.iter().position(|node| node.placement == placement).unwrap()
    }

    pub(super) fn note(&mut self, line: String) {
        if self.trace.len() >= 2_000 {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    /// Checks S for the replicas that the coordinator counts as Live now.
    pub(super) fn check(&self) -> CheckResult {
        let live = self.nodes.iter().filter(|node| self.coordinator.state(node.placement) == Some(ReplicaState::Live));
        let held = live.map(|node| DurableState {
            placement: node.placement,
            base: node.disk.base,
            entries: &node.disk.entries,
        });
        live_hold_acknowledged(held, self.ledger.entries(), self.acknowledged)
    }

    /// Runs one random event.
    pub(super) fn random_step(&mut self) -> CheckResult {
        self.now = self.now.plus(self.random.next() % 8);
        let index = self.random.below(self.nodes.len());
        match self.random.below(100) {
            0..=34 => self.deliver()?,
            35..=52 => self.complete(index)?,
            53..=64 => self.propose(index)?,
            65..=69 => {
                self.now = self.now.plus(self.random.next() % 60);
                self.step(index, Input::Tick)?;
            }
            70..=78 => self.deliver_push()?,
            79..=85 => self.deliver_report()?,
            86..=88 => self.copy_page(index)?,
            90 if self.random.percent(30) => self.cut_off(),
            90 => self.trim(index)?,
            89 | 91 => {
                let serving: Vec<usize> = (0..self.nodes.len()).filter(|index| self.nodes[*index].serving).collect();
                let chosen = serving.get(self.random.below(serving.len())).copied();
                self.read(chosen.unwrap_or(index))?;
            }
            92 => {
                let valid = self.random.percent(80);
                self.step(index, Input::Lease(valid))?;
            }
            93 => self.now = self.now.plus(self.random.next() % 600),
            94 | 95 if self.random.percent(self.turmoil) => self.hand_over()?,
            96 if self.random.percent(self.turmoil.max(10)) => self.elect(),
            97 if self.random.percent(self.turmoil * 3 / 5) => self.crash(index)?,
            98 if self.random.percent(self.turmoil / 6) => {
                for index in 0..self.nodes.len() {
                    self.crash(index)?;
                }
            }
            _ => {
                let index = self.index(self.coordinator.row.placements[index].id);
                self.push(index);
            }
        }
        self.check()
    }

    pub(super) fn deliver(&mut self) -> CheckResult {
        if self.network.is_empty() {
            return Ok(());
        }
        // Mostly in order, sometimes not; sometimes twice, sometimes never.
        let reorder = self.faults && self.random.percent(25);
        let chosen = if reorder { self.random.below(self.network.len()) } else { 0 };
        let again = self.faults && self.random.percent(8);
        let message = if again { self.network[chosen].clone() } else { self.network.remove(chosen) };
        let apart = self.is_away(message.from.placement) != self.is_away(message.to.placement);
        if apart || (self.faults && self.random.percent(6)) {
            return Ok(());
        }
        if self.faults && self.network.len() > 200 {
            self.network.clear();
        }
        let index = self.index(message.to.placement);
        self.step(index, Input::Message(message))
    }

    pub(super) fn cut_off(&mut self) {
        let chosen = self.nodes.iter().map(|node| node.placement).collect::<Vec<_>>();
        let away = chosen.into_iter().filter(|_| self.random.percent(50)).collect();
        self.away = (away, self.now.plus(500 + self.random.next() % 4_000));
        self.note(format!("{} cut off {:?}", self.now, self.away));
        if self.random.percent(50) {
            self.elect();
        }
    }

    pub(super) fn is_away(&self, placement: PlacementId) -> bool {
        self.now < self.away.1 && self.away.0.contains(&placement)
    }

    pub(super) fn complete(&mut self, index: usize) -> CheckResult {
        match self.nodes[index].disk.complete_one() {
            Some(token) if self.nodes[index].replica.is_some() => self.step(index, Input::Persisted { token }),
            _ => Ok(()),
        }
    }

    pub(super) fn propose(&mut self, index: usize) -> CheckResult {
        let index = if self.random.percent(80) {
            self.coordinator.row.leader.map_or(index, |leader| self.index(leader))
        } else {
            index
        };
        self.tickets += 1;
        let mut bytes = vec![(self.random.next() % 16) as u8];
        bytes.extend(self.tickets.to_be_bytes());
        self.step(index, Input::Propose { ticket: self.tickets, entry: Bytes::from(bytes) })
    }

    pub(super) fn read(&mut self, index: usize) -> CheckResult {
        self.tickets += 1;
        self.reads.insert(self.tickets, self.acknowledged);
        self.step(index, Input::Confirm { ticket: self.tickets })
    }

    pub(super) fn deliver_push(&mut self) -> CheckResult {
        if self.pushes.is_empty() {
            return Ok(());
        }
        let chosen = if self.faults { self.random.below(self.pushes.len()) } else { 0 };
        let again = self.faults && self.random.percent(20);
        let (placement, incarnation, configuration) =
            if again { self.pushes[chosen].clone() } else { self.pushes.remove(chosen) };
        if self.pushes.len() > 60 {
            self.pushes.drain(..30);
        }
        let index = self.index(placement);
        if self.nodes[index].incarnation != incarnation || self.is_away(placement) {
            return Ok(());
        }
        self.step(index, Input::Configure(configuration))
    }

    pub(super) fn deliver_report(&mut self) -> CheckResult {
        if self.reports.is_empty() {
            return Ok(());
        }
        let chosen = if self.faults { self.random.below(self.reports.len()) } else { 0 };
        let again = self.faults && self.random.percent(20);
        let (placement, incarnation, report) =
            if again { self.reports[chosen].clone() } else { self.reports.remove(chosen) };
        let lost = self.is_away(placement) || (self.faults && self.random.percent(15));
        if lost || self.coordinator.incarnations.get(&placement) != Some(&incarnation) {
            return Ok(());
        }
        let before = self.coordinator.row.version;
        self.note(format!("{} coordinator <- {report:?}", self.now));
        self.coordinator.report(&report);
        if self.coordinator.row.version != before {
            self.push_all();
        }
        self.check()
    }

    pub(super) fn copy_page(&mut self, index: usize) -> CheckResult {
        let Some(copy) = &self.nodes[index].copy else { return Ok(()) };
        let (from, key, pinned) = (copy.from, copy.key, copy.at);
        let source = self.index(from.placement);
        let (leader, here) = (&self.nodes[source], self.nodes[source].serving);
        if leader.incarnation != from.incarnation || !here {
            return Ok(());
        }
        let replica = leader.replica.as_ref().unwrap();
        let version = replica.version();
        let Some(at) = pinned.or_else(|| replica.position_at(leader.disk.applied)) else { return Ok(()) };
        let page = u8::try_from(key).ok().and_then(|key| leader.disk.engine.get(&key).map(|value| (key, *value)));
        let node = &mut self.nodes[index];
        if let Some((key, value)) = page {
            node.disk.engine.insert(key, value);
        }
        let Some(copy) = &mut node.copy else { return Ok(()) };
        (copy.at, copy.key) = (Some(at), key + 1);
        if copy.key > 16 {
            let number = copy.number;
            node.copy = None;
            return self.step(index, Input::Copied { copy: number, at, version });
        }
        Ok(())
    }

    pub(super) fn trim(&mut self, index: usize) -> CheckResult {
        let address = self.nodes[index].placement;
        let pins = self.nodes.iter().filter_map(|node| node.copy.as_ref());
        let pin = pins.filter(|copy| copy.from.placement == address).filter_map(|copy| copy.at).map(|at| at.seq).min();
        let node = &self.nodes[index];
        if node.replica.is_none() || !node.disk.under_way.is_empty() {
            return Ok(());
        }
        let upto = node.disk.applied.min(node.disk.last()).min(pin.unwrap_or(node.disk.applied));
        self.nodes[index].disk.trim(upto);
        self.nodes[index].window.retain(|entry| entry.at.seq > upto);
        self.step(index, Input::Trimmed { upto })
    }

    pub(super) fn hand_over(&mut self) -> CheckResult {
        let row = &self.coordinator.row;
        let (Some(leader), epoch) = (row.leader, row.epoch) else { return Ok(()) };
        let heirs: Vec<PlacementId> = row.live().map(|live| live.id).filter(|id| *id != leader).collect();
        if heirs.is_empty() {
            return Ok(());
        }
        let to = heirs[self.random.below(heirs.len())];
        self.coordinator.handing = Some((epoch, to));
        let index = self.index(leader);
        let input = if self.random.percent(85) { Input::HandOver { epoch, to } } else { Input::KeepLeading { epoch } };
        self.step(index, input)
    }

    pub(super) fn elect(&mut self) {
        let live = self.coordinator.row.live().map(|live| live.id);
        let live: Vec<PlacementId> = live.filter(|id| !self.is_away(*id)).collect();
        if live.is_empty() {
            return;
        }
        let chosen = live[self.random.below(live.len())];
        self.note(format!("{} coordinator elects {chosen}", self.now));
        self.coordinator.elect(chosen);
        self.push_all();
    }

    pub(super) fn crash(&mut self, index: usize) -> CheckResult {
        let placement = self.nodes[index].placement;
        // Some pending writes may have reached the disk.
        while self.random.percent(40) && self.nodes[index].disk.complete_one().is_some() {}
        self.nodes[index].replica = None;
        let incarnation = self.coordinator.register(placement);
        self.note(format!("{} node {} restarts as {incarnation}", self.now, index + 1));
        self.start(index, incarnation);
        self.epochs.persisted(placement, self.nodes[index].disk.epoch)?;
        self.push_all();
        Ok(())
    }

    /// Returns the number of positions ever committed.
    pub(super) fn committed(&self) -> u64 {
        self.ledger.last().get()
    }

    /// Returns the last steps before the end.
    pub(super) fn tail(&self, lines: usize) -> String {
        let skip = self.trace.len().saturating_sub(lines);
        self.trace.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }
}
