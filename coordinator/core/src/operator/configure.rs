//! Checks of changes of cluster settings at run time.

use crate::command::Command;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ErrorKind, Setting, SettingChange, SettingStep, SettingsError, Version};
use std::collections::BTreeSet;

/// Reason why settings cannot be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages are the documentation of the fields.
pub enum ConfigureError {
    /// They changed since the operator looked.
    #[error("the settings have changed since version {looked_at}, to version {now}; look again")]
    Stale { looked_at: Version, now: Version },
    /// The setting is fixed while the cluster runs.
    #[error("{} cannot be changed while the cluster runs: {why}", .setting.as_str())]
    Fixed { setting: Setting, why: &'static str },
    /// Two values of one setting.
    #[error("{} is given twice; give each setting once", .setting.as_str())]
    Twice { setting: Setting },
    /// A value is out of its range, or two values conflict.
    #[error("{0}")]
    Unfit(#[from] SettingsError),
}

impl From<ConfigureError> for ErrorDetail {
    fn from(error: ConfigureError) -> Self {
        let kind = match error {
            ConfigureError::Stale { .. } => ErrorKind::StaleVersion,
            ConfigureError::Fixed { .. } => ErrorKind::Refused,
            ConfigureError::Twice { .. } | ConfigureError::Unfit(_) => ErrorKind::InvalidArgument,
        };
        let detail = Self::new(kind, error.to_string());
        match error {
            ConfigureError::Stale { looked_at, now } => detail.with_have_need(now.get(), looked_at.get()),
            _ => detail,
        }
    }
}

/// Effect of changing settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// The settings that change; settings that have their value already are left out.
    pub changes: Vec<SettingStep>,
    /// The command; `None` if no setting changes.
    pub command: Option<Command>,
}

/// Checks a change of settings at run time: none of them may be [fixed](Setting::fixed), and all together must pass
/// [`archon_types::Settings::check`] afterwards. `if_version`: the version that the operator saw, if that matters.
///
/// # Errors
/// The reason for the refusal.
pub fn check_configure(
    state: &ClusterState,
    wanted: &[SettingChange],
    if_version: Option<Version>,
) -> Result<Configuration, ConfigureError> {
    let now = state.settings_version;
    if let Some(looked_at) = if_version.filter(|looked_at| *looked_at != now) {
        return Err(ConfigureError::Stale { looked_at, now });
    }
    let (mut settings, mut seen) = (state.settings.clone(), BTreeSet::new());
    let (mut steps, mut changes) = (Vec::new(), Vec::new());
    for change in wanted {
        let SettingChange { setting, value } = *change;
        if !seen.insert(setting) {
            return Err(ConfigureError::Twice { setting });
        }
        let from = setting.of(&settings);
        if from == value {
            continue;
        }
        if let Some(why) = setting.fixed() {
            return Err(ConfigureError::Fixed { setting, why });
        }
        setting.put(&mut settings, value);
        steps.push(SettingStep { setting, from, to: value });
        changes.push(*change);
    }
    if !steps.is_empty() {
        settings.check()?;
    }
    let command = (!steps.is_empty()).then_some(Command::Configure { if_version: now, changes });
    Ok(Configuration { changes: steps, command })
}
