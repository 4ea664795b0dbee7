//! Announcement of the coordinators' addresses to failed nodes: all addresses that such a node knows may be outdated.

use crate::leader::confirm::Confirmations;
use crate::leader::session::Session;
use archon_coordinator_core::ClusterState;
use archon_security::Transport;
use archon_types::limits::COORDINATORS_MAX;
use archon_types::{BootId, Node, NodeStatus};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two rounds.
const INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of nodes that are called at once.
const CALLS_MAX: usize = 16;

/// Calls every failed node once a round, until the session ends. A node that a call reaches registers, which ends its failure.
pub(crate) async fn run(session: Arc<Session>, transport: Transport) {
    let calls = Confirmations::new();
    loop {
        tokio::select! {
            () = session.stop().cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let quorum = session.quorum();
        let (cluster, failed) = quorum.replicated().read(|state| (state.cluster, failed(state)));
        let addresses: Vec<String> = quorum.addresses().into_values().take(COORDINATORS_MAX).collect();
        let announced = futures::stream::iter(&failed).for_each_concurrent(CALLS_MAX, async |(node, boot)| {
            calls.announce(&transport, node, *boot, cluster, addresses.clone()).await;
        });
        tokio::select! {
            () = session.stop().cancelled() => return,
            () = announced => {}
        }
    }
}

/// Returns the failed nodes that may come back.
fn failed(state: &ClusterState) -> Vec<(Node, BootId)> {
    let failed = state.nodes.down().filter(|row| row.node.status == NodeStatus::Failed && !row.stopped);
    failed.map(|row| (row.node.clone(), row.boot)).collect()
}
