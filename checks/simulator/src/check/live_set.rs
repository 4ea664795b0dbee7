//! S: every Live replica durably holds every acknowledged write; and one whose loss was accepted is never in sync
//! again.

use crate::check::violation::Violation;
use crate::coordinator::member::host_of;
use crate::world::World;
use archon_replica::invariants::{DurableState, live_hold_acknowledged};
use archon_replica::{Entry, Position};
use archon_types::{Epoch, Seq};

impl World {
    pub(super) fn check_live_sets(&mut self) -> Result<(), Violation> {
        let checks = &mut self.checks;
        // During a recovery the rows of the state are provisional.
        let told_true = self.quorum.state.recovery.is_none();
        for row in self.quorum.state.partitions.iter().filter(|_| told_true) {
            let Some(known) = checks.partitions.get_mut(&row.id) else { continue };
            if let Some(back) = row.live().find(|live| known.given_up.contains(&live.id)) {
                let detail = format!("{} of {} counts again, though its loss was accepted", back.id, row.id);
                return Err(Violation::LiveSet { detail });
            }
            let known = known.latest_mut();
            if known.acknowledged == Seq::ZERO {
                continue;
            }
            for live in row.live().filter(|live| !checks.destroyed.contains(&live.id)) {
                let node = self.quorum.state.node(live.node);
                let host = node.and_then(|node| host_of(&node.node.address)).and_then(|host| self.hosts.get(host));
                let Some(stream) = host.and_then(|host| host.disk.streams.get(&live.id)) else {
                    let detail = format!("Live {} of {} has nothing on its disk", live.id, row.id);
                    return Err(Violation::LiveSet { detail });
                };
                let compared = known.compared.entry(live.id).or_insert((stream.revision, Seq::ZERO));
                if compared.0 != stream.revision {
                    *compared = (stream.revision, Seq::ZERO);
                }
                let from = compared.1.max(stream.base.seq);
                if from >= known.acknowledged {
                    continue;
                }
                let first = usize::try_from(from.get()).unwrap_or(usize::MAX);
                let numbers = from.get() + 1..=known.acknowledged.get();
                let entries: Vec<Entry> = numbers.map_while(|seq| stream.entry(Seq::new(seq)).cloned()).collect();
                let held =
                    DurableState { placement: live.id, base: Position::new(Epoch::ZERO, from), entries: &entries };
                let committed = known.ledger.entries().get(first..).unwrap_or_default();
                live_hold_acknowledged([held], committed, known.acknowledged)?;
                compared.1 = known.acknowledged;
            }
        }
        Ok(())
    }
}
