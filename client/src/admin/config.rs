//! Administration of the settings of a cluster.

use crate::admin::Admin;
use crate::error::Error;
use archon_documents::{Configure, ListSettings, SettingsChanged, SettingsSummary};
use archon_types::{SettingChange, Version};

impl Admin {
    /// Returns the settings of the cluster, and which of them can be changed.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn settings(&self) -> Result<SettingsSummary, Error> {
        self.ask(&ListSettings {}).await
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
        self.ask(&Configure::new(changes, if_version, false)).await
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
        self.ask(&Configure::new(changes, if_version, true)).await
    }
}
