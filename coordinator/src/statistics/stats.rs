//! Metrics of a coordinator, and, while it leads, of its cluster.

use crate::raft::Quorum;
use crate::readiness;
use crate::service::Context;
use crate::statistics::metrics::Metrics;
use archon_coordinator_core::Totals;
use archon_telemetry::{
    Definition, DiskReadings, Distribution, Family, Label, LabelledValues, LogReadings, ProcessReadings, Source,
    TransportReadings, metrics,
};
use archon_types::{MovePhase, NodeStatus, PartitionStatus};
use std::path::PathBuf;

const NODE_STATUS: &[Label] = &[Label { name: "status", values: NodeStatus::WORDS }];
const PARTITION_STATUS: &[Label] = &[Label { name: "status", values: PartitionStatus::WORDS }];
const PHASE: &[Label] = &[Label {
    name: "phase",
    values: &{
        let mut words = [""; Totals::OPEN_PHASES.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = Totals::OPEN_PHASES[at].as_str();
            at += 1;
        }
        words
    },
}];

metrics! {
    /// The listener of a coordinator.
    #[derive(Debug)]
    pub(crate) struct ListenerReadings {
        connections: u64 = Definition::gauge(
            "archon_coordinator_connections",
            "open connections of nodes, clients and other coordinators"
        );
        connections_refused: u64 = Definition::counter(
            "archon_coordinator_connections_refused_total",
            "connections refused because there were too many"
        );
        refusals: u64 = Definition::counter(
            "archon_coordinator_refusals_total",
            "unauthorized calls, messages and connections, which were refused"
        );
    }
}

metrics! {
    /// Raft in the view of a coordinator that takes part in it.
    #[derive(Debug)]
    pub(crate) struct RaftReadings {
        is_leader: bool = Definition::gauge("archon_raft_is_leader", "1 while this coordinator believes that it leads");
        has_leader: bool = Definition::gauge(
            "archon_raft_has_leader",
            "1 while this coordinator knows a leader: another one, or itself if a majority answers it"
        );
        term: u64 = Definition::gauge("archon_raft_term", "current term");
        applied_index: u64 = Definition::gauge("archon_raft_applied_index", "index of the last applied log entry");
        log_bytes: u64 = Definition::gauge("archon_raft_log_bytes", "encoded bytes of the log entries in memory");
        read_only: bool = Definition::gauge(
            "archon_raft_read_only",
            "1 while this coordinator leads and refuses changes for lack of disk space"
        );
        voters_away: Option<u64> = Definition::gauge(
            "archon_raft_voters_away",
            "voters that have not answered the leader for a second; reported by the leading coordinator"
        );
        entries_behind_max: Option<u64> = Definition::gauge(
            "archon_raft_entries_behind_max",
            "log entries that the voter furthest behind lacks; reported by the leading coordinator"
        );
        states_differ: Option<u64> = Definition::gauge(
            "archon_raft_states_differ",
            "coordinators whose state differs from that of the others; reported by the leading coordinator"
        );
        checksum_seconds: Distribution = Definition::histogram(
            "archon_raft_checksum_seconds",
            "time to compute the checksum of the state, which coordinators compare"
        );
        commit_seconds: Distribution = Definition::histogram(
            "archon_raft_commit_seconds",
            "time from the proposal of a change by this coordinator until it was committed and applied"
        );
    }
}

metrics! {
    /// The cluster, reported only by the leading coordinator, so that nothing is counted twice.
    #[derive(Debug)]
    pub(crate) struct ClusterReadings {
        nodes: LabelledValues<u64> = Definition::gauge("archon_cluster_nodes", "nodes by status").by(NODE_STATUS);
        nodes_unreached: u64 = Definition::gauge(
            "archon_cluster_nodes_unreached",
            "live nodes that clients cannot reach"
        );
        participants: LabelledValues<u64> = Definition::gauge(
            "archon_cluster_participants",
            "participants of lease tables by status"
        )
        .by(NODE_STATUS);
        partitions: LabelledValues<u64> = Definition::gauge(
            "archon_cluster_partitions",
            "partitions of all tables by status; unavailable ones have no leader"
        )
        .by(PARTITION_STATUS);
        under_replicated: u64 = Definition::gauge(
            "archon_cluster_partitions_under_replicated",
            "assigned partitions with fewer in-sync replicas than their table requires"
        );
        moves: LabelledValues<u64> = Definition::gauge("archon_cluster_moves", "unfinished moves by phase").by(PHASE);
        copies_condemned: u64 = Definition::gauge(
            "archon_cluster_copies_condemned",
            "replicas of deleted partitions (dropped, merged, abandoned splits) that are not deleted yet"
        );
    }
}

