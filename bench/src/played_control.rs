//! The side of played nodes that the leading coordinator calls: they take whatever they are told as obeyed.

use anyhow::Context;
use archon_proto::v1::control_server::{Control, ControlServer};
use archon_proto::v1::{
    ConfirmBootRequest, ConfirmBootResponse, FindMiddleRequest, FindMiddleResponse, PushRequest, PushResponse,
};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::RoutesBuilder;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Looks at what a node is told.
pub type Pushed = Arc<dyn Fn(&PushRequest) + Send + Sync>;

/// Serves [`Control`] for `nodes` nodes, each at its own loopback address, so that the coordinators' pushes are answered
/// as by real nodes; beside it whatever `further` adds. Returns the addresses.
///
/// # Errors
/// If an address cannot be listened on.
pub async fn serve(
    nodes: usize,
    pushed: Pushed,
    further: impl FnOnce(&mut RoutesBuilder),
) -> anyhow::Result<Vec<String>> {
    let (connections, accepted) = mpsc::channel::<std::io::Result<TcpStream>>(1_024);
    let mut addresses = Vec::new();
    let mut port = 0;
    for number in 0..nodes {
        let host = format!("127.1.{}.{}", number / 250, number % 250 + 1);
        let listener = TcpListener::bind(format!("{host}:{port}")).await.with_context(|| format!("{host}:{port}"))?;
        let address = listener.local_addr()?;
        port = address.port();
        addresses.push(address.to_string());
        let connections = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if connections.send(Ok(stream)).await.is_err() {
                    return;
                }
            }
        });
    }
    let mut routes = RoutesBuilder::default();
    // Duties of a hundred thousand partitions come in one message.
    let control = ControlServer::new(Obedient { pushed }).max_decoding_message_size(usize::MAX);
    routes.add_service(control);
    further(&mut routes);
    let server = Server::builder().add_routes(routes.routes());
    tokio::spawn(server.serve_with_incoming(ReceiverStream::new(accepted)));
    Ok(addresses)
}

/// Takes every push as obeyed.
struct Obedient {
    pushed: Pushed,
}

#[tonic::async_trait]
impl Control for Obedient {
    async fn push(&self, request: Request<PushRequest>) -> Result<Response<PushResponse>, Status> {
        let request = request.into_inner();
        (self.pushed)(&request);
        Ok(Response::new(PushResponse { version: request.version, gap: false, results: vec![] }))
    }

    async fn confirm_boot(&self, _: Request<ConfirmBootRequest>) -> Result<Response<ConfirmBootResponse>, Status> {
        Ok(Response::new(ConfirmBootResponse { confirmed: true }))
    }

    async fn find_middle(&self, _: Request<FindMiddleRequest>) -> Result<Response<FindMiddleResponse>, Status> {
        Err(Status::unimplemented("it has no data"))
    }
}
