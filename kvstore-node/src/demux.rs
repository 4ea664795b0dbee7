//! Tells connections with streams of frames from those with gRPC, by their first byte.

use crate::service::kv::KvService;
use crate::service::replication::ReplicationService;
use archon_frames::{FrameError, FrameReader, FrameWriter, PartialBudget, StreamKind, begins_stream};
use archon_proto::doors::{Entry, Refusal};
use archon_proto::guarded::{Guarded, TURNED_AWAY_PATIENCE};
use archon_types::{ErrorDetail, ErrorKind};
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// How long a connection may say nothing at all.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// After which time whoever was turned away is to come again, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;

/// A connection on its way to the thread that serves it, which alone is to be told when something arrives.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) connection: std::net::TcpStream,
    /// Its place among the connections.
    pub(crate) entry: Entry,
}

/// What serves streams.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) kv: KvService,
    pub(crate) replication: ReplicationService,
    /// Messages that have not arrived whole, of clients and of peers: neither takes the other's room.
    pub(crate) partial_of_clients: PartialBudget,
    pub(crate) partial_of_peers: PartialBudget,
    /// Owns the streams.
    pub(crate) tasks: TaskTracker,
}

/// Takes the connections of one thread, until there are no more.
pub(crate) async fn demultiplex(
    mut accepted: mpsc::Receiver<Accepted>,
    streams: Streams,
    grpc: mpsc::Sender<io::Result<Guarded>>,
) {
    while let Some(Accepted { connection, entry }) = accepted.recv().await {
        match TcpStream::from_std(connection) {
            Ok(connection) => drop(streams.tasks.spawn(route(connection, entry, streams.clone(), grpc.clone()))),
            Err(error) => tracing::debug!(%error, "a connection could not be taken"),
        }
    }
}

async fn route(connection: TcpStream, entry: Entry, streams: Streams, grpc: mpsc::Sender<io::Result<Guarded>>) {
    let stream = tokio::select! {
        begun = timeout(SILENCE_MAX, begins_stream(&connection)) => begun,
        () = streams.kv.stop.cancelled() => return,
    };
    match stream {
        Ok(Ok(true)) => {
            let partial = |kind| match kind {
                StreamKind::Exchange => streams.partial_of_clients.clone(),
                StreamKind::Replicate => streams.partial_of_peers.clone(),
            };
            let stop = streams.kv.stop.clone();
            // What a stream has under way it ends itself; a handshake is not waited for.
            if let Some(accepted) = stop.run_until_cancelled(archon_frames::accept(connection, partial)).await {
                streams.serve(entry.from(), accepted).await;
            }
        }
        // Also what is neither: that is gRPC's to refuse. A server that has ended takes no more.
        Ok(Ok(false)) => drop(grpc.send(Ok(Guarded::new(connection, entry))).await),
        Ok(Err(_)) | Err(_) => tracing::debug!("a connection said nothing"),
    }
}

/// Tells a connection that found no place why, in the words of what it speaks, unless it says nothing itself.
pub(crate) async fn turn_away(connection: TcpStream, why: Refusal) {
    let told = async {
        if begins_stream(&connection).await.is_ok_and(|stream| stream) {
            let detail = ErrorDetail::new(ErrorKind::Overloaded, why.to_string()).with_retry_after_ms(RETRY_AFTER_MS);
            // Whether it was heard is for the other side to know.
            let _ = archon_frames::turn_away(connection, detail).await;
        } else {
            let _ = archon_proto::guarded::turn_away(connection, &why.to_string()).await;
        }
    };
    let _ = timeout(TURNED_AWAY_PATIENCE, told).await;
}

impl Streams {
    async fn serve(self, from: IpAddr, accepted: Result<(StreamKind, FrameReader, FrameWriter), FrameError>) {
        match accepted {
            Ok((StreamKind::Exchange, reader, writer)) => self.kv.exchange(from, reader, writer).await,
            Ok((StreamKind::Replicate, reader, writer)) => self.replication.replicate(reader, writer).await,
            Err(error) => tracing::debug!(%error, "a connection is no stream"),
        }
    }
}
