//! Counters of a coordinator, with names and help. Values that are read on demand are in
//! [`stats`](crate::statistics::stats).

use archon_telemetry::{Definition, Histogram, Metric, metrics};

metrics! {
    /// Counters of a coordinator.
    #[derive(Debug, Default)]
    pub(crate) struct Metrics {
        sessions: Metric = Definition::counter(
            "archon_coordinator_sessions_total",
            "times that this coordinator began to lead"
        );
        heartbeats: Metric = Definition::counter(
            "archon_coordinator_heartbeats_answered_total",
            "heartbeats answered with a lease"
        );
        heartbeats_refused: Metric = Definition::counter(
            "archon_coordinator_heartbeats_refused_total",
            "heartbeats refused or left without a lease"
        );
        heartbeats_overtaken: Metric = Definition::counter(
            "archon_coordinator_heartbeats_overtaken_total",
            "heartbeats that arrived twice, or after a later one, and were ignored"
        );
        heartbeat_rounds: Metric = Definition::counter(
            "archon_coordinator_heartbeat_rounds_total",
            "quorum rounds that heartbeats waited for"
        );
        heartbeat_seconds: Histogram = Definition::histogram(
            "archon_coordinator_heartbeat_seconds",
            "time that a heartbeat waited for its lease, the quorum round included"
        );
        nodes_unreached: Metric = Definition::counter(
            "archon_coordinator_nodes_unreached_total",
            "times that a node became unreachable for clients although its heartbeats arrived, while this \
             coordinator led"
        );
        commands: Metric = Definition::counter(
            "archon_coordinator_commands_proposed_total",
            "commands proposed by control turns"
        );
        turn_seconds: Histogram = Definition::histogram(
            "archon_coordinator_turn_seconds",
            "time that a control turn takes to decide, without the commit of its decisions"
        );
        pushes: Metric = Definition::counter("archon_coordinator_pushes_total", "pushes acknowledged by nodes");
        news: Metric = Definition::counter(
            "archon_coordinator_news_total",
            "answers to relayed heartbeats with table updates that the nodes lacked"
        );
        pushes_failed: Metric = Definition::counter(
            "archon_coordinator_pushes_failed_total",
            "pushes that failed and are repeated"
        );
        accept_errors: Metric = Definition::counter(
            "archon_coordinator_accept_errors_total",
            "failures to accept a connection, mostly for lack of file descriptors"
        );
        audit_lines: Metric = Definition::counter(
            "archon_coordinator_audit_lines_total",
            "lines written to the audit file: changes that operators requested, and unauthorized calls"
        );
        audit_dropped: Metric = Definition::counter(
            "archon_coordinator_audit_dropped_total",
            "lines missing from the audit file, because too many arrived at once or the disk accepted none"
        );
        splits_automatic: Metric = Definition::counter(
            "archon_coordinator_splits_begun_by_themselves_total",
            "automatic splits that began while this coordinator led"
        );
        splits_done: Metric = Definition::counter(
            "archon_coordinator_splits_done_total",
            "splits that finished while this coordinator led"
        );
        splits_given_up: Metric = Definition::counter(
            "archon_coordinator_splits_given_up_total",
            "splits that were abandoned while this coordinator led"
        );
        merges_automatic: Metric = Definition::counter(
            "archon_coordinator_merges_begun_by_themselves_total",
            "automatic merges that began while this coordinator led"
        );
        merges_done: Metric = Definition::counter(
            "archon_coordinator_merges_done_total",
            "merges that finished while this coordinator led"
        );
        merges_given_up: Metric = Definition::counter(
            "archon_coordinator_merges_given_up_total",
            "merges that were abandoned while this coordinator led"
        );
        stalls: Metric = Definition::counter(
            "archon_coordinator_stalls_total",
            "times that this coordinator gave up leadership because it stalled"
        );
        leader_changes: Metric = Definition::counter(
            "archon_raft_leader_changes_total",
            "changes of leader or term that this coordinator observed"
        );
    }
}
