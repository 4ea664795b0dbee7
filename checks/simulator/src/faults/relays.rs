//! Faults of relays, and the final checks of them (rules 65 to 72).

use crate::check::violation::Violation;
use crate::coordinator::member::host_of;
use crate::event::Event;
use crate::faults::parts::Relays;
use crate::host::carried::stream;
use crate::network::{End, Lag, NetworkCut};
use crate::world::World;
use archon_types::NodeStatus;

/// Minimum number of members helped by no relay for a check of how many contacted a coordinator. One in 32 should: that
/// most of so many do by chance does not happen.
const UNHELPED_MIN: u64 = 24;

/// Final period without direct requests to a coordinator, in heartbeat intervals.
const CALM: u64 = 6;

impl World {
    /// Returns the relaying machines, by the committed state.
    fn relaying(&self) -> Vec<usize> {
        self.quorum.state.relaying().into_iter().filter_map(|node| host_of(&node.address)).collect()
    }

    /// Injects a fault of a relay or its members, or makes their view of each other out of date.
    pub(crate) fn around_a_relay(&mut self, leader: usize) {
        let (unit, timeout) = (self.plan.unit_ms(), self.plan.settings.timing.failure_timeout_ms);
        let relaying = self.relaying();
        let Some(relay) = self.random.pick(&relaying) else { return };
        let coordinators = self.quorum.ends();
        let relays: Vec<End> = relaying.iter().copied().map(End::Host).collect();
        let away = self.random.between(unit, timeout * 3);
        self.theme_until = self.truth + unit * 4;
        match self.random.below(10) {
            0 => {
                // All of them, or one: at once, while members wait for its answers.
                let all = self.random.below(3) == 0;
                for relay in relaying.into_iter().filter(|other| all || *other == relay) {
                    self.coverage.kills += 1;
                    self.kill(relay);
                    self.come_back(relay);
                }
            }
            1 => {
                let until = self.truth + self.random.between(unit / 2, unit * 50);
                self.note(|| format!("relay {relay} paused until {until}"));
                self.coverage.pauses += 1;
                self.hosts[relay].paused_until = until;
            }
            2 => {
                // Relays reach their members and no coordinator.
                let all = self.random.below(2) == 0;
                let cut = if all { relays } else { vec![End::Host(relay)] };
                self.part(&cut, &coordinators, (0, away));
            }
            3 => {
                // And the converse, possibly in one direction only.
                let members = self.peers_of(relay);
                let (since, until) = (self.truth, self.truth + away);
                if self.random.below(3) > 0 {
                    let (from, to) = (vec![End::Host(relay)], members.clone());
                    self.network.cut(NetworkCut { from, to, since, until });
                }
                self.network.cut(NetworkCut { from: members, to: vec![End::Host(relay)], since, until });
            }
            4 => {
                // A member reaches no coordinator itself, and lives by its relays; or fails with them.
                self.part(&[End::Host(leader)], &coordinators, (0, timeout * 4));
                let over = self.random.between(timeout, timeout * 3);
                if self.random.below(2) == 0 {
                    let others: Vec<End> = relays.into_iter().filter(|other| *other != End::Host(leader)).collect();
                    self.part(&[End::Host(leader)], &others, (over, over + timeout * 2));
                }
            }
            5 => {
                // Batches or answers are slow, and later ones overtake them.
                let until = self.truth + self.random.between(unit, timeout * 2);
                let millis = self.random.between(unit / 2, timeout * 6 / 5);
                let (from, to) = match self.random.below(4) {
                    0 => (relays, coordinators),
                    1 => (coordinators, relays),
                    2 => (relays, self.peers_of(relay)),
                    _ => (self.peers_of(relay), relays),
                };
                self.network.lag(Lag { from, to, until, millis });
            }
            6 => {
                // Another coordinator leads, which relays learn late, while one of them is away.
                self.elect_coordinator();
                let leads = self.quorum.leader.map(End::Coordinator).into_iter().collect::<Vec<_>>();
                let until = self.random.between(1, unit * 3);
                self.part(&relays, &leads, (0, until));
                if self.random.below(3) == 0 {
                    self.kill(relay);
                    self.come_back(relay);
                }
            }
            7 => {
                // A leader is paused until it fails, and wakes without a coordinator: only other nodes can notify it.
                let wakes = timeout + self.random.between(unit, timeout);
                self.coverage.pauses += 1;
                self.hosts[leader].paused_until = self.truth + wakes;
                self.part(&[End::Host(leader)], &coordinators, (0, wakes + timeout));
                self.theme_until = self.truth + wakes;
            }
            8 => {
                // Relays are computed from old rows.
                for host in 0..self.hosts.len() {
                    if self.random.below(2) == 0 {
                        let until = self.truth + timeout * 4;
                        self.after(1, Event::Deafen { host, until });
                    }
                }
                self.kill(relay);
                self.come_back(relay);
            }
            _ => {
                // Answers to a leader are slow, on any path, and when they arrive nothing more goes up.
                let until = self.truth + timeout * 5;
                let millis = self.random.between(timeout / 3, timeout * 4 / 5);
                let others: Vec<End> = relays.into_iter().filter(|other| *other != End::Host(leader)).collect();
                let from = [coordinators.clone(), others.clone()].concat();
                let own = vec![End::Host(leader)];
                self.network.lag(Lag { from, to: own.clone(), until, millis });
                let silent = self.random.between(timeout / 2, timeout * 3 / 2);
                let peers = self.peers_of(leader);
                self.part(&own, &peers, (silent, timeout * 5));
                let since = self.truth + silent;
                self.network.cut(NetworkCut { from: own, to: coordinators, since, until });
                self.theme_until = self.truth + timeout * 2;
            }
        }
        if self.random.below(4) == 0 {
            self.break_streams(relay);
        }
    }

