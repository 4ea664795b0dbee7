//! Single commands of a connection that shards execute: those begun together reach each shard in one message, and their
//! answers return in one message per turn of a shard, as in client streams.

use super::outcome::Outcome;
use crate::server::admit::ClientAdmission;
use crate::service::batches::ShardBatches;
use crate::service::redis::conversions::unix_ms;
use crate::service::redis::refusal::refusal;
use crate::service::redis::routing::{Redirection, Route, moved};
use crate::service::redis::session::Session;
use crate::service::redis::single::{ReplyForm, SingleCommand};
use crate::service::redis::state::RedisService;
use crate::service::reply::{Connection, Delivery, Replies, ReplyTo};
use crate::service::timed_request::TimedRequest;
use crate::shard::OpRequest;
use archon_host::Origin;
use archon_proto::convert::kv::TaggedReply;
use archon_resp::Command;
use archon_types::{ErrorKind, PartitionId, Version};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// Request with its number among those of its connection.
pub(super) struct NumberedRequest {
    pub(super) number: u64,
    pub(super) request: Vec<Bytes>,
}

/// State of a request that was given to [`InFlight::begin`].
pub(super) enum RequestState {
    /// It is among those that the next [`InFlight::submit`] sends.
    Pending,
    /// It was refused.
    Refused(NumberedRequest, Outcome),
    /// It takes more than one operation, or waits for something else than a shard. Nothing was done.
    Other(NumberedRequest),
}

/// Result of a request that a shard has answered.
pub(super) enum RequestResult {
    /// It is done, or was refused.
    Done(NumberedRequest, Outcome),
    /// Nothing was done: another node leads its partition, by the tables as they are now. It has to be executed again.
    Elsewhere(NumberedRequest),
}

/// Request without an answer.
struct PendingRequest {
    request: NumberedRequest,
    reply: ReplyForm,
    partition: PartitionId,
    origin: Origin,
    is_write: bool,
}

/// Single commands of one connection that have no answer.
pub(super) struct InFlight {
    connection: Arc<Connection>,
    deliveries: mpsc::UnboundedReceiver<Vec<Delivery>>,
    /// Answers that came in one message.
    delivered: std::vec::IntoIter<Delivery>,
    admission: ClientAdmission,
    batches: ShardBatches,
    /// Beginning and table of those that are submitted together next.
    next: Option<(Instant, Route)>,
    /// Requests by tag. A connection has at most [`WINDOW_MAX`](super::pipeline::WINDOW_MAX) of them.
    waiting: Vec<Option<PendingRequest>>,
    /// Tags without a request.
    free: Vec<usize>,
}

