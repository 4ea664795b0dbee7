//! Findings: conditions that need attention, or that something waits for. Each has a code, a severity, a subject and facts.
//! The crate of the documents turns them into sentences and remedies.

use crate::admin::open_enum::{OpenEnum, words};
use crate::admin::reason::{Facts, ReasonCode};
use crate::admin::subject::Subject;
use crate::{MemberKind, Millis};
use serde::Serialize;

words! {
    /// Severity of a finding, for people who monitor a cluster.
    pub enum Severity: "severity" {
        /// Resolves by itself, or is intended.
        Notice = "notice",
        /// Needs attention soon: redundancy is reduced, or something may have been forgotten.
        Warning = "warning",
        /// Needs attention now: something is unavailable, or data is lost or at risk.
        Alarm = "alarm",
    }
}

/// An order of an operator that is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StandingOrder {
    /// A member is excluded from the table or partition.
    Exclusion,
    /// The partition is offline.
    Offline,
    /// The partition is going offline: its leader releases it.
    GoingOffline,
    /// The member gets no new replicas or leases.
    Cordon,
    /// The member gives up its replicas and leases.
    Drain,
    /// The member is in maintenance.
    Maintenance,
}

/// State of the nodes, as far as replicas depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Supply {
    /// Failed nodes.
    pub nodes_failed: u32,
    /// Nodes that the table with the most replicas lacks.
    pub nodes_missing: u64,
    /// True if a replica lacks a node that could take it.
    pub no_node: bool,
    /// True if a replica lacks a node below its limit.
    pub at_limit: bool,
    /// True if replicas of failed nodes are not replaced, since too many nodes are failed.
    pub withheld: bool,
    /// Time after which the replicas of a failed node are replaced, in milliseconds.
    pub replaced_after_for_ms: u64,
}

/// Replicas of deleted partitions on one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CondemnedCopies {
    /// The node.
    pub node: String,
    /// Number of these replicas.
    pub copies_condemned: u64,
    /// True if the node is alive.
    pub alive: bool,
}

/// Members with certificates of one authority.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AuthorityUse {
    /// Fingerprint of the authority.
    pub authority: String,
    /// The members, the first few of many.
    pub members: Vec<String>,
    /// Number of further members.
    pub members_more: u64,
}

/// A member that does not support a protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OutdatedMember {
    /// Its kind.
    pub kind: OpenEnum<MemberKind>,
    /// Its name; the number of a coordinator.
    pub name: String,
    /// The protocols that it supports, if known.
    pub supports: Option<String>,
    /// True if it is alive.
    pub answers: bool,
}

/// A condition that needs attention, or that something waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The object.
    pub subject: Subject,
    /// Code and facts.
    pub facts: Facts,
    /// Severity.
    pub severity: Severity,
    /// Begin, on the wall clock; zero if unknown.
    pub since: Millis,
    /// True if something waits for it; otherwise everything may be served.
    pub waits: bool,
    /// Partitions of a table with the same finding, if one stands for several: their number, and the first of them.
    pub alike: Option<(u32, u32)>,
}

impl Finding {
    /// Creates a finding that something waits for, with the severity of its code and without a known begin.
    pub fn new(subject: Subject, facts: Facts) -> Self {
        let severity = facts.code().severity();
        Self { subject, facts, severity, since: Millis::ZERO, waits: true, alike: None }
    }

    /// Sets the begin, on the wall clock.
    #[must_use]
    pub fn since(self, since: Millis) -> Self {
        Self { since, ..self }
    }

    /// Makes it an alert: nothing waits for it.
    #[must_use]
    pub fn alert(self) -> Self {
        Self { waits: false, ..self }
    }

    /// Returns the code.
    pub const fn code(&self) -> ReasonCode {
        self.facts.code()
    }
}

/// Remedy for a member that is refused because it has lived in another history of the cluster.
pub const OTHER_HISTORY_REMEDY: &str = "decide which coordinators to keep, and stop the others: docs/operate/runbooks/majority-lost.md, \"A number was used twice\"";
