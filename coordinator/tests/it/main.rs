//! Three coordinators in one process: election, registration, heartbeats, fail-over, and refusals.

#![allow(clippy::unwrap_used)]

mod addresses;
mod beats;
mod common;
mod copies;
mod elections;
mod malformed;
mod members;
mod names;
mod nodes;
mod participants;
mod pieces;
mod reports;
mod splits;
mod strangers;
mod tables;
mod voters;

use archon_types::{LeaseTiming, Settings};
use common::{FakeNode, Quorum, status};
use std::time::{Duration, Instant};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const SOON: Duration = Duration::from_secs(60);

/// Timing with which no node fails while a busy machine runs other tests.
const LONG_LEASES: LeaseTiming =
    LeaseTiming { heartbeat_ms: 200, lease_ms: 60_000, failure_timeout_ms: 90_000, margin_ms: 100 };

/// Returns settings of a cluster in which no silent node fails during a test.
fn settings(nodes_min: u32, partitions: u32) -> Settings {
    Settings { timing: LONG_LEASES, ..short_leases(nodes_min, partitions) }
}

/// Returns settings of a cluster in which a silent node soon fails, for tests of that.
fn short_leases(nodes_min: u32, partitions: u32) -> Settings {
    Settings { nodes_min, partitions, ..Settings::default() }
}

/// Keeps the nodes alive and their partitions served until the table is online.
async fn settle(quorum: &Quorum, nodes: &mut [FakeNode], partitions: u32) {
    let begun = Instant::now();
    loop {
        let leader = quorum.leader_address().await;
        for node in nodes.iter_mut() {
            let _ = node.heartbeat(&leader).await;
            let _ = node.report_online(&leader).await;
        }
        let last = status(&leader).await;
        if last.as_ref().is_ok_and(|status| status.partitions_online == partitions) {
            return;
        }
        assert!(begun.elapsed() < SOON, "not all online; last: {last:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns true if a coordinator's health service reports a service, or all of it (the empty name), as serving.
async fn serves(address: &str, service: &str) -> bool {
    let mut client = HealthClient::new(common::channel(address));
    let answer = client.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap().into_inner();
    answer.status() == ServingStatus::Serving
}
