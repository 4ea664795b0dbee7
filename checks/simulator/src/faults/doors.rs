//! Live nodes that clients do not reach (closed doors), and the checks of the coordinators' reaction after all other
//! faults (rules 73 to 76).

use crate::coordinator::member::host_of;
use crate::event::Event;
use crate::host::door::{Door, Unreachability};
use crate::network::End;
use crate::world::World;
use archon_types::{
    Epoch, NodeId, NodeStatus, PartitionId, PartitionStatus, PlacementId, RelayCandidate, Settings, keepers, keepers_of,
};
use std::collections::{BTreeMap, BTreeSet};

/// State of a partition: epoch, leader, and placements by node.
type PartitionState = (Epoch, Option<NodeId>, BTreeSet<(PlacementId, NodeId)>);
type PartitionStates = BTreeMap<PartitionId, PartitionState>;

/// Maximum number of consecutive waits for rest.
const RESTS: usize = 20;

impl World {
    fn node_at(&self, host: usize) -> Option<NodeId> {
        self.life(host).map(|life| life.node)
    }

    fn host_with(&self, node: NodeId) -> Option<usize> {
        host_of(&self.quorum.state.node(node)?.node.address)
    }

    /// Returns the machines that probe this one, by the committed rows.
    fn keepers_at(&self, host: usize) -> Vec<usize> {
        let state = &self.quorum.state;
        let alive = state.nodes.values().filter(|row| row.node.status == NodeStatus::Alive);
        let keepers = keepers(state.cluster, alive.map(|row| RelayCandidate::of(&row.node)));
        let own = self.node_at(host).and_then(|node| state.node(node));
        let two = own.map(|row| keepers_of(RelayCandidate::of(&row.node), &keepers)).unwrap_or_default();
        two.into_iter().filter_map(|node| self.host_with(node)).collect()
    }

    fn shut_door(&mut self, host: usize, until: u64) {
        let how = self
            .doors
            .random
            .pick(&[Unreachability::Dropped, Unreachability::Refused, Unreachability::Unanswered])
            .unwrap_or(Unreachability::Dropped);
        self.note(|| format!("the door of host {host} is shut until {until}: {how:?}"));
        self.coverage.doors_shut += 1;
        self.hosts[host].door.shut = Some((how, until));
    }

    /// Makes one node or several unreachable, or one node for one prober only, while another member is in trouble.
    pub(crate) fn around_a_door(&mut self, leader: usize) {
        let (unit, settings) = (self.plan.unit_ms(), self.plan.settings.clone());
        let (silent, timeout) = (settings.door_silent_ms, settings.timing.failure_timeout_ms);
        let until = self.truth + self.random.between(silent, silent * 4);
        let keepers = self.keepers_at(leader);
        self.theme_until = until + self.random.between(0, settings.door_trust_ms);
        match self.random.below(8) {
            0 => self.shut_door(leader, until),
            1 => {
                // One of its probers does not reach it.
                let Some(keeper) = self.random.pick(&keepers) else { return };
                self.note(|| format!("the door of host {leader} is shut to host {keeper} until {until}"));
                self.hosts[leader].door.shut_to = Some((keeper, until));
            }
            2 => {
                // Several at once.
                let part = self.random.between(2, self.hosts.len() as u64);
                for host in 0..self.hosts.len() {
                    if host == leader || self.random.below(part) == 0 {
                        self.shut_door(host, until);
                    }
                }
            }
            3 => {
                // The coordinator that received the reports stops leading.
                self.shut_door(leader, until);
                let when = self.random.between(1, silent + timeout);
                self.after(when, Event::Elect);
            }
            4 => {
                // A prober dies, or is paused and mistakes that for the silence of others.
                self.shut_door(leader, until);
                let Some(keeper) = self.random.pick(&keepers) else { return };
                if self.random.below(2) == 0 {
                    self.coverage.kills += 1;
                    self.kill(keeper);
                    self.come_back(keeper);
                } else {
                    self.coverage.pauses += 1;
                    self.hosts[keeper].paused_until = self.truth + self.random.between(unit, silent * 2);
                }
            }
            5 => {
                // The probers are cut off from all others, and consider them unreachable.
                let cut: Vec<End> = keepers.iter().copied().map(End::Host).collect();
                let others: Vec<End> =
                    (0..self.hosts.len()).map(End::Host).filter(|other| !cut.contains(other)).collect();
                self.part(&cut, &others, (0, until - self.truth));
            }
            6 => {
                // The successor dies, and the unreachable node has to lead again.
                self.shut_door(leader, until);
                let other = self.random.index(self.hosts.len());
                let when = self.random.between(silent, silent + timeout * 2);
                self.after(when, Event::PowerOff { hosts: vec![other], away: unit * 20 });
            }
            _ => {
                // It is in another incarnation when it becomes reachable.
                self.shut_door(leader, until);
                self.coverage.kills += 1;
                self.kill(leader);
                let soon = self.random.between(1, unit);
                self.after(soon, Event::Restart { host: leader });
            }
        }
    }

