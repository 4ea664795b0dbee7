//! `Stats`: the metrics of a coordinator. Every coordinator answers for itself, also before it has found its peers.

use super::{check_named, refuse};
use crate::statistics::stats::Stats;
use archon_proto::v1;
use archon_telemetry::{Source as _, flat};
use archon_types::ErrorDetail;
use tonic::{Request, Response, Status};

/// The service.
pub(crate) struct StatsService(pub(crate) Stats);

impl StatsService {
    fn check(&self, request: &v1::ReadStatsRequest) -> Result<(), ErrorDetail> {
        match self.0.context.quorum() {
            Ok(quorum) => quorum.replicated().read(|state| check_named(request.cluster.as_ref(), state)),
            Err(_) => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl v1::stats_server::Stats for StatsService {
    async fn read(&self, request: Request<v1::ReadStatsRequest>) -> Result<Response<v1::ReadStatsResponse>, Status> {
        self.check(&request.into_inner()).map_err(refuse)?;
        let node = format!("coordinator {}", self.0.context.id);
        let stats = flat(&self.0.families()).into_iter().map(|number| v1::Stat {
            name: number.name,
            counter: number.counter,
            help: number.help.to_owned(),
            value: number.value,
        });
        Ok(Response::new(v1::ReadStatsResponse { node, stats: stats.collect() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Audit;
    use crate::first_start::WaitReason;
    use crate::leader::session::CurrentSession;
    use crate::service::Context;
    use crate::statistics::metrics::Metrics;
    use archon_security::connection_limit::ConnectionLimit;
    use std::net::Ipv4Addr;
    use std::sync::{Arc, OnceLock};
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn stats_count_refused_connections() {
        let metrics = Arc::<Metrics>::default();
        let context = Context {
            id: 2,
            quorum: Arc::new(OnceLock::new()),
            waiting: WaitReason::default(),
            leading: CurrentSession::default(),
            audit: Audit::new(Arc::clone(&metrics)).0,
            metrics,
            transport: archon_security::Transport::default(),
            connection_limit: ConnectionLimit::new(2),
            stop: CancellationToken::new(),
        };
        let connection_limit = Arc::clone(&context.connection_limit);
        // Both connections are anonymous, so the second takes the place of the first.
        let _entries = [(); 2].map(|()| connection_limit.enter(Ipv4Addr::LOCALHOST.into()));
        let service = StatsService(Stats { context, data_dir: "/".into() });
        let request = Request::new(v1::ReadStatsRequest { cluster: None });
        let answer = v1::stats_server::Stats::read(&service, request).await.unwrap().into_inner();
        let value = |name: &str| answer.stats.iter().find(|stat| stat.name == name).map(|stat| stat.value);
        assert_eq!(answer.node, "coordinator 2");
        assert_eq!(value("archon_coordinator_connections"), Some(1.0));
        assert_eq!(value("archon_coordinator_connections_refused_total"), Some(1.0));
        assert_eq!(value("archon_coordinator_accept_errors_total"), Some(0.0));
        assert_eq!(value("archon_raft_term"), None, "there is no Raft yet");
    }
}
