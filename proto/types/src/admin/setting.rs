//! Definitions of all numeric cluster settings: name, range, unit, and whether they can be changed at runtime. Flags,
//! configuration keys, `archon config` and the checks of the coordinators derive from this.

use crate::admin::open_enum::{OpenEnum, words};
use crate::admin::settings::{Settings, SettingsError};
use crate::common::limits::REPLICAS_MAX;
use crate::members::protocol::PROTOCOL_FIRST;
use crate::tables::slot::HASH_PARTITIONS_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// An hour, in milliseconds.
const HOUR_MS: u64 = 3_600_000;
/// A minute, in milliseconds.
const MINUTE_MS: u64 = 60_000;
/// Ten minutes, in milliseconds.
const TEN_MINUTES_MS: u64 = 600_000;
/// A week, in milliseconds: an operator who wants copies replaced later than that replaces them manually.
const WEEK_MS: u64 = 604_800_000;

words! {
    /// A numeric cluster setting. Its word is the key in a file and in `archon config`, and the flag with `-` for `_`.
    #[derive(Serialize, Deserialize)]
    pub enum Setting: "setting" {
        /// Number of partitions of the table `default`, when the cluster is created.
        Partitions = "partitions",
        /// Number of replicas of each partition of the table `default`, when the cluster is created.
        Replication = "replication",
        /// Number of live nodes required before partitions are assigned for the first time.
        MinNodes = "min_nodes",
        /// Interval of a node's heartbeats.
        HeartbeatMs = "heartbeat_ms",
        /// Lease granted by an answered heartbeat; longer than three heartbeat intervals.
        LeaseMs = "lease_ms",
        /// Silence after which a node is failed; longer than 1.01 leases and the margin.
        FailureTimeoutMs = "failure_timeout_ms",
        /// Safety margin between the end of a lease and the failure time-out.
        MarginMs = "margin_ms",
        /// Maximum number of replicas being copied to or from one node at once.
        CopiesPerNodeMax = "copies_per_node_max",
        /// Time after which the replicas of a failed node are rebuilt on other nodes; at least the failure time-out.
        ReplaceAfterMs = "replace_after_ms",
        /// Silence after which a leader removes a follower from the in-sync set; at least two heartbeat intervals.
        ReplicationTimeoutMs = "replication_timeout_ms",
        /// Number of live nodes from which some relay the heartbeats of the others; 0 disables relays.
        RelaysFrom = "relays_from",
        /// Interval of probes that test whether clients can reach a node; 0 disables probes.
        DoorEveryMs = "door_every_ms",
        /// Time for which both probers of a node must fail before other nodes take over its leaderships; at least two
        /// probe intervals.
        DoorSilentMs = "door_silent_ms",
        /// Time for which a node must be reachable again before it may lead.
        DoorTrustMs = "door_trust_ms",
    }
}

words! {
    /// Unit of a setting.
    pub enum SettingUnit: "unit of a setting" {
        /// Milliseconds.
        Milliseconds = "milliseconds",
        /// A plain number.
        Count = "count",
    }
}

/// A setting and its new value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettingChange {
    /// The setting.
    pub setting: Setting,
    /// New value.
    pub value: u64,
}

/// A change of a setting, applied or proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettingStep {
    /// The setting.
    pub setting: Setting,
    /// Old value.
    pub from: u64,
    /// New value.
    pub to: u64,
}

/// Change of a setting, applied or proposed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingChanged {
    /// The setting.
    pub setting: OpenEnum<Setting>,
    /// Old value.
    pub before: u64,
    /// New value.
    pub after: u64,
}

impl From<SettingStep> for SettingChanged {
    fn from(step: SettingStep) -> Self {
        Self { setting: step.setting.into(), before: step.from, after: step.to }
    }
}

