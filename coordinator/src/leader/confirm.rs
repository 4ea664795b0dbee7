//! Confirmation by the process at a node's address that it registers under the node's name. `core` decides when to ask,
//! and handles the answer.

use crate::raft::connect;
use archon_coordinator_core::Confirmation;
use archon_proto::convert::ids::uuid_bytes;
use archon_proto::v1::ConfirmBootRequest;
use archon_proto::v1::control_client::ControlClient;
use archon_security::{ExpectedPeer, Transport};
use archon_types::{BootId, ClusterId, Node};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Deadline of an answer, including the connection, which takes four round trips. The next attempt repeats a late
/// question.
const CONFIRM_DEADLINE: Duration = Duration::from_millis(1_500);
/// Maximum number of concurrent questions; each holds a connection. Further ones wait, within their own deadline.
const ASKED_MAX: usize = 256;

/// Asks processes for their boot ids.
pub(crate) struct Confirmations {
    asked: Semaphore,
}

impl Confirmations {
    /// Creates it without questions.
    pub(crate) fn new() -> Self {
        Self { asked: Semaphore::new(ASKED_MAX) }
    }

    /// Asks the process at a node's address about `boot`.
    pub(crate) async fn ask(&self, transport: &Transport, node: &Node, boot: BootId) -> Confirmation {
        let request = ConfirmBootRequest { boot_id: uuid_bytes(boot.get()), ..ConfirmBootRequest::default() };
        match self.call(transport, node, request).await {
            Some(true) => Confirmation::Own,
            Some(false) => Confirmation::Foreign,
            None => Confirmation::Silent,
        }
    }

    /// Sends the coordinators' addresses of `cluster` to the process at a node's address.
    pub(crate) async fn announce(
        &self,
        transport: &Transport,
        node: &Node,
        boot: BootId,
        cluster: ClusterId,
        coordinators: Vec<String>,
    ) {
        let boot_id = uuid_bytes(boot.get());
        let request = ConfirmBootRequest { boot_id, cluster: Some(cluster.into()), coordinators };
        self.call(transport, node, request).await;
    }

    /// Returns the answer of the process at a node's address; `None` without one in time.
    async fn call(&self, transport: &Transport, node: &Node, request: ConfirmBootRequest) -> Option<bool> {
        let answer = async {
            let _turn = self.asked.acquire().await.ok()?;
            let mut client =
                ControlClient::new(connect(transport, &node.address, ExpectedPeer::Node(node.name.clone()))?);
            client.confirm_boot(request).await.ok().map(|answer| answer.into_inner().confirmed)
        };
        tokio::time::timeout(CONFIRM_DEADLINE, answer).await.ok().flatten()
    }
}
