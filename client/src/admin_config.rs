//! Administration of the settings of a cluster.

use crate::admin::{Admin, client, request_id};
use crate::admin_call::Effect;
use crate::config_types::{SettingsChanged, SettingsSummary};
use crate::error::Error;
use archon_proto::convert::configure::Configure;
use archon_proto::v1;
use archon_types::{SettingChange, Version};

impl Admin {
    /// Returns the settings of the cluster, and which of them can be changed.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn settings(&self) -> Result<SettingsSummary, Error> {
        let request = v1::ListSettingsRequest::default();
        let call = |channel, request| async move { client(channel).list_settings(request).await };
        let wire: v1::ListSettingsResponse = self.coordinator_client().call(Effect::Reads, request, call).await?;
        Ok(wire.into())
    }

    /// Changes settings at run time, all of them or none. With `if_version`, only if they have this version.
    ///
    /// # Errors
    /// `Refused` for a setting that cannot change at run time, `InvalidArgument` for a value out of range or
    /// inconsistent with another one, `StaleVersion` for another version; otherwise see [`Error`].
    pub async fn configure(
        &self,
        changes: &[SettingChange],
        if_version: Option<Version>,
    ) -> Result<SettingsChanged, Error> {
        self.judge(changes, if_version, false).await
    }

    /// Returns the effect of [`Admin::configure`], without any change.
    ///
    /// # Errors
    /// As [`Admin::configure`].
    pub async fn check_configure(
        &self,
        changes: &[SettingChange],
        if_version: Option<Version>,
    ) -> Result<SettingsChanged, Error> {
        self.judge(changes, if_version, true).await
    }

    async fn judge(
        &self,
        changes: &[SettingChange],
        if_version: Option<Version>,
        dry_run: bool,
    ) -> Result<SettingsChanged, Error> {
        let configure = Configure { request: request_id(), changes: changes.to_vec(), if_version, dry_run };
        let effect = if dry_run { Effect::Reads } else { Effect::Writes };
        let call = |channel, request| async move { client(channel).configure(request).await };
        let request = v1::ConfigureRequest::from(configure);
        let wire: v1::ConfigureResponse = self.coordinator_client().call(effect, request, call).await?;
        Ok(wire.into())
    }
}
