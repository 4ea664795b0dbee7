//! Statistics of a node, from all sources.

use crate::flusher::FlusherHandle;
use crate::node::state::NodeState;
use crate::server::readiness::Readiness;
use crate::session::holdings::Holdings;
use crate::statistics::metrics::Metrics;
use archon_kv::MemtableBudget;
use archon_telemetry::{
    Definition, DiskReadings, Family, Histogram, LogReadings, ProcessReadings, Source, TransportReadings, metrics,
};
use archon_wal::Wal;
use std::sync::Arc;
use std::sync::atomic::Ordering;

metrics! {
    /// Values read from the parts of a node.
    #[derive(Debug)]
    pub(crate) struct NodeReadings {
        engine_syncs: u64 = Definition::counter("archon_engine_syncs_total", "syncs of the storage engine");
        formed_bytes: u64 = Definition::counter(
            "archon_node_formed_bytes_total",
            "bytes of keys and values written to form replicas of new partitions in splits"
        );
        engine_queue_bytes: u64 = Definition::gauge("archon_engine_queue_bytes", "bytes that wait for the storage \
                                                     engine");
        memtable_bytes: u64 = Definition::gauge(
            "archon_node_memtable_bytes",
            "bytes of rows that are not known to be in the storage engine"
        );
        memory_bytes_max: u64 = Definition::gauge(
            "archon_node_memory_bytes_max",
            "memory budget of the node: --memory, or a quarter of the memory of the machine or its control group"
        );
        memtable_bytes_max: u64 = Definition::gauge(
            "archon_node_memtable_bytes_max",
            "part of the budget for memtables; writes wait beyond it"
        );
        row_cache_bytes_max: u64 = Definition::gauge(
            "archon_node_row_cache_bytes_max",
            "part of the budget for cached rows of the storage engine"
        );
        engine_cache_bytes_max: u64 = Definition::gauge(
            "archon_node_engine_cache_bytes_max",
            "part of the budget for the storage engine's cache of its files"
        );
        admitted_bytes_max: u64 = Definition::gauge(
            "archon_node_admitted_bytes_max",
            "part of the budget for operations and answers in progress; further ones are refused"
        );
        connections: u64 = Definition::gauge(
            "archon_node_connections",
            "open connections of clients, peers and coordinators"
        );
        connections_refused: u64 = Definition::counter(
            "archon_node_connections_refused_total",
            "connections refused because there were too many"
        );
        refusals: u64 = Definition::counter(
            "archon_node_refusals_total",
            "unauthorized calls, messages and connections, which were refused"
        );
        admitted_bytes: u64 = Definition::gauge("archon_node_admitted_bytes", "bytes of operations and answers in progress");
        registered: bool = Definition::gauge("archon_node_registered", "1 while the node is registered with a \
                                              coordinator");
        leased: bool = Definition::gauge("archon_node_leased", "1 while the node holds a valid lease");
        placements: u64 = Definition::gauge("archon_node_placements", "placements that this node holds");
        unreadable: u64 = Definition::gauge(
            "archon_node_unreadable_replicas",
            "replicas kept and not served because this version does not read their log; run a version that does"
        );
        table_version: u64 = Definition::gauge(
            "archon_node_table_version",
            "version up to which this node has all tables and nodes; versions are of the whole cluster"
        );
        relay_members: u64 = Definition::gauge(
            "archon_node_relay_members",
            "members whose heartbeats this node relays"
        );
        relay_beats: u64 = Definition::counter(
            "archon_node_relay_heartbeats_total",
            "heartbeats of other members sent to a coordinator"
        );
        relay_batches: u64 = Definition::counter(
            "archon_node_relay_batches_total",
            "batches of heartbeats of other members sent to a coordinator"
        );
        relay_busy: u64 = Definition::counter(
            "archon_node_relay_busy_total",
            "heartbeats refused because this node relays for enough members"
        );
        relay_no_coordinator: u64 = Definition::counter(
            "archon_node_relay_no_coordinator_total",
            "times that this relay reported to members that no coordinator answers it"
        );
        relay_over: u64 = Definition::counter(
            "archon_node_relay_lives_over_total",
            "times that this relay reported to members that their incarnation is fenced"
        );
        log_bytes: u64 = Definition::gauge(
            "archon_node_log_bytes",
            "bytes of the files of the write-ahead log, prepared ones included"
        );
        log_pinned_bytes: u64 = Definition::gauge(
            "archon_node_log_pinned_bytes",
            "bytes of the write-ahead log that are kept for the replicas with the oldest entries"
        );
        log_relocated_bytes: u64 = Definition::counter(
            "archon_node_log_relocated_bytes_total",
            "bytes of old entries written again at the end of the write-ahead log, to free older segments"
        );
        disk_full: bool = Definition::gauge(
            "archon_node_disk_full",
            "1 while writes are refused because the disk has no space for them"
        );
    }
}

