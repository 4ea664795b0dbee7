//! Coordinators that found a quorum in the process of a test.

use crate::{CoordinatorConfig, FirstStart};
use archon_documents::{MethodCall, ShowStatus, Status, read_answer};
use archon_proto::convert::error::detail_of;
use archon_proto::{documents, v1};
use archon_types::{ErrorDetail, ProtocolRange, Settings};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tonic::Request;
use tonic::transport::Endpoint;

/// Time limit of every wait.
pub(in crate::raft) const SOON: Duration = Duration::from_secs(60);

/// Waits until `met` succeeds; fails with its last error.
pub(in crate::raft) async fn until<T>(what: &str, mut met: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match met().await {
            Ok(found) => return found,
            Err(last) => assert!(begun.elapsed() < SOON, "waited for {what}; last: {last}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the addresses of `count` founders, and their listeners in order of their numbers, from 1.
pub(in crate::raft) async fn listening(count: u64) -> (BTreeMap<u64, String>, Vec<(u64, TcpListener)>) {
    let (mut peers, mut listeners) = (BTreeMap::new(), Vec::new());
    for id in 1..=count {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        peers.insert(id, listener.local_addr().unwrap().to_string());
        listeners.push((id, listener));
    }
    (peers, listeners)
}

/// Returns the configuration of one founder.
pub(in crate::raft) fn founder(id: u64, peers: &BTreeMap<u64, String>, data_dir: &Path) -> CoordinatorConfig {
    CoordinatorConfig {
        id,
        listen: peers[&id].parse().unwrap(),
        metrics_listen: None,
        transport: archon_security::Transport::default(),
        advertise: None,
        start: Some(FirstStart::Found { peers: peers.clone() }),
        data_dir: data_dir.to_path_buf(),
        speaks: ProtocolRange::SPOKEN,
        timing: Default::default(),
        settings: Settings::default(),
        settings_said: Default::default(),
    }
}

/// Returns the cluster's status, as answered by the coordinator at this address.
pub(in crate::raft) async fn status_of(address: &str) -> Result<Status, ErrorDetail> {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    let answer = documents::call(channel.into(), ShowStatus::METHOD, Request::new(v1::AdminRequest::default())).await;
    read_answer(&answer.map_err(|status| detail_of(&status))?.into_inner().document)
}
