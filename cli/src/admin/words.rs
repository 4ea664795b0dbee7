//! How members are spoken of: nodes hold copies of data, participants own leases.

use crate::documents::Node;
use crate::output::count_text;

/// What is said of one kind of members.
pub(super) struct Words {
    one: &'static str,
    many: &'static str,
    /// `holds`, `owns`.
    pub(super) has: &'static str,
    /// What it takes again once it serves.
    pub(super) takes: &'static str,
    /// What becomes of what went elsewhere while it was drained.
    pub(super) drained: &'static str,
    /// And while it was in maintenance.
    pub(super) maintained: &'static str,
    /// What maintenance does.
    pub(super) in_maintenance: &'static str,
    /// What is to be known once it was removed.
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

/// The words for this member.
pub(super) fn words(member: &Node) -> &'static Words {
    if member.is_participant() { &PARTICIPANT } else { &NODE }
}

impl Words {
    /// `3 copies`, `1 lease`.
    pub(super) fn count(&self, count: u32) -> String {
        count_text(count as usize, self.one, self.many)
    }
}