    /// Makes all nodes reachable.
    pub(crate) fn open_doors(&mut self) {
        for host in &mut self.hosts {
            host.door = Door::default();
        }
    }

    /// V: once everything else is well, an unreachable node leads only what no other node can lead, and nothing else
    /// changes, until it has been reachable for long enough.
    pub(crate) fn look_at_doors(&mut self) {
        if !self.plan.doors || self.violation.is_some() {
            return;
        }
        self.all_are_trusted();
        let Some(before) = self.at_rest() else { return };
        let leaders: Vec<usize> =
            self.quorum.state.data_rows().filter_map(|row| self.host_with(row.leader_placement()?.node)).collect();
        let Some(victim) = self.doors.random.pick(&leaders) else { return };
        match self.doors.random.below(4) {
            0 | 1 => self.one_door_is_shut(victim, &before),
            2 => self.a_door_is_shut_to_one(victim, &before),
            _ => self.many_doors_are_shut(victim, &before),
        }
        self.open_doors();
        self.all_are_trusted();
    }

    /// Returns the travel time of a probe report, under any leader.
    fn word_takes(&self) -> u64 {
        let Settings { door_every_ms, timing, .. } = &self.plan.settings;
        door_every_ms * 4 + timing.failure_timeout_ms * 4 + 2_000
    }

    fn one_door_is_shut(&mut self, victim: usize, before: &PartitionStates) {
        let Some(node) = self.node_at(victim) else { return };
        let answered = self.checks.answered.clone();
        let silent = self.plan.settings.door_silent_ms;
        self.shut_door(victim, u64::MAX);
        let longest = silent + self.word_takes();
        self.within(longest, "a node whose door is shut", |world| {
            (!world.unreached().contains(&node)).then(|| format!("{node} is not known to be unreached"))
        });
        self.within(longest, "what an unreached node leads", |world| world.led_for_nothing(node));
        self.within(longest * 3, "answers while a door is shut", |world| world.unanswered(&answered, node));
        let kept: Vec<PartitionId> = self
            .standings()
            .into_iter()
            .filter(|(_, (_, leader, _))| *leader == Some(node))
            .map(|(id, _)| id)
            .collect();
        self.run(self.truth + silent * 2);
        self.compare(before, |partition| kept.contains(&partition));
        if self.violation.is_none()
            && self.quorum.state.node(node).is_none_or(|row| row.node.status != NodeStatus::Alive)
        {
            return self.doors_broken(format!("{node} is failed, and its door alone was shut"));
        }
        // A new leader does not know of it.
        let judged_in = self.leading_term().filter(|_| self.unreached().contains(&node));
        self.open_doors();
        self.within(longest, "a node whose door is open", |world| {
            world.unreached().contains(&node).then(|| format!("{node} still counts as unreached"))
        });
        if let Some(term) = judged_in {
            self.is_not_trusted_too_soon(node, term);
        }
    }

    /// Checks that a node reachable again leads only what no other node can, until it has been reachable for long
    /// enough.
    fn is_not_trusted_too_soon(&mut self, node: NodeId, term: u64) {
        let opened = self.truth;
        // Checked in steps, and clocks differ.
        let trust = (self.plan.settings.door_trust_ms * 99 / 100).saturating_sub(250);
        while self.violation.is_none() && self.truth < opened + trust && self.leading_term() == Some(term) {
            if !self.spared().contains(&node) {
                let detail = format!("{node} is trusted {} ms after it was reached again", self.truth - opened);
                return self.doors_broken(detail);
            }
            self.run(self.truth + 50);
        }
    }

    fn a_door_is_shut_to_one(&mut self, victim: usize, before: &PartitionStates) {
        let keepers = self.keepers_at(victim);
        let Some(keeper) = self.doors.random.pick(&keepers) else { return };
        self.note(|| format!("the door of host {victim} is shut to host {keeper}"));
        self.hosts[victim].door.shut_to = Some((keeper, u64::MAX));
        self.run(self.truth + self.plan.settings.door_silent_ms * 2 + self.word_takes());
        let unreached = self.unreached();
        if !unreached.is_empty() {
            return self.doors_broken(format!("{unreached:?} are unreached, and a door is shut to one"));
        }
        self.compare(before, |_| true);
    }

