//! O: at any true instant at most one node could answer for a partition under its lease.

use super::Violation;
use crate::host::covers;
use crate::world::World;
use archon_types::PartitionId;
use std::collections::BTreeMap;

impl World {
    pub(super) fn check_one_leader(&self) -> Result<(), Violation> {
        let mut serving: BTreeMap<PartitionId, usize> = BTreeMap::new();
        for host in &self.hosts {
            let Some(process) = &host.process else { continue };
            let now = host.clock.at(self.truth);
            for slot in process.slots.values().filter(|slot| covers(process, slot, now)) {
                if let Some(other) = serving.insert(slot.partition, host.number) {
                    let detail =
                        format!("hosts {other} and {} both serve {} under a lease", host.number, slot.partition);
                    return Err(Violation::TwoServe { detail });
                }
            }
        }
        Ok(())
    }
}
