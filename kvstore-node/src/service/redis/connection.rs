//! One connection: requests are executed one after the other, and answered in order.
//!
//! Nothing is read while replies wait to be sent, so a client that does not read holds no more than one batch of replies
//! and one read of requests.

use super::execute::execute;
use super::refusal::Refusal;
use super::session::Session;
use super::{LIMITS, RedisService, caller_kind, check_caller, send_last};
use crate::server::admit::Permit;
use archon_frames::PartialMessage;
use archon_resp::{Parser, Reply, Version};
use archon_security::Stream;
use archon_security::connection_limit::Entry;
use bytes::{Bytes, BytesMut};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep_until, timeout};

/// Bytes of replies after which they are sent, before further requests are executed.
const REPLIES_BYTES_MAX: usize = 64 * 1024;
/// Replies after which they are sent as well: their operations hold admission until then.
const REPLIES_MAX: usize = 256;
/// Room for one read.
const READ_BYTES: usize = 16 * 1024;
/// Capacity of buffers that an idle connection keeps.
const KEPT_BYTES_MAX: usize = 2 * READ_BYTES;
/// Longest time in which a client takes one batch of replies.
const REPLIES_TIMEOUT: Duration = Duration::from_secs(30);

/// Reason why a connection ends.
enum End {
    /// The client closed it, or asked for that.
    Closed,
    /// The client gets this error.
    Refused(String),
    /// The outcome of a write is unknown.
    Unknown,
    /// A request did not arrive, or replies were not read, in time.
    Stalled,
}

/// Serves a connection until it ends or the node stops.
pub(super) async fn serve(service: &RedisService, mut stream: Stream, entry: &Entry) {
    let addresses = stream.addresses();
    let caller = entry.caller(stream.peer().cloned());
    let id = service.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let checked = check_caller(&caller).map_err(|detail| format!("NOPERM {}", detail.message));
    let mut connection = Connection {
        session: Session::new(caller, id, addresses, Instant::now()),
        service,
        entry,
        parser: Parser::new(LIMITS),
        partial: PartialMessage::new(service.partial.clone()),
        input: BytesMut::new(),
        output: BytesMut::new(),
        permits: Vec::new(),
        is_identified: false,
    };
    let end = match checked {
        Ok(()) => connection.run(&mut stream).await,
        Err(text) => End::Refused(text),
    };
    match end {
        End::Refused(text) => {
            // Replies to the requests before go first.
            Reply::error(text).encode(connection.session.version, &mut connection.output);
            send_last(&mut stream, &connection.output).await;
        }
        End::Closed => send_last(&mut stream, &connection.output).await,
        End::Unknown => {
            tracing::debug!(id, "the connection of a Redis client is closed: the outcome of a write is unknown");
            send_last(&mut stream, &connection.output).await;
        }
        End::Stalled => {
            service.kv.shared.metrics.streams_stalled.add(1);
            tracing::debug!(id, "the connection of a Redis client is closed: it stands still");
        }
    }
}

struct Connection<'a> {
    session: Session,
    service: &'a RedisService,
    entry: &'a Entry,
    parser: Parser,
    partial: PartialMessage,
    input: BytesMut,
    output: BytesMut,
    /// Shares of admission of the operations with replies in `output`.
    permits: Vec<Permit>,
    /// It has a client's place.
    is_identified: bool,
}

impl Connection<'_> {
    async fn run(&mut self, stream: &mut Stream) -> End {
        let ended = async {
            loop {
                self.execute_received(stream).await?;
                self.flush(stream).await?;
                self.receive(stream).await?;
            }
        };
        let ended: Result<std::convert::Infallible, End> = ended.await;
        match ended {
            Err(end) => end,
        }
    }

    /// Executes all requests that have arrived whole.
    async fn execute_received(&mut self, stream: &mut Stream) -> Result<(), End> {
        loop {
            let next = self.parser.next(&mut self.input);
            let Some(request) = next.map_err(|error| End::Refused(format!("ERR {error}")))? else { return Ok(()) };
            self.partial.whole();
            self.identify()?;
            self.execute(&request).await?;
            if self.output.len() >= REPLIES_BYTES_MAX || self.permits.len() >= REPLIES_MAX {
                self.flush(stream).await?;
            }
            // Other tasks on this thread, above all its shard, must not wait for request after request.
            tokio::task::consume_budget().await;
        }
    }

    /// Gives the connection a client's place with its first request.
    fn identify(&mut self) -> Result<(), End> {
        if self.is_identified {
            return Ok(());
        }
        let identified = self.entry.identify(caller_kind(&self.session.caller));
        identified.map_err(|refusal| End::Refused(format!("ERR max number of clients reached: {refusal}")))?;
        self.is_identified = true;
        Ok(())
    }

    async fn execute(&mut self, request: &[Bytes]) -> Result<(), End> {
        let executed = execute(self.service, &mut self.session, request).await;
        self.permits.extend(self.session.permit.take());
        let reply = match executed {
            Ok(reply) => reply,
            Err(Refusal::Error(text)) => Reply::Error(text),
            Err(Refusal::Unknown(why)) => {
                tracing::debug!(why, "a write of a Redis client has an unknown outcome");
                return Err(End::Unknown);
            }
        };
        let version: Version = self.session.version;
        reply.encode(version, &mut self.output);
        if self.session.closes { Err(End::Closed) } else { Ok(()) }
    }

    async fn flush(&mut self, stream: &mut Stream) -> Result<(), End> {
        if self.output.is_empty() {
            return Ok(());
        }
        let stop = &self.service.kv.stop;
        let write = async {
            stream.write_all(&self.output).await?;
            stream.flush().await
        };
        let written = tokio::select! {
            written = timeout(REPLIES_TIMEOUT, write) => written,
            () = stop.cancelled() => Ok(Err(std::io::ErrorKind::ConnectionAborted.into())),
        };
        self.output.clear();
        if self.output.capacity() > KEPT_BYTES_MAX {
            self.output = BytesMut::new();
        }
        self.permits.clear();
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Closed),
            Err(_) => Err(End::Stalled),
        }
    }

    /// Reads more bytes.
    async fn receive(&mut self, stream: &mut Stream) -> Result<(), End> {
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES_MAX {
            self.input = BytesMut::new();
        }
        self.input.reserve(READ_BYTES);
        let pending = self.parser.pending_bytes() + self.input.len();
        let until = (pending > 0).then(|| self.partial.until(pending));
        let stop = &self.service.kv.stop;
        let read = tokio::select! {
            read = stream.read_buf(&mut self.input) => read,
            () = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            } => return self.partial.late(pending).map_err(|_| End::Stalled),
            () = self.entry.shed() => return Err(End::Closed),
            () = stop.cancelled() => return Err(End::Closed),
        };
        match read {
            Ok(0) | Err(_) => return Err(End::Closed),
            Ok(_) => {}
        }
        let held = self.partial.hold(self.parser.pending_bytes() + self.input.len());
        held.map_err(|error| End::Refused(format!("ERR {error}")))
    }
}
