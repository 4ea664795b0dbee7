//! `Carrier`: forwards reports of another node that reaches no coordinator itself (PROTOCOL rule 82). This node acts as
//! network: it passes request and answer on unchanged.

use super::refuse;
use crate::node::config::NodeConfig;
use crate::node::membership::Membership;
use crate::statistics::metrics::Metrics;
use crate::tables::Tables;
use archon_proto::convert::ids::{check_cluster, node_sender};
use archon_proto::v1;
use archon_proto::v1::carrier_server::Carrier;
use archon_security::{Caller, Role};
use archon_session::Coordinators;
use archon_types::{ErrorDetail, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

/// Name of the call in refusals.
const REPORT: &str = "/archon.v1.Carrier/Report";
/// Time-out of the coordinators: the caller waits for two seconds.
const DEADLINE: Duration = Duration::from_millis(1_600);
/// Most requests forwarded at once.
const PASSED_ON_MAX: usize = 16;

/// The service.
pub(crate) struct CarrierService {
    membership: Arc<Membership>,
    tables: Arc<Tables>,
    metrics: Arc<Metrics>,
    coordinators: Coordinators,
    places: Semaphore,
}

impl CarrierService {
    pub(crate) fn new(
        config: &NodeConfig,
        membership: Arc<Membership>,
        tables: Arc<Tables>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let told = Arc::clone(&tables);
        let learned = move || told.coordinators();
        let coordinators = Coordinators::new(config.coordinators.clone(), config.transport.clone(), learned);
        Self { membership, tables, metrics, coordinators, places: Semaphore::new(PASSED_ON_MAX) }
    }

    async fn pass_on(&self, caller: &Caller, request: v1::ReportRequest) -> Result<v1::ReportResponse, ErrorDetail> {
        let (node, incarnation) = node_sender(request.sender.as_ref())?;
        let Some(life) = self.membership.life() else {
            let why = "this node has no life in the cluster now; ask another one";
            return Err(ErrorDetail::new(ErrorKind::Unavailable, why));
        };
        check_cluster(request.cluster.as_ref(), life.member.cluster)?;
        let Some(row) = self.tables.node(node) else {
            let why = format!("node {node} is not known here; ask another one");
            return Err(ErrorDetail::new(ErrorKind::Unavailable, why));
        };
        caller.check_name(REPORT, Role::Node, &row.name)?;
        if let Some(over) = self.membership.over(node, incarnation) {
            return Err(over.refusal());
        }
        let Ok(_place) = self.places.try_acquire() else {
            let why = "this node passes on reports enough; ask another one";
            return Err(ErrorDetail::new(ErrorKind::Overloaded, why));
        };
        let passed =
            self.coordinators.call(DEADLINE, request, async |mut client, request| client.report(request).await);
        let answer = passed.await;
        self.metrics.reports_passed_on.add(u64::from(answer.is_ok()));
        answer
    }
}

#[tonic::async_trait]
impl Carrier for CarrierService {
    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let caller = Caller::of(&request);
        self.pass_on(&caller, request.into_inner()).await.map(Response::new).map_err(refuse)
    }
}
