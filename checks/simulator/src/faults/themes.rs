//! Situations created on purpose: two or three faults at the very instants at which one rule is the only protection.

use crate::coordinator::member::host_of;
use crate::event::{Event, Proposal};
use crate::network::{End, Lag, NetworkCut};
use crate::scenario::Theme;
use crate::world::World;
use archon_coordinator_core::Command;
use archon_types::NodeGoal;

impl World {
    /// Starts the next situation of the seed's theme, once the last one has ended.
    pub(crate) fn theme_fault(&mut self) {
        if self.truth < self.theme_until {
            return;
        }
        let Some(leader) = self.some_leader() else { return };
        self.coverage.themed += 1;
        let theme = self.plan.theme;
        self.note(|| format!("{theme:?} around host {leader}"));
        match theme {
            Theme::Noise => {}
            Theme::Leases => self.around_a_lease(leader),
            Theme::Split => self.with_a_deposed_coordinator(leader),
            Theme::OldLeader => self.old_leader(leader),
            Theme::HandOvers => self.stuck_hand_over(leader),
            Theme::Disks => self.trouble_disk(leader),
            Theme::Away => self.away(leader),
            Theme::Young => self.lost_when_young(leader),
            Theme::Alone => self.back_alone(leader),
            Theme::Splits => self.around_a_split(),
            Theme::Merges => self.around_a_merge(),
            Theme::Relays => self.around_a_relay(leader),
            Theme::Doors => self.around_a_door(leader),
            Theme::Replicas => self.around_a_replica(leader),
        }
    }

    /// Returns a machine that leads a partition, by the committed state.
    fn some_leader(&mut self) -> Option<usize> {
        let state = &self.quorum.state;
        let led = state.data_rows().filter_map(|row| state.node(row.leader_placement()?.node));
        let leaders: Vec<usize> = led.filter_map(|row| host_of(&row.node.address)).collect();
        self.random.pick(&leaders)
    }

    pub(crate) fn peers_of(&self, host: usize) -> Vec<End> {
        (0..self.hosts.len()).filter(|other| *other != host).map(End::Host).collect()
    }

    /// Cuts two sides from each other between two instants, counted from now.
    pub(crate) fn part(&mut self, one: &[End], other: &[End], (begin, end): (u64, u64)) {
        let (since, until) = (self.truth + begin, self.truth + end);
        self.network.cut(NetworkCut { from: one.to_vec(), to: other.to_vec(), since, until });
        self.network.cut(NetworkCut { from: other.to_vec(), to: one.to_vec(), since, until });
    }

    /// Cuts a leader from its followers, and from its coordinators around the end of its lease or of its incarnation.
    fn around_a_lease(&mut self, leader: usize) {
        let (unit, timeout) = (self.plan.unit_ms(), self.plan.settings.timing.failure_timeout_ms);
        let (own, peers, coordinators) = ([End::Host(leader)], self.peers_of(leader), self.quorum.ends());
        let over = timeout * 5;
        match self.random.below(4) {
            0 => {
                // Answers are slow, and when they arrive nothing more goes up.
                let until = self.truth + over;
                let millis = self.random.between(timeout / 3, timeout * 4 / 5);
                self.network.lag(Lag { from: coordinators.clone(), to: own.to_vec(), until, millis });
                let silent = self.random.between(timeout / 2, timeout * 3 / 2);
                self.part(&own, &peers, (silent, over));
                let since = self.truth + silent;
                self.network.cut(NetworkCut { from: own.to_vec(), to: coordinators, since, until });
            }
            1 => {
                // It is heard again just while its failure is being committed.
                self.quorum.slow_until = self.truth + timeout + unit;
                self.part(&own, &peers, (0, over));
                let back = timeout + self.random.between(0, unit * 2) - unit;
                let gone = back + self.random.between(unit / 2, unit * 3);
                self.part(&own, &coordinators, (0, back));
                self.part(&own, &coordinators, (gone, over));
            }
            2 => {
                // It begins another incarnation while its former one could still answer, and another coordinator leads.
                self.kill(leader);
                let soon = self.random.between(1, unit);
                self.after(soon, Event::Restart { host: leader });
                let next = self.random.between(1, unit * 3);
                self.after(next, Event::Elect);
            }
            _ => {
                let until = self.truth + self.random.between(timeout * 3 / 4, timeout * 2);
                self.hosts[leader].paused_until = until;
                self.part(&own, &peers, (0, over));
            }
        }
        self.theme_until = self.truth + over;
    }