    /// Makes many nodes unreachable: the coordinator declares no more of them unreachable than allowed
    /// (`judge_verdicts`); all others continue.
    fn many_doors_are_shut(&mut self, victim: usize, before: &PartitionStates) {
        let answered = self.checks.answered.clone();
        let hosts = self.hosts.len();
        let count = self.doors.random.between(2, (hosts as u64 / 2).max(2));
        self.shut_door(victim, u64::MAX);
        for _ in 1..count {
            let other = self.doors.random.index(hosts);
            self.shut_door(other, u64::MAX);
        }
        self.run(self.truth + self.plan.settings.door_silent_ms * 2 + self.word_takes());
        self.compare(before, |_| false);
        self.open_doors();
        self.within(self.word_takes() * 3, "answers after many doors were shut", |world| {
            world.unanswered(&answered, NodeId::new(0))
        });
    }

    /// Returns the unreachable nodes in the leading coordinator's memory.
    fn unreached(&self) -> BTreeSet<NodeId> {
        let session =
            self.quorum.leader.and_then(|leader| Some((leader, self.quorum.coordinators[leader].session.as_ref()?)));
        session.map(|(_, session)| session.term.liveness().unreached_nodes().collect()).unwrap_or_default()
    }

    fn spared(&self) -> BTreeSet<NodeId> {
        let session = self.quorum.leader.and_then(|leader| self.quorum.coordinators[leader].session.as_ref());
        session.map(|session| session.term.liveness().spared()).unwrap_or_default()
    }

    fn leading_term(&self) -> Option<u64> {
        let session = self.quorum.leader.and_then(|leader| self.quorum.coordinators[leader].session.as_ref());
        session.map(|session| session.term.number())
    }

    fn all_are_trusted(&mut self) {
        let millis = self.plan.settings.door_trust_ms + self.word_takes();
        self.within(millis, "nodes whose doors are open", |world| {
            let spared = world.spared();
            (!spared.is_empty()).then(|| format!("{spared:?} are not given what others can lead"))
        });
    }

    /// Waits until nothing has moved for a while: placement, repair and balancing continue after all other conditions
    /// hold. Returns the final state; `None` if it does not come to rest.
    fn at_rest(&mut self) -> Option<PartitionStates> {
        for _ in 0..RESTS {
            let before = self.standings();
            self.run(self.truth + self.word_takes());
            if self.violation.is_some() {
                return None;
            }
            let served = self.quorum.state.data_rows().all(|row| row.status == PartitionStatus::Online);
            if served && self.standings() == before {
                self.coverage.doors_looked_at += 1;
                return Some(before);
            }
        }
        None
    }

    fn standings(&self) -> PartitionStates {
        let rows = self.quorum.state.data_rows();
        let standing = rows.map(|row| {
            let copies = row.placements.iter().map(|copy| (copy.id, copy.node)).collect();
            (row.id, (row.epoch, row.leader_placement().map(|leader| leader.node), copies))
        });
        standing.collect()
    }

    /// Checks that no copy was moved, and that the partitions in `stays` kept their leaders.
    fn compare(&mut self, before: &PartitionStates, stays: impl Fn(PartitionId) -> bool) {
        for (partition, now) in self.standings() {
            let Some(was) = before.get(&partition) else { continue };
            if was.2 != now.2 {
                return self.doors_broken(format!("copies of {partition} were {:?} and are {:?}", was.2, now.2));
            }
            if stays(partition) && (was.0, was.1) != (now.0, now.1) {
                let detail =
                    format!("{partition} was led by {:?} in {}, and is by {:?} in {}", was.1, was.0, now.1, now.0);
                return self.doors_broken(detail);
            }
        }
    }

    /// Returns a partition that a node leads although others could.
    fn led_for_nothing(&self, node: NodeId) -> Option<String> {
        let state = &self.quorum.state;
        let led = state.data_rows().filter(|row| row.leader_placement().is_some_and(|leader| leader.node == node));
        let elsewhere = |row: &&archon_types::Partition| {
            let others = row.live().filter(|live| live.node != node && state.is_active(live.node)).count();
            others >= usize::from(row.min_in_sync.max(1))
        };
        let mut for_nothing = led.filter(elsewhere).map(|row| row.id);
        for_nothing.next().map(|partition| format!("{node} leads {partition}, which others can lead"))
    }

    /// Returns a partition not led by this node that has answered no client since.
    fn unanswered(&self, since: &BTreeMap<PartitionId, u64>, node: NodeId) -> Option<String> {
        let led_elsewhere = |partition: &PartitionId| {
            let row = self.quorum.state.partitions.get(*partition);
            row.and_then(|row| row.leader_placement()).is_some_and(|leader| leader.node != node)
        };
        let known = self.checks.answered.iter().filter(|(partition, _)| led_elsewhere(partition));
        let mut silent =
            known.filter(|(partition, count)| since.get(partition) == Some(count)).map(|(partition, _)| partition);
        silent.next().map(|partition| format!("{partition} has answered nobody"))
    }
}