impl Setting {
    /// Returns the value.
    pub fn of(self, settings: &Settings) -> u64 {
        match self {
            Self::Partitions => settings.partitions.into(),
            Self::Replication => settings.replication.into(),
            Self::MinNodes => settings.nodes_min.into(),
            Self::HeartbeatMs => settings.timing.heartbeat_ms,
            Self::LeaseMs => settings.timing.lease_ms,
            Self::FailureTimeoutMs => settings.timing.failure_timeout_ms,
            Self::MarginMs => settings.timing.margin_ms,
            Self::CopiesPerNodeMax => settings.copies_per_node_max.into(),
            Self::ReplaceAfterMs => settings.replace_after_ms,
            Self::ReplicationTimeoutMs => settings.replication_timeout_ms,
            Self::RelaysFrom => settings.relays_from,
            Self::DoorEveryMs => settings.door_every_ms,
            Self::DoorSilentMs => settings.door_silent_ms,
            Self::DoorTrustMs => settings.door_trust_ms,
        }
    }

    /// Sets the value, saturating at the limit of its type. [`Settings::check`] validates it.
    pub fn put(self, settings: &mut Settings, value: u64) {
        let narrow = u32::try_from(value).unwrap_or(u32::MAX);
        match self {
            Self::Partitions => settings.partitions = narrow,
            Self::Replication => settings.replication = u8::try_from(value).unwrap_or(u8::MAX),
            Self::MinNodes => settings.nodes_min = narrow,
            Self::HeartbeatMs => settings.timing.heartbeat_ms = value,
            Self::LeaseMs => settings.timing.lease_ms = value,
            Self::FailureTimeoutMs => settings.timing.failure_timeout_ms = value,
            Self::MarginMs => settings.timing.margin_ms = value,
            Self::CopiesPerNodeMax => settings.copies_per_node_max = narrow,
            Self::ReplaceAfterMs => settings.replace_after_ms = value,
            Self::ReplicationTimeoutMs => settings.replication_timeout_ms = value,
            Self::RelaysFrom => settings.relays_from = value,
            Self::DoorEveryMs => settings.door_every_ms = value,
            Self::DoorSilentMs => settings.door_silent_ms = value,
            Self::DoorTrustMs => settings.door_trust_ms = value,
        }
    }

    /// Returns the valid values by themselves; some settings must also fit others ([`Settings::check`]).
    pub const fn range(self) -> RangeInclusive<u64> {
        match self {
            Self::Partitions => 1..=HASH_PARTITIONS_MAX as u64,
            Self::Replication => 1..=REPLICAS_MAX as u64,
            Self::MinNodes => 1..=10_000,
            Self::HeartbeatMs | Self::LeaseMs | Self::FailureTimeoutMs => 1..=HOUR_MS,
            Self::MarginMs => 0..=HOUR_MS,
            Self::CopiesPerNodeMax => 1..=1_000,
            Self::ReplaceAfterMs => 1..=WEEK_MS,
            Self::ReplicationTimeoutMs => 10..=TEN_MINUTES_MS,
            Self::RelaysFrom => 0..=1_000_000,
            Self::DoorEveryMs => 0..=MINUTE_MS,
            Self::DoorSilentMs => 1..=TEN_MINUTES_MS,
            Self::DoorTrustMs => 0..=HOUR_MS,
        }
    }

    /// Returns the unit.
    pub const fn unit(self) -> SettingUnit {
        match self {
            Self::Partitions | Self::Replication | Self::MinNodes | Self::CopiesPerNodeMax | Self::RelaysFrom => {
                SettingUnit::Count
            }
            Self::HeartbeatMs
            | Self::LeaseMs
            | Self::FailureTimeoutMs
            | Self::MarginMs
            | Self::ReplaceAfterMs
            | Self::ReplicationTimeoutMs
            | Self::DoorEveryMs
            | Self::DoorSilentMs
            | Self::DoorTrustMs => SettingUnit::Milliseconds,
        }
    }

