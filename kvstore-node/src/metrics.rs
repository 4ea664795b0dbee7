//! Every metric of a node in one place: its name, unit and help beside its counter.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a value only rises or goes up and down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Only rises.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One number that any thread may change.
#[derive(Debug, Default)]
pub(crate) struct Metric(AtomicU64);

impl Metric {
    /// Adds `count`.
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes `count` away, stopping at zero.
    pub(crate) fn subtract(&self, count: u64) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(value.saturating_sub(count)));
    }

    /// Sets the value.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A metric's value with what describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Its name; ends in its unit.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// What it counts, for people.
    pub help: &'static str,
    /// The value when it was read.
    pub value: u64,
}

macro_rules! metrics {
    ($($field:ident: $kind:ident, $name:literal, $help:literal;)*) => {
        /// The node's metrics.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics { $(#[doc = $help] pub(crate) $field: Metric,)* }

        impl Metrics {
            /// Every metric with its value, in a fixed order.
            pub(crate) fn samples(&self) -> Vec<Sample> {
                vec![$(Sample { name: $name, kind: MetricKind::$kind, help: $help, value: self.$field.get() },)*]
            }
        }
    };
}

metrics! {
    operations: Counter, "archon_node_operations_total", "operations taken in from clients";
    operations_refused: Counter, "archon_node_operations_refused_total", "operations answered by an error";
    forwarded: Counter, "archon_node_forwards_total", "operations passed on to the node that leads, and answered there";
    forwards_failed: Counter, "archon_node_forwards_failed_total", "operations passed on, or to be, that the node which leads gave no answer to";
    stale_reads: Counter, "archon_node_stale_reads_total", "reads asked of a copy whether it leads or not";
    replies_held: Gauge, "archon_node_replies_held", "answers to committed writes that wait for a valid lease";
    turns: Counter, "archon_node_shard_turns_total", "turns of all shards that had work";
    turns_cut: Counter, "archon_node_shard_turns_cut_total", "turns that left operations to the next one, for want of time";
    appends: Counter, "archon_node_wal_batches_total", "batches handed to the write-ahead log";
    append_errors: Counter, "archon_node_wal_refusals_total", "batches that the write-ahead log refused";
    clients_forgotten: Counter, "archon_node_clients_forgotten_total", "clients that partitions no longer remember, for their age or their number";
    commits: Counter, "archon_node_entries_committed_total", "log entries committed on this node";
    trims: Counter, "archon_node_log_trims_total", "times that a placement's log was allowed to be forgotten";
    peer_bytes: Gauge, "archon_node_peer_queue_bytes", "bytes that wait for peers";
    peer_dropped: Counter, "archon_node_peer_messages_dropped_total", "messages to peers dropped because a queue was full";
    heartbeats: Counter, "archon_node_heartbeats_total", "heartbeats sent";
    heartbeats_failed: Counter, "archon_node_heartbeats_failed_total", "heartbeats without an answer that counts";
    heartbeats_withheld: Counter, "archon_node_heartbeats_withheld_total", "heartbeats not sent because a shard or the log stalled";
    leases_lapsed: Counter, "archon_lease_expired_total", "times that the lease ended before the next grant came";
    registrations: Counter, "archon_node_registrations_total", "registrations committed by the coordinator";
    reports: Counter, "archon_node_reports_total", "reports answered by the coordinator";
    pushes: Counter, "archon_node_pushes_total", "pushes of duties applied";
    pushes_refused: Counter, "archon_node_pushes_refused_total", "pushes of duties refused";
    partitions_led: Gauge, "archon_node_partitions_led", "partitions that this node serves now";
    placements: Gauge, "archon_node_placements", "placements that this node holds";
    accept_errors: Counter, "archon_node_accept_errors_total", "failures to accept a connection, for want of descriptors above all";
    copy_bytes_in: Counter, "archon_node_copy_received_bytes_total", "bytes of copies pulled from leaders";
    copy_bytes_out: Counter, "archon_node_copy_sent_bytes_total", "bytes of copies given to loaders";
    seals_over: Counter, "archon_node_split_pauses_total", "times that keys of a partition which is split were not admitted here for a while";
    sealed_ms: Counter, "archon_node_split_pauses_milliseconds_total", "how long that was, until the leader knew that they are another partition's, or its own again";
    copies_restarted: Counter, "archon_node_copies_restarted_total", "copies begun again from the start";
    streams_stalled: Counter, "archon_node_streams_stalled_total", "streams ended because their client took no answers";
    messages_incomplete: Counter, "archon_node_messages_incomplete_total", "streams ended because a message did not arrive whole in time";
    alarms: Counter, "archon_node_alarms_total", "signs of lost or damaged data";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_described() {
        let samples = Metrics::default().samples();
        let names: BTreeSet<_> = samples.iter().map(|sample| sample.name).collect();
        assert_eq!(names.len(), samples.len());
        assert!(samples.iter().all(|sample| !sample.help.is_empty()));
    }

    #[test]
    fn a_gauge_stops_at_zero() {
        let metric = Metric::default();
        metric.add(2);
        metric.subtract(5);
        assert_eq!(metric.get(), 0);
    }
}
