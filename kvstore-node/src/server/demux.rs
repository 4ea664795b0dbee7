//! Demultiplexer: separates frame streams from gRPC connections by their first byte.

use crate::server::acceptor::IncomingConnection;
use crate::service::kv::KvService;
use crate::service::replication::ReplicationService;
use archon_frames::{FrameReader, FrameWriter, PartialBudget, StreamKind, route};
use archon_proto::guarded_connection::GuardedConnection;
use archon_security::connection_limit::Entry;
use archon_security::{Caller, Role};
use archon_types::{ErrorDetail, ErrorKind};
use std::io;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

/// Services for streams.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) kv: KvService,
    pub(crate) replication: ReplicationService,
    /// Budgets for incomplete messages of clients and of peers, kept apart so that neither takes the other's room.
    pub(crate) partial_of_clients: PartialBudget,
    pub(crate) partial_of_peers: PartialBudget,
    /// Owns the streams.
    pub(crate) tasks: TaskTracker,
}

/// Accepts the connections of one thread, until none is left.
pub(crate) async fn demultiplex(
    mut accepted: mpsc::Receiver<IncomingConnection>,
    streams: Streams,
    grpc: mpsc::Sender<io::Result<GuardedConnection>>,
) {
    while let Some(IncomingConnection { connection, entry }) = accepted.recv().await {
        match TcpStream::from_std(connection) {
            Ok(connection) => {
                let (serving, grpc) = (streams.clone(), grpc.clone());
                streams.tasks.spawn(async move { serving.take(connection, entry, grpc).await });
            }
            Err(error) => tracing::debug!(%error, "a connection could not be taken"),
        }
    }
}

impl Streams {
    async fn take(self, connection: TcpStream, entry: Entry, grpc: mpsc::Sender<io::Result<GuardedConnection>>) {
        let (stop, of_clients, of_peers) =
            (self.kv.stop.clone(), self.partial_of_clients.clone(), self.partial_of_peers.clone());
        let partial = |kind| match kind {
            StreamKind::Exchange | StreamKind::Beats => of_clients.clone(),
            StreamKind::Replicate => of_peers.clone(),
        };
        let transport = self.kv.shared.config.transport.clone();
        let serve = |caller, kind, reader, writer| self.serve(caller, kind, reader, writer);
        route(connection, &transport, entry, grpc, &stop, partial, serve).await;
    }

    async fn serve(self, caller: Caller, kind: StreamKind, reader: FrameReader, writer: FrameWriter) {
        match kind {
            StreamKind::Exchange => self.kv.exchange(caller, reader, writer).await,
            StreamKind::Replicate => self.replication.replicate(&caller, reader, writer).await,
            StreamKind::Beats => self.relay(&caller, reader, writer).await,
        }
    }

    /// Relays the heartbeats of another member. With TLS, a node must be the one that its certificate names. Nodes hold
    /// no row of a participant, so it only must not be a node (PROTOCOL rule 81). Both directions are authenticated
    /// between the member and the coordinators (rule 71).
    async fn relay(self, caller: &Caller, reader: FrameReader, writer: FrameWriter) {
        let shared = &self.kv.shared;
        let check = |node| match shared.tables.node(node) {
            Some(row) => caller.check_name(StreamKind::Beats.word(), Role::Node, &row.name),
            None if caller.identity.as_ref().is_none_or(|identity| identity.role() == Role::Participant) => Ok(()),
            None => {
                let why = format!("node {node} is not known here yet; ask a coordinator");
                Err(ErrorDetail::new(ErrorKind::Unavailable, why))
            }
        };
        shared.relay_streams.serve(&*shared.clock, reader, writer, &check, &self.kv.stop).await;
    }
}
