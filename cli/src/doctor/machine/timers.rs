//! Timeliness of this machine's timers, which leases depend on.

use crate::doctor::subjects::MACHINE;
use crate::documents::{Finding, FindingCode};
use crate::stalls;
use archon_types::Failover;
use std::time::Duration;

/// Judges the longest delay of a timer during the observation.
pub(super) fn judge(seen: Duration) -> Finding {
    const CODE: FindingCode = FindingCode::Timers;
    let watched = format!("within {} s the latest timer was {} ms late", stalls::WATCHED.as_secs(), seen.as_millis());
    match stalls::quickest(seen) {
        Some(Failover::Fast) => Finding::ok(CODE, MACHINE, format!("{watched}: good enough for `--failover fast`")),
        Some(Failover::Standard) => {
            Finding::ok(CODE, MACHINE, format!("{watched}: good enough for `--failover standard`, too late for `fast`"))
        }
        None => {
            let remedy = "give members CPUs without other load, or a longer --lease-ms and --failure-timeout-ms when \
                          the cluster is created";
            Finding::warning(CODE, MACHINE, format!("{watched}: a busy member may lose its lease"), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Verdict;

    #[test]
    fn late_timers_are_reported() {
        let judged = |ms| judge(Duration::from_millis(ms));
        assert_eq!(
            (judged(3).verdict, judged(250).verdict, judged(400).verdict),
            (Verdict::Ok, Verdict::Ok, Verdict::Warning)
        );
        assert!(judged(250).message.contains("too late for `fast`"));
    }
}
