//! Documents of orders and checks. Their JSON names are a contract, as in `admin_types`.

use archon_documents::{CheckCluster, HELD_FOR_MS};
use std::time::Duration;

/// Thresholds of findings of [`Admin::check`](crate::Admin::check).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckThresholds {
    /// Age of a lease without extension; `None` for twice the failure time-out of its holder.
    pub stale_after: Option<Duration>,
    /// Minimum number of members that take partitions.
    pub members_min: Option<u32>,
    /// The table with these participants; `None` for nodes.
    pub members_of: Option<String>,
    /// Age after which an order is a warning instead of a notice: an exclusion, an offline partition, a cordon, a
    /// drain, maintenance.
    pub held_for: Duration,
}

impl Default for CheckThresholds {
    /// Leases by each member's timing, orders after a day, any number of members.
    fn default() -> Self {
        Self { stale_after: None, members_min: None, members_of: None, held_for: Duration::from_millis(HELD_FOR_MS) }
    }
}

impl From<&CheckThresholds> for CheckCluster {
    fn from(thresholds: &CheckThresholds) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        Self {
            stale_after_ms: thresholds.stale_after.map(millis),
            members_min: thresholds.members_min,
            members_of: thresholds.members_of.clone(),
            held_for_ms: millis(thresholds.held_for),
        }
    }
}
