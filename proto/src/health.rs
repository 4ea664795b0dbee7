//! gRPC health service: reads the state of the member on each request, so that answers are never outdated.

use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// Interval between looks at a watched service.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Answers for all services of a member alike: each requires that the member takes part in its cluster.
#[derive(Clone)]
pub struct MemberHealth {
    services: &'static [&'static str],
    serves: Arc<dyn Fn() -> bool + Send + Sync>,
    stop: Arc<dyn Fn() -> futures::future::BoxFuture<'static, ()> + Send + Sync>,
}

impl MemberHealth {
    /// Creates the health of `services`, by their full names, and of the member as a whole (the empty name), from the
    /// result of `serves`. Watching ends with `stop`.
    pub fn new<F>(
        services: &'static [&'static str],
        serves: impl Fn() -> bool + Send + Sync + 'static,
        stop: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { services, serves: Arc::new(serves), stop: Arc::new(move || stop().boxed()) }
    }

    /// Returns the tonic service.
    pub fn into_service(self) -> HealthServer<Self> {
        HealthServer::new(self)
    }

    fn knows(&self, service: &str) -> bool {
        service.is_empty() || self.services.contains(&service)
    }

    fn status(&self) -> HealthCheckResponse {
        let status = if (self.serves)() { ServingStatus::Serving } else { ServingStatus::NotServing };
        HealthCheckResponse { status: status.into() }
    }
}

#[tonic::async_trait]
impl Health for MemberHealth {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !self.knows(&service) {
            return Err(Status::not_found(format!(
                "no service {service:?} here; known are {}",
                self.services.join(", ")
            )));
        }
        Ok(Response::new(self.status()))
    }

    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let known = self.knows(&request.into_inner().service);
        let stop = (self.stop)();
        // By the protocol, an unknown service may appear later: the stream stays open.
        let changes = stream::unfold((self.clone(), None), move |(health, reported)| async move {
            loop {
                let unknown = || HealthCheckResponse { status: ServingStatus::ServiceUnknown.into() };
                let now = if known { health.status() } else { unknown() };
                if reported != Some(now.status) {
                    let status = now.status;
                    return Some((Ok(now), (health, Some(status))));
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        });
        Ok(Response::new(changes.take_until(stop).boxed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn ask(service: &str) -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest { service: service.to_owned() })
    }

    #[tokio::test]
    async fn health_follows_the_state_of_the_member() {
        let serves = Arc::new(AtomicBool::new(false));
        let health = MemberHealth::new(
            &["archon.v1.Kv"],
            {
                let serves = Arc::clone(&serves);
                move || serves.load(Ordering::Relaxed)
            },
            std::future::pending,
        );
        let status = async |service: &str| health.check(ask(service)).await.map(|answer| answer.into_inner().status());
        for service in ["", "archon.v1.Kv"] {
            assert_eq!(status(service).await.unwrap(), ServingStatus::NotServing);
        }
        let mut watched = health.watch(ask("")).await.unwrap().into_inner();
        assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        serves.store(true, Ordering::Relaxed);
        assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
        assert_eq!(status("archon.v1.Kv").await.unwrap(), ServingStatus::Serving);
        assert_eq!(status("archon.v1.Raft").await.unwrap_err().code(), tonic::Code::NotFound);
    }

    #[tokio::test]
    async fn watching_ends_when_the_member_stops() {
        let health = MemberHealth::new(&[], || true, || std::future::ready(()));
        let mut watched = health.watch(ask("")).await.unwrap().into_inner();
        assert!(watched.next().await.is_none());
    }
}
