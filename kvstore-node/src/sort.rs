//! Tells connections with streams of frames from those with gRPC, by their first byte.

use crate::service::kv::KvService;
use crate::service::replication::ReplicationService;
use archon_frames::{FrameError, FrameReader, FrameWriter, StreamKind, begins_stream};
use archon_types::limits::MESSAGE_BYTES_MAX;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// How long a connection may say nothing at all.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A connection on its way to the thread that serves it, which alone is to be told when something arrives.
pub(crate) type Accepted = std::net::TcpStream;

/// What serves streams.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) kv: KvService,
    pub(crate) replication: ReplicationService,
    /// Owns the streams.
    pub(crate) tasks: TaskTracker,
}

/// Takes the connections of one thread, until there are no more.
pub(crate) async fn sort(
    mut accepted: mpsc::Receiver<Accepted>,
    streams: Streams,
    grpc: mpsc::Sender<io::Result<TcpStream>>,
) {
    while let Some(connection) = accepted.recv().await {
        match TcpStream::from_std(connection) {
            Ok(connection) => drop(streams.tasks.spawn(give(connection, streams.clone(), grpc.clone()))),
            Err(error) => tracing::debug!(%error, "a connection could not be taken"),
        }
    }
}

async fn give(connection: TcpStream, streams: Streams, grpc: mpsc::Sender<io::Result<TcpStream>>) {
    let stream = tokio::select! {
        begun = timeout(SILENCE_MAX, begins_stream(&connection)) => begun,
        () = streams.kv.stop.cancelled() => return,
    };
    match stream {
        Ok(Ok(true)) => {
            let stop = streams.kv.stop.clone();
            // What a stream has under way it ends itself; a greeting is not waited for.
            if let Some(accepted) = stop.run_until_cancelled(archon_frames::accept(connection, bytes_max)).await {
                streams.serve(accepted).await;
            }
        }
        // Also what is neither: that is gRPC's to refuse. A server that has ended takes no more.
        Ok(Ok(false)) => drop(grpc.send(Ok(connection)).await),
        Ok(Err(_)) | Err(_) => tracing::debug!("a connection said nothing"),
    }
}

/// Bytes that a message of a stream may have.
const fn bytes_max(kind: StreamKind) -> usize {
    match kind {
        StreamKind::Exchange => MESSAGE_BYTES_MAX,
        // What clients may send at once, and what a turn adds to it.
        StreamKind::Replicate => 2 * MESSAGE_BYTES_MAX,
    }
}

impl Streams {
    async fn serve(self, accepted: Result<(StreamKind, FrameReader, FrameWriter), FrameError>) {
        match accepted {
            Ok((StreamKind::Exchange, reader, writer)) => self.kv.exchange(reader, writer).await,
            Ok((StreamKind::Replicate, reader, writer)) => self.replication.replicate(reader, writer).await,
            Err(error) => tracing::debug!(%error, "a connection is no stream"),
        }
    }
}