/// Returns every metric of a node.
pub(crate) fn definitions() -> impl Iterator<Item = &'static Definition> {
    [
        Metrics::DEFINITIONS,
        LogReadings::DEFINITIONS,
        NodeReadings::DEFINITIONS,
        DiskReadings::DEFINITIONS,
        TransportReadings::DEFINITIONS,
        ProcessReadings::DEFINITIONS,
    ]
    .into_iter()
    .flatten()
}

/// Reads the counters of all parts.
#[derive(Clone)]
pub(crate) struct Stats {
    pub(crate) shared: Arc<NodeState>,
    pub(crate) wal: Wal,
    /// Durations of the log's durable writes.
    pub(crate) sync_seconds: Arc<Histogram>,
    pub(crate) flusher: FlusherHandle,
    /// Memory of all memtables of the node.
    pub(crate) memtables: MemtableBudget,
    pub(crate) readiness: Readiness,
    pub(crate) holdings: Arc<Holdings>,
}

impl Stats {
    /// Creates the reader; the log reports the durations of its durable writes from now on.
    pub(crate) fn new(
        shared: Arc<NodeState>,
        wal: Wal,
        flusher: FlusherHandle,
        memtables: MemtableBudget,
        readiness: Readiness,
        holdings: Arc<Holdings>,
    ) -> Self {
        let sync_seconds = Arc::new(Histogram::default());
        let counted = Arc::clone(&sync_seconds);
        wal.observe_syncs(move |took| counted.observe(took));
        Self { shared, wal, sync_seconds, flusher, memtables, readiness, holdings }
    }

    fn log(&self) -> LogReadings {
        let progress = self.wal.progress();
        LogReadings {
            syncs: progress.fsyncs,
            batches: progress.batches,
            written_bytes: progress.bytes,
            sync_seconds: self.sync_seconds.read(),
        }
    }

    fn node(&self) -> NodeReadings {
        let NodeState { connection_limit, admission, memory, relay_streams, .. } = &*self.shared;
        let relay = relay_streams.counts();
        NodeReadings {
            engine_syncs: self.flusher.syncs(),
            formed_bytes: self.flusher.formed_bytes(),
            engine_queue_bytes: self.flusher.bytes_waiting() as u64,
            memtable_bytes: self.memtables.bytes_used() as u64,
            memory_bytes_max: memory.total_bytes,
            memtable_bytes_max: memory.memtables_bytes,
            row_cache_bytes_max: memory.row_cache_bytes,
            engine_cache_bytes_max: memory.engine_cache_bytes,
            admitted_bytes_max: memory.requests_bytes,
            connections: connection_limit.count() as u64,
            connections_refused: connection_limit.refused(),
            refusals: connection_limit.refusals().count(),
            admitted_bytes: admission.bytes_used() as u64,
            registered: self.shared.life().is_some(),
            leased: self.readiness.is_leased(),
            placements: self.holdings.len() as u64,
            unreadable: self.shared.load.unreadable_count() as u64,
            table_version: self.shared.tables.complete().get(),
            relay_members: relay.members.load(Ordering::Relaxed),
            relay_beats: relay.beats.load(Ordering::Relaxed),
            relay_batches: relay.batches.load(Ordering::Relaxed),
            relay_busy: relay.busy.load(Ordering::Relaxed),
            relay_no_coordinator: relay.no_coordinator.load(Ordering::Relaxed),
            relay_over: relay.over.load(Ordering::Relaxed),
            log_bytes: self.wal.disk_bytes(),
            log_pinned_bytes: self.wal.oldest_pinned().map_or(0, |pinned| pinned.bytes),
            log_relocated_bytes: self.wal.progress().relocated,
            disk_full: self.readiness.disk_full().is_some(),
        }
    }
}

impl Source for Stats {
    fn families(&self) -> Vec<Family> {
        [
            self.shared.metrics.families(),
            self.log().families(),
            self.node().families(),
            DiskReadings::of(&self.shared.config.data_dir).families(),
            TransportReadings::of(&self.shared.config.transport).families(),
            ProcessReadings::now(self.ready().is_ok()).families(),
        ]
        .concat()
    }

    fn alive(&self) -> Result<(), String> {
        if self.shared.lifecycle.failed().is_cancelled() {
            return Err("a part of the node failed permanently; see the log".to_owned());
        }
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        self.readiness.check().map_err(|why| why.to_string())
    }
}
