//! Settings of the cluster.

use crate::method::{Document, invalid, known};
use archon_types::{
    ErrorDetail, OpenEnum, Setting, SettingChange, SettingChanged, SettingStep, SettingUnit, Settings, Version,
    Vocabulary,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingsSummary {
    /// Version of the settings: a log index that rises with each change.
    pub settings_version: u64,
    /// All settings.
    pub settings: Vec<SettingSummary>,
}

/// A setting of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingSummary {
    /// The setting.
    pub setting: OpenEnum<Setting>,
    /// Current value.
    pub current: u64,
    /// Default value.
    pub default: u64,
    /// Minimum value.
    pub lowest: u64,
    /// Maximum value.
    pub highest: u64,
    /// Its unit.
    pub unit: OpenEnum<SettingUnit>,
    /// True if it can be changed while the cluster runs.
    pub changeable: bool,
    /// Reason why it cannot be changed; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_because: Option<String>,
    /// Its meaning, in a sentence.
    pub meaning: String,
}

/// Effect of a change of settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingsChanged {
    /// Version of the settings after the change: a log index.
    pub settings_version: u64,
    /// Changed settings, without those that already had their value.
    pub changes: Vec<SettingChanged>,
}

/// Returns the settings of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListSettings {}

/// Changes settings while the cluster runs: all of them or none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Configure {
    /// The new values, each setting once.
    pub changes: Vec<SettingValue>,
    /// Applies only if the settings have this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<u64>,
    /// Only reports the effect.
    #[serde(default)]
    pub dry_run: bool,
}

/// A setting with its new value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingValue {
    /// The setting.
    pub setting: OpenEnum<Setting>,
    /// The value.
    pub value: u64,
}

impl SettingSummary {
    /// A setting as it is among `settings`.
    pub fn of(setting: Setting, settings: &Settings) -> Self {
        Self {
            setting: setting.into(),
            current: setting.of(settings),
            default: setting.default_value(),
            lowest: *setting.range().start(),
            highest: *setting.range().end(),
            unit: setting.unit().into(),
            changeable: setting.fixed().is_none(),
            fixed_because: setting.fixed().map(str::to_owned),
            meaning: setting.meaning().to_owned(),
        }
    }
}

impl SettingsChanged {
    /// The effect of these steps, which led to `version`.
    pub fn new(version: Version, steps: Vec<SettingStep>) -> Self {
        Self { settings_version: version.get(), changes: steps.into_iter().map(Into::into).collect() }
    }
}

impl Configure {
    /// A change of these settings.
    pub fn new(changes: &[SettingChange], if_version: Option<Version>, dry_run: bool) -> Self {
        let value = |change: &SettingChange| SettingValue { setting: change.setting.into(), value: change.value };
        Self { changes: changes.iter().map(value).collect(), if_version: if_version.map(Version::get), dry_run }
    }

    /// The changes.
    ///
    /// # Errors
    /// `InvalidArgument`, if this version does not know a setting.
    pub fn changes(&self) -> Result<Vec<SettingChange>, ErrorDetail> {
        let change = |change: &SettingValue| {
            let setting = known(&change.setting, "Configure.changes.setting")?;
            Ok(SettingChange { setting, value: change.value })
        };
        self.changes.iter().map(change).collect()
    }
}

impl Document for ListSettings {}

impl Document for Configure {
    fn check(&self) -> Result<(), ErrorDetail> {
        if self.changes.is_empty() {
            return Err(invalid("Configure.changes", "give at least one setting"));
        }
        if self.changes.len() > Setting::ALL.len() {
            let problem = format!("{} of them; there are {} settings", self.changes.len(), Setting::ALL.len());
            return Err(invalid("Configure.changes", problem));
        }
        self.changes().map(drop)
    }

    fn subject(&self) -> String {
        "settings".to_owned()
    }

    fn wanted(&self) -> Option<String> {
        // More settings than there are need not be named.
        let changes = self.changes.iter().take(Setting::ALL.len());
        let texts = changes.map(|change| format!("{}={}", change.setting.as_str(), change.value));
        Some(texts.collect::<Vec<_>>().join(" "))
    }

    fn is_trial(&self) -> bool {
        self.dry_run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configure_refuses_no_settings_and_unknown_ones() {
        let change = |setting: &str| SettingValue { setting: OpenEnum::read(setting), value: 1 };
        let with = |changes| Configure { changes, if_version: None, dry_run: false };
        assert_eq!(with(vec![change("lease_ms")]).check(), Ok(()));
        assert!(with(vec![]).check().is_err());
        assert!(with(vec![change("lease_ms"); Setting::ALL.len() + 1]).check().is_err());
        let error = with(vec![change("leash_ms")]).check().unwrap_err().message;
        assert!(
            error.contains("\"leash_ms\" is not a valid setting; use partitions, replication, min_nodes"),
            "{error}"
        );
    }

    #[test]
    fn setting_summary_has_default_unit_and_whether_it_can_be_changed() {
        let lease = SettingSummary::of(Setting::LeaseMs, &Settings::default());
        assert_eq!((lease.current, lease.default, lease.unit.as_str()), (1_000, 1_000, "milliseconds"));
        assert!(lease.fixed_because.is_some_and(|why| why.contains("a new cluster")));
        assert!(SettingSummary::of(Setting::ReplaceAfterMs, &Settings::default()).changeable);
    }
}
