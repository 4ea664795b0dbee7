//! Responses of gRPC that callers do not read, over real connections.

use archon_frames::BoundedResponses;
use archon_proto::convert::error::detail_of;
use archon_proto::guarded_connection::GuardedConnection;
use archon_proto::v1::stats_client::StatsClient;
use archon_proto::v1::stats_server::{Stats, StatsServer};
use archon_proto::v1::{ReadStatsRequest, ReadStatsResponse};
use archon_security::connection_limit::ConnectionLimit;
use archon_security::{CallQuota, UnreadBudget};
use archon_types::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

const MIB: usize = 1024 * 1024;
const BUDGET: usize = 16 * MIB;
const WITHIN: Duration = Duration::from_secs(20);

/// Responds with a mebibyte, and counts the calls.
#[derive(Default)]
struct LargeResponse(Arc<AtomicUsize>);

#[tonic::async_trait]
impl Stats for LargeResponse {
    async fn read(&self, _: Request<ReadStatsRequest>) -> Result<Response<ReadStatsResponse>, Status> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(ReadStatsResponse { node: "7".repeat(MIB), stats: Vec::new() }))
    }
}

struct Member {
    address: String,
    budget: UnreadBudget,
    calls: Arc<AtomicUsize>,
    connection_limit: Arc<ConnectionLimit>,
    in_progress: CallQuota,
}

/// Calls in progress of one caller.
const CALLER_CALLS: usize = 128;

async fn member() -> Member {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (budget, large) = (UnreadBudget::new(BUDGET), LargeResponse::default());
    let (calls, connection_limit) = (Arc::clone(&large.0), ConnectionLimit::new(64));
    let limit = Arc::clone(&connection_limit);
    let incoming = TcpListenerStream::new(listener).map(move |accepted| {
        let stream = accepted?;
        let entry = limit.enter(stream.peer_addr()?.ip());
        std::io::Result::Ok(GuardedConnection::new(stream.into(), entry))
    });
    let in_progress = CallQuota::new("calls in progress", 1_024, CALLER_CALLS);
    let responses = BoundedResponses::new(budget.clone(), UnreadBudget::new(BUDGET), "/archon.v1.Raft/");
    let server = Server::builder()
        .layer(responses.with_calls(in_progress.clone()))
        .add_service(StatsServer::new(large))
        .serve_with_incoming(incoming);
    tokio::spawn(server);
    Member { address, budget, calls, connection_limit, in_progress }
}

async fn connected(member: &Member, window: Option<u32>) -> StatsClient<Channel> {
    let endpoint = Endpoint::from_shared(member.address.clone()).unwrap().initial_stream_window_size(window);
    StatsClient::new(endpoint.connect().await.unwrap())
}

async fn condition(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(WITHIN, waiting).await.is_ok(), "{what}");
}

/// A connection with a closed window held all responses to its requests, without limit.
#[tokio::test]
async fn unread_responses_are_bounded_and_their_connection_is_closed() {
    const CALLS: usize = 100;
    let member = member().await;
    let client = connected(&member, Some(0)).await;
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let mut client = client.clone();
        calls.spawn(async move { client.read(ReadStatsRequest::default()).await });
    }
    let address_max = BUDGET / 4;
    let (mut overloaded, mut broken) = (0, 0);
    while let Some(ended) = tokio::time::timeout(WITHIN, calls.join_next()).await.expect("all calls end") {
        assert!(member.budget.used() <= address_max, "{} bytes", member.budget.used());
        match detail_of(&ended.unwrap().unwrap_err()).kind {
            ErrorKind::Overloaded => overloaded += 1,
            _ => broken += 1,
        }
    }
    assert!(overloaded > CALLS / 2 && broken > 0, "{overloaded} refused, {broken} with their connection");
    condition("the responses are released", || member.budget.used() == 0).await;
    condition("the place is given back", || member.connection_limit.count() == 0).await;
    assert!(member.calls.load(Ordering::Relaxed) <= CALLS);

    // A caller that reads is served.
    let read = connected(&member, None).await.read(ReadStatsRequest::default()).await.unwrap().into_inner();
    assert_eq!(read.node, "7".repeat(MIB));
    condition("a response that was read counts no longer", || member.budget.used() == 0).await;
}

/// The window opens by one byte: the library takes what follows into its own buffer.
#[tokio::test]
async fn responses_in_the_librarys_buffer_count() {
    let member = member().await;
    let client = connected(&member, Some(1)).await;
    let mut calls = JoinSet::new();
    for _ in 0..2 {
        let mut client = client.clone();
        calls.spawn(async move { client.read(ReadStatsRequest::default()).await });
    }
    condition("both responses are held", || member.budget.used() > 2 * MIB).await;
    calls.abort_all();
    condition("the responses are released", || member.budget.used() == 0).await;
}

#[tokio::test]
async fn full_budget_refuses_calls_before_their_work() {
    let member = member().await;
    let client = connected(&member, Some(0)).await;
    let mut calls = JoinSet::new();
    let call = |calls: &mut JoinSet<_>| {
        let mut client = client.clone();
        calls.spawn(async move { client.read(ReadStatsRequest::default()).await });
    };
    // Three responses leave less than a mebibyte of the address's part.
    (0..3).for_each(|_| call(&mut calls));
    condition("three responses are held", || member.budget.used() > 3 * MIB).await;
    let leave = BUDGET / 4 - member.budget.used();
    assert!(leave < MIB);
    let held = archon_security::UnreadWatch::default();
    let held = held.responses().hold(&member.budget, [127, 0, 0, 1].into(), vec![0; leave - 1024].into(), false);
    let before = member.calls.load(Ordering::Relaxed);
    let mut client = connected(&member, None).await;
    let refusal = client.read(ReadStatsRequest::default()).await.unwrap_err();
    assert_eq!(detail_of(&refusal).kind, ErrorKind::Overloaded);
    assert_eq!(member.calls.load(Ordering::Relaxed), before, "the call was not carried out");
    drop(held);
}

/// A caller could have any number of long polls, and every change of the cluster woke all of them.
#[tokio::test]
async fn calls_in_progress_of_one_caller_are_limited() {
    let member = member().await;
    let caller = archon_security::Caller::new([127, 0, 0, 1].into(), [127, 0, 0, 1].into(), None, Arc::default());
    let mut held: Vec<_> = (0..CALLER_CALLS).map(|_| member.in_progress.enter(&caller).unwrap()).collect();
    let mut client = connected(&member, None).await;
    let refusal = detail_of(&client.read(ReadStatsRequest::default()).await.unwrap_err());
    assert_eq!(refusal.kind, ErrorKind::Overloaded);
    assert!(refusal.message.contains("calls in progress") && refusal.retry_after_ms.is_some(), "{refusal}");
    assert_eq!(member.calls.load(Ordering::Relaxed), 0, "the call was not carried out");
    held.pop();
    client.read(ReadStatsRequest::default()).await.unwrap();
    condition("a call whose response was read has ended", || member.in_progress.used() == CALLER_CALLS - 1).await;
}