    /// Separates the leading coordinator and a leader from all others.
    fn with_a_deposed_coordinator(&mut self, leader: usize) {
        let Some(deposed) = self.quorum.leader else { return };
        let (unit, timeout) = (self.plan.unit_ms(), self.plan.settings.timing.failure_timeout_ms);
        let over = timeout * self.random.between(4, 8);
        let peers = self.peers_of(leader);
        let others: Vec<End> =
            self.quorum.ends().into_iter().filter(|other| *other != End::Coordinator(deposed)).collect();
        self.part(&[End::Host(leader)], &[peers.clone(), others].concat(), (0, over));
        self.part(&[End::Coordinator(deposed)], &peers, (0, over));
        self.quorum.coordinators[deposed].isolated = Some((self.truth, self.truth + over));
        let delay = self.random.between(1, unit * 4);
        self.after(delay, Event::Elect);
        self.theme_until = self.truth + over;
    }

    /// Replaces a leader without coordinators, with some clients and some followers within its reach.
    fn old_leader(&mut self, leader: usize) {
        let (unit, timeout) = (self.plan.unit_ms(), self.plan.settings.timing.failure_timeout_ms);
        let (own, peers, coordinators) = ([End::Host(leader)], self.peers_of(leader), self.quorum.ends());
        let over = timeout * self.random.between(5, 9);
        // Some clients reach only others.
        let clients: Vec<End> = (0..self.clients.len()).filter(|client| client % 2 == 0).map(End::Client).collect();
        self.part(&own, &clients, (0, over));
        match self.random.below(4) {
            0 => {
                // Followers' messages arrive late.
                let millis = self.random.between(timeout / 4, self.plan.settings.replication_timeout_ms);
                let until = self.truth + over;
                self.network.lag(Lag { from: peers, to: own.to_vec(), until, millis });
                self.part(&own, &coordinators, (0, over));
            }
            1 => {
                // It hears its followers again after they followed another.
                let back = timeout + self.random.between(unit * 2, unit * 14);
                self.part(&own, &peers, (0, back));
                self.part(&own, &coordinators, (0, over));
            }
            2 => {
                // One follower stays with it.
                let friend = self.random.pick(&peers);
                let (with, without): (Vec<End>, Vec<End>) = peers.into_iter().partition(|peer| Some(*peer) == friend);
                let side = [own.to_vec(), with].concat();
                self.part(&side, &[without, coordinators].concat(), (0, over));
            }
            _ => {
                // Its requests arrive, and it never gets the answers; then one follower stays with it.
                let since = self.truth;
                self.network.cut(NetworkCut {
                    from: coordinators.clone(),
                    to: own.to_vec(),
                    since,
                    until: since + over,
                });
                let friend = self.random.pick(&peers);
                let (with, without): (Vec<End>, Vec<End>) = peers.into_iter().partition(|peer| Some(*peer) == friend);
                let side = [own.to_vec(), with].concat();
                let begin = self.random.between(1, timeout);
                self.part(&side, &[without, coordinators].concat(), (begin, over));
            }
        }
        self.theme_until = self.truth + over;
    }

    /// Hides from a replica that it is behind.
    fn around_a_replica(&mut self, leader: usize) {
        let settings = &self.plan.settings;
        let (timeout, silence) = (settings.timing.failure_timeout_ms, settings.replication_timeout_ms);
        let (own, peers) = (End::Host(leader), self.peers_of(leader));
        let Some(friend) = self.random.pick(&peers) else { return };
        let over = match self.random.below(3) {
            0 => {
                // It stays with a leader that is replaced; neither renews its lease.
                let others = peers.into_iter().filter(|peer| *peer != friend);
                let others: Vec<End> = others.chain(self.quorum.ends()).collect();
                let over = timeout * self.random.between(5, 9);
                self.part(&[own, friend], &others, (0, over));
                over
            }
            1 => {
                // It renews its lease, and hears neither its leader nor that it is removed from the in-sync replicas.
                let over = silence * self.random.between(6, 10) + timeout;
                let others: Vec<End> = (0..self.hosts.len()).map(End::Host).filter(|host| *host != friend).collect();
                self.part(&[friend], &others, (0, over));
                if let End::Host(host) = friend {
                    self.hosts[host].deaf_until = self.truth + over;
                }
                over
            }
            _ => {
                // Its leader dies, and the next one waits for another follower.
                self.kill(leader);
                self.come_back(leader);
                let over = timeout + silence * self.random.between(2, 4);
                let far: Vec<End> = peers.into_iter().filter(|peer| *peer != friend).take(1).collect();
                let others: Vec<End> =
                    (0..self.hosts.len()).map(End::Host).filter(|host| !far.contains(host)).collect();
                self.part(&far, &others, (0, over));
                over
            }
        };
        self.theme_until = self.truth + over;
    }

