//! Cluster-wide settings, stored in the Raft log, so that all coordinators and nodes have the same.

use crate::admin::setting::Setting;
use crate::lease::{LeaseTiming, LeaseTimingError};
use serde::{Deserialize, Serialize};

/// Minimum interval between probes of one node, in milliseconds.
const DOOR_EVERY_MS_MIN: u64 = 100;

/// Choices of the operator for the whole cluster, at bootstrap or since. [`Setting`] defines which of them can be
/// changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Heartbeat, lease and failure time-outs.
    pub timing: LeaseTiming,
    /// Live nodes that must be registered before the first assignment, at least 1.
    pub nodes_min: u32,
    /// Partitions of the `default` table, `1..=16384`.
    pub partitions: u32,
    /// Copies of each partition of the `default` table, at least 1.
    pub replication: u8,
    /// Time for which a follower may leave an append unanswered before its leader asks to remove it, in milliseconds.
    pub replication_timeout_ms: u64,
    /// Time for which a node stays failed before its replicas are loaded elsewhere, in milliseconds.
    pub replace_after_ms: u64,
    /// Most copies in progress to or from one node at once.
    pub copies_per_node_max: u32,
    /// Number of live nodes from which on some of them relay the heartbeats of the others; 0: never.
    #[serde(default = "relays_from", skip_serializing_if = "is_ordinary")]
    pub relays_from: u64,
    /// Interval between probes of each node, in milliseconds; 0: never.
    #[serde(default = "door_every_ms", skip_serializing_if = "is_usual_pause")]
    pub door_every_ms: u64,
    /// Time for which a node is unreachable to its probers before it gets no leaderships, in milliseconds.
    #[serde(default = "door_silent_ms", skip_serializing_if = "is_usual_silence")]
    pub door_silent_ms: u64,
    /// Time for which a node is reachable again before it may lead again, in milliseconds.
    #[serde(default = "door_trust_ms", skip_serializing_if = "is_usual_trust")]
    pub door_trust_ms: u64,
}

/// Below this number the coordinators easily handle each member's heartbeats themselves.
const fn relays_from() -> u64 {
    500
}

/// A setting unknown to the first protocol is written only if it was changed.
fn is_ordinary(from: &u64) -> bool {
    *from == relays_from()
}

const fn door_every_ms() -> u64 {
    1_000
}

const fn door_silent_ms() -> u64 {
    3_000
}

const fn door_trust_ms() -> u64 {
    10_000
}

fn is_usual_pause(every_ms: &u64) -> bool {
    *every_ms == door_every_ms()
}

fn is_usual_silence(silent_ms: &u64) -> bool {
    *silent_ms == door_silent_ms()
}

fn is_usual_trust(trust_ms: &u64) -> bool {
    *trust_ms == door_trust_ms()
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timing: LeaseTiming::default(),
            nodes_min: 1,
            partitions: 64,
            replication: 1,
            replication_timeout_ms: 1_000,
            replace_after_ms: 300_000,
            copies_per_node_max: 2,
            relays_from: relays_from(),
            door_every_ms: door_every_ms(),
            door_silent_ms: door_silent_ms(),
            door_trust_ms: door_trust_ms(),
        }
    }
}

impl Settings {
    /// Accepts the settings only if each is in its range and those that depend on each other fit.
    ///
    /// # Errors
    /// [`SettingsError`], with the arithmetic.
    pub fn check(&self) -> Result<(), SettingsError> {
        for setting in Setting::ALL {
            setting.within(setting.of(self))?;
        }
        self.timing.check()?;
        let (replace_after_ms, failure_timeout_ms) = (self.replace_after_ms, self.timing.failure_timeout_ms);
        if replace_after_ms < failure_timeout_ms {
            return Err(SettingsError::ReplaceAfterTooShort { replace_after_ms, failure_timeout_ms });
        }
        let (replication_timeout_ms, heartbeat_ms) = (self.replication_timeout_ms, self.timing.heartbeat_ms);
        let needed_ms = heartbeat_ms.saturating_mul(2);
        if replication_timeout_ms < needed_ms {
            return Err(SettingsError::ReplicationTimeoutTooShort { replication_timeout_ms, heartbeat_ms, needed_ms });
        }
        let (door_every_ms, door_silent_ms) = (self.door_every_ms, self.door_silent_ms);
        if door_every_ms > 0 && door_every_ms < DOOR_EVERY_MS_MIN {
            return Err(SettingsError::DoorsTooOften { door_every_ms });
        }
        let needed_ms = door_every_ms.saturating_mul(2);
        if door_silent_ms < needed_ms {
            return Err(SettingsError::DoorSilenceTooShort { door_silent_ms, door_every_ms, needed_ms });
        }
        Ok(())
    }
}

