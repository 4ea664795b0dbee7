//! Counters of a node, with their names and help texts. [`stats`](crate::statistics::stats) reads values counted
//! elsewhere.

use crate::statistics::op_times::{BY_OP, OpTimes};
use archon_telemetry::{Definition, Elapsed, Histogram, Metric, PerThread, metrics};

metrics! {
    /// Counters of a node.
    #[derive(Debug, Default)]
    pub(crate) struct Metrics {
        operations: Metric = Definition::counter("archon_node_operations_total", "operations taken in from clients");
        operations_refused: Metric = Definition::counter(
            "archon_node_operations_refused_total",
            "operations answered by an error"
        );
        operations_slow: Metric = Definition::counter(
            "archon_node_operations_slow_total",
            "operations that took longer than slow_operation_ms says, also where the log has no line for them"
        );
        forwarded: Metric = Definition::counter(
            "archon_node_forwards_total",
            "operations passed on to the node that leads, and answered there"
        );
        forwards_failed: Metric = Definition::counter(
            "archon_node_forwards_failed_total",
            "operations passed on, or to be, that the node which leads gave no answer to"
        );
        stale_reads: Metric = Definition::counter(
            "archon_node_stale_reads_total",
            "reads asked of a copy whether it leads or not"
        );
        replies_held: Metric = Definition::gauge(
            "archon_node_replies_held",
            "answers to committed writes that wait for a valid lease"
        );
        row_cache_bytes: Metric = Definition::gauge(
            "archon_node_row_cache_bytes",
            "bytes of rows of the storage engine kept for those who read them again"
        );
        turns: Metric = Definition::counter("archon_node_shard_turns_total", "turns of all shards that had work");
        turns_cut: Metric = Definition::counter(
            "archon_node_shard_turns_cut_total",
            "turns that left operations to the next one, for want of time"
        );
        appends: Metric = Definition::counter("archon_node_log_batches_total", "batches handed to the write-ahead log");
        append_errors: Metric = Definition::counter(
            "archon_node_log_batches_refused_total",
            "batches that the write-ahead log refused"
        );
        clients_forgotten: Metric = Definition::counter(
            "archon_node_clients_forgotten_total",
            "clients that partitions no longer remember, for their age or their number"
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
            "times that a placement's log was allowed to be forgotten"
        );
        peer_bytes: Metric = Definition::gauge("archon_node_peer_queue_bytes", "bytes that wait for peers");
        peer_dropped: Metric = Definition::counter(
            "archon_node_peer_messages_dropped_total",
            "messages to peers dropped because a queue was full"
        );
        heartbeats: Metric = Definition::counter("archon_node_heartbeats_total", "heartbeats sent");
        heartbeats_failed: Metric = Definition::counter(
            "archon_node_heartbeats_failed_total",
            "heartbeats without an answer that counts"
        );
        heartbeats_relayed: Metric = Definition::counter(
            "archon_node_heartbeats_relayed_total",
            "heartbeats whose answer another node brought"
        );
        heartbeats_withheld: Metric = Definition::counter(
            "archon_node_heartbeats_withheld_total",
            "heartbeats not sent because a shard or the log stalled"
        );
        door_knocks: Metric = Definition::counter(
            "archon_node_door_knocks_total",
            "times that this node asked another one, as a client would, whether it answers"
        );
        door_failures: Metric = Definition::counter(
            "archon_node_door_failures_total",
            "times that the other one did not answer, or refused"
        );
        leases_lapsed: Metric = Definition::counter(
            "archon_node_leases_lapsed_total",
            "times that the lease ended before the next grant came"
        );
        lives_told_over: Metric = Definition::counter(
            "archon_node_lives_told_over_total",
            "times that another node told this one that its life was over, upon which it registered anew"
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
            "answers to carried heartbeats that brought what this node lacked of tables and nodes"
        );
        reports_passed_on: Metric = Definition::counter(
            "archon_node_reports_passed_on_total",
            "calls with reports of other nodes, which reach no coordinator, that were passed on and answered"
        );
        news_refused: Metric = Definition::counter(
            "archon_node_news_refused_total",
            "what answers brought of tables and nodes and could not be taken in"
        );
        partitions_led: Metric = Definition::gauge(
            "archon_node_partitions_led",
            "partitions that this node serves now"
        );
        accept_errors: Metric = Definition::counter(
            "archon_node_accept_errors_total",
            "failures to accept a connection, for want of descriptors above all"
        );
        copy_bytes_in: Metric = Definition::counter(
            "archon_node_copy_received_bytes_total",
            "bytes of copies pulled from leaders"
        );
        copy_bytes_out: Metric = Definition::counter(
            "archon_node_copy_sent_bytes_total",
            "bytes of copies given to loaders"
        );
        snapshot_bytes_out: Metric = Definition::counter(
            "archon_node_snapshot_sent_bytes_total",
            "bytes of keys and values given in snapshots of partitions, as backups ask for them"
        );
        seals_over: Metric = Definition::counter(
            "archon_node_split_pauses_total",
            "times that keys of a partition which is split were not admitted here for a while"
        );
        sealed: Elapsed = Definition::counter(
            "archon_node_split_pause_seconds_total",
            "how long that was, until the leader knew that they are another partition's, or its own again"
        );
        copies_rested: Elapsed = Definition::counter(
            "archon_node_copy_rest_seconds_total",
            "how long copies to and from this node rested because clients used it"
        );
        logs_not_kept: Metric = Definition::counter(
            "archon_node_logs_not_kept_total",
            "times that the log was no longer kept for a copy that was away, which is then loaded again"
        );
        copies_restarted: Metric = Definition::counter(
            "archon_node_copies_restarted_total",
            "copies begun again from the start"
        );
        streams_stalled: Metric = Definition::counter(
            "archon_node_streams_stalled_total",
            "streams ended because their client took no answers"
        );
        messages_incomplete: Metric = Definition::counter(
            "archon_node_messages_incomplete_total",
            "streams ended because a message did not arrive whole in time"
        );
        alarms: Metric = Definition::counter("archon_node_alarms_total", "signs of lost or damaged data");
        operation_seconds: OpTimes = Definition::histogram(
            "archon_node_operation_seconds",
            "how long an operation took that was answered without an error, from its arrival until its answer is given to the \
             connection"
        )
        .by(BY_OP);
        turn_seconds: PerThread<Histogram> = Definition::histogram(
            "archon_node_shard_turn_seconds",
            "how long a turn of a shard that had work took, from its begin until its answers are given to the connections"
        );
    }
}
