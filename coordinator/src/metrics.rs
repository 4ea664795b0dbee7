//! What is counted: names, units and help in one place.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! metrics {
    ($($(#[doc = $help:literal])* $field:ident => $name:literal,)*) => {
        /// Counters and gauges of one coordinator. Counters only rise.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics { $($(#[doc = $help])* pub(crate) $field: AtomicU64,)* }

        impl Metrics {
            /// Every metric: name with unit, value, help.
            pub(crate) fn read(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$(($name, self.$field.load(Ordering::Relaxed), concat!($($help),*)),)*]
            }
        }
    };
}

metrics! {
    /// Times this coordinator began to lead.
    sessions => "archon_coordinator_sessions_total",
    /// Heartbeats answered with a lease.
    heartbeats => "archon_coordinator_heartbeats_answered_total",
    /// Heartbeats refused or left without a lease.
    heartbeats_refused => "archon_coordinator_heartbeats_refused_total",
    /// Heartbeats that came twice, or after a later one, and were left alone.
    heartbeats_overtaken => "archon_coordinator_heartbeats_overtaken_total",
    /// Quorum rounds that heartbeats waited for.
    heartbeat_rounds => "archon_coordinator_heartbeat_rounds_total",
    /// Commands proposed by control turns.
    commands => "archon_coordinator_commands_proposed_total",
    /// Pushes acknowledged by nodes.
    pushes => "archon_coordinator_pushes_total",
    /// Pushes that failed and are repeated.
    pushes_failed => "archon_coordinator_pushes_failed_total",
    /// Failures to accept a connection, for want of descriptors above all.
    accept_errors => "archon_coordinator_accept_errors_total",
    /// Splits that began by themselves while this coordinator led.
    splits_automatic => "archon_coordinator_splits_begun_by_themselves_total",
    /// Splits that were done while this coordinator led.
    splits_done => "archon_coordinator_splits_done_total",
    /// Splits that were given up while this coordinator led.
    splits_given_up => "archon_coordinator_splits_given_up_total",
    /// Merges that began by themselves while this coordinator led.
    merges_automatic => "archon_coordinator_merges_begun_by_themselves_total",
    /// Merges that were done while this coordinator led.
    merges_done => "archon_coordinator_merges_done_total",
    /// Merges that were given up while this coordinator led.
    merges_given_up => "archon_coordinator_merges_given_up_total",
    /// Times leadership was given away because this coordinator stalled.
    stalls => "archon_coordinator_stalls_total",
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Counts so many more.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_explained() {
        let all = Metrics::default().read();
        let names: BTreeSet<&str> = all.iter().map(|(name, _, _)| *name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|(name, _, help)| name.ends_with("_total") && !help.is_empty()));
    }
}