/// Reason why settings are rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages document the fields.
pub enum SettingsError {
    /// A number is out of its range.
    #[error("{} is {found}, it must be between {low} and {high}", .setting.as_str())]
    Range { setting: Setting, found: u64, low: u64, high: u64 },
    /// The lease arithmetic does not hold.
    #[error("the timing is unsafe: {0}")]
    Timing(#[from] LeaseTimingError),
    /// Copies would be replaced because of every restart.
    #[error(
        "replace_after_ms is too short: {replace_after_ms} ms < {failure_timeout_ms} ms (failure_timeout_ms): replicas \
         would be rebuilt before a restarted node can return"
    )]
    ReplaceAfterTooShort { replace_after_ms: u64, failure_timeout_ms: u64 },
    /// A pause that costs a node nothing else would cost it its copies.
    #[error(
        "replication_timeout_ms is too short: {replication_timeout_ms} ms < 2 × {heartbeat_ms} ms (heartbeat_ms) = \
         {needed_ms} \
         ms: followers would be dropped for pauses that cost a node nothing else"
    )]
    ReplicationTimeoutTooShort { replication_timeout_ms: u64, heartbeat_ms: u64, needed_ms: u64 },
    /// A prober would do nothing else.
    #[error("door_every_ms is {door_every_ms}, it must be 0 for never, or at least {DOOR_EVERY_MS_MIN}")]
    DoorsTooOften { door_every_ms: u64 },
    /// One lost packet would cost a node its leaderships.
    #[error(
        "door_silent_ms is too short: {door_silent_ms} ms < 2 × {door_every_ms} ms (door_every_ms) = {needed_ms} ms: a \
         node would lose \
         its leaderships for one knock that came to nothing"
    )]
    DoorSilenceTooShort { door_silent_ms: u64, door_every_ms: u64, needed_ms: u64 },
}

impl SettingsError {
    /// Returns the settings that do not fit, or the one that is out of its range.
    pub fn settings(&self) -> Vec<Setting> {
        match self {
            Self::Range { setting, .. } => vec![*setting],
            Self::Timing(_) => {
                vec![Setting::HeartbeatMs, Setting::LeaseMs, Setting::FailureTimeoutMs, Setting::MarginMs]
            }
            Self::ReplaceAfterTooShort { .. } => vec![Setting::ReplaceAfterMs, Setting::FailureTimeoutMs],
            Self::ReplicationTimeoutTooShort { .. } => vec![Setting::ReplicationTimeoutMs, Setting::HeartbeatMs],
            Self::DoorsTooOften { .. } => vec![Setting::DoorEveryMs],
            Self::DoorSilenceTooShort { .. } => vec![Setting::DoorSilentMs, Setting::DoorEveryMs],
        }
    }
}

/// Returns the minimum number of Live replicas for a partition of `replication` copies to serve: ⌈R/2⌉ (2 of 3, 1 of 2,
/// 1 of 1).
pub const fn min_in_sync_default(replication: u8) -> u8 {
    replication.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_do_not_fit_each_other_are_named() {
        assert_eq!(Settings::default().check(), Ok(()));
        let named = |settings: Settings| settings.check().unwrap_err().settings();
        let soon = Settings { replace_after_ms: 1_000, ..Settings::default() };
        assert_eq!(named(soon), [Setting::ReplaceAfterMs, Setting::FailureTimeoutMs]);
        let short = Settings { replication_timeout_ms: 399, ..Settings::default() };
        assert_eq!(named(short), [Setting::ReplicationTimeoutMs, Setting::HeartbeatMs]);
        let doubted = Settings { door_silent_ms: 1_999, ..Settings::default() };
        assert_eq!(named(doubted.clone()), [Setting::DoorSilentMs, Setting::DoorEveryMs]);
        assert_eq!(Settings { door_every_ms: 0, ..doubted }.check(), Ok(()), "nobody knocks");
        assert_eq!(named(Settings { door_every_ms: 99, ..Settings::default() }), [Setting::DoorEveryMs]);
        let timing = LeaseTiming { failure_timeout_ms: 1_110, ..LeaseTiming::default() };
        assert_eq!(named(Settings { timing, ..Settings::default() }).len(), 4);
        let none = Settings { nodes_min: 0, ..Settings::default() };
        assert_eq!(none.check().unwrap_err().to_string(), "min_nodes is 0, it must be between 1 and 10000");
    }

    #[test]
    fn min_in_sync_is_half_of_the_copies_rounded_up() {
        let found: Vec<u8> = (1..=5).map(min_in_sync_default).collect();
        assert_eq!(found, [1, 1, 2, 2, 3]);
    }
}
