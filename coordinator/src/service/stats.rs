//! `Stats`: what the coordinator counts. Whichever it is, it answers for itself, also before it has found its peers.

use super::{Context, check_named, refuse};
use archon_proto::v1;
use archon_types::ErrorDetail;
use tonic::{Request, Response, Status};

/// The service.
pub(crate) struct Stats {
    context: Context,
}

impl Stats {
    /// A service over `context`.
    pub(crate) const fn new(context: Context) -> Self {
        Self { context }
    }

    fn check(&self, request: &v1::ReadStatsRequest) -> Result<(), ErrorDetail> {
        match self.context.quorum() {
            Ok(quorum) => quorum.replicated().read(|state| check_named(request.cluster.as_ref(), state)),
            Err(_) => Ok(()),
        }
    }

    fn samples(&self) -> Vec<v1::Stat> {
        let stat = |name: &str, counter, help: &str, value| {
            let (name, help) = (name.to_owned(), help.trim().to_owned());
            v1::Stat { name, counter, help, value }
        };
        let counted = self.context.metrics.read().into_iter();
        let mut stats: Vec<v1::Stat> = counted.map(|(name, value, help)| stat(name, true, help, value)).collect();
        let doors = &self.context.doors;
        stats.extend([
            stat(
                "archon_coordinator_connections",
                false,
                "connections that nodes, clients and other coordinators have made",
                doors.count() as u64,
            ),
            stat(
                "archon_coordinator_connections_refused_total",
                true,
                "connections turned away because there were too many",
                doors.refused(),
            ),
        ]);
        stats
    }
}

#[tonic::async_trait]
impl v1::stats_server::Stats for Stats {
    async fn read(&self, request: Request<v1::ReadStatsRequest>) -> Result<Response<v1::ReadStatsResponse>, Status> {
        self.check(&request.into_inner()).map_err(refuse)?;
        let node = format!("coordinator {}", self.context.id);
        Ok(Response::new(v1::ReadStatsResponse { node, stats: self.samples() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::Waiting;
    use crate::metrics::Metrics;
    use crate::session::Leading;
    use archon_proto::doors::Doors;
    use std::net::Ipv4Addr;
    use std::sync::{Arc, OnceLock};
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn connections_that_a_coordinator_refused_were_counted_by_nobody_who_could_be_asked() {
        let context = Context {
            id: 2,
            quorum: Arc::new(OnceLock::new()),
            waiting: Waiting::default(),
            leading: Leading::default(),
            metrics: Arc::new(Metrics::default()),
            doors: Doors::new(2),
            stop: CancellationToken::new(),
        };
        let doors = Arc::clone(&context.doors);
        let entries = [doors.enter(Ipv4Addr::LOCALHOST.into()), doors.enter(Ipv4Addr::LOCALHOST.into())];
        assert!(entries[0].is_ok() && entries[1].is_err(), "one address has half of the places");
        let request = Request::new(v1::ReadStatsRequest { cluster: None });
        let answer = v1::stats_server::Stats::read(&Stats::new(context), request).await.unwrap().into_inner();
        let value = |name: &str| answer.stats.iter().find(|stat| stat.name == name).map(|stat| stat.value);
        assert_eq!(answer.node, "coordinator 2");
        assert_eq!(value("archon_coordinator_connections"), Some(1));
        assert_eq!(value("archon_coordinator_connections_refused_total"), Some(1));
        assert_eq!(value("archon_coordinator_accept_errors_total"), Some(0));
    }
}