impl InFlight {
    /// Creates those of a new connection from this address.
    pub(super) fn new(service: &RedisService, from: IpAddr) -> Self {
        let (connection, deliveries) = service.kv.connection();
        Self {
            connection,
            deliveries,
            delivered: Vec::new().into_iter(),
            admission: service.kv.shared.admission.client(from),
            batches: ShardBatches::default(),
            next: None,
            waiting: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Begins a request, if it is a single operation of a table and a node that are known.
    pub(super) fn begin(
        &mut self,
        service: &RedisService,
        session: &Session,
        command: &Command,
        request: NumberedRequest,
    ) -> RequestState {
        let now_ms = || unix_ms(service.kv.shared.wall.now());
        let SingleCommand { op, reply } = match SingleCommand::of(command, &request.request, now_ms) {
            Some(Ok(single)) => single,
            Some(Err(refusal)) => return RequestState::Refused(request, Outcome::refused(refusal)),
            None => return RequestState::Other(request),
        };
        if let Err(detail) = op.check() {
            return RequestState::Refused(request, Outcome::refused(refusal(&detail, false)));
        }
        let next = self.next.or_else(|| service.route().map(|route| (Instant::now(), route)));
        let Some((at, route)) = next else { return RequestState::Other(request) };
        let (key, is_write) = (&request.request[1], !op.is_read());
        let partition = route.partition_of(key);
        if let Err(detail) = service.kv.check_right(&session.caller, partition.table, &op) {
            return RequestState::Refused(request, Outcome::refused(refusal(&detail, false)));
        }
        let origin = match service.redirection_from(Some(route.node), partition) {
            Redirection::To(_) if session.reads_replica && !is_write => return RequestState::Other(request),
            Redirection::To(address) => {
                let moved = moved(key, &address);
                return RequestState::Refused(request, Outcome::refused(moved));
            }
            Redirection::Forward => Origin::AnyNodeClient,
            Redirection::None => Origin::RoutingClient,
        };
        let permit = match self.admission.try_admit(op.cost()) {
            Ok(permit) => permit,
            Err(detail) => return RequestState::Refused(request, Outcome::refused(refusal(&detail, is_write))),
        };
        let asked = Some(TimedRequest::new(&op, partition, at));
        let tag = self.free.pop().unwrap_or_else(|| {
            self.waiting.push(None);
            self.waiting.len() - 1
        });
        self.waiting[tag] = Some(PendingRequest { request, reply, partition, origin, is_write });
        let reply = ReplyTo::Stream { connection: Arc::clone(&self.connection), tag: tag as u64, asked, permit };
        let request = OpRequest {
            partition,
            origin,
            client: self.admission.turn(),
            op,
            id: None,
            known: Version::ZERO,
            parked_at: None,
            confirmed: None,
            awaited_entry: false,
            reply,
        };
        self.batches.push(&service.kv.shards, request);
        // Requests that are refused begin no batch: its time would be that of a batch long after them.
        self.next = Some((at, route));
        RequestState::Pending
    }

    /// Sends what was begun to the shards.
    pub(super) fn submit(&mut self, service: &RedisService) {
        if self.next.take().is_some() {
            let mut refused = Replies::default();
            self.batches.send(&service.kv.shards, &mut refused);
            service.kv.shared.metrics.operations_refused.add(refused.send());
        }
    }

    /// Returns a result that came together with an earlier one.
    pub(super) fn next_delivered(&mut self, service: &RedisService) -> Option<RequestResult> {
        loop {
            let delivery = self.delivered.next()?;
            if let Some(answered) = self.take(service, delivery) {
                return Some(answered);
            }
        }
    }

    /// Waits for a result. Dropping the future loses none.
    pub(super) async fn next(&mut self, service: &RedisService) -> RequestResult {
        loop {
            if let Some(answered) = self.next_delivered(service) {
                return answered;
            }
            match self.deliveries.recv().await {
                Some(delivered) => self.delivered = delivered.into_iter(),
                // This end has a sender.
                None => std::future::pending().await,
            }
        }
    }

    fn take(&mut self, service: &RedisService, delivery: Delivery) -> Option<RequestResult> {
        let (TaggedReply { tag, outcome, .. }, permit) = delivery.into_parts();
        let tag = usize::try_from(tag).ok()?;
        let PendingRequest { request, reply, partition, origin, is_write } = self.waiting.get_mut(tag)?.take()?;
        self.free.push(tag);
        let (executed, written) = match outcome {
            Ok(answer) => {
                let executed = reply.reply(answer, || unix_ms(service.kv.shared.wall.now()));
                (executed, is_write.then_some(partition))
            }
            Err(detail)
                if detail.kind == ErrorKind::NotPartitionLeader
                    && origin == Origin::RoutingClient
                    && service.redirection(partition) != Redirection::None =>
            {
                return Some(RequestResult::Elsewhere(request));
            }
            Err(detail) => (Err(refusal(&detail, is_write)), None),
        };
        Some(RequestResult::Done(request, Outcome { executed, written, permit }))
    }
}

/// Requests in progress that take more than one operation.
pub(super) type RunningRequests<'a> = FuturesUnordered<BoxFuture<'a, (NumberedRequest, Outcome)>>;

/// Waits for a result of the requests in progress. Dropping the future loses none.
pub(super) async fn next_result(
    service: &RedisService,
    in_flight: &mut InFlight,
    running: &mut Option<RunningRequests<'_>>,
) -> RequestResult {
    let Some(running) = running else { return in_flight.next(service).await };
    tokio::select! {
        biased;
        answered = in_flight.next(service) => answered,
        Some((request, outcome)) = running.next() => RequestResult::Done(request, outcome),
    }
}
