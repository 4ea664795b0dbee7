//! Counters of a node, with their names and help texts. [`stats`](crate::statistics::stats) reads values counted
//! elsewhere.

use crate::statistics::op_times::{BY_OP, OpTimes};
use archon_telemetry::{Definition, Histogram, Metric, PerThread, TimeCounter, metrics};

metrics! {
    /// Counters of a node.
    #[derive(Debug, Default)]
    pub(crate) struct Metrics {
        operations: Metric = Definition::counter("archon_node_operations_total", "operations received from clients");
        operations_refused: Metric = Definition::counter(
            "archon_node_operations_refused_total",
            "operations answered with an error"
        );
        operations_slow: Metric = Definition::counter(
            "archon_node_operations_slow_total",
            "operations that took longer than slow_operation_ms, including those without a log line"
        );
        forwarded: Metric = Definition::counter(
            "archon_node_forwards_total",
            "operations forwarded to the leading node and answered there"
        );
        forwards_failed: Metric = Definition::counter(
            "archon_node_forwards_failed_total",
            "operations that could not be forwarded to the leading node, or were not answered there"
        );
        stale_reads: Metric = Definition::counter(
            "archon_node_stale_reads_total",
            "stale reads, which any in-sync replica answers"
        );
        replies_held: Metric = Definition::gauge(
            "archon_node_replies_held",
            "answers to committed writes that wait for a valid lease"
        );
        row_cache_bytes: Metric = Definition::gauge(
            "archon_node_row_cache_bytes",
            "bytes of cached rows of the storage engine"
        );
        turns: Metric = Definition::counter("archon_node_shard_turns_total", "turns of all shards that had work");
        turns_cut: Metric = Definition::counter(
            "archon_node_shard_turns_cut_total",
            "turns that left operations to the next one for lack of time"
        );
        appends: Metric = Definition::counter("archon_node_log_batches_total", "batches passed to the write-ahead log");
        append_errors: Metric = Definition::counter(
            "archon_node_log_batches_refused_total",
            "batches that the write-ahead log refused"
        );
        clients_forgotten: Metric = Definition::counter(
            "archon_node_clients_forgotten_total",
            "client windows that partitions removed, by age or number"
        );
        rows_expired: Metric = Definition::counter(
            "archon_node_rows_expired_total",
            "rows of expired values that leaders removed"
        );
        commits: Metric = Definition::counter(
            "archon_node_entries_committed_total",
            "log entries committed on this node"
        );
        trims: Metric = Definition::counter(
            "archon_node_log_trims_total",
            "times that the start of a placement's log was released"
        );
        peer_bytes: Metric = Definition::gauge("archon_node_peer_queue_bytes", "bytes that wait for peers");
        peer_dropped: Metric = Definition::counter(
            "archon_node_peer_messages_dropped_total",
            "messages to peers dropped because a queue was full"
        );
        heartbeats: Metric = Definition::counter("archon_node_heartbeats_total", "heartbeats sent");
        heartbeats_failed: Metric = Definition::counter(
            "archon_node_heartbeats_failed_total",
            "heartbeats without a valid answer"
        );
        heartbeats_relayed: Metric = Definition::counter(
            "archon_node_heartbeats_relayed_total",
            "heartbeats that were answered through a relay"
        );
        heartbeats_withheld: Metric = Definition::counter(
            "archon_node_heartbeats_withheld_total",
            "heartbeats not sent because a shard or the log stalled"
        );
        door_knocks: Metric = Definition::counter(
            "archon_node_door_knocks_total",
            "probes of other nodes, made as clients connect"
        );
        door_failures: Metric = Definition::counter(
            "archon_node_door_failures_total",
            "probes that were refused or not answered"
        );
        leases_lapsed: Metric = Definition::counter(
            "archon_node_leases_lapsed_total",
            "times that the lease expired before the next grant arrived"
        );
        lives_told_over: Metric = Definition::counter(
            "archon_node_lives_told_over_total",
            "times that another node reported this incarnation as fenced, so that the node registered again"
        );
        registrations: Metric = Definition::counter(
            "archon_node_registrations_total",
            "registrations committed by the coordinator"
        );
        reports: Metric = Definition::counter("archon_node_reports_total", "reports answered by the coordinator");
        pushes: Metric = Definition::counter("archon_node_pushes_total", "pushes of duties applied");
        pushes_refused: Metric = Definition::counter("archon_node_pushes_refused_total", "pushes of duties refused");
        news: Metric = Definition::counter(
            "archon_node_news_total",
            "answers to relayed heartbeats with table updates that this node lacked"
        );
        reports_passed_on: Metric = Definition::counter(
            "archon_node_reports_passed_on_total",
            "calls with reports of nodes that reach no coordinator, forwarded by this node and answered"
        );
        news_refused: Metric = Definition::counter(
            "archon_node_news_refused_total",
            "table updates in answers that could not be applied"
        );
        partitions_led: Metric = Definition::gauge(
            "archon_node_partitions_led",
            "partitions that this node leads and serves now"
        );
        accept_errors: Metric = Definition::counter(
            "archon_node_accept_errors_total",
            "failures to accept a connection, mostly for lack of file descriptors"
        );
        copy_bytes_in: Metric = Definition::counter(
            "archon_node_copy_received_bytes_total",
            "bytes of copies pulled from leaders"
        );
        copy_bytes_out: Metric = Definition::counter(
            "archon_node_copy_sent_bytes_total",
            "bytes of copies sent to loaders"
        );
        snapshot_bytes_out: Metric = Definition::counter(
            "archon_node_snapshot_sent_bytes_total",
            "bytes of keys and values sent in snapshots of partitions, for backups"
        );
        seals_over: Metric = Definition::counter(
            "archon_node_split_pauses_total",
            "times that keys of a partition being split were closed for a while"
        );
        sealed: TimeCounter = Definition::counter(
            "archon_node_split_pause_seconds_total",
            "duration of these pauses, until the leader knew the new partition of the keys, or that the split was \
             abandoned"
        );
        copies_rested: TimeCounter = Definition::counter(
            "archon_node_copy_rest_seconds_total",
            "time for which copies to and from this node paused because clients used the node"
        );
        logs_not_kept: Metric = Definition::counter(
            "archon_node_logs_not_kept_total",
            "times that the log for an absent replica was released, so that the replica is loaded again when it \
             returns"
        );
        copies_restarted: Metric = Definition::counter(
            "archon_node_copies_restarted_total",
            "copies restarted from the beginning"
        );
        streams_stalled: Metric = Definition::counter(
            "archon_node_streams_stalled_total",
            "streams ended because their client read no answers"
        );
        messages_incomplete: Metric = Definition::counter(
            "archon_node_messages_incomplete_total",
            "streams ended because a message did not arrive completely in time"
        );
        alarms: Metric = Definition::counter("archon_node_alarms_total", "signs of lost or damaged data");
        operation_seconds: OpTimes = Definition::histogram(
            "archon_node_operation_seconds",
            "duration of an operation answered without an error, from its arrival until its answer is passed to \
             the connection"
        )
        .by(BY_OP);
        turn_seconds: PerThread<Histogram> = Definition::histogram(
            "archon_node_shard_turn_seconds",
            "duration of a turn of a shard that had work, until its answers are passed to the connections"
        );
    }
}
