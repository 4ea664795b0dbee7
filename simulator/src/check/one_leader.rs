//! O: at any true instant at most one node could answer for a partition under its lease.

use super::Violation;
use crate::host::covers;
use crate::world::World;
use archon_types::PartitionId;
use std::collections::BTreeMap;

impl World {
    pub(super) fn check_one_leader(&mut self) -> Result<(), Violation> {
        let truth = self.truth;
        self.shadows.retain(|shadow| shadow.process.grants.lease.is_valid(shadow.clock.at(truth)));
        let live = self.hosts.iter().filter_map(|host| Some((host.number, host.clock, host.process.as_ref()?)));
        let hanging = self.shadows.iter().map(|shadow| (shadow.number, shadow.clock, &shadow.process));
        let mut serving: BTreeMap<PartitionId, usize> = BTreeMap::new();
        for (number, clock, process) in live.chain(hanging) {
            let now = clock.at(truth);
            for slot in process.slots.values().filter(|slot| covers(process, slot, now)) {
                if let Some(other) = serving.insert(slot.partition, number) {
                    let detail = format!("hosts {other} and {number} both serve {} under a lease", slot.partition);
                    return Err(Violation::TwoServe { detail });
                }
            }
        }
        Ok(())
    }
}