    /// Ends all streams of members to a relay, with their pending requests.
    fn break_streams(&mut self, relay: usize) {
        let boots = self.hosts.iter().filter_map(|host| Some((host.number, host.process.as_ref()?.boot)));
        let streams: Vec<u64> = boots.map(|(host, boot)| stream(host, boot)).collect();
        if let Some(process) = &mut self.hosts[relay].process {
            process.relaying.break_streams(streams);
        }
    }

    /// Kills one machine when faults stop; it is not restarted.
    pub(crate) fn one_stays_away(&mut self) {
        if !self.plan.relays {
            return;
        }
        let relaying = self.relaying();
        let any = self.relays.random.index(self.hosts.len());
        let relay = self.relays.random.pick(&relaying).filter(|_| self.relays.random.below(2) == 0);
        let dead = relay.unwrap_or(any);
        self.kill(dead);
        self.relays.dead = Some(dead);
    }

    /// V: checks that a dead member fails in time, with any relay.
    pub(crate) fn notice_the_dead(&mut self) {
        let Some(dead) = self.relays.dead else { return };
        let millis = self.plan.settings.timing.failure_timeout_ms * 4 + 2_000;
        self.within(millis, "the dead node", |world| {
            let row = world.quorum.state.node_by_storage(world.hosts[dead].disk.storage);
            let alive = row.is_some_and(|row| row.node.status == NodeStatus::Alive);
            alive.then(|| format!("host {dead} is dead and counts as alive"))
        });
        self.coverage.dead_noticed += 1;
        self.relays.dead = None;
        self.after(1, Event::Restart { host: dead });
    }

    /// V: checks that in the end all nodes hold everything, on any path; and that their reports are true.
    fn look_at_what_is_held(&mut self) {
        let millis = self.plan.unit_ms() * 20 + 2_000;
        self.within(millis, "what nodes hold", |world| {
            let state = &world.quorum.state;
            world.hosts.iter().find_map(|host| {
                let process = host.process.as_ref()?;
                let lacks = process.complete < state.table_version();
                let wrong = !lacks && !process.relaying.rows.all().eq(state.nodes.values().map(|row| &row.node));
                let holds = process.complete;
                (lacks || wrong).then(|| format!("host {} holds {holds}, of {}", host.number, state.table_version()))
            })
        });
    }

    /// B: checks that in the end relays carry all heartbeats, without direct requests; and that of the members no relay
    /// helped, few asked directly before.
    pub(crate) fn look_at_the_burden(&mut self) {
        if !self.plan.relays {
            return;
        }
        let Relays { unhelped, asked, .. } = self.relays;
        if unhelped >= UNHELPED_MIN && asked * 2 > unhelped {
            let detail =
                format!("of {unhelped} times that no relay helped a member, {asked} times it asked for itself");
            return self.judge(Err(Violation::Burden { detail }));
        }
        self.look_at_what_is_held();
        if self.plan.carries_few {
            return;
        }
        let unit = self.plan.unit_ms();
        // Messages from before the end of faults may fence an incarnation at any time, and then its members need other
        // relays for a while.
        self.within(unit * 80 + 2_000, "heartbeats by relays", |world| {
            let carried =
                |host: &crate::host::process::Host| host.process.as_ref().is_some_and(|it| it.relaying.carried);
            let other = world.hosts.iter().find(|host| !carried(host)).map(|host| host.number);
            let recent = world.truth < world.relays.last_direct + unit * CALM;
            (recent || other.is_some()).then(|| format!("coordinators are asked by members, of host {other:?}"))
        });
    }
}
