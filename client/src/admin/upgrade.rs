//! Administration of upgrades.

use crate::admin::Admin;
use crate::error::Error;
use archon_documents::{ChangeUpgrade, ShowUpgrade, UpgradeAction, UpgradeChanged, UpgradeSummary};

impl Admin {
    /// Returns the protocol of the cluster, and those that each member supports.
    ///
    /// # Errors
    /// `ProtocolMismatch` from a coordinator that predates upgrades; otherwise see [`Error`].
    pub async fn upgrade(&self) -> Result<UpgradeSummary, Error> {
        self.ask(&ShowUpgrade {}).await
    }

    /// Raises the protocol to the newest one that all members support, and removes a hold; later it rises
    /// automatically. Versions without support for it are rejected from then on. If no newer protocol is supported,
    /// only removes the hold.
    ///
    /// # Errors
    /// `Refused`, with their names, if members do not support it; otherwise see [`Error`].
    pub async fn finalize_upgrade(&self) -> Result<UpgradeChanged, Error> {
        self.ask(&ChangeUpgrade { action: UpgradeAction::Finalize }).await
    }

    /// Keeps the protocol until [`Admin::finalize_upgrade`] or [`Admin::release_upgrade`], so that members can return
    /// to the previous version.
    ///
    /// # Errors
    /// `Refused` while the cluster speaks protocol 1, which has no holds; otherwise see [`Error`].
    pub async fn hold_upgrade(&self) -> Result<UpgradeChanged, Error> {
        self.ask(&ChangeUpgrade { action: UpgradeAction::Hold }).await
    }

    /// Lets the protocol rise automatically again.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn release_upgrade(&self) -> Result<UpgradeChanged, Error> {
        self.ask(&ChangeUpgrade { action: UpgradeAction::Release }).await
    }
}
