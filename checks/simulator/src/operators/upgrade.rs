//! Upgrades: members are replaced by newer and older versions while everything else continues, and the protocol rises
//! (rules 63 and 64).

use crate::check::violation::Violation;
use crate::coordinator::quorum::COORDINATORS;
use crate::event::{Event, Proposal};
use crate::world::World;
use archon_coordinator_core::{Command, CoordinatorsSpeak, check_commands, next_raise};
use archon_types::ProtocolRange;

pub(crate) const fn range(oldest: u32, newest: u32) -> ProtocolRange {
    ProtocolRange { oldest, newest }
}

/// Installed versions while the cluster uses the first protocol, and later: each supports the previous protocol as
/// well, and newer ones are more frequent.
const VERSIONS: [&[ProtocolRange]; 2] =
    [&[range(1, 1), range(1, 2), range(1, 2)], &[range(1, 1), range(1, 2), range(1, 3), range(1, 3), range(2, 3)]];
/// Final version of all members.
const NEWEST: ProtocolRange = range(1, 3);

impl World {
    /// Continues the upgrade, or a rollback; the leading coordinator checks whether the protocol may rise.
    pub(crate) fn go_on_with_upgrade(&mut self) {
        let unit = self.plan.unit_ms();
        let delay = self.upgrader.random.between(1, unit * 6);
        self.after(delay, Event::Upgrade);
        if !self.healing && self.upgrader.random.below(3) == 0 {
            let held = self.upgrader.random.below(3) > 0;
            self.hold_protocol(held);
        }
        self.raise_protocol();
        if self.healing || self.upgrader.random.below(2) == 0 {
            return;
        }
        let spoken = self.quorum.state.protocol.max(1);
        let versions = VERSIONS[usize::from(spoken > 1)];
        let version = self.upgrader.random.pick(versions).unwrap_or(NEWEST);
        let whom = self.upgrader.random.index(COORDINATORS + self.hosts.len());
        match whom.checked_sub(COORDINATORS) {
            // One that cannot read the log would end at its start.
            None if version.contains(spoken) => self.upgrader.coordinators[whom] = version,
            None => {}
            Some(host) => {
                self.note(|| format!("host {host} becomes a version that speaks {version}"));
                self.hosts[host].installed = version;
                if self.upgrader.random.below(2) == 0 {
                    self.end_process(host);
                } else {
                    self.kill(host);
                }
                let down = self.upgrader.random.between(1, unit * 10);
                self.after(down, Event::Restart { host });
            }
        }
    }

    /// Holds the protocol, or lets it rise by itself.
    fn hold_protocol(&mut self, held: bool) {
        let Some(leader) = self.quorum.leader else { return };
        let coordinator = &self.quorum.coordinators[leader];
        let Some(session) = &coordinator.session else { return };
        let (term, commands) = (session.term.number(), vec![Command::HoldProtocol { held }]);
        if check_commands(&coordinator.state, &commands).is_ok() {
            self.propose(leader, Proposal { term, commands, reply: None });
        }
    }

    /// Proposes an earlier decision, although a member may have registered or an operator may have held the protocol
    /// since; and decides again.
    fn raise_protocol(&mut self) {
        if self.upgrader.decided.is_some() && !self.healing && self.upgrader.random.below(4) > 0 {
            return;
        }
        if let Some((coordinator, term, raise)) = self.upgrader.decided.take() {
            self.propose(coordinator, Proposal { term, commands: vec![raise], reply: None });
        }
        let Some(leader) = self.quorum.leader else { return };
        let coordinator = &self.quorum.coordinators[leader];
        let Some(session) = &coordinator.session else { return };
        let term = session.term.number();
        let speak: CoordinatorsSpeak = (1..).zip(self.upgrader.coordinators.map(Some)).collect();
        self.upgrader.decided = next_raise(&coordinator.state, &speak).map(|raise| (leader, term, raise));
    }

    /// Returns the first version of a machine: most were upgraded already.
    pub(crate) fn first_version(&mut self) -> ProtocolRange {
        let newer = self.plan.doors || self.plan.upgrades && self.upgrader.random.below(4) > 0;
        if newer { range(1, 2) } else { ProtocolRange::FIRST }
    }

    /// Returns true if this version may start on that machine: its disk records its protocol.
    pub(crate) fn may_start(&mut self, host: usize) -> bool {
        let machine = &self.hosts[host];
        let may = machine.installed.contains(machine.disk.protocol);
        if !may {
            self.coverage.older_refused += 1;
            let (found, version) = (machine.disk.protocol, machine.installed);
            self.note(|| format!("host {host} is not started: its disk is of protocol {found}, it speaks {version}"));
        }
        may
    }

    /// Upgrades all members to the newest version, which supports the current protocol.
    pub(crate) fn upgrade_everybody(&mut self) {
        if !self.plan.upgrades {
            return;
        }
        self.upgrader.coordinators = [NEWEST; COORDINATORS];
        for host in 0..self.hosts.len() {
            if self.hosts[host].installed != NEWEST {
                self.hosts[host].installed = NEWEST;
                self.end_process(host);
            }
        }
    }

    /// Returns what is missing until the protocol is the newest one that all members support.
    pub(crate) fn missing_protocol(&mut self) -> Option<String> {
        if self.plan.upgrades && self.quorum.state.protocol_held {
            self.hold_protocol(false);
        }
        let protocol = self.quorum.state.protocol;
        let missing = self.plan.upgrades && protocol != NEWEST.newest;
        missing.then(|| format!("the cluster speaks protocol {protocol}, and all of its members {}", NEWEST.newest))
    }

    /// Returns the protocols that participants support.
    pub(crate) fn spoken_by_workers(&self) -> ProtocolRange {
        if self.plan.upgrades || self.plan.doors { NEWEST } else { ProtocolRange::FIRST }
    }

    /// Records a change of the protocol. Only the coordinators raise it in this world.
    pub(crate) fn count_raises(&mut self, commands: &[Command], before: u32, held: bool) {
        let raises = commands.iter().any(|command| matches!(command, Command::RaiseProtocol { .. }));
        let rose = self.quorum.state.protocol > before;
        if held && rose {
            let detail = format!("the protocol rose from {before}, where an operator holds it");
            self.judge(Err(Violation::State { detail }));
        }
        self.coverage.protocols_held += u64::from(
            held && before > 0
                && commands.iter().any(|command| matches!(command, Command::HoldProtocol { held: false })),
        );
        self.coverage.protocols_raised += u64::from(raises && rose && before > 0);
        let late = |command: &Command| matches!(command, Command::RaiseProtocol { to } if *to > before);
        self.coverage.raises_refused += u64::from(commands.iter().any(late) && !rose);
    }
}
