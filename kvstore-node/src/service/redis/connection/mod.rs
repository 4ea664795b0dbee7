//! One connection: requests that have arrived together are executed at once where their order allows it ([`pipeline`]), and
//! are answered in order.
//!
//! Nothing is read while requests are executed or replies wait to be sent, so a client that does not read holds at most
//! one batch of replies and one read of requests.

mod buffers;
mod in_flight;
mod outcome;
mod pipeline;

use self::buffers::{Input, KEPT_BYTES_MAX, send};
use self::in_flight::{InFlight, NumberedRequest, RequestResult, RequestState, RunningRequests, next_result};
use self::outcome::Outcome;
use self::pipeline::{Place, REPLY_BYTES_FIRST, Step, Window};
use super::execute::execute;
use super::refusal::{CommandResult, Refusal};
use super::session::Session;
use super::state::{LIMITS, RedisService};
use super::{caller_kind, check_caller, send_last};
use crate::server::admit::Permit;
use archon_frames::{FrameError, PartialMessage};
use archon_resp::{Parser, Reply};
use archon_security::Stream;
use archon_security::connection_limit::Entry;
use archon_types::ErrorDetail;
use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt as _;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

/// Bytes of replies after which they are sent, before further requests are executed.
const REPLIES_BYTES_MAX: usize = 64 * 1024;
/// Replies after which they are sent as well: their operations hold admission until then.
const REPLIES_MAX: usize = 256;
/// Interval of looks at the connection while commands run. They go on for at least this long after their client has
/// closed the connection: many clients close their direction once they have sent their last command, and one that
/// waits for a new leader has to be answered all the same.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Reason why a connection ends.
enum End {
    /// The client closed it, or asked for that.
    Closed,
    /// The client closed it during a command.
    Gone,
    /// The client gets this error.
    Refused(String),
    /// The outcome of a write is unknown.
    Unknown,
    /// A request did not arrive, or replies were not read, in time.
    Stalled,
    /// There is no room for replies that the client does not read at once.
    Overloaded(ErrorDetail),
}

/// Serves a connection until it ends or the node stops.
pub(super) async fn serve(service: &RedisService, mut stream: Stream, entry: &Entry) {
    let addresses = stream.addresses();
    let caller = entry.caller(stream.peer().cloned());
    let id = service.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let in_flight = InFlight::new(service, caller.from);
    let checked = check_caller(&caller).map_err(|detail| format!("NOPERM {}", detail.message));
    let mut connection = Connection {
        session: Session::new(caller, id, addresses, Instant::now()),
        service,
        entry,
        parser: Parser::new(LIMITS),
        partial: PartialMessage::new(service.partial.clone()),
        input: Input::default(),
        has_executed: false,
        output: BytesMut::new(),
        permits: Vec::new(),
        is_identified: false,
        in_flight,
        expected_bytes: REPLY_BYTES_FIRST,
        looks: looks(),
    };
    let served = async {
        checked.map_err(End::Refused)?;
        // A certificate identifies its holder. In plaintext the first request does.
        if connection.session.caller.identity.is_some() {
            connection.identify()?;
        }
        connection.run(&mut stream).await
    };
    let Err(end) = served.await;
    match end {
        End::Refused(text) => {
            // Replies to the requests before go first.
            Reply::error(text).encode(connection.session.version, &mut connection.output);
            send_last(&mut stream, &connection.output).await;
        }
        End::Closed => send_last(&mut stream, &connection.output).await,
        End::Gone => {
            tracing::debug!(id, "a Redis client has closed its connection during a command");
            // It may have closed its direction alone: replies to the commands before go out.
            send_last(&mut stream, &connection.output).await;
        }
        End::Unknown => {
            tracing::debug!(id, "the connection of a Redis client is closed: the outcome of a write is unknown");
            send_last(&mut stream, &connection.output).await;
        }
        End::Stalled => {
            service.kv.shared.metrics.streams_stalled.add(1);
            tracing::debug!(id, "the connection of a Redis client is closed: it stands still");
        }
        End::Overloaded(error) => {
            service.kv.shared.metrics.streams_stalled.add(1);
            tracing::debug!(id, %error, "the connection of a Redis client is closed: it does not read its replies");
        }
    }
}

struct Connection<'a> {
    session: Session,
    service: &'a RedisService,
    entry: &'a Entry,
    parser: Parser,
    partial: PartialMessage,
    input: Input,
    /// A request was executed since [`Connection::receive`]. The budget of partial messages is held until its reply is
    /// sent.
    has_executed: bool,
    output: BytesMut,
    /// Shares of admission of the operations with replies in `output`.
    permits: Vec<Permit>,
    /// It has a client's place.
    is_identified: bool,
    /// Its single commands that shards execute.
    in_flight: InFlight,
    /// Expected bytes of the reply to a read.
    expected_bytes: usize,
    /// Looks at the connection while commands run.
    looks: Interval,
}

