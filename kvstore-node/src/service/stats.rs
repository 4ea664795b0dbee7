//! `Stats`: counters of the node.

use super::refuse;
use crate::statistics::stats::Stats;
use archon_proto::convert::ids;
use archon_proto::v1;
use archon_telemetry::{Source as _, flat};
use tonic::{Request, Response, Status};

/// The service.
pub(crate) struct StatsService(pub(crate) Stats);

#[tonic::async_trait]
impl v1::stats_server::Stats for StatsService {
    async fn read(&self, request: Request<v1::ReadStatsRequest>) -> Result<Response<v1::ReadStatsResponse>, Status> {
        let request = request.into_inner();
        if let Some(life) = self.0.shared.life() {
            ids::check_cluster_if_named(request.cluster.as_ref(), life.member.cluster).map_err(refuse)?;
        }
        let stats = flat(&self.0.families()).into_iter().map(|number| v1::Stat {
            name: number.name,
            counter: number.counter,
            help: number.help.to_owned(),
            value: number.value,
        });
        let node = self.0.shared.config.name.clone();
        Ok(Response::new(v1::ReadStatsResponse { node, stats: stats.collect() }))
    }
}