    /// Orders a hand-over that the leader cannot finish since it does not hear its followers; nor does it always hear
    /// the coordinator.
    fn stuck_hand_over(&mut self, leader: usize) {
        let timeout = self.plan.settings.timing.failure_timeout_ms;
        let (own, peers, coordinators) = ([End::Host(leader)], self.peers_of(leader), self.quorum.ends());
        // A hand-over is abandoned after eight failure time-outs.
        let over = timeout * self.random.between(9, 16);
        self.part(&own, &peers, (0, over));
        if self.random.below(2) == 0 {
            // It gets only the answers to its heartbeats: possibly not even the hand-over order.
            let asked = self.random.between(0, 1) * timeout;
            self.after(asked, Event::Deafen { host: leader, until: self.truth + over });
        }
        if let Some(chosen) = self.quorum.leader
            && let Some(session) = &self.quorum.coordinators[chosen].session
            && let Some(node) = self.quorum.state.node_by_storage(self.hosts[leader].disk.storage)
        {
            let (term, node) = (session.term.number(), node.node.id);
            let command = Command::SetNode { node, goal: NodeGoal::Drain, if_nodes: None };
            self.propose(chosen, Proposal { term, commands: vec![command], reply: None });
        }
        if self.random.below(2) == 0 {
            let mut at = timeout * 8;
            while at < over {
                let dark = self.random.between(timeout / 3, timeout * 3 / 4);
                let (since, until) = (self.truth + at, self.truth + at + dark);
                self.network.cut(NetworkCut { from: coordinators.clone(), to: own.to_vec(), since, until });
                at += dark + self.random.between(timeout / 4, timeout);
            }
        }
        self.theme_until = self.truth + over;
    }

    fn trouble_disk(&mut self, leader: usize) {
        let host = if self.random.below(2) == 0 { leader } else { self.random.index(self.hosts.len()) };
        match self.random.below(8) {
            0..=2 => self.copy_disk(host),
            3..=4 => {
                self.kill(host);
                self.come_back(host);
            }
            5 => self.lose_placement(host),
            _ => self.damage_disk(host),
        }
        self.theme_until = self.truth + self.plan.unit_ms() * 6;
    }

    /// Stops a node for so long that its copies are replaced.
    fn away(&mut self, leader: usize) {
        let settings = &self.plan.settings;
        let absence = settings.timing.failure_timeout_ms + settings.replace_after_ms;
        let host = if self.random.below(2) == 0 { leader } else { self.random.index(self.hosts.len()) };
        self.power_off(host);
        let back = self.random.between(absence, absence * 3);
        self.after(back, Event::Restart { host });
        if self.random.below(2) == 0 {
            self.admin();
        }
        self.theme_until = self.truth + back / 2;
    }

    /// Hides a new leader from all nodes, while clients reach it; and then disks are lost.
    fn lost_when_young(&mut self, leader: usize) {
        let (unit, timeout) = (self.plan.unit_ms(), self.plan.settings.timing.failure_timeout_ms);
        let over = timeout * self.random.between(2, 6);
        let (since, until) = (self.truth, self.truth + over);
        self.network.cut(NetworkCut { from: vec![End::Host(leader)], to: self.quorum.ends(), since, until });
        for host in 0..self.hosts.len() {
            if self.random.below(3) > 0 {
                let when = self.random.between(unit, over);
                self.after(when, Event::LosePlacement { host });
            }
        }
        self.theme_until = until;
    }

    /// Brings one back from a disk that was rolled back or damaged; the others come only long after that, or damaged as
    /// well.
    fn back_alone(&mut self, leader: usize) {
        let (unit, timeout) = (self.plan.unit_ms(), self.plan.settings.timing.failure_timeout_ms);
        let host = if self.random.below(2) == 0 { leader } else { self.random.index(self.hosts.len()) };
        if self.hosts[host].snapshot.is_none() || self.random.below(3) == 0 {
            // A rolled-back directory must be from an earlier incarnation.
            self.copy_disk(host);
            self.kill(host);
            self.come_back(host);
            self.theme_until = self.truth + unit * 6;
            return;
        }
        let others: Vec<usize> = (0..self.hosts.len()).filter(|other| *other != host).collect();
        for other in others {
            self.power_off(other);
            if self.random.below(5) == 0 {
                self.damage_disk(other);
            }
            let away = self.random.between(timeout * 3, timeout * 12);
            self.after(away, Event::Restart { host: other });
        }
        match self.random.below(3) {
            0 => self.lose_placement(host),
            _ => self.damage_disk(host),
        }
        self.theme_until = self.truth + timeout * 6;
    }
}
