//! Bodies of gRPC requests that never end, over real connections.

use archon_frames::{PartialBodies, PartialBudget};
use archon_proto::convert::error::detail_of;
use archon_proto::v1::stats_client::StatsClient;
use archon_proto::v1::stats_server::{Stats, StatsServer};
use archon_proto::v1::{ClusterRef, ReadStatsRequest, ReadStatsResponse};
use archon_types::ErrorKind;
use bytes::Bytes;
use http_body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

const BUDGET: usize = 4 * 1024 * 1024;
const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

struct CountedService;

#[tonic::async_trait]
impl Stats for CountedService {
    async fn read(&self, request: Request<ReadStatsRequest>) -> Result<Response<ReadStatsResponse>, Status> {
        let bytes = request.into_inner().cluster.map_or(0, |cluster| cluster.cluster_id.len());
        Ok(Response::new(ReadStatsResponse { node: bytes.to_string(), stats: Vec::new() }))
    }
}

/// A message that announces the maximum length, but sends only these bytes.
struct TruncatedMessage(Vec<Bytes>);

impl TruncatedMessage {
    fn of(bytes: usize) -> Body {
        let length = u32::try_from(MESSAGE_BYTES_MAX).unwrap().to_be_bytes();
        let head = Bytes::from([&[0][..], &length].concat());
        Body::new(Self(vec![Bytes::from(vec![7; bytes]), head]))
    }
}

impl http_body::Body for TruncatedMessage {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0.pop().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
    }
}

async fn send_partial(mut channel: Channel, bytes: usize) -> Option<ErrorKind> {
    let request = http::Request::post("http://member/archon.v1.Stats/Read").header("content-type", "application/grpc");
    std::future::poll_fn(|context| channel.poll_ready(context)).await.ok()?;
    let answer = channel.call(request.body(TruncatedMessage::of(bytes)).unwrap()).await.ok()?;
    Status::from_header_map(answer.headers()).map(|status| detail_of(&status).kind)
}

/// Each connection can have a thousand requests in progress, and each of them held as much memory as the longest
/// message.
#[tokio::test]
async fn partial_bodies_of_many_connections_are_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (budget, members) = (PartialBudget::new(BUDGET), PartialBudget::new(BUDGET));
    let server = Server::builder()
        .layer(PartialBodies::new(budget.clone(), members.clone(), "/archon.v1.Raft/"))
        .add_service(StatsServer::new(CountedService).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .serve_with_incoming(TcpListenerStream::new(listener));
    let server = tokio::spawn(server);

    let mut partials = JoinSet::new();
    for _ in 0..8 {
        let channel = Endpoint::from_shared(address.clone()).unwrap().connect().await.unwrap();
        for _ in 0..8 {
            partials.spawn(send_partial(channel.clone(), 1024 * 1024));
        }
    }
    // All of them together would hold sixteen times the budget.
    let mut refused = 0;
    let within = Duration::from_secs(20);
    while refused < 48 {
        let ended = tokio::time::timeout(within, partials.join_next()).await;
        let ended = ended.unwrap_or_else(|_| panic!("{refused} refused, {} bytes are partly here", budget.used()));
        assert_eq!(ended.expect("some are left").unwrap(), Some(ErrorKind::Overloaded));
        refused += 1;
        assert!(budget.used() <= BUDGET, "{} bytes", budget.used());
    }
    assert!(budget.used() > 0 && members.used() == 0);

    // A caller with small requests is served meanwhile.
    let mut client = StatsClient::connect(address).await.unwrap();
    let cluster = Some(ClusterRef { cluster_id: vec![7; 200 * 1024].into() });
    let answer = client.read(ReadStatsRequest { cluster }).await.unwrap().into_inner();
    assert_eq!(answer.node, (200 * 1024).to_string());

    // The budget of partial messages is returned with the connections.
    partials.shutdown().await;
    let given_back = async {
        while budget.used() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let given_back = tokio::time::timeout(within, given_back).await;
    assert!(given_back.is_ok(), "{} bytes are still held", budget.used());
    server.abort();
}
