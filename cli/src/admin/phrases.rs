//! Phrases about members: nodes hold replicas of data, participants own leases.

use crate::documents::Node;
use crate::output::count_text;

/// Phrases about one kind of members.
pub(super) struct Phrases {
    one: &'static str,
    many: &'static str,
    /// `holds`, `owns`.
    pub(super) has: &'static str,
    /// Things that it accepts again once it serves.
    pub(super) takes: &'static str,
    /// Fate of moved replicas or leases after a drain.
    pub(super) drained: &'static str,
    /// The same after maintenance.
    pub(super) maintained: &'static str,
    /// Effect of maintenance.
    pub(super) in_maintenance: &'static str,
    /// Note after its removal.
    pub(super) removed: &'static str,
}

const NODE: Phrases = Phrases {
    one: "replica",
    many: "replicas",
    has: "holds",
    takes: "replicas",
    drained: "moved replicas return with a plan: archon rebalance plan",
    maintained: "moved leaderships return with a plan: archon rebalance plan",
    in_maintenance: "it leads nothing and keeps its replicas",
    removed: "its data directory cannot join again: to reuse the machine, start a node with an empty --data-dir",
};

const PARTICIPANT: Phrases = Phrases {
    one: "lease",
    many: "leases",
    has: "owns",
    takes: "leases",
    drained: "its share returns automatically: lease tables are balanced continuously",
    maintained: "its share returns automatically: lease tables are balanced continuously",
    in_maintenance: "it hands over its leases and receives no new ones",
    removed: "a process started with its name joins as a new participant",
};

/// Returns the phrases for this member.
pub(super) fn words(member: &Node) -> &'static Phrases {
    if member.is_participant() { &PARTICIPANT } else { &NODE }
}

impl Phrases {
    /// Formats a count: `3 copies`, `1 lease`.
    pub(super) fn count(&self, count: u32) -> String {
        count_text(count as usize, self.one, self.many)
    }
}
