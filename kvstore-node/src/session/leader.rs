//! Which coordinator leads, as far as this node can tell.

use crate::link::Links;
use crate::shared::Shared;
use archon_proto::convert::error::detail_of;
use archon_proto::v1::session_client::SessionClient;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// Attempts of one call after which its caller backs off.
const ATTEMPTS_MAX: usize = 8;

/// The coordinators, the leading one first.
pub(super) struct Coordinators {
    shared: Arc<Shared>,
    /// Heartbeats have channels of their own: a large report must not delay one.
    urgent: Links,
    bulk: Links,
    leader: Mutex<Option<String>>,
}

impl Coordinators {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let links = || Links::new(shared.config.insecure);
        let (urgent, bulk) = (links(), links());
        Self { shared, urgent, bulk, leader: Mutex::new(None) }
    }

    /// All addresses, the one that probably leads first. Never empty: the configuration names at least one.
    pub(super) fn order(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let leader = self.leader.lock().clone();
        let told = self.shared.tables.coordinators();
        let all = leader.into_iter().chain(told).chain(self.shared.config.coordinators.iter().cloned());
        all.filter(|address| seen.insert(address.clone())).collect()
    }

    /// Somebody said, or showed, that `address` leads.
    pub(super) fn leads(&self, address: &str) {
        let mut leader = self.leader.lock();
        if leader.as_deref() != Some(address) {
            *leader = Some(address.to_owned());
        }
    }

    /// `address` does not lead, or does not answer.
    pub(super) fn doubt(&self, address: &str) {
        let mut leader = self.leader.lock();
        if leader.as_deref() == Some(address) {
            *leader = None;
        }
    }

    /// The session service at `address`, over the channels kept for heartbeats.
    pub(super) fn urgent(&self, address: &str) -> Option<SessionClient<Channel>> {
        Some(SessionClient::new(self.urgent.channel(address).ok()?))
    }

    /// Calls the leading coordinator: follows hints, and tries the others when one does not answer, within `deadline`.
    ///
    /// # Errors
    /// The last refusal.
    pub(super) async fn call<R>(
        &self,
        deadline: Duration,
        call: impl AsyncFn(SessionClient<Channel>, Duration) -> Result<Response<R>, Status>,
    ) -> Result<R, ErrorDetail> {
        let until = Instant::now() + deadline;
        let mut queue = self.order();
        let mut tried = BTreeSet::new();
        let mut last = ErrorDetail::new(ErrorKind::Unreachable, "no coordinator answered in time");
        for _ in 0..ATTEMPTS_MAX {
            let patience = until.saturating_duration_since(Instant::now());
            if queue.is_empty() || patience.is_zero() {
                break;
            }
            let address = queue.remove(0);
            if !tried.insert(address.clone()) {
                continue;
            }
            let channel = match self.bulk.channel(&address) {
                Ok(channel) => channel,
                Err(detail) => {
                    // One that was learned; the others may still do.
                    last = ErrorDetail::new(ErrorKind::Unreachable, detail.message);
                    continue;
                }
            };
            let client = SessionClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
            let detail = match tokio::time::timeout(patience, call(client, patience)).await {
                Ok(Ok(response)) => {
                    self.leads(&address);
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) if status.code() == Code::Unimplemented => {
                    let why = format!("{address} is not a coordinator; correct --coordinators");
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
