//! Administration of the quorum.

use crate::admin::{Admin, client, request_id};
use crate::admin_call::Effect;
use crate::admin_types::Quorum;
use crate::error::Error;
use archon_proto::convert::ids::uuid_bytes;
use archon_proto::convert::quorum::{ChangeQuorum, QuorumAsk};
use archon_proto::v1;
use archon_types::QuorumChange;
use std::time::Duration;

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
    /// [`Admin::quorum_of_leader`]. `force`: also if no other coordinator may fail afterwards. Returns whether it was not so already,
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
