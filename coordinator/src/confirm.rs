//! Asks the process at a node's address whether it is the one that registers in the node's name. Whom to ask, and what
//! follows from the answer, is decided in `core`.

use crate::raft::connect;
use archon_coordinator_core::Confirmation;
use archon_proto::convert::ids::uuid_bytes;
use archon_proto::v1::ConfirmBootRequest;
use archon_proto::v1::control_client::ControlClient;
use archon_security::{Expected, Transport};
use archon_types::{BootId, ClusterId, Node};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Deadline of an answer, the connection included, which takes four round trips. One that is late is asked again with the next attempt.
const CONFIRM_DEADLINE: Duration = Duration::from_millis(1_500);
/// Questions under way at once; each holds a connection. More wait, within their own deadline.
const ASKED_MAX: usize = 256;

/// Asks processes for their boot ids.
pub(crate) struct Confirmations {
    asked: Semaphore,
}

impl Confirmations {
    /// Nobody is asked yet.
    pub(crate) fn new() -> Self {
        Self { asked: Semaphore::new(ASKED_MAX) }
    }

    /// What the process at a node's address says of `boot`.
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

    /// The answer of the process at a node's address; `None` if it does not give one in time.
    async fn call(&self, transport: &Transport, node: &Node, request: ConfirmBootRequest) -> Option<bool> {
        let answer = async {
            let _turn = self.asked.acquire().await.ok()?;
            let mut client = ControlClient::new(connect(transport, &node.address, Expected::Node(node.name.clone()))?);
            client.confirm_boot(request).await.ok().map(|answer| answer.into_inner().confirmed)
        };
        tokio::time::timeout(CONFIRM_DEADLINE, answer).await.ok().flatten()
    }
}
