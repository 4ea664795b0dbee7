//! Changing settings of the cluster while it runs.

use crate::command::Command;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ErrorKind, Setting, SettingChange, SettingStep, SettingsError, Version};
use std::collections::BTreeSet;

/// Why settings cannot be changed so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages are the documentation of the fields.
pub enum ConfigureError {
    /// They are not what they were when the operator looked.
    #[error("the settings have changed since version {looked_at}, to version {now}; look again")]
    Stale { looked_at: Version, now: Version },
    /// Nothing that runs may see another value of it.
    #[error("{} cannot be changed while the cluster runs: {why}", .setting.as_str())]
    Fixed { setting: Setting, why: &'static str },
    /// Two values of one setting.
    #[error("{} is given twice; give each setting once", .setting.as_str())]
    Twice { setting: Setting },
    /// One is out of its range, or two do not fit each other.
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

/// What changing settings does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// Those that change; what has its value already does not.
    pub changes: Vec<SettingStep>,
    /// What does it; `None` if everything is as it should be already.
    pub command: Option<Command>,
}

/// Whether the settings can be changed so while the cluster runs: none of them is [fixed](Setting::fixed), and all of them
/// together pass [`archon_types::Settings::check`] afterwards. `if_version`: as of which version the operator looked at
/// them, if that matters.
///
/// # Errors
/// Why not.
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
