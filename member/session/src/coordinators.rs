//! The coordinators that a member knows, and the probable leader.

use crate::link::Links;
use archon_proto::convert::error::{detail_of, is_answer, speaks_no_grpc};
use archon_proto::v1::session_client::SessionClient;
use archon_security::Transport;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

/// Attempts of one call before its caller backs off.
const ATTEMPTS_MAX: usize = 8;

/// Returns the learned addresses of coordinators, which change at run time.
type LearnedAddresses = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// The known coordinators, the probable leader first.
pub struct Coordinators {
    configured: Vec<String>,
    learned: LearnedAddresses,
    transport: Transport,
    links: Links,
    leader: Mutex<Option<String>>,
}

impl Coordinators {
    /// Creates the set of `configured` and `learned` addresses.
    pub fn new(
        configured: Vec<String>,
        transport: Transport,
        learned: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let links = Links::new(transport.clone());
        Self { configured, learned: Box::new(learned), transport, links, leader: Mutex::new(None) }
    }

    /// Returns all addresses, the probable leader first. Not empty if any is configured.
    pub fn order(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let leader = self.leader.lock().clone();
        let all = leader.into_iter().chain((self.learned)()).chain(self.configured.iter().cloned());
        all.filter(|address| seen.insert(address.clone())).collect()
    }

    /// Records that `address` leads, according to an answer or a hint.
    pub fn leads(&self, address: &str) {
        let mut leader = self.leader.lock();
        if leader.as_deref() != Some(address) {
            *leader = Some(address.to_owned());
        }
    }

    /// Records that `address` does not lead or does not answer.
    pub fn doubt(&self, address: &str) {
        let mut leader = self.leader.lock();
        if leader.as_deref() == Some(address) {
            *leader = None;
        }
    }

    /// Returns the transport to the coordinators.
    pub(crate) const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Calls the session service of the leading coordinator, as [`Coordinators::call_service`] does.
    ///
    /// # Errors
    /// The last refusal.
    pub async fn call<Q: Clone, R>(
        &self,
        deadline: Duration,
        message: Q,
        call: impl AsyncFn(SessionClient<Channel>, Request<Q>) -> Result<Response<R>, Status>,
    ) -> Result<R, ErrorDetail> {
        let client = |channel| SessionClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        self.call_service(deadline, message, client, call).await
    }

    /// Calls the leading coordinator by a `client` of its channel: follows hints, and tries the others if one does not
    /// answer, within `deadline`.
    ///
    /// # Errors
    /// The last refusal.
    pub async fn call_service<C, Q: Clone, R>(
        &self,
        deadline: Duration,
        message: Q,
        client: impl Fn(Channel) -> C,
        call: impl AsyncFn(C, Request<Q>) -> Result<Response<R>, Status>,
    ) -> Result<R, ErrorDetail> {
        let until = Instant::now() + deadline;
        let mut queue = self.order();
        let mut tried = BTreeSet::new();
        let mut last = ErrorDetail::new(ErrorKind::Unreachable, "no coordinator answered in time");
        let mut silent: Vec<String> = Vec::new();
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
                    // A learned address; the others may still be usable.
                    last = ErrorDetail::new(ErrorKind::Unreachable, detail.message);
                    continue;
                }
            };
            let mut request = Request::new(message.clone());
            request.set_timeout(timeout);
            let detail = match tokio::time::timeout(timeout, call(client(channel), request)).await {
                Ok(Ok(response)) => {
                    self.leads(&address);
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) if status.code() == Code::Unimplemented || speaks_no_grpc(&status) => {
                    let why = format!("{address} is not a coordinator; correct the coordinators' addresses");
                    last = ErrorDetail::new(ErrorKind::InvalidArgument, why);
                    continue;
                }
                Ok(Err(status)) if is_answer(&status) => detail_of(&status),
                Ok(Err(status)) => {
                    let mut detail = detail_of(&status);
                    detail.message = format!("{address}: {}", detail.message);
                    detail
                }
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
            if detail.kind == ErrorKind::Unreachable {
                silent.push(detail.message.clone());
            }
            last = detail;
        }
        // If none answers, each may have another reason.
        if last.kind == ErrorKind::Unreachable && silent.len() > 1 {
            last.message = silent.join("; ");
        }
        Err(last)
    }
}