/// Every metric of a coordinator.
pub(crate) fn definitions() -> impl Iterator<Item = &'static Definition> {
    [
        Metrics::DEFINITIONS,
        ListenerReadings::DEFINITIONS,
        RaftReadings::DEFINITIONS,
        LogReadings::DEFINITIONS,
        ClusterReadings::DEFINITIONS,
        DiskReadings::DEFINITIONS,
        TransportReadings::DEFINITIONS,
        ProcessReadings::DEFINITIONS,
    ]
    .into_iter()
    .flatten()
}

/// Collects the metrics of all parts.
#[derive(Clone)]
pub(crate) struct Stats {
    pub(crate) context: Context,
    pub(crate) data_dir: PathBuf,
}

impl Stats {
    fn listener(&self) -> ListenerReadings {
        let connection_limit = &self.context.connection_limit;
        ListenerReadings {
            connections: connection_limit.count() as u64,
            connections_refused: connection_limit.refused(),
            refusals: connection_limit.refusals().count(),
        }
    }

    fn cluster(&self) -> Option<ClusterReadings> {
        let session = self.context.leading.session()?;
        let totals = session.quorum().replicated().read(Totals::of);
        let nodes_unreached = session.term().lock().liveness().unreached() as u64;
        let by_status =
            |counts: Vec<(NodeStatus, u64)>| counts.into_iter().map(|(status, n)| (status.as_str(), n)).collect();
        Some(ClusterReadings {
            nodes: by_status(totals.nodes),
            nodes_unreached,
            participants: by_status(totals.participants),
            partitions: totals.partitions.into_iter().map(|(status, count)| (status.as_str(), count)).collect(),
            under_replicated: totals.under_replicated,
            moves: totals.moves.into_iter().map(|(phase, count)| (MovePhase::as_str(phase), count)).collect(),
            copies_condemned: totals.copies_condemned,
        })
    }
}

impl RaftReadings {
    fn of(quorum: &Quorum) -> Self {
        let view = quorum.view();
        let leads = quorum.leading_term().is_some();
        let away = view.voters.iter().filter(|voter| voter.is_away()).count() as u64;
        let behind = view.voters.iter().filter_map(|voter| voter.entries_behind).max();
        Self {
            is_leader: leads,
            has_leader: quorum.check_leader().is_ok(),
            term: view.term,
            applied_index: view.applied_index,
            log_bytes: quorum.log_bytes(),
            read_only: leads && quorum.read_only().is_some(),
            voters_away: leads.then_some(away),
            entries_behind_max: behind.filter(|_| leads),
            states_differ: leads.then(|| quorum.differing_states().len() as u64),
            checksum_seconds: quorum.checksum_times(),
            commit_seconds: quorum.commit_times(),
        }
    }
}

impl Source for Stats {
    fn families(&self) -> Vec<Family> {
        let quorum = self.context.quorum.get();
        let or_none = Option::unwrap_or_default;
        [
            self.context.metrics.families(),
            self.listener().families(),
            or_none(quorum.map(|quorum| RaftReadings::of(quorum).families())),
            or_none(quorum.map(|quorum| quorum.log_readings().families())),
            or_none(self.cluster().map(|cluster| cluster.families())),
            DiskReadings::of(&self.data_dir).families(),
            TransportReadings::of(&self.context.transport).families(),
            ProcessReadings::now(self.ready().is_ok()).families(),
        ]
        .concat()
    }

    fn alive(&self) -> Result<(), String> {
        readiness::alive(&self.context)
    }

    fn ready(&self) -> Result<(), String> {
        readiness::ready(&self.context).map_err(|why| why.to_string())
    }
}
