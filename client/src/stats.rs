//! Counters of nodes.

use crate::admin::Admin;
use crate::error::Error;
use archon_proto::convert::error::detail_of;
use archon_proto::v1::{self, stats_client::StatsClient};
use archon_security::ExpectedPeer;
use archon_types::{ErrorDetail, ErrorKind};
use serde::Serialize;
use std::collections::BTreeMap;
use tokio::time::timeout;

/// Maximum number of values from a node; more is a defect of the server.
const STATS_MAX: usize = 4_096;

/// Counters of a node at one moment. Names end in their unit, those of counters in `_total`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NodeStats {
    /// Name of the node.
    pub node: String,
    /// Values by name.
    pub values: BTreeMap<String, f64>,
}

impl NodeStats {
    /// Returns a count by its name; zero if the node does not have it.
    pub fn get(&self, name: &str) -> u64 {
        // Counts are integers below 2^53.
        self.value(name) as u64
    }

    /// Returns a value by its name, such as seconds; zero if the node does not have it.
    pub fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(0.0)
    }
}

impl Admin {
    /// Reads the counters of the node at `address` (`host:port`, as returned by [`Admin::list_nodes`]). Calls the
    /// node directly and does not retry: it is for measurements.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an invalid address; `Unreachable` without an answer within the time-out.
    pub async fn node_stats(&self, address: &str) -> Result<NodeStats, Error> {
        let coordinator_client = self.coordinator_client();
        let channel = coordinator_client.links().channel(address, ExpectedPeer::Servers)?;
        let mut client = StatsClient::new(channel);
        let limit = coordinator_client.timeout();
        let answered = timeout(limit, client.read(v1::ReadStatsRequest { cluster: None })).await;
        let response = match answered {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => {
                let mut detail = detail_of(&status);
                detail.message = format!("{address}: {}", detail.message);
                return Err(detail.into());
            }
            Err(_) => {
                let message = format!("{address} did not answer within {} ms", limit.as_millis());
                return Err(ErrorDetail::new(ErrorKind::Unreachable, message).into());
            }
        };
        let stats = response.stats.into_iter().take(STATS_MAX);
        Ok(NodeStats { node: response.node, values: stats.map(|stat| (stat.name, stat.value)).collect() })
    }
}
