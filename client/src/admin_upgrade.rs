//! Administration of upgrades.

use crate::admin::{Admin, client, request_id};
use crate::admin_call::Effect;
use crate::error::Error;
use crate::upgrade_types::{UpgradeChanged, UpgradeSummary};
use archon_proto::convert::upgrade::{ChangeUpgrade, UpgradeAsk};
use archon_proto::v1;

impl Admin {
    /// The protocol that the cluster speaks, and what each member speaks.
    ///
    /// # Errors
    /// `ProtocolMismatch` from a coordinator of a version before there were upgrades; otherwise see [`Error`].
    pub async fn upgrade(&self) -> Result<UpgradeSummary, Error> {
        let call = |channel, request| async move { client(channel).show_upgrade(request).await };
        let request = v1::ShowUpgradeRequest::default();
        let wire: v1::ShowUpgradeResponse = self.coordinator_client().call(Effect::Reads, request, call).await?;
        Ok(wire.into())
    }

    /// Raises the protocol to the newest one that every member speaks, also if it was held; it rises by itself afterwards. From then
    /// on versions that do not speak it are refused. Where no member speaks a newer one, only the hold is over.
    ///
    /// # Errors
    /// `Refused`, with their names, if members do not speak it; otherwise see [`Error`].
    pub async fn finalize_upgrade(&self) -> Result<UpgradeChanged, Error> {
        self.change_upgrade(UpgradeAsk::Finalize).await
    }

    /// Has the protocol stay as it is until [`Admin::finalize_upgrade`] or [`Admin::release_upgrade`], so that members can go back to the
    /// version before.
    ///
    /// # Errors
    /// `Refused` while the cluster speaks protocol 1, which knows nothing of it; otherwise see [`Error`].
    pub async fn hold_upgrade(&self) -> Result<UpgradeChanged, Error> {
        self.change_upgrade(UpgradeAsk::Hold).await
    }

    /// Has the protocol rise by itself again.
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