/// Returns the looks of one connection: one timer for all of its commands.
fn looks() -> Interval {
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Waits for the result of a command, unless its client has closed the connection meanwhile. A read is dropped then; a
/// write that a shard has taken goes on there, without a connection.
async fn unless_gone<T>(looks: &mut Interval, stream: &Stream, command: impl Future<Output = T>) -> Result<T, End> {
    let gone = async {
        // Of two looks at least one interval lies between, whenever the command has begun.
        let mut is_ended = false;
        loop {
            looks.tick().await;
            if std::mem::replace(&mut is_ended, stream.is_ended()) {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        result = command => Ok(result),
        () = gone => Err(End::Gone),
    }
}

/// Does the same until the node stops. The outcome of writes is unknown then.
async fn wait<T>(
    looks: &mut Interval,
    stream: &Stream,
    stop: &CancellationToken,
    command: impl Future<Output = T>,
) -> Result<T, End> {
    tokio::select! {
        biased;
        result = unless_gone(looks, stream, command) => result,
        () = stop.cancelled() => Err(End::Closed),
    }
}

impl<'a> Connection<'a> {
    /// Serves requests; returns only with the reason why the connection ends.
    async fn run(&mut self, stream: &mut Stream) -> Result<Infallible, End> {
        loop {
            self.execute_received(stream).await?;
            self.flush(stream).await?;
            self.receive(stream).await?;
        }
    }

    /// Executes all requests that have arrived whole.
    async fn execute_received(&mut self, stream: &mut Stream) -> Result<(), End> {
        let mut next = self.next_request();
        while let Some(request) = next? {
            match if self.session.allows_overlap() { Place::of(&request) } else { None } {
                Some(place) => next = self.execute_together(stream, (place, request)).await?,
                None => {
                    self.execute(stream, request).await?;
                    next = self.next_request();
                }
            }
            self.flush_if_large(stream).await?;
            // Other tasks on this thread, above all its shard, must not wait for request after request.
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    /// Takes the next request that has arrived whole.
    fn next_request(&mut self) -> Result<Option<Vec<Bytes>>, End> {
        let next = self.parser.next(&mut self.input.bytes);
        let Some(request) = next.map_err(|error| End::Refused(format!("ERR {error}")))? else { return Ok(None) };
        self.has_executed = true;
        self.input.shrink();
        self.identify()?;
        Ok(Some(request))
    }

    /// Executes requests that may be in progress at once: the first one, and those that follow. Returns the
    /// first that is none of them.
    async fn execute_together(
        &mut self,
        stream: &mut Stream,
        first: (Place, Vec<Bytes>),
    ) -> Result<Result<Option<Vec<Bytes>>, End>, End> {
        let service = self.service;
        let mut next = self.next_request();
        let (mut window, mut running) = (Window::new(self.expected_bytes), None);
        window.push(first.0, first.1);
        loop {
            while !window.is_full()
                && let Ok(Some(request)) = &next
                && let Some(place) = Place::of(request)
            {
                if let Ok(Some(request)) = std::mem::replace(&mut next, Ok(None)) {
                    window.push(place, request);
                }
                next = self.next_request();
            }
            match window.step() {
                Step::Begin { command, number, request, is_repeated } => {
                    if is_repeated {
                        // The requests before give back their shares of admission.
                        self.flush(stream).await?;
                    }
                    let request = NumberedRequest { number, request };
                    match self.in_flight.begin(service, &self.session, command, request) {
                        RequestState::Pending => {}
                        RequestState::Refused(request, outcome) => {
                            finish(&mut window, request, outcome);
                            tokio::task::consume_budget().await;
                        }
                        RequestState::Other(request) => {
                            running.get_or_insert_with(RunningRequests::new).push(self.execute_beside(request));
                        }
                    }
                    continue;
                }
                Step::Reply(outcome) => {
                    self.take_outcome(outcome)?;
                    self.flush_if_large(stream).await?;
                    continue;
                }
                Step::End => {
                    self.expected_bytes = window.expected_bytes();
                    return Ok(next);
                }
                Step::Wait => {}
            }
            let answered = match self.in_flight.next_delivered(service) {
                Some(answered) => answered,
                None => {
                    // All answers that have arrived are taken: they let further requests begin.
                    self.in_flight.submit(service);
                    match next_result(service, &mut self.in_flight, &mut running).now_or_never() {
                        Some(answered) => answered,
                        None => {
                            // Replies do not wait for a request behind them.
                            self.flush(stream).await?;
                            let answer = next_result(service, &mut self.in_flight, &mut running);
                            wait(&mut self.looks, stream, &service.kv.stop, answer).await?
                        }
                    }
                }
            };
            match answered {
                RequestResult::Done(request, outcome) => finish(&mut window, request, outcome),
                RequestResult::Elsewhere(request) => {
                    running.get_or_insert_with(RunningRequests::new).push(self.execute_beside(request));
                }
            }
            tokio::task::consume_budget().await;
        }
    }

    /// Takes the outcome of a request that was in progress beside others.
    fn take_outcome(&mut self, outcome: Outcome) -> Result<(), End> {
        let Outcome { executed, written, permit } = outcome;
        self.session.written = written.or(self.session.written);
        self.permits.extend(permit);
        self.reply(executed)
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

    /// Executes a request alone.
    async fn execute(&mut self, stream: &Stream, request: Vec<Bytes>) -> Result<(), End> {
        let service = self.service;
        let executed = {
            let executing = std::pin::pin!(execute(service, &mut self.session, &request));
            wait(&mut self.looks, stream, &service.kv.stop, executing).await?
        };
        self.permits.extend(self.session.permit.take());
        self.reply(executed)?;
        if self.session.closes { Err(End::Closed) } else { Ok(()) }
    }

    /// Begins a request that takes more than one operation, or waits for something else than a shard.
    fn execute_beside(&self, request: NumberedRequest) -> BoxFuture<'a, (NumberedRequest, Outcome)> {
        let (service, mut session) = (self.service, self.session.for_request());
        let executed = async move {
            let executed = execute(service, &mut session, &request.request).await;
            (request, Outcome { executed, written: session.written, permit: session.permit.take() })
        };
        executed.boxed()
    }

    /// Adds the reply to a request to those that are sent next.
    fn reply(&mut self, executed: CommandResult) -> Result<(), End> {
        let reply = match executed {
            Ok(reply) => reply,
            Err(Refusal::Error(text)) => Reply::Error(text),
            Err(Refusal::Unknown(why)) => {
                tracing::debug!(why, "a write of a Redis client has an unknown outcome");
                return Err(End::Unknown);
            }
        };
        if self.session.replies() {
            reply.encode(self.session.version, &mut self.output);
        }
        Ok(())
    }

    async fn flush_if_large(&mut self, stream: &mut Stream) -> Result<(), End> {
        if self.output.len() >= REPLIES_BYTES_MAX || self.permits.len() >= REPLIES_MAX {
            // Operations do not wait for a slow client.
            self.in_flight.submit(self.service);
            self.flush(stream).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, stream: &mut Stream) -> Result<(), End> {
        if self.output.is_empty() {
            self.permits.clear();
            return Ok(());
        }
        let bytes = self.output.len();
        let (service, from) = (self.service, self.session.caller.from);
        let written = tokio::select! {
            // Most clients take their replies at once.
            biased;
            written = send(stream, &mut self.output, &service.unread, from) => written,
            () = service.kv.stop.cancelled() => Err(FrameError::Closed),
        };
        self.output.clear();
        if bytes > KEPT_BYTES_MAX {
            self.output = BytesMut::new();
        }
        self.permits.clear();
        written.map_err(|error| match error {
            FrameError::Stalled(_) => End::Stalled,
            FrameError::Refused(detail) => End::Overloaded(detail),
            _ => End::Closed,
        })
    }

    /// Reads more bytes.
    async fn receive(&mut self, stream: &mut Stream) -> Result<(), End> {
        self.input.make_room();
        if std::mem::take(&mut self.has_executed) {
            self.partial.whole();
            self.hold_input()?;
        }
        let pending = self.parser.pending_bytes() + self.input.bytes.len();
        let until = (pending > 0).then(|| self.partial.until(pending));
        let stop = &self.service.kv.stop;
        let read = tokio::select! {
            read = stream.read_buf(&mut self.input.bytes) => read,
            () = wait_until(self.session.transaction.deadline()) => return Err(End::Stalled),
            () = wait_until(until) => return self.partial.late(pending).map_err(|_| End::Stalled),
            () = self.entry.shed() => return Err(End::Closed),
            () = stop.cancelled() => return Err(End::Closed),
        };
        match read {
            Ok(0) | Err(_) => Err(End::Closed),
            Ok(_) => self.hold_input(),
        }
    }

    /// Counts the bytes that have arrived, and those of a transaction, among those of partial messages.
    fn hold_input(&mut self) -> Result<(), End> {
        let queued = self.session.transaction.bytes();
        let held = self.partial.hold(self.parser.pending_bytes() + self.input.allocated + queued);
        held.map_err(|error| End::Refused(format!("ERR {error}")))
    }
}

/// Records the outcome of a request in progress.
fn finish(window: &mut Window<Outcome>, NumberedRequest { number, request }: NumberedRequest, mut outcome: Outcome) {
    let is_unknown = outcome.is_unknown();
    if outcome.is_overloaded() {
        outcome.permit = None;
        if window.retry(number, request).is_none() {
            return;
        }
    }
    let bytes = outcome.reply_bytes();
    window.finish(number, outcome, bytes);
    if is_unknown {
        window.halt(number);
    }
}

/// Waits for a moment; without one, it never ends.
async fn wait_until(until: Option<tokio::time::Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
