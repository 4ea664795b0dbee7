//! Administration of the quorum.

use crate::admin::{Admin, client, incomplete, request_id};
use crate::admin_call::Effect;
use crate::error::Error;
use crate::quorum_types::Quorum;
use archon_proto::convert::error::detail_of;
use archon_proto::convert::ids::uuid_bytes;
use archon_proto::convert::quorum::{ChangeQuorum, QuorumAsk};
use archon_proto::v1;
use archon_types::{ErrorDetail, ErrorKind, QuorumChange};
use bytes::Bytes;
use std::time::Duration;
use tokio::time::timeout;
use tonic::Streaming;

/// How long a coordinator that is said to lead may take to answer, before another one's view is taken instead.
const LEADER_DEADLINE: Duration = Duration::from_secs(2);

impl Admin {
    /// The Raft quorum as the leading coordinator sees it, which alone knows how far the others are; where none answers that leads, as
    /// [`Admin::quorum`].
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

    /// Begins a change of the members of the quorum, which the coordinators then carry out by themselves, whoever leads; watch it with
    /// [`Admin::quorum_of_leader`]. `force`: also if no other coordinator may fail afterwards, or does not answer at its new address. Returns whether it was not so already,
    /// or on its way.
    ///
    /// # Errors
    /// `Refused` if it could end the quorum, another change is under way, or somebody who is needed does not answer; `NotFound` if
    /// there is no such member; otherwise see [`Error`].
    pub async fn change_quorum(&self, change: QuorumChange, force: bool) -> Result<bool, Error> {
        self.ask_for(QuorumAsk::Change(change), force).await
    }

    /// Takes the change of the quorum back that is under way. One that begins to copy the log stays a learner.
    ///
    /// # Errors
    /// `Refused` if there is none, or it is too late; otherwise see [`Error`].
    pub async fn cancel_quorum_change(&self) -> Result<(), Error> {
        self.ask_for(QuorumAsk::Cancel, false).await.map(drop)
    }

    /// Ends a recovery of the coordinators, if every node that is not lost has told what it holds. Where changes were lost that nodes
    /// had been told of, only if `accept_data_loss`. Returns whether it did not end by itself.
    ///
    /// # Errors
    /// `Refused` if nothing is being recovered, a node has not told yet, or loss is not accepted; otherwise see [`Error`].
    pub async fn settle_recovery(&self, accept_data_loss: bool) -> Result<bool, Error> {
        self.ask_for(QuorumAsk::Settle, accept_data_loss).await
    }

    async fn ask_for(&self, ask: QuorumAsk, force: bool) -> Result<bool, Error> {
        let request = v1::ChangeQuorumRequest::from(ChangeQuorum { request: request_id(), ask, force });
        let call = |channel, request| async move { client(channel).change_quorum(request).await };
        let wire: v1::ChangeQuorumResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok(wire.changed)
    }

    /// Begins a snapshot of all that the coordinators hold, as of one position of their log: a file from which `archon quorum recover`
    /// begins. It has what is written nowhere else: who may do what, settings, which node holds what. It does not have rows of tables.
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

    /// Has another voter lead the quorum: this one, or the one whose log is nearest to the end of the leader's. Returns who leads then,
    /// if that is known at once.
    ///
    /// # Errors
    /// `Refused` if it is no voter, does not answer or lags behind; `NotFound` if there is no such member; `Unavailable` if it did
    /// not take over within a second; otherwise see [`Error`].
    pub async fn transfer_lead(&self, to: Option<u64>) -> Result<Option<u64>, Error> {
        let request = v1::TransferLeadRequest { cluster: None, request_id: uuid_bytes(request_id().get()), to };
        let call = |channel, request| async move { client(channel).transfer_lead(request).await };
        let wire: v1::TransferLeadResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok(wire.leader)
    }
}

/// How long the next page is waited for.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// All that the coordinators hold, on its way.
#[derive(Debug)]
pub struct QuorumSnapshot {
    /// The last entry of the log that is in it.
    pub index: u64,
    /// How many bytes the file has.
    pub bytes_total: u64,
    came: u64,
    pages: Streaming<v1::SnapshotQuorumPage>,
}

impl QuorumSnapshot {
    /// The next bytes of the file, which has a checksum of its own; `None` once all have come.
    ///
    /// # Errors
    /// See [`Error`]; what came so far is of no use then.
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
