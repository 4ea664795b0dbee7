//! Probing of other machines, and answers to their probes (rule 73). [`Prober`](archon_member::Prober) decides;
//! connections and clocks are the world's.

use crate::event::{Event, PeerMessage};
use crate::host::carried::cluster;
use crate::host::door::Unreachability;
use crate::network::End;
use crate::world::World;
use archon_member::Probe;
use archon_types::DoorFailure;

impl World {
    /// Ends probes that timed out, and sends due ones.
    pub(super) fn keep_probing(&mut self, host: usize) {
        let now = self.local(host);
        let Some(life) = self.life(host).filter(|_| self.plan.doors) else { return };
        let Some(process) = &mut self.hosts[host].process else { return };
        let late = process.prober.expire(now);
        let (rows, version) = (&process.relaying.rows, process.peers_version);
        let targets = || rows.probed_by(cluster(), life.node).map(|row| (row.id, row.incarnation)).collect();
        let sent = process.prober.begin(now, version, || (version, targets()));
        let boot = process.boot;
        late.into_iter().for_each(|probe| self.note_probe(host, probe, Err(DoorFailure::Silent)));
        self.coverage.knocks += sent.len() as u64;
        for Probe { node, number, .. } in sent {
            self.send_to_node(host, node, PeerMessage::Ping { keeper: host, boot, number });
        }
    }

    /// Handles a probe of this machine: a shard answers in its turn, if it takes one and the answer leaves.
    pub(super) fn answer_probe(&mut self, host: usize, keeper: usize, boot: u64, number: u64) {
        if self.hosts[host].process.is_none() {
            return;
        }
        let outcome = match self.hosts[host].door.shut_to(keeper, self.truth) {
            Some(Unreachability::Dropped | Unreachability::Unanswered) => return,
            Some(Unreachability::Refused) => Err(DoorFailure::Refused),
            None => Ok(()),
        };
        let message = Box::new(PeerMessage::Pong { boot, number, outcome });
        let event = Event::PeerMessage { host: keeper, message, sent: self.truth };
        self.send(End::Host(host), End::Host(keeper), event);
    }

    pub(super) fn on_pong(&mut self, host: usize, boot: u64, number: u64, outcome: Result<(), DoorFailure>) {
        let now = self.local(host);
        let process = self.hosts[host].process.as_mut().filter(|process| process.boot == boot);
        if let Some(probe) = process.and_then(|process| process.prober.finish(number, outcome, now)) {
            self.note_probe(host, probe, outcome);
        }
    }

    /// Passes the result of a probe to the checks.
    fn note_probe(&mut self, host: usize, probe: Probe, outcome: Result<(), DoorFailure>) {
        let Some(life) = self.life(host) else { return };
        let since = self.truth.saturating_sub(self.local(host).since(probe.began));
        self.coverage.knocks_failed += u64::from(outcome.is_err());
        let target = (probe.node, probe.incarnation);
        self.checks.doors.knocked(life.node, target, outcome.is_ok(), since, self.truth);
    }
}
