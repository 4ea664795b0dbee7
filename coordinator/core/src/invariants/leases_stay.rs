//! Leases are as long as they were when the cluster was created, and the failure time-out outlasts them (PROTOCOL rule 16).

use crate::command::apply::leases_stay;
use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;

pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    if !before.is_bootstrapped() || leases_stay(&before.settings, &after.settings) {
        return Ok(());
    }
    violated("leases_stay", format!("{:?} became {:?}", before.settings.timing, after.settings.timing))
}
