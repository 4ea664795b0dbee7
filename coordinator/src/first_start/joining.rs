//! Joining of a newcomer: it asks the quorum for membership, and receives the key by which members know each other.

use crate::error::CoordinatorError;
use crate::raft::connect;
use archon_proto::convert::error::detail_of;
use archon_proto::convert::ids::uuid_bytes;
use archon_proto::v1;
use archon_proto::v1::admin_client::AdminClient;
use archon_security::{ExpectedPeer, Transport};
use archon_types::limits::check_address;
use archon_types::{ErrorDetail, ErrorKind, ProtocolRange};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tonic::{Code, Status};
use uuid::Uuid;

/// Maximum time for the answer of one coordinator: it commits the join.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// Pause before all are asked again.
const ROUND_INTERVAL: Duration = Duration::from_millis(200);
/// Number of rounds after which an unchanged wait is logged again.
const REPORT_ROUNDS: u32 = 150;

/// The joining coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Newcomer {
    /// Its number.
    pub(crate) id: u64,
    /// Its data directory.
    pub(crate) storage: Uuid,
    /// Its address for others.
    pub(crate) address: String,
    /// True if it is to stay a learner.
    pub(crate) learner: bool,
    /// Its protocols.
    pub(crate) speaks: ProtocolRange,
}

/// Answer to a newcomer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JoinAnswer {
    /// The key of the quorum.
    pub(crate) quorum: Uuid,
    /// Its members, with their addresses.
    pub(crate) members: BTreeMap<u64, String>,
}

/// Asks until the quorum accepts it: these coordinators, and the leader that they name.
///
/// # Errors
/// `Refused` when the leader does not accept it.
pub(crate) async fn join(
    transport: &Transport,
    newcomer: &Newcomer,
    through: &[String],
) -> Result<JoinAnswer, CoordinatorError> {
    let mut reported = String::new();
    let mut round: u32 = 0;
    loop {
        let mut left: VecDeque<String> = through.iter().cloned().collect();
        let mut asked = Vec::new();
        let mut last = String::new();
        while let Some(address) = left.pop_front() {
            if asked.contains(&address) {
                continue;
            }
            asked.push(address.clone());
            match ask(transport, newcomer, &address).await {
                Ok(joined) => return Ok(joined),
                Err(error) => {
                    if let Some(leader) = error.leader.filter(|leader| check_address(leader).is_ok()) {
                        left.push_front(leader);
                    } else if !waits(error.kind) {
                        return Err(CoordinatorError::Refused { peer: address, why: error.message });
                    } else {
                        last = format!("{address}: {}", error.message);
                    }
                }
            }
        }
        if last != reported || round.is_multiple_of(REPORT_ROUNDS) {
            tracing::warn!(id = newcomer.id, waits_for = last, "the quorum has not let this coordinator in yet");
            reported = last;
        }
        round = round.wrapping_add(1);
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
}

/// Returns true if it may be accepted later, without a change of its start options.
const fn waits(kind: ErrorKind) -> bool {
    // Another one may have joined between decision and commit.
    let meanwhile = matches!(kind, ErrorKind::AssignmentInProgress | ErrorKind::StaleVersion);
    meanwhile || kind.is_retryable() || matches!(kind, ErrorKind::DeadlineExceeded)
}

async fn ask(transport: &Transport, newcomer: &Newcomer, address: &str) -> Result<JoinAnswer, ErrorDetail> {
    let unavailable = |why: String| ErrorDetail::new(ErrorKind::Unavailable, why);
    transport.check(address)?;
    let channel = connect(transport, address, ExpectedPeer::Coordinators);
    let mut client = AdminClient::new(channel.ok_or_else(|| unavailable("it is not an address".to_owned()))?);
    let request = v1::JoinQuorumRequest {
        request_id: uuid_bytes(Uuid::new_v4()),
        id: newcomer.id,
        storage: uuid_bytes(newcomer.storage),
        address: newcomer.address.clone(),
        learner: newcomer.learner,
        protocol_min: newcomer.speaks.oldest,
        protocol_max: newcomer.speaks.newest,
    };
    let mut request = tonic::Request::new(request);
    request.set_timeout(ANSWER_DEADLINE);
    let answer = tokio::time::timeout(ANSWER_DEADLINE, client.join_quorum(request)).await;
    let answer = answer.map_err(|_| unavailable("it does not answer".to_owned()))?;
    let refused = |status: Status| match status.code() {
        Code::Unimplemented => ErrorDetail::new(
            ErrorKind::InvalidArgument,
            "no coordinator is there, a node perhaps; --join names coordinators of the quorum",
        ),
        _ => detail_of(&status),
    };
    let wire = answer.map_err(refused)?.into_inner();
    let quorum = Uuid::from_slice(&wire.quorum).map_err(|_| unavailable("it names no quorum".to_owned()))?;
    let members = wire.members.into_iter().map(|member| (member.id, member.address)).collect();
    Ok(JoinAnswer { quorum, members })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomer_waits_for_another_join_to_finish() {
        assert!([ErrorKind::NoQuorum, ErrorKind::StaleVersion, ErrorKind::AssignmentInProgress].into_iter().all(waits));
        assert!(![ErrorKind::Refused, ErrorKind::AlreadyExists, ErrorKind::InvalidArgument].into_iter().any(waits));
    }
}
