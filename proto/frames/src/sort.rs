//! Connections of a listener that speaks gRPC and streams of frames: let in through its doors, and told apart by their first byte.

use crate::{FrameReader, FrameWriter, PartialBudget, StreamKind, accept, begins_stream};
use archon_proto::doors::{Doors, Entry, Refusal};
use archon_proto::guarded::{Guarded, TURNED_AWAY_MAX, TURNED_AWAY_PATIENCE};
use archon_proto::listen::ACCEPT_AGAIN;
use archon_types::{ErrorDetail, ErrorKind};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a connection may say nothing at all.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// After which time whoever was turned away is to come again, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;

/// Connections of a listener, as far as its doors let them in.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    doors: Arc<Doors>,
    hearing: Arc<Semaphore>,
}

impl Incoming {
    /// The connections of `listener`.
    pub fn new(listener: TcpListener, doors: Arc<Doors>) -> Self {
        Self { listener, doors, hearing: Arc::new(Semaphore::new(TURNED_AWAY_MAX)) }
    }

    /// The next one that is let in, with its place. Those before it that are not hear why, in a task of `tasks` each. Dropping the
    /// future loses nothing.
    ///
    /// # Errors
    /// What the system says; there may be others after it.
    pub async fn next(&mut self, tasks: &TaskTracker) -> io::Result<(TcpStream, Entry)> {
        loop {
            let (stream, from) = self.listener.accept().await?;
            match self.doors.enter(from.ip()) {
                Ok(entry) => {
                    stream.set_nodelay(true)?;
                    return Ok((stream, entry));
                }
                Err(refusal) => {
                    // Beyond those that are told already, closing says it.
                    if let Ok(permit) = Arc::clone(&self.hearing).try_acquire_owned() {
                        tasks.spawn(async move {
                            turn_away_in_its_words(stream, refusal).await;
                            drop(permit);
                        });
                    }
                }
            }
        }
    }
}

/// Takes connections until `stop`, each in a task of `tasks`: those of gRPC go to `grpc`, and of streams, of which `partial` bounds what
/// has not arrived whole, to `serve`. One that cannot be accepted is told to `failed`, waits, and is tried again.
pub async fn sort<F: Future<Output = ()> + Send>(
    mut incoming: Incoming,
    grpc: mpsc::Sender<io::Result<Guarded>>,
    partial: PartialBudget,
    tasks: TaskTracker,
    stop: CancellationToken,
    failed: impl Fn(&io::Error),
    serve: impl Fn(StreamKind, FrameReader, FrameWriter) -> F + Clone + Send + Sync + 'static,
) {
    loop {
        let accepted = tokio::select! {
            accepted = incoming.next(&tasks) => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((connection, entry)) => {
                let (grpc, stop, partial, serve) = (grpc.clone(), stop.clone(), partial.clone(), serve.clone());
                tasks.spawn(async move {
                    let serve = |_: IpAddr, kind, reader, writer| serve(kind, reader, writer);
                    route(connection, entry, grpc, &stop, |_| partial.clone(), serve).await;
                });
            }
            Err(error) => {
                failed(&error);
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Waits for the first byte of a connection: one of gRPC is given to `grpc`, a stream to `serve`, with the address that it counts for.
/// `stop` ends what is waited for here, not what is served.
pub async fn route<F: Future<Output = ()>>(
    connection: TcpStream,
    entry: Entry,
    grpc: mpsc::Sender<io::Result<Guarded>>,
    stop: &CancellationToken,
    partial: impl Fn(StreamKind) -> PartialBudget,
    serve: impl FnOnce(IpAddr, StreamKind, FrameReader, FrameWriter) -> F,
) {
    let begun = stop.run_until_cancelled(timeout(SILENCE_MAX, begins_stream(&connection))).await;
    match begun {
        Some(Ok(Ok(true))) => {
            // What a stream has under way it ends itself; a handshake is not waited for.
            match stop.run_until_cancelled(accept(connection, partial)).await {
                Some(Ok((kind, reader, writer))) => serve(entry.from(), kind, reader, writer).await,
                Some(Err(error)) => tracing::debug!(%error, "a connection is no stream"),
                None => {}
            }
        }
        // Also what is neither: that is gRPC's to refuse. A server that has ended takes no more.
        Some(Ok(Ok(false))) => drop(grpc.send(Ok(Guarded::new(connection, entry))).await),
        Some(Ok(Err(_)) | Err(_)) => tracing::debug!("a connection said nothing"),
        None => {}
    }
}

/// Tells a connection that found no place why, in the words of what it speaks, unless it says nothing itself.
pub async fn turn_away_in_its_words(connection: TcpStream, why: Refusal) {
    let told = async {
        if begins_stream(&connection).await.is_ok_and(|stream| stream) {
            let detail = ErrorDetail::new(ErrorKind::Overloaded, why.to_string()).with_retry_after_ms(RETRY_AFTER_MS);
            // Whether it was heard is for the other side to know.
            let _ = crate::turn_away(connection, detail).await;
        } else {
            let _ = archon_proto::guarded::turn_away(connection, &why.to_string()).await;
        }
    };
    let _ = timeout(TURNED_AWAY_PATIENCE, told).await;
}
