//! Probing of other machines, and answers to their probes (rule 73). The decisions are the product's
//! (`archon_member::Doors`); connections and clocks are the world's.

use crate::event::{Event, PeerMessage};
use crate::host::door::{Shut, UnderWay};
use crate::network::End;
use crate::world::World;
use archon_member::Knock;
use archon_types::DoorFailure;

impl World {
    /// Ends probes that timed out, and begins due ones.
    pub(super) fn keep_knocking(&mut self, host: usize) {
        let (now, truth) = (self.local(host), self.truth);
        let Some(life) = self.life(host).filter(|_| self.plan.doors) else { return };
        let Some(process) = &mut self.hosts[host].process else { return };
        let (boot, version, knocking) = (process.boot, process.peers_version, &mut process.knocking);
        let every_ms = knocking.every_ms;
        if every_ms == 0 {
            return;
        }
        let within_ms = knocking.doors.within_ms();
        let late: Vec<u64> = knocking
            .under_way
            .iter()
            .filter(|(_, it)| now.since(it.began) >= within_ms)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.knock_over(host, number, Err(DoorFailure::Silent));
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        let knocking = &mut process.knocking;
        if now < knocking.next || !knocking.under_way.is_empty() {
            return;
        }
        knocking.next = now.plus(every_ms);
        if knocking.kept != Some((version, every_ms)) {
            knocking.kept = Some((version, every_ms));
            knocking.members = process.relaying.rows.doors_of(life.node);
            knocking.doors.keep(every_ms, knocking.members.iter().copied());
        }
        let mut pings = Vec::new();
        for (node, incarnation) in &knocking.members {
            knocking.knocks += 1;
            let it = UnderWay { node: *node, incarnation: *incarnation, began: now, truth };
            knocking.under_way.insert(knocking.knocks, it);
            pings.push((*node, PeerMessage::Ping { keeper: host, boot, number: knocking.knocks }));
        }
        self.coverage.knocks += pings.len() as u64;
        for (node, ping) in pings {
            self.send_to_node(host, node, ping);
        }
    }

    /// Handles a probe of this machine: a shard answers in its turn, if it takes one and the answer leaves.
    pub(super) fn answer_knock(&mut self, host: usize, keeper: usize, boot: u64, number: u64) {
        if self.hosts[host].process.is_none() {
            return;
        }
        let outcome = match self.hosts[host].door.shut_to(keeper, self.truth) {
            Some(Shut::Dropped | Shut::Unanswered) => return,
            Some(Shut::Refused) => Err(DoorFailure::Refused),
            None => Ok(()),
        };
        let message = Box::new(PeerMessage::Pong { boot, number, outcome });
        let event = Event::PeerMessage { host: keeper, message, sent: self.truth };
        self.send(End::Host(host), End::Host(keeper), event);
    }

    pub(super) fn on_pong(&mut self, host: usize, boot: u64, number: u64, outcome: Result<(), DoorFailure>) {
        if self.hosts[host].process.as_ref().is_some_and(|process| process.boot == boot) {
            self.knock_over(host, number, outcome);
        }
    }

    fn knock_over(&mut self, host: usize, number: u64, outcome: Result<(), DoorFailure>) {
        let (now, truth) = (self.local(host), self.truth);
        let Some(life) = self.life(host) else { return };
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(it) = process.knocking.under_way.remove(&number) else { return };
        let UnderWay { node, incarnation, began, truth: since } = it;
        process.knocking.doors.note(Knock { node, incarnation, began, ended: now, outcome });
        self.coverage.knocks_failed += u64::from(outcome.is_err());
        self.checks.doors.knocked(life.node, (node, incarnation), outcome.is_ok(), since, truth);
    }
}
