//! O: at any true instant at most one node can answer for a partition under its lease; for a partition of a dropped
//! table none, once a lease has passed.

use crate::check::violation::Violation;
use crate::host::covers;
use crate::world::World;
use archon_types::PartitionId;
use std::collections::BTreeMap;

impl World {
    pub(super) fn check_one_leader(&mut self) -> Result<(), Violation> {
        let truth = self.truth;
        self.shadows.retain(|shadow| shadow.process.partitions.shell().grants.is_valid(shadow.clock.at(truth)));
        let live = self.hosts.iter().filter_map(|host| Some((host.number, host.clock, host.process.as_ref()?)));
        let hanging = self.shadows.iter().map(|shadow| (shadow.number, shadow.clock, &shadow.process));
        // A lease granted at the last moment, on a slow clock, and the answer that was just about to leave.
        let lease = self.plan.settings.timing.lease_ms * 101 / 100 + 3;
        let mut serving: BTreeMap<PartitionId, usize> = BTreeMap::new();
        for (number, clock, process) in live.chain(hanging) {
            let now = clock.at(truth);
            for local in process.partitions.copies().values().filter(|local| covers(process, local, now)) {
                if self.checks.dropped.get(&local.partition.table).is_some_and(|at| truth > at + lease) {
                    let detail =
                        format!("host {number} still serves {} under a lease, and it is dropped", local.partition);
                    return Err(Violation::TwoServe { detail });
                }
                if let Some(other) = serving.insert(local.partition, number) {
                    let detail = format!("hosts {other} and {number} both serve {} under a lease", local.partition);
                    return Err(Violation::TwoServe { detail });
                }
            }
        }
        match self.two_owners() {
            Some(detail) => Err(Violation::TwoServe { detail }),
            None => Ok(()),
        }
    }
}
