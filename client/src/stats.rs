//! What nodes count.

use crate::admin::Admin;
use crate::error::Error;
use archon_proto::convert::error::detail_of;
use archon_proto::v1::{self, stats_client::StatsClient};
use archon_security::Expected;
use archon_types::{ErrorDetail, ErrorKind};
use serde::Serialize;
use std::collections::BTreeMap;
use tokio::time::timeout;

/// Most numbers taken from a node; more than it has is a defect of what answers.
const STATS_MAX: usize = 4_096;

/// What a node counts, as of one moment. Names end in their unit, those of counters in `_total`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NodeStats {
    /// Its name.
    pub node: String,
    /// The numbers by name.
    pub values: BTreeMap<String, f64>,
}

impl NodeStats {
    /// A count by its name; zero if the node does not count it.
    pub fn get(&self, name: &str) -> u64 {
        // Counts are whole, and below 2^53.
        self.value(name) as u64
    }

    /// A number by its name, such as seconds; zero if the node does not count it.
    pub fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(0.0)
    }
}

impl Admin {
    /// Asks the node at `address` (`host:port`, as [`Admin::list_nodes`] gives it) what it counts. Not the
    /// coordinators, and once: it is for measurements.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for what is no address; `Unreachable` if nobody answers within the time-out.
    pub async fn node_stats(&self, address: &str) -> Result<NodeStats, Error> {
        let coordinator_client = self.coordinator_client();
        let channel = coordinator_client.links().channel(address, Expected::Servers)?;
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
