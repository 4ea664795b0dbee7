//! Documents about orders and checks. Their JSON names are a contract, as in `admin_types`.

use crate::admin_types::Reason;
use archon_proto::convert::order::HELD_FOR_MS;
use archon_proto::convert::subject::{cause_of, subject_of};
use archon_proto::v1;
use archon_types::subject::{Cause, Subject};
use archon_types::text::into_plain;
use archon_types::{Severity, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Thresholds of findings of [`Admin::check`](crate::Admin::check).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckThresholds {
    /// Age of a lease without extension; `None` for twice the failure time-out of its holder.
    pub stale_after: Option<Duration>,
    /// Minimum number of members that take partitions.
    pub members_min: Option<u32>,
    /// The table with these participants; `None` for nodes.
    pub members_of: Option<String>,
    /// Age after which an order is a warning instead of a notice: an exclusion, an offline partition, a cordon, a
    /// drain, maintenance.
    pub held_for: Duration,
}

impl Default for CheckThresholds {
    /// Leases by each member's timing, orders after a day, any number of members.
    fn default() -> Self {
        Self { stale_after: None, members_min: None, members_of: None, held_for: Duration::from_millis(HELD_FOR_MS) }
    }
}

/// What should be looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// How much the worst of it matters; `notice` if there is nothing to be looked at.
    pub severity: Word<Severity>,
    /// What it is, the worst first.
    pub alerts: Vec<Alert>,
    /// There are more than are listed.
    pub more: bool,
}

/// One thing to be looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Alert {
    /// How much it matters.
    pub severity: Word<Severity>,
    /// What it is.
    #[serde(flatten)]
    pub reason: Reason,
}

/// A bar that stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BarSummary {
    /// The barred member's number.
    pub node_id: u64,
    /// The barred member's name.
    pub node: String,
    /// From what it is barred: a partition, or a table.
    pub subject: Subject,
    /// Why, in the operator's words; may be empty.
    pub why: String,
    /// Who said so.
    pub by: Cause,
    /// When. Unix time.
    pub at_ms: u64,
}

impl Check {
    /// Builds a check from these alerts, with the highest severity.
    pub fn of(alerts: Vec<Alert>, more: bool) -> Self {
        let worst = alerts.iter().map(|alert| alert.severity.known().unwrap_or(Severity::Alarm)).max();
        Self { severity: worst.unwrap_or(Severity::Notice).into(), alerts, more }
    }
}

impl From<v1::CheckResponse> for Check {
    fn from(wire: v1::CheckResponse) -> Self {
        let alert = |wire: v1::Alert| Alert {
            severity: Word::read(&wire.severity),
            reason: wire.reason.unwrap_or_default().into(),
        };
        Self::of(wire.alerts.into_iter().map(alert).collect(), wire.more)
    }
}

impl From<v1::Bar> for BarSummary {
    fn from(wire: v1::Bar) -> Self {
        let member = wire.member.unwrap_or_default();
        Self {
            node_id: member.id,
            node: member.name,
            subject: subject_of(wire.subject),
            why: into_plain(wire.why),
            by: cause_of(wire.by),
            at_ms: wire.at_ms,
        }
    }
}
