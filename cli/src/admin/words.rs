//! Phrases about members: nodes hold replicas of data, participants own leases.

use crate::documents::Node;
use crate::output::count_text;

/// Phrases about one kind of members.
pub(super) struct Words {
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

const NODE: Words = Words {
    one: "copy",
    many: "copies",
    has: "holds",
    takes: "copies",
    drained: "what has gone elsewhere comes back by a plan: archon rebalance plan",
    maintained: "leaderships that have gone elsewhere come back by a plan: archon rebalance plan",
    in_maintenance: "it leads nothing, and its copies stay",
    removed: "its data directory cannot join again: to use the machine, start a node with an empty --data-dir",
};

const PARTICIPANT: Words = Words {
    one: "lease",
    many: "leases",
    has: "owns",
    takes: "leases",
    drained: "its share comes back by itself: lease tables even themselves out",
    maintained: "its share comes back by itself: lease tables even themselves out",
    in_maintenance: "it hands over what it owns, and gets nothing",
    removed: "a process that is started under its name joins as a new participant",
};

/// Returns the phrases for this member.
pub(super) fn words(member: &Node) -> &'static Words {
    if member.is_participant() { &PARTICIPANT } else { &NODE }
}

impl Words {
    /// Formats a count: `3 copies`, `1 lease`.
    pub(super) fn count(&self, count: u32) -> String {
        count_text(count as usize, self.one, self.many)
    }
}
