//! Administration of the quorum.

use crate::admin::call::Effect;
use crate::admin::{Admin, client, incomplete, request_id};
use crate::error::Error;
use archon_documents::{ChangeQuorum, Quorum, QuorumAction, TransferLead};
use archon_proto::convert::error::detail_of;
use archon_proto::convert::ids::uuid_bytes;
use archon_proto::v1;
use archon_types::{ErrorDetail, ErrorKind, QuorumChange};
use bytes::Bytes;
use std::time::Duration;
use tokio::time::timeout;
use tonic::Streaming;

/// Time-out of the alleged leader, before the view of another coordinator is used.
const LEADER_DEADLINE: Duration = Duration::from_secs(2);

impl Admin {
    /// Returns the Raft quorum as seen by the leading coordinator, which alone knows the progress of the others; if
    /// no leader answers, as [`Admin::quorum`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn quorum_of_leader(&self) -> Result<Quorum, Error> {
        let found = self.quorum().await?;
        match &found.leader_address {
            Some(address) if found.leader_id != Some(found.id) => {
                let led = match self.at_endpoint(address.clone(), LEADER_DEADLINE) {
                    Ok(leader) => leader.quorum().await,
                    Err(error) => Err(error),
                };
                Ok(led.unwrap_or(found))
            }
            _ => Ok(found),
        }
    }

    /// Starts a change of the quorum's members, which the coordinators then execute by themselves under any leader;
    /// observe it with [`Admin::quorum_of_leader`]. With `force`, also if no other coordinator may fail afterwards,
    /// or if one does not answer at its new address. Returns whether this is a change, and not done or in progress
    /// already.
    ///
    /// # Errors
    /// `Refused` if it could end the quorum, another change is in progress, or a required coordinator does not
    /// answer; `NotFound` for an unknown member; otherwise see [`Error`].
    pub async fn change_quorum(&self, change: QuorumChange, force: bool) -> Result<bool, Error> {
        self.change_quorum_by(change.into(), force).await
    }

    /// Cancels the current change of the quorum. A coordinator that has started to copy the log stays a learner.
    ///
    /// # Errors
    /// `Refused` if there is none, or it is too late; otherwise see [`Error`].
    pub async fn cancel_quorum_change(&self) -> Result<(), Error> {
        self.change_quorum_by(QuorumAction::Cancel, false).await.map(drop)
    }

    /// Finishes a recovery of the coordinators, once every node that is not lost has reported its content. If changes
    /// known to nodes were lost, requires `accept_data_loss`. Returns whether it was not finished already.
    ///
    /// # Errors
    /// `Refused` if there is no recovery, a node has not reported yet, or the loss is not accepted; otherwise see
    /// [`Error`].
    pub async fn settle_recovery(&self, accept_data_loss: bool) -> Result<bool, Error> {
        self.change_quorum_by(QuorumAction::Settle, accept_data_loss).await
    }

    async fn change_quorum_by(&self, action: QuorumAction, force: bool) -> Result<bool, Error> {
        Ok(self.ask(&ChangeQuorum { action, force }).await?.changed)
    }

    /// Starts a snapshot of the coordinators' whole state at one position of their log: the input of `archon quorum
    /// recover`. It contains data that is stored nowhere else: rights, settings, and the nodes of each partition; but
    /// no rows of tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn snapshot_quorum(&self) -> Result<QuorumSnapshot, Error> {
        let request = v1::SnapshotQuorumRequest { cluster: None, request_id: uuid_bytes(request_id().get()) };
        let call = |channel, request| async move { client(channel).snapshot_quorum(request).await };
        let pages: Streaming<v1::SnapshotQuorumPage> =
            self.coordinator_client().call(Effect::Reads, request, call).await?;
        let mut snapshot = QuorumSnapshot { index: 0, bytes_total: 0, came: 0, pages };
        let head = snapshot.page().await?.and_then(|page| page.head);
        let head = head.ok_or_else(|| incomplete("SnapshotQuorumPage.head"))?;
        (snapshot.index, snapshot.bytes_total) = (head.index, head.bytes);
        Ok(snapshot)
    }

    /// Transfers the leadership of the quorum to another voter: this one, or the one with the longest log. Returns
    /// the new leader if known at once.
    ///
    /// # Errors
    /// `Refused` if it is not a voter, does not answer or lags behind; `NotFound` for an unknown member;
    /// `Unavailable` if it did not take over within a second; otherwise see [`Error`].
    pub async fn transfer_lead(&self, to: Option<u64>) -> Result<Option<u64>, Error> {
        Ok(self.ask(&TransferLead { coordinator_id: to }).await?.leader_id)
    }
}

/// Time-out of the next page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// A snapshot of the coordinators' state in transfer.
#[derive(Debug)]
pub struct QuorumSnapshot {
    /// Index of the last log entry in it.
    pub index: u64,
    /// Size of the file in bytes.
    pub bytes_total: u64,
    came: u64,
    pages: Streaming<v1::SnapshotQuorumPage>,
}

impl QuorumSnapshot {
    /// Returns the next bytes of the file, which contains its own checksum; `None` at the end.
    ///
    /// # Errors
    /// See [`Error`]; the received bytes are useless then.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        match self.page().await? {
            Some(page) => {
                self.came = self.came.saturating_add(page.content.len() as u64);
                Ok(Some(page.content))
            }
            None if self.came == self.bytes_total => Ok(None),
            None => {
                let what = format!("the snapshot ended after {} of {} bytes", self.came, self.bytes_total);
                Err(ErrorDetail::new(ErrorKind::Unreachable, what).into())
            }
        }
    }

    async fn page(&mut self) -> Result<Option<v1::SnapshotQuorumPage>, Error> {
        let late = |_| Error::from(ErrorDetail::new(ErrorKind::Unreachable, "no page of the snapshot came in time"));
        let page = timeout(PAGE_TIMEOUT, self.pages.message()).await.map_err(late)?;
        page.map_err(|status| detail_of(&status).into())
    }
}
