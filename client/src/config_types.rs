//! Documents about the settings of a cluster. Their JSON names are a contract, as in `admin_types`.

use archon_proto::v1;
use archon_types::text::into_plain;
use archon_types::{Setting, SettingUnit, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingsSummary {
    /// The version of the settings: a log index, another one after each change.
    pub settings_version: u64,
    /// Each of them.
    pub settings: Vec<SettingSummary>,
}

/// A setting of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingSummary {
    /// Which one.
    pub setting: Word<Setting>,
    /// What it is now.
    pub current: u64,
    /// What it is where nobody says anything else.
    pub default: u64,
    /// The least that it may be.
    pub lowest: u64,
    /// The most that it may be.
    pub highest: u64,
    /// What it is counted in.
    pub unit: Word<SettingUnit>,
    /// Whether it can be changed while the cluster runs.
    pub changeable: bool,
    /// Why it cannot, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_because: Option<String>,
    /// What it says, in a sentence.
    pub meaning: String,
}

/// What a change of settings did, or would do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingsChanged {
    /// The version of the settings as they are now.
    pub settings_version: u64,
    /// What changed, or would; what had its value already is not among them.
    pub changes: Vec<SettingChanged>,
}

/// A setting that was changed, or would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingChanged {
    /// Which one.
    pub setting: Word<Setting>,
    /// What it was.
    pub before: u64,
    /// What it is then.
    pub after: u64,
}

impl From<v1::ListSettingsResponse> for SettingsSummary {
    fn from(wire: v1::ListSettingsResponse) -> Self {
        Self { settings_version: wire.version, settings: wire.settings.into_iter().map(Into::into).collect() }
    }
}

impl From<v1::SettingValue> for SettingSummary {
    fn from(wire: v1::SettingValue) -> Self {
        Self {
            setting: Word::read(&wire.setting),
            current: wire.value,
            default: wire.default_value,
            lowest: wire.low,
            highest: wire.high,
            unit: Word::read(&wire.unit),
            changeable: wire.fixed.is_none(),
            fixed_because: wire.fixed.map(into_plain),
            meaning: into_plain(wire.meaning),
        }
    }
}

impl From<v1::ConfigureResponse> for SettingsChanged {
    fn from(wire: v1::ConfigureResponse) -> Self {
        let change = |step: v1::SettingStep| SettingChanged {
            setting: Word::read(&step.setting),
            before: step.from,
            after: step.to,
        };
        Self { settings_version: wire.version, changes: wire.changes.into_iter().map(change).collect() }
    }
}
