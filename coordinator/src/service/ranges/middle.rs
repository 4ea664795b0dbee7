//! Query of a partition's leader for its middle key, for a split by an operator without a key.

use crate::raft::connect;
use archon_proto::convert::error::detail_of;
use archon_proto::convert::tables::middle::FindMiddle;
use archon_proto::trace::TracedChannel;
use archon_proto::v1::FindMiddleRequest;
use archon_proto::v1::control_client::ControlClient;
use archon_security::{ExpectedPeer, Transport};
use archon_types::{ErrorDetail, ErrorKind, Middle, Node};
use std::time::Duration;

/// Deadline of the query: a node answers at once, and the caller must get a retryable error within its time for one
/// coordinator.
const DEADLINE: Duration = Duration::from_secs(2);

/// Asks a node for the middle of a partition that it leads.
///
/// # Errors
/// Its refusal; `Unavailable` if it cannot be reached.
pub(crate) async fn ask(transport: &Transport, node: &Node, asked: FindMiddle) -> Result<Middle, ErrorDetail> {
    let address = &node.address;
    let silent = |why: &str| {
        let message = format!("the leader of the partition, at {address}, reports no split key: {why}");
        ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(200)
    };
    let channel = connect(transport, address, ExpectedPeer::Node(node.name.clone()))
        .ok_or_else(|| silent("that is no address"))?;
    let mut client = ControlClient::new(TracedChannel::from(channel));
    match tokio::time::timeout(DEADLINE, client.find_middle(FindMiddleRequest::from(asked))).await {
        Ok(Ok(answer)) => Ok(answer.into_inner().try_into()?),
        Ok(Err(status)) => Err(silent(&detail_of(&status).message)),
        Err(_) => Err(silent("it does not answer")),
    }
}
