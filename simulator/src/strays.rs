//! Messages that no sound member sends: a copy hears of a leadership in an epoch that nobody granted, as from a node that runs
//! on from an old directory, or after coordinators were set back. It must cost an election and nothing else (rule 25).

use crate::event::{Event, Sideways};
use crate::world::World;
use archon_replica::{Body, Message, Position, ReplicaAddress};
use archon_types::{Epoch, Partition, Placement, Seq};

impl World {
    /// One such message, from a copy of the row to another, and the next one after a while.
    pub(crate) fn stray(&mut self) {
        if self.healing {
            return;
        }
        let unit = self.plan.unit_ms();
        let delay = self.strays.between(unit * 4, unit * 40);
        self.after(delay, Event::Stray);
        let rows = self.quorum.state.partitions.iter().filter(|row| row.placements.len() > 1);
        let rows: Vec<Partition> = rows.cloned().collect();
        let Some(row) = rows.get(self.strays.index(rows.len())) else { return };
        let copies = row.placements.len();
        let from = self.strays.index(copies);
        let to = (from + 1 + self.strays.index(copies - 1)) % copies;
        let (Some(from), Some(to)) = (self.address_of(&row.placements[from]), self.address_of(&row.placements[to]))
        else {
            return;
        };
        // Often the next epoch, which a leader that is about to be named gets as well.
        let above = if self.strays.below(2) == 0 { 1 } else { self.strays.between(2, 1 << 20) };
        let epoch = Epoch::new(row.epoch.get() + above);
        // What it says of its log matches nobody's and cuts nothing.
        let body = Body::Adopt { at: Position::ZERO, start: Seq::new(u64::MAX), commit: Seq::ZERO };
        let address = self.quorum.state.node(to.node).map(|row| row.node.address.clone());
        let Some(host) = address.and_then(|address| crate::coordinator::host_of(&address)) else { return };
        self.coverage.strays += 1;
        self.note(|| format!("{to:?} hears {from:?} lead {} in epoch {epoch}", row.id));
        let message = Box::new(Sideways::Replica(Message { partition: row.id, from, to, epoch, body }));
        self.after(1, Event::Sideways { host, message });
    }

    fn address_of(&self, placement: &Placement) -> Option<ReplicaAddress> {
        let incarnation = self.quorum.state.node(placement.node)?.node.incarnation;
        Some(ReplicaAddress { placement: placement.id, node: placement.node, incarnation })
    }
}
