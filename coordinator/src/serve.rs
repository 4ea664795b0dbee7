//! Services on a coordinator's port.

use crate::beats::{self, MemberStreams};
use crate::end::{End, FailureChannel};
use crate::error::CoordinatorError;
use crate::raft::Peers;
use crate::readiness;
use crate::service::Context;
use crate::service::admins::Admins;
use crate::service::no_rows::NoRows;
use crate::service::session::Sessions;
use crate::service::stats::StatsService;
use crate::service::table::Tables;
use crate::statistics::metrics::Metrics;
use crate::statistics::stats::Stats;
use archon_coordinator_core::ClusterState;
use archon_frames::{
    BoundedResponses, GrpcServer, GrpcSettings, IncomingConnections, PARTIAL_BYTES_MAX, PartialBodies, PartialBudget,
    sort,
};
use archon_proto::authority::{Authority, CoordinatorStatus};
use archon_proto::documents::DocumentService;
use archon_proto::health::MemberHealth;
use archon_proto::listen::AcceptFailures;
use archon_proto::v1::admin_server::AdminServer;
use archon_proto::v1::session_server::SessionServer;
use archon_proto::v1::stats_server::StatsServer;
use archon_proto::v1::table_server::TableServer;
use archon_security::{UNREAD_BYTES_MAX, UnreadBudget};
use archon_types::limits::MESSAGE_BYTES_MAX;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

/// Longest silence on a connection before the server pings it, and longest time to the answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Prefix of the calls that other coordinators make.
const MEMBERS_CALL: &str = "/archon.v1.Raft/";
/// Maximum number of accepted gRPC connections not yet taken by the server.
const ACCEPTED_MAX: usize = 64;

/// Returns the health service, with the same answers for load balancers as for probes.
fn health(context: &Context) -> MemberHealth {
    let (asked, stop) = (context.clone(), context.stop.clone());
    let serves = move || readiness::ready(&asked).is_ok();
    let services = &["archon.v1.Session", "archon.v1.Admin", "archon.v1.Table"];
    MemberHealth::new(services, serves, move || stop.clone().cancelled_owned())
}

/// Authorizes callers; coordinators by the log of this one.
fn authority(context: &Context) -> Authority {
    let quorum = Arc::clone(&context.quorum);
    Authority::of_coordinator(&context.transport, move |id| {
        let status = |state: &ClusterState| match &state.coordinators {
            all if all.members.contains_key(&id) => CoordinatorStatus::Member,
            all if all.retired.contains_key(&id) => CoordinatorStatus::Removed,
            _ => CoordinatorStatus::Unknown,
        };
        quorum.get().map_or(CoordinatorStatus::Unread, |quorum| quorum.replicated().read(status))
    })
}

/// Logs connections that could not be accepted: rarely, since many fail at once.
fn note_failures(metrics: Arc<Metrics>) -> impl Fn(&io::Error) {
    let failures = Mutex::new(AcceptFailures::default());
    move |error| {
        metrics.accept_errors.add(1);
        if let Some(times) = failures.lock().note(Instant::now()) {
            tracing::warn!(%error, times, "connections cannot be accepted; they wait, and it is tried again");
        }
    }
}

/// Serves until cancelled; reports failures to `failed`.
pub(crate) fn serve(
    listener: TcpListener,
    stats: Stats,
    peers: Peers,
    serving: CancellationToken,
    failed: FailureChannel,
) -> Result<JoinHandle<()>, CoordinatorError> {
    let context = &stats.context.clone();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(archon_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|error| CoordinatorError::Server { what: error.to_string() })?;
    let sessions = SessionServer::new(Sessions::new(context.clone())).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let admins = Arc::new(Admins::new(context.clone()));
    let others = AdminServer::from_arc(Arc::clone(&admins))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(usize::MAX);
    let admins = DocumentService::new(admins, others);
    let tables = TableServer::new(Tables::new(context.clone())).max_encoding_message_size(usize::MAX);
    let partial = PartialBudget::new(PARTIAL_BYTES_MAX);
    let partial = PartialBodies::new(partial, PartialBudget::new(PARTIAL_BYTES_MAX), MEMBERS_CALL);
    let unread = || UnreadBudget::new(UNREAD_BYTES_MAX);
    let routes = Routes::new(health(context).into_service())
        .add_service(reflection)
        .add_service(peers.into_service())
        .add_service(sessions)
        .add_service(admins)
        .add_service(tables)
        .add_service(NoRows { quorum: Arc::clone(&context.quorum) })
        .add_service(StatsServer::new(StatsService(stats)));
    let server = GrpcServer {
        settings: GrpcSettings {
            keepalive_interval: KEEPALIVE,
            keepalive_timeout: KEEPALIVE,
            stream_window_bytes: None,
            connection_window_bytes: None,
        },
        routes,
        responses: BoundedResponses::new(unread(), unread(), MEMBERS_CALL),
        authority: authority(context),
        partial,
    };
    let (grpc, accepted) = mpsc::channel(ACCEPTED_MAX);
    let incoming = IncomingConnections::new(listener, Arc::clone(&context.connection_limit), context.transport.clone());
    let noted = note_failures(Arc::clone(&context.metrics));
    let budget = PartialBudget::new(PARTIAL_BYTES_MAX);
    let (tasks, ends) = (TaskTracker::new(), serving.child_token());
    let streams = {
        let (context, member_streams, ends) = (context.clone(), Arc::<MemberStreams>::default(), ends.clone());
        move |caller, kind, reader, writer| {
            beats::serve(context.clone(), Arc::clone(&member_streams), ends.clone(), caller, kind, reader, writer)
        }
    };
    Ok(tokio::spawn(async move {
        let sorting = sort(incoming, grpc, budget, tasks.clone(), ends.clone(), noted, streams);
        let served = async {
            let served = server.serve(accepted, serving).await;
            ends.cancel();
            served
        };
        let ((), served) = tokio::join!(sorting, served);
        if let Err(error) = served {
            tracing::error!(%error, "the server failed");
            failed.send_replace(Some(End::Failed(format!("the server failed: {error}").into())));
        }
        tasks.close();
        tasks.wait().await;
    }))
}
