//! Views of the quorum by each coordinator, available even without a leader.

use super::load::{buckets, quantile_ms};
use crate::console::Cluster;
use archon_client::{CoordinatorRole, Error, Quorum, Word};
use futures::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// Time-out of a coordinator's answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A coordinator as it says that it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct CoordinatorView {
    /// Where it was asked.
    pub(crate) address: String,
    /// Its number.
    id: Option<u64>,
    /// What it is in the quorum.
    role: Option<Word<CoordinatorRole>>,
    /// The quorum's term as it knows it.
    term: Option<u64>,
    /// The last entry of its log.
    last_log_index: Option<u64>,
    /// The last entry that it has applied.
    applied_index: Option<u64>,
    /// How far its log ends before that of whoever is ahead.
    entries_behind: Option<u64>,
    /// Below what its durable writes took since it began, of a hundred ninety-nine.
    sync_p99_ms: Option<f64>,
    /// Why it does not answer.
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
