//! Views of the quorum by each coordinator, available even without a leader.

use super::load::{buckets, quantile_ms};
use crate::cluster::Cluster;
use archon_client::{CoordinatorRole, Error, OpenEnum, Quorum};
use futures::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// Time-out of a coordinator's answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// State of a coordinator, as reported by itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct CoordinatorView {
    /// Address of the coordinator.
    pub(crate) address: String,
    /// Number of the coordinator.
    id: Option<u64>,
    /// Role in the quorum.
    role: Option<OpenEnum<CoordinatorRole>>,
    /// Raft term that it knows.
    term: Option<u64>,
    /// Index of its last log entry.
    last_log_index: Option<u64>,
    /// Index of the last entry that it applied.
    applied_index: Option<u64>,
    /// Number of entries behind the coordinator with the longest log.
    entries_behind: Option<u64>,
    /// 99th percentile of its durable writes since its start, in milliseconds.
    sync_p99_ms: Option<f64>,
    /// Reason why it does not answer.
    error: Option<String>,
}

/// Queries each coordinator: those that the console knows, and those that these name.
pub(crate) async fn quorum_of(cluster: &Cluster) -> Vec<CoordinatorView> {
    let answers = cluster.admin.quorum_of_each(TIMEOUT).await;
    let asked = join_all(answers.into_iter().map(|(address, answer)| view(cluster, address, answer)));
    let mut all = asked.await;
    let ahead = all.iter().filter_map(|view| view.last_log_index).max();
    for view in &mut all {
        view.entries_behind = Option::zip(ahead, view.last_log_index).map(|(ahead, own)| ahead - own);
    }
    all.sort_by(|a, b| (a.id.unwrap_or(u64::MAX), &a.address).cmp(&(b.id.unwrap_or(u64::MAX), &b.address)));
    all
}

async fn view(cluster: &Cluster, address: String, answer: Result<Quorum, Error>) -> CoordinatorView {
    let view = CoordinatorView::of(&address, answer);
    if view.error.is_some() {
        return view;
    }
    let stats = tokio::time::timeout(TIMEOUT, cluster.admin.node_stats(&address)).await.ok().and_then(Result::ok);
    let sync_p99_ms = stats.and_then(|stats| quantile_ms(&buckets(&stats, "archon_wal_sync_seconds", ""), 0.99));
    CoordinatorView { sync_p99_ms, ..view }
}

impl CoordinatorView {
    fn of(address: &str, answer: Result<Quorum, Error>) -> Self {
        let address = address.to_owned();
        match answer {
            Ok(quorum) => Self {
                address,
                id: Some(quorum.id),
                role: Some(quorum.role),
                term: Some(quorum.term),
                last_log_index: Some(quorum.last_log_index),
                applied_index: Some(quorum.applied_index),
                ..Self::default()
            },
            Err(error) => Self { address, error: Some(error.to_string()), ..Self::default() },
        }
    }
}
