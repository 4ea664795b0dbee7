//! The gRPC services. Each converts a request, calls the session, and converts the answer; ownership is decided in
//! `core`.

pub(crate) mod admin;
pub(crate) mod admins;
mod call;
mod documents;
pub(crate) mod findings;
pub(crate) mod no_rows;
pub(crate) mod operator;
mod ranges;
mod revocations;
pub(crate) mod session;
pub(crate) mod stats;
pub(crate) mod table;

use crate::audit::Audit;
use crate::first_start::WaitReason;
use crate::leader::session::{CurrentSession, Session};
use crate::raft::Quorum;
use crate::statistics::metrics::Metrics;
use archon_coordinator_core::{ClusterState, Response};
use archon_proto::convert::error::status_of;
use archon_proto::convert::ids::{check_cluster, check_cluster_if_named};
use archon_proto::v1;
use archon_security::connection_limit::ConnectionLimit;
use archon_security::{Caller, Role, Transport};
use archon_types::{ErrorDetail, ErrorKind, NodeId};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::metadata::MetadataMap;

/// Polling interval of a service that waits for a leader.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum wait of a request for a leader, and for its commit, without a deadline of its sender.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(5);
/// Maximum wait of any request.
const DEADLINE_MAX: Duration = Duration::from_secs(30);

/// Context that all services share. Raft is set once it runs; until then no request can be answered.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) id: u64,
    pub(crate) quorum: Arc<OnceLock<Quorum>>,
    /// The reason of the wait until then.
    pub(crate) waiting: WaitReason,
    pub(crate) leading: CurrentSession,
    pub(crate) metrics: Arc<Metrics>,
    /// Records changes with their originators, and refusals.
    pub(crate) audit: Audit,
    /// Transport to others, with this coordinator's own address.
    pub(crate) transport: Transport,
    /// Admits connections, and counts them.
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    /// Cancelled when this coordinator stops: waiting requests are answered then.
    pub(crate) stop: CancellationToken,
}

impl Context {
    /// Returns Raft.
    ///
    /// # Errors
    /// `NoQuorum` while this coordinator still waits for its peers.
    pub(crate) fn quorum(&self) -> Result<&Quorum, ErrorDetail> {
        self.quorum.get().ok_or_else(|| {
            let message = format!("coordinator {} is starting; {}", self.id, self.waiting);
            ErrorDetail::new(ErrorKind::NoQuorum, message).with_retry_after_ms(100)
        })
    }

    /// Returns the current session, and waits for a leader while none is known.
    ///
    /// # Errors
    /// `NotCoordinatorLeader`, naming the leader; `NoQuorum` if none was found in time; `ShuttingDown`.
    pub(crate) async fn leader(&self, within: Duration) -> Result<Arc<Session>, ErrorDetail> {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            if self.stop.is_cancelled() {
                return Err(ErrorDetail::new(ErrorKind::ShuttingDown, "this coordinator is stopping"));
            }
            if let Some(session) = self.leading.session() {
                return Ok(session);
            }
            let quorum = self.quorum();
            if let Ok(quorum) = quorum
                && (quorum.leader_address().is_some() || quorum.standby().is_some())
            {
                return Err(quorum.not_leading());
            }
            if tokio::time::Instant::now() + LOOK_INTERVAL > deadline {
                return Err(quorum.map_or_else(|error| error, Quorum::not_leading));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Returns the current session, confirmed by a quorum round that began after this call: later reads of the state
    /// are linearizable.
    ///
    /// # Errors
    /// As [`Context::leader`] and [`Session::confirm`].
    pub(crate) async fn confirmed(&self, within: Duration) -> Result<Arc<Session>, ErrorDetail> {
        let deadline = tokio::time::Instant::now() + within;
        let session = self.leader(within).await?;
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        session.confirm(left.max(LOOK_INTERVAL)).await?;
        Ok(session)
    }
}

/// Returns the time for this request, from its `grpc-timeout`, minus a reserve for the way back.
pub(crate) fn budget(metadata: &MetadataMap) -> Duration {
    let asked = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(parse_timeout);
    asked.map_or(DEADLINE_DEFAULT, |asked| asked.mul_f64(0.8)).min(DEADLINE_MAX)
}

fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.checked_mul(3_600)?),
        "M" => Duration::from_secs(number.checked_mul(60)?),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Refuses a request of another cluster; one without a cluster is accepted.
pub(crate) fn check_named(cluster: Option<&v1::ClusterRef>, state: &ClusterState) -> Result<(), ErrorDetail> {
    check_cluster_if_named(cluster, state.cluster)
}

/// Refuses a request that does not name this cluster.
pub(crate) fn check_member(cluster: Option<&v1::ClusterRef>, state: &ClusterState) -> Result<(), ErrorDetail> {
    check_cluster(cluster, state.cluster)
}

/// Refuses a caller that acts for another member.
pub(crate) fn check_own(caller: &Caller, call: &str, state: &ClusterState, node: NodeId) -> Result<(), ErrorDetail> {
    // An unknown node is refused elsewhere, with another error.
    let Some(row) = state.node(node) else { return Ok(()) };
    caller.check_name(call, role_of(row.participant.is_some()), &row.node.name)
}

/// Returns the role of a member.
pub(crate) const fn role_of(participant: bool) -> Role {
    if participant { Role::Participant } else { Role::Node }
}

/// Returns an error as a gRPC status.
pub(crate) fn refuse(error: impl Into<ErrorDetail>) -> Status {
    status_of(&error.into())
}

/// Returns the only answer of a batch of one command.
///
/// # Errors
/// The refusal it holds; `Internal` if the batch is empty, which is a defect.
pub(crate) fn only(responses: Vec<Response>) -> Result<Response, ErrorDetail> {
    match responses.into_iter().next() {
        Some(Response::Refused(error)) => Err(error),
        Some(response) => Ok(response),
        None => Err(ErrorDetail::new(ErrorKind::Internal, "the log entry was applied without an answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts_are_parsed() {
        assert_eq!(parse_timeout("150m"), Some(Duration::from_millis(150)));
        assert_eq!(parse_timeout("2S"), Some(Duration::from_secs(2)));
        for bad in ["", "m", "1", "1x", "-1S", "999999999S", "1é"] {
            assert_eq!(parse_timeout(bad), None, "{bad:?}");
        }
    }
}
