//! Registration of a participant, which owns partitions for a service, in contrast to a node of the key-value store.

use crate::common::limits::check_name;
use crate::error::{ErrorDetail, ErrorKind};
use crate::lease::LeaseTiming;
use serde::{Deserialize, Serialize};

/// Most tables that one participant serves.
pub const TABLES_SERVED_MAX: usize = 16;

/// Longest time in a participant's own timing, in milliseconds: one hour. While its lease lasts, no other participant
/// can take over partitions of a dead one, even on an operator's order.
pub(crate) const PARTICIPANT_TIMING_MS_MAX: u64 = 3_600_000;

/// Registration data of a participant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Participant {
    /// Names of the lease tables whose partitions it takes; they need not exist yet. One to [`TABLES_SERVED_MAX`].
    pub tables: Vec<String>,
    /// Its own heartbeats and leases; those of the cluster if absent.
    pub timing: Option<LeaseTiming>,
}

impl Participant {
    /// Returns true if it takes partitions of this table.
    pub fn serves(&self, table: &str) -> bool {
        self.tables.iter().any(|served| served == table)
    }

    /// Validates untrusted input.
    ///
    /// # Errors
    /// `InvalidArgument`: no table or too many, an invalid table name, a timing under which two participants could own
    /// one partition, with the arithmetic, or one that is longer than `PARTICIPANT_TIMING_MS_MAX`.
    pub fn check(&self) -> Result<(), ErrorDetail> {
        let invalid = |message: String| ErrorDetail::new(ErrorKind::InvalidArgument, message);
        if !(1..=TABLES_SERVED_MAX).contains(&self.tables.len()) {
            let count = self.tables.len();
            return Err(invalid(format!("a participant serves 1 to {TABLES_SERVED_MAX} tables, not {count}")));
        }
        self.tables.iter().try_for_each(|table| check_name("table", table))?;
        let Some(timing) = self.timing else { return Ok(()) };
        let longest = timing.failure_timeout_ms.max(timing.margin_ms).max(timing.lease_ms).max(timing.heartbeat_ms);
        if longest > PARTICIPANT_TIMING_MS_MAX {
            let why = format!("{longest} ms in its timing is more than {PARTICIPANT_TIMING_MS_MAX} ms, an hour");
            return Err(invalid(format!(
                "{why}: its partitions would be without an owner for this time after its \
                                        death"
            )));
        }
        timing.check_safe().map(|_| ()).map_err(|error| invalid(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn participant(tables: &[&str], lease_ms: u64) -> Participant {
        let timing = LeaseTiming { heartbeat_ms: 120_000, lease_ms, failure_timeout_ms: 240_000, margin_ms: 100 };
        Participant { tables: tables.iter().map(|&name| name.to_owned()).collect(), timing: Some(timing) }
    }

    #[test]
    fn timing_of_two_three_and_four_minutes_is_accepted() {
        assert!(participant(&["jobs"], 180_000).check().is_ok());
    }

    #[test]
    fn unsafe_timing_is_rejected_with_the_arithmetic() {
        let refused = participant(&["jobs"], 240_000).check().unwrap_err();
        assert!(refused.message.contains("1.01 × 240000 ms + 100 ms = 242500 ms"), "{refused}");
        assert!(participant(&[], 180_000).check().is_err());
        let mut long = participant(&["jobs"], 180_000);
        long.timing = long.timing.map(|timing| LeaseTiming { failure_timeout_ms: u64::MAX, ..timing });
        assert!(long.check().unwrap_err().message.contains("an hour"), "it made the coordinators overflow for good");
        assert!(participant(&["a b"], 180_000).check().is_err());
        assert!(participant(&["jobs"; TABLES_SERVED_MAX + 1], 180_000).check().is_err());
    }
}
