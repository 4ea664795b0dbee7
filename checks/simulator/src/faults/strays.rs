//! Stray messages, which no correct member sends: a copy hears of a leadership in an epoch that was never granted, as
//! from a node that runs on an old directory, or after coordinators were rolled back. It must cost an election and
//! nothing else (rule 25). An epoch out of reach of any election, and a stranger's message, must cost nothing at all.

use crate::event::{Event, MemberMessage, PeerMessage};
use crate::world::World;
use archon_kv::Effect;
use archon_replica::{Body, Entry, Message, Position, ReplicaAddress};
use archon_types::limits::EPOCHS_AHEAD_MAX;
use archon_types::{Epoch, Fact, Millis, Partition, PartitionId, Placement, PlacementId, Report, Seq};

impl World {
    /// Sends one such message, from a copy of the row to another, and schedules the next one.
    pub(crate) fn stray(&mut self) {
        if self.healing {
            return;
        }
        let unit = self.plan.unit_ms();
        let delay = self.strays.between(unit * 2, unit * 20);
        self.after(delay, Event::Stray);
        let rows = self.quorum.state.data_rows().filter(|row| row.placements.len() > 1);
        let rows: Vec<Partition> = rows.cloned().collect();
        let Some(row) = rows.get(self.strays.index(rows.len())) else { return };
        let copies = row.placements.len();
        let from = self.strays.index(copies);
        let to = (from + 1 + self.strays.index(copies - 1)) % copies;
        let (Some(from), Some(to)) = (self.address_of(&row.placements[from]), self.address_of(&row.placements[to]))
        else {
            return;
        };
        // Often the next epoch, which a leader about to be named gets as well; at times one out of reach.
        let unreached = EPOCHS_AHEAD_MAX + self.strays.between(1, 1 << 20);
        let kind = self.strays.below(10);
        let above = match kind {
            0..=5 => 1,
            6 | 7 => self.strays.between(2, 1 << 20),
            _ => unreached,
        };
        if kind == 9 {
            // Beyond the second one there is no other.
            let claims = [row.epoch.get() + unreached, u64::MAX - 1];
            let by = self.strays.pick(&claims).unwrap_or(u64::MAX - 1);
            return self.claim_unreached(row, by);
        }
        let epoch = Epoch::new(row.epoch.get() + above);
        if self.strays.below(4) == 0 {
            // A stranger, which is no placement of the row, would make everything restart.
            let stranger = ReplicaAddress { placement: PlacementId::new(u64::MAX), ..from };
            let at = Position::new(epoch, Seq::new(1));
            let bytes = Effect::new(Millis::ZERO, Vec::new()).encode().expect("an empty effect");
            let entries = vec![Entry { at, bytes }];
            let body = Body::Append { before: Position::ZERO, entries, start: Seq::ZERO, commit: Seq::ZERO };
            return self.stray_message(row.id, (stranger, to), epoch, body);
        }
        // Its log position matches no other log and truncates nothing.
        let body = Body::Adopt { at: Position::ZERO, start: Seq::new(u64::MAX), commit: Seq::ZERO };
        self.stray_message(row.id, (from, to), epoch, body);
    }

    fn stray_message(
        &mut self,
        partition: PartitionId,
        (from, to): (ReplicaAddress, ReplicaAddress),
        epoch: Epoch,
        body: Body,
    ) {
        let address = self.quorum.state.node(to.node).map(|row| row.node.address.clone());
        let Some(host) = address.and_then(|address| crate::coordinator::member::host_of(&address)) else { return };
        self.coverage.strays += 1;
        self.note(|| format!("{to:?} hears {from:?} lead {partition} in epoch {epoch}"));
        let message = Box::new(PeerMessage::Replica(Message { partition, from, to, epoch, body }));
        self.after(1, Event::PeerMessage { host, message, sent: self.truth });
    }

    /// Sends the coordinators a leader's message with an epoch that no election can have reached.
    fn claim_unreached(&mut self, row: &Partition, by: u64) {
        let Some(leader) = row.leader_placement().copied() else { return };
        let (Some(own), Some(coordinator)) = (self.address_of(&leader), self.quorum.leader) else { return };
        let address = self.quorum.state.node(leader.node).map(|row| row.node.address.clone());
        let Some(host) = address.and_then(|address| crate::coordinator::member::host_of(&address)) else { return };
        self.coverage.strays += 1;
        let fact = Fact::Overtaken { by: Epoch::new(by) };
        let report = Report { partition: row.id, placement: leader.id, epoch: row.epoch, version: row.version, fact };
        let message = MemberMessage::Report { node: leader.node, incarnation: own.incarnation, report };
        self.after(1, Event::MemberMessage { coordinator, host, message });
    }

    fn address_of(&self, placement: &Placement) -> Option<ReplicaAddress> {
        let incarnation = self.quorum.state.node(placement.node)?.node.incarnation;
        Some(ReplicaAddress { placement: placement.id, node: placement.node, incarnation })
    }
}