    /// Returns the reason why it cannot be changed at runtime, and the alternative; `None` if it can.
    ///
    /// A lease is as long as it was when the cluster was created. So a coordinator that uses any valid failure time-out
    /// (`1.01 × lease + margin < failure time-out`), an earlier or a later one, outwaits every lease that any
    /// coordinator ever granted, and only the failure time-out can be changed at any moment (PROTOCOL rule 16).
    pub const fn fixed(self) -> Option<&'static str> {
        match self {
            Self::Partitions => Some(
                "it applies only when the cluster is created; the number of partitions of a hash table never \
                      changes",
            ),
            Self::Replication => Some(
                "it applies only when the cluster is created; change the replication of a table: archon table \
                      alter",
            ),
            Self::HeartbeatMs | Self::LeaseMs | Self::MarginMs => Some(
                "takeovers rely on the length of leases granted so far: another length needs a new cluster; \
                 only failure_timeout_ms can be changed",
            ),
            Self::MinNodes
            | Self::FailureTimeoutMs
            | Self::CopiesPerNodeMax
            | Self::ReplaceAfterMs
            | Self::ReplicationTimeoutMs
            | Self::RelaysFrom
            | Self::DoorEveryMs
            | Self::DoorSilentMs
            | Self::DoorTrustMs => None,
        }
    }

    /// Returns the protocol that introduced it.
    pub const fn since(self) -> u32 {
        match self {
            Self::RelaysFrom | Self::DoorEveryMs | Self::DoorSilentMs | Self::DoorTrustMs => 2,
            Self::Partitions
            | Self::Replication
            | Self::MinNodes
            | Self::HeartbeatMs
            | Self::LeaseMs
            | Self::FailureTimeoutMs
            | Self::MarginMs
            | Self::CopiesPerNodeMax
            | Self::ReplaceAfterMs
            | Self::ReplicationTimeoutMs => PROTOCOL_FIRST,
        }
    }

    /// Returns the value that applies unless set otherwise. [`Settings::default`] is the smallest cluster that works;
    /// the default for an operator is three copies, and waiting for as many nodes.
    pub fn default_value(self) -> u64 {
        match self {
            Self::Replication | Self::MinNodes => 3,
            other => other.of(&Settings::default()),
        }
    }

    /// Parses a number within the range.
    ///
    /// # Errors
    /// The range and the value found.
    pub fn parse(self, text: &str) -> Result<u64, String> {
        let range = self.range();
        let unit = if self.unit() == SettingUnit::Milliseconds { " milliseconds" } else { "" };
        let wanted = || format!("write a number from {} to {}{unit}", range.start(), range.end());
        let value: u64 = text.parse().map_err(|_| format!("{text:?} is not a number; {}", wanted()))?;
        if range.contains(&value) { Ok(value) } else { Err(format!("{value} is out of range; {}", wanted())) }
    }

    /// Accepts a value only within the range.
    pub(crate) fn within(self, value: u64) -> Result<(), SettingsError> {
        let range = self.range();
        if range.contains(&value) {
            return Ok(());
        }
        Err(SettingsError::Range { setting: self, found: value, low: *range.start(), high: *range.end() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::open_enum::Vocabulary;

    #[test]
    fn every_setting_can_be_read_and_set() {
        let mut settings = Settings::default();
        for setting in Setting::ALL {
            let value = *setting.range().start() + 1;
            setting.put(&mut settings, value);
            assert_eq!(setting.of(&settings), value, "{setting}");
        }
        for setting in Setting::ALL {
            assert_eq!(
                setting.of(&settings),
                *setting.range().start() + 1,
                "{setting} shares its place with another one"
            );
        }
    }

    #[test]
    fn defaults_are_in_range_and_meanings_are_sentences() {
        for setting in Setting::ALL {
            assert!(setting.range().contains(&setting.default_value()), "{setting}");
            assert!(setting.meaning().ends_with('.'), "{setting}");
            assert_eq!(setting.word().ends_with("_ms"), setting.unit() == SettingUnit::Milliseconds, "{setting}");
        }
    }

    #[test]
    fn wrong_value_is_reported_with_the_range() {
        assert_eq!(Setting::ReplaceAfterMs.parse("60000"), Ok(60_000));
        let high = Setting::CopiesPerNodeMax.parse("1001").unwrap_err();
        assert_eq!(high, "1001 is out of range; write a number from 1 to 1000");
        for text in ["", "-1", "5s", "1e3", "99999999999999999999"] {
            let found = Setting::ReplicationTimeoutMs.parse(text).unwrap_err();
            assert!(found.ends_with("is not a number; write a number from 10 to 600000 milliseconds"), "{found}");
        }
    }

    #[test]
    fn value_beyond_its_type_is_rejected_not_truncated() {
        let mut settings = Settings::default();
        Setting::Replication.put(&mut settings, 257);
        assert!(settings.check().is_err());
    }
}
