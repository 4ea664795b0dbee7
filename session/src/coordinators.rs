//! Which coordinator leads, as far as this member can tell.

use crate::beats::{Answered, BeatStreams, Heard, Recipient, RelayAddress};
use crate::link::Links;
use archon_member::ASKS_FOR_ITSELF;
use archon_proto::convert::beats::Beat;
use archon_proto::convert::error::{detail_of, speaks_no_grpc};
use archon_proto::convert::session::Member;
use archon_proto::v1::session_client::SessionClient;
use archon_security::{BeatKey, Transport};
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{ErrorDetail, ErrorKind};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

/// Attempts of one call after which its caller backs off.
const ATTEMPTS_MAX: usize = 8;

/// The addresses of coordinators that were learned; they change while the member runs.
type Learned = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Why nothing was granted to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotGranted {
    /// This incarnation is over.
    Stale,
    /// No coordinator answers the relay that was asked. It keeps the heartbeat for whoever leads next.
    NoCoordinator,
    /// No answer that counts; perhaps a hint who leads.
    Failed(Option<String>),
}

/// The coordinators, the leading one first.
pub struct Coordinators {
    configured: Vec<String>,
    learned: Learned,
    transport: Transport,
    links: Links,
    leader: Mutex<Option<String>>,
}

impl Coordinators {
    /// Those that are `configured`, and those that are `learned`.
    pub fn new(
        configured: Vec<String>,
        transport: Transport,
        learned: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let links = Links::new(transport.clone());
        Self { configured, learned: Box::new(learned), transport, links, leader: Mutex::new(None) }
    }

    /// All addresses, the one that probably leads first. Never empty if any is configured.
    pub fn order(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let leader = self.leader.lock().clone();
        let all = leader.into_iter().chain((self.learned)()).chain(self.configured.iter().cloned());
        all.filter(|address| seen.insert(address.clone())).collect()
    }

    /// Somebody said, or showed, that `address` leads.
    pub fn leads(&self, address: &str) {
        let mut leader = self.leader.lock();
        if leader.as_deref() != Some(address) {
            *leader = Some(address.to_owned());
        }
    }

    /// `address` does not lead, or does not answer.
    pub fn doubt(&self, address: &str) {
        let mut leader = self.leader.lock();
        if leader.as_deref() == Some(address) {
            *leader = None;
        }
    }

    /// How they are reached.
    pub(crate) const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Streams for the heartbeats of a life, which are nobody else's: a large report must not delay one. Each answer is waited for
    /// `deadline`. What relays bring is proven with `key`, if there is one.
    pub fn beat_streams(&self, member: Member, key: Option<BeatKey>, deadline: Duration) -> (BeatStreams, Heard) {
        BeatStreams::new(member, key, self.transport.clone(), deadline)
    }

    /// Sends a heartbeat and waits for its answer. A coordinator that gives one that counts leads.
    ///
    /// # Errors
    /// As [`BeatStreams::beat`].
    pub async fn beat(&self, streams: &BeatStreams, to: Recipient<'_>, beat: Beat) -> Result<Answered, NotGranted> {
        let answered = streams.beat(to, beat).await?;
        match to {
            Recipient::Coordinator(address) => {
                self.leads(address);
                streams.keep_only(address);
            }
            Recipient::Relay(relay) => streams.keep_only(&relay.address),
        }
        Ok(answered)
    }

