//! Administration of upgrades.

use crate::admin::{Admin, client, request_id};
use crate::admin_call::Effect;
use crate::error::Error;
use crate::upgrade_types::{UpgradeChanged, UpgradeSummary};
use archon_proto::convert::upgrade::{ChangeUpgrade, UpgradeAsk};
use archon_proto::v1;

impl Admin {
    /// Returns the protocol of the cluster, and those that each member supports.
    ///
    /// # Errors
    /// `ProtocolMismatch` from a coordinator that predates upgrades; otherwise see [`Error`].
    pub async fn upgrade(&self) -> Result<UpgradeSummary, Error> {
        let call = |channel, request| async move { client(channel).show_upgrade(request).await };
        let request = v1::ShowUpgradeRequest::default();
        let wire: v1::ShowUpgradeResponse = self.coordinator_client().call(Effect::Reads, request, call).await?;
        Ok(wire.into())
    }

    /// Raises the protocol to the newest one that all members support, and removes a hold; later it rises
    /// automatically. Versions without support for it are rejected from then on. If no newer protocol is supported,
    /// only removes the hold.
    ///
    /// # Errors
    /// `Refused`, with their names, if members do not support it; otherwise see [`Error`].
    pub async fn finalize_upgrade(&self) -> Result<UpgradeChanged, Error> {
        self.change_upgrade(UpgradeAsk::Finalize).await
    }

    /// Keeps the protocol until [`Admin::finalize_upgrade`] or [`Admin::release_upgrade`], so that members can return
    /// to the previous version.
    ///
    /// # Errors
    /// `Refused` while the cluster speaks protocol 1, which has no holds; otherwise see [`Error`].
    pub async fn hold_upgrade(&self) -> Result<UpgradeChanged, Error> {
        self.change_upgrade(UpgradeAsk::Hold).await
    }

    /// Lets the protocol rise automatically again.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn release_upgrade(&self) -> Result<UpgradeChanged, Error> {
        self.change_upgrade(UpgradeAsk::Release).await
    }

    async fn change_upgrade(&self, ask: UpgradeAsk) -> Result<UpgradeChanged, Error> {
        let request = v1::ChangeUpgradeRequest::from(ChangeUpgrade { request: request_id(), ask });
        let call = |channel, request| async move { client(channel).change_upgrade(request).await };
        let wire: v1::ChangeUpgradeResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        let v1::ChangeUpgradeResponse { changed, protocol, raised } = wire;
        Ok(UpgradeChanged { changed, protocol, raised })
    }
}
