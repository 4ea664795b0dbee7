//! Cluster-wide settings.

use crate::convert::{ConvertError, in_range, required};
use crate::v1;
use archon_types::limits::REPLICAS_MAX;
use archon_types::{HASH_PARTITIONS_MAX, LeaseTiming, Setting, Settings};

impl From<LeaseTiming> for v1::LeaseTiming {
    fn from(timing: LeaseTiming) -> Self {
        Self {
            heartbeat_ms: timing.heartbeat_ms,
            lease_ms: timing.lease_ms,
            failure_timeout_ms: timing.failure_timeout_ms,
            margin_ms: timing.margin_ms,
        }
    }
}

/// Returns the timing on the wire, unchecked.
pub(in crate::convert) const fn timing_of(wire: v1::LeaseTiming) -> LeaseTiming {
    let v1::LeaseTiming { heartbeat_ms, lease_ms, failure_timeout_ms, margin_ms } = wire;
    LeaseTiming { heartbeat_ms, lease_ms, failure_timeout_ms, margin_ms }
}

impl TryFrom<v1::LeaseTiming> for LeaseTiming {
    type Error = ConvertError;

    fn try_from(wire: v1::LeaseTiming) -> Result<Self, ConvertError> {
        timing_of(wire).check().map_err(|error| ConvertError::new("LeaseTiming", error.to_string()))
    }
}

impl From<Settings> for v1::Settings {
    fn from(settings: Settings) -> Self {
        Self {
            timing: Some(settings.timing.into()),
            nodes_min: settings.nodes_min,
            partitions: settings.partitions,
            replication: u32::from(settings.replication),
            replication_timeout_ms: settings.replication_timeout_ms,
            replace_after_ms: settings.replace_after_ms,
            copies_per_node_max: settings.copies_per_node_max,
            relays_from: Some(settings.relays_from),
            door_every_ms: Some(settings.door_every_ms),
            door_silent_ms: Some(settings.door_silent_ms),
            door_trust_ms: Some(settings.door_trust_ms),
        }
    }
}

impl TryFrom<v1::Settings> for Settings {
    type Error = ConvertError;

    fn try_from(wire: v1::Settings) -> Result<Self, ConvertError> {
        Ok(Self {
            timing: required(wire.timing, "Settings.timing")?.try_into()?,
            nodes_min: in_range(wire.nodes_min, 1, u32::MAX, "Settings.nodes_min")?,
            partitions: in_range(wire.partitions, 1, HASH_PARTITIONS_MAX, "Settings.partitions")?,
            replication: in_range(wire.replication, 1, u32::from(REPLICAS_MAX), "Settings.replication")?,
            replication_timeout_ms: wire.replication_timeout_ms,
            replace_after_ms: wire.replace_after_ms,
            copies_per_node_max: wire.copies_per_node_max,
            relays_from: wire.relays_from.unwrap_or_else(|| Setting::RelaysFrom.default_value()),
            door_every_ms: wire.door_every_ms.unwrap_or_else(|| Setting::DoorEveryMs.default_value()),
            door_silent_ms: wire.door_silent_ms.unwrap_or_else(|| Setting::DoorSilentMs.default_value()),
            door_trust_ms: wire.door_trust_ms.unwrap_or_else(|| Setting::DoorTrustMs.default_value()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_round_trip() {
        assert_eq!(Settings::try_from(v1::Settings::from(Settings::default())), Ok(Settings::default()));
    }

    #[test]
    fn impossible_settings_name_the_field() {
        let good = v1::Settings::from(Settings::default());
        let timing = v1::LeaseTiming { lease_ms: 1, ..good.timing.unwrap() };
        let cases = [
            (v1::Settings { timing: None, ..good }, "Settings.timing"),
            (v1::Settings { timing: Some(timing), ..good }, "LeaseTiming"),
            (v1::Settings { nodes_min: 0, ..good }, "Settings.nodes_min"),
            (v1::Settings { partitions: 16_385, ..good }, "Settings.partitions"),
            (v1::Settings { replication: 0, ..good }, "Settings.replication"),
        ];
        for (wire, field) in cases {
            assert_eq!(Settings::try_from(wire).unwrap_err().field, field);
        }
    }
}