    /// One heartbeat: asks the relays, one after the other, if there are any; then the coordinator that probably leads; if that comes
    /// to nothing, all others at once, so that a change of the leading coordinator does not cost the lease. Of those whom a relay
    /// tells that no coordinator answers it, and no other relay helps, one in 32 asks for itself: a new leader is asked by relays, and
    /// not by everybody.
    ///
    /// # Errors
    /// The outcome of the attempts, if nobody grants anything.
    pub async fn heartbeat<T>(
        &self,
        relays: &[RelayAddress],
        attempt: impl AsyncFn(Recipient<'_>) -> Result<T, NotGranted>,
    ) -> Result<T, NotGranted> {
        let mut none_answers = false;
        for relay in relays {
            match attempt(Recipient::Relay(relay)).await {
                Err(NotGranted::Failed(_)) => {}
                // It may be the relay that is cut off.
                Err(NotGranted::NoCoordinator) => none_answers = true,
                ended => return ended,
            }
        }
        if none_answers && !rand::random_ratio(1, ASKS_FOR_ITSELF) {
            return Err(NotGranted::NoCoordinator);
        }
        let attempt = async |address: &str| attempt(Recipient::Coordinator(address)).await;
        let order = self.order();
        let Some((first, others)) = order.split_first() else { return Err(NotGranted::Failed(None)) };
        let hint = match attempt(first).await {
            Err(NotGranted::Failed(hint)) => hint,
            ended => return ended,
        };
        self.doubt(first);
        let mut targets: Vec<String> = hint.into_iter().collect();
        for address in others {
            if !targets.contains(address) {
                targets.push(address.clone());
            }
        }
        let attempt = &attempt;
        let mut attempts: FuturesUnordered<_> = targets.iter().map(|address| attempt(address)).collect();
        while let Some(attempt) = attempts.next().await {
            if !matches!(attempt, Err(NotGranted::Failed(_))) {
                return attempt;
            }
        }
        Err(NotGranted::Failed(None))
    }

    /// Calls the leading coordinator with a message: follows hints, and tries the others when one does not answer, within
    /// `deadline`.
    ///
    /// # Errors
    /// The last refusal.
    pub async fn call<Q: Clone, R>(
        &self,
        deadline: Duration,
        message: Q,
        call: impl AsyncFn(SessionClient<Channel>, Request<Q>) -> Result<Response<R>, Status>,
    ) -> Result<R, ErrorDetail> {
        let until = Instant::now() + deadline;
        let mut queue = self.order();
        let mut tried = BTreeSet::new();
        let mut last = ErrorDetail::new(ErrorKind::Unreachable, "no coordinator answered in time");
        for _ in 0..ATTEMPTS_MAX {
            let timeout = until.saturating_duration_since(Instant::now());
            if queue.is_empty() || timeout.is_zero() {
                break;
            }
            let address = queue.remove(0);
            if !tried.insert(address.clone()) {
                continue;
            }
            let channel = match self.links.channel(&address) {
                Ok(channel) => channel,
                Err(detail) => {
                    // One that was learned; the others may still do.
                    last = ErrorDetail::new(ErrorKind::Unreachable, detail.message);
                    continue;
                }
            };
            let client = SessionClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
            let mut request = Request::new(message.clone());
            request.set_timeout(timeout);
            let detail = match tokio::time::timeout(timeout, call(client, request)).await {
                Ok(Ok(response)) => {
                    self.leads(&address);
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) if status.code() == Code::Unimplemented || speaks_no_grpc(&status) => {
                    let why = format!("{address} is not a coordinator; correct the coordinators' addresses");
                    last = ErrorDetail::new(ErrorKind::InvalidArgument, why);
                    continue;
                }
                Ok(Err(status)) => detail_of(&status),
                Err(_) => ErrorDetail::new(ErrorKind::DeadlineExceeded, format!("{address} did not answer in time")),
            };
            match detail.kind {
                ErrorKind::NotCoordinatorLeader => {
                    self.doubt(&address);
                    if let Some(hint) = &detail.leader
                        && !tried.contains(hint)
                    {
                        queue.insert(0, hint.clone());
                    }
                }
                ErrorKind::Unreachable
                | ErrorKind::DeadlineExceeded
                | ErrorKind::NoQuorum
                | ErrorKind::ShuttingDown => {
                    self.doubt(&address);
                }
                _ => {
                    self.leads(&address);
                    return Err(detail);
                }
            }
            last = detail;
        }
        Err(last)
    }
}
