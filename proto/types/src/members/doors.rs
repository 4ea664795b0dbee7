//! Reachability of nodes for clients: assignment of probers, their reports and the evaluation (PROTOCOL rules 73 to
//! 76). Each member computes the assignment from the same rows, as for relays, without an agreement.

use crate::admin::open_enum::words;
use crate::admin::settings::Settings;
use crate::ids::{ClusterId, Incarnation, NodeId};
use crate::members::relays::{RelayCandidate, relays, relays_of, root};

/// Protocol from which on nodes answer a ping.
pub const DOORS_SINCE: u32 = 2;

/// Maximum number of unreachable nodes in one prober's report. A prober that finds more is not believed anyway.
pub const SHUT_DOORS_MAX: usize = 64;

/// Minimum number of probers, if there are as many nodes: with three, each node has two other than itself.
const KEEPERS_MIN: usize = 3;

words! {
    /// Reason why a probe failed.
    pub enum DoorFailure: "failure of a door" {
        /// Nothing was answered in time.
        Silent = "silent",
        /// The connection, or the ping, was refused.
        Refused = "refused",
    }
}

words! {
    /// Reachability of a node, as the leading coordinator sees it.
    pub enum DoorState: "state of a door" {
        /// No prober reports a failure.
        Open = "open",
        /// One prober cannot reach the node.
        Doubted = "doubted",
        /// Both probers cannot reach the node: it leads only partitions that no other replica can lead.
        Unreached = "unreached",
        /// Reachable again; the node may lead once it has stayed reachable for `door_trust_ms`.
        Returning = "returning",
    }
}

/// Report of a prober about the nodes it probes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DoorReport {
    /// Number of nodes that it probes.
    pub members: u32,
    /// Number of them that answered the last probe.
    pub reached: u32,
    /// Unreachable nodes, the longest unreachable first, at most [`SHUT_DOORS_MAX`]. The prober may not have probed all
    /// of the others yet.
    pub shut: Vec<ShutDoor>,
}

/// A node that a prober cannot reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShutDoor {
    /// Number of the node.
    pub node: NodeId,
    /// Incarnation of the node, from the prober's row.
    pub incarnation: Incarnation,
    /// Result of the last probe.
    pub how: DoorFailure,
    /// Time since a probe was last answered, in milliseconds.
    pub since_ms: u64,
}

impl DoorReport {
    /// Returns true if the report covers each probed node, as reachable or unreachable.
    pub fn is_whole(&self) -> bool {
        u64::from(self.reached) + self.shut.len() as u64 == u64::from(self.members)
    }

    /// Returns true if the prober reaches at least three quarters of its nodes other than this one, and at least one: a
    /// prober that reaches fewer may be cut off itself (rule 74).
    pub fn reaches_the_others(&self, shut: NodeId) -> bool {
        let itself = u32::from(self.of(shut).is_some());
        let others = u64::from(self.members.saturating_sub(itself));
        self.reached > 0 && u64::from(self.reached) * 4 >= others * 3
    }

    /// Returns the entry of a node, if it is unreachable.
    pub fn of(&self, node: NodeId) -> Option<&ShutDoor> {
        self.shut.iter().find(|door| door.node == node)
    }
}

impl Settings {
    /// Returns the probe interval in milliseconds; zero disables probing.
    pub const fn doors_every_ms(&self, protocol: u32) -> u64 {
        if protocol >= DOORS_SINCE { self.door_every_ms } else { 0 }
    }
}

/// Returns the number of probers among `live` nodes: as many as there would be relays, and at least three.
pub fn keeper_count(live: usize) -> usize {
    root(live).max(KEEPERS_MIN).min(live)
}

/// Returns the probers among live nodes. If nodes relay heartbeats, these are the relays.
pub fn keepers<'a>(cluster: ClusterId, live: impl IntoIterator<Item = RelayCandidate<'a>>) -> Vec<RelayCandidate<'a>> {
    let live: Vec<_> = live.into_iter().collect();
    let count = keeper_count(live.len());
    relays(cluster, live, count)
}

/// Returns the two probers of a node, or fewer if there are not two other nodes. They are its relays, except for a
/// relay itself.
pub fn keepers_of(node: RelayCandidate<'_>, keepers: &[RelayCandidate<'_>]) -> Vec<NodeId> {
    let others: Vec<_> = keepers.iter().copied().filter(|keeper| keeper.node != node.node).collect();
    relays_of(node.node, node.zone, &others)
}

/// Returns the live nodes that this node probes; none if it is no prober.
pub fn doors_of<'a>(
    cluster: ClusterId,
    keeper: NodeId,
    live: impl Iterator<Item = RelayCandidate<'a>> + Clone,
) -> Vec<NodeId> {
    let keepers = keepers(cluster, live.clone());
    if !keepers.iter().any(|other| other.node == keeper) {
        return Vec::new();
    }
    live.filter(|node| keepers_of(*node, &keepers).contains(&keeper)).map(|node| node.node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::relays::relay_count;
    use crate::members::relays::tests::{candidates, cluster};
    use std::collections::BTreeMap;

    #[test]
    fn every_node_has_two_probers_other_than_itself() {
        let counts: Vec<_> = [0, 1, 2, 3, 4, 10, 100, 10_000].map(keeper_count).into();
        assert_eq!(counts, [0, 1, 2, 3, 3, 4, 10, 100]);
        for live in 1..=60 {
            let all = candidates(live, &["north", "south"]);
            let keepers = keepers(cluster(), all.iter().copied());
            for node in &all {
                let two = keepers_of(*node, &keepers);
                assert_eq!(two.len() as u64, (live - 1).min(2), "{node:?} of {live}");
                assert!(!two.contains(&node.node));
                assert!(two.first() != two.last() || two.len() < 2);
            }
        }
    }

    #[test]
    fn every_node_is_probed_by_exactly_its_two_probers() {
        let all = candidates(40, &["north", "south"]);
        let keepers = keepers(cluster(), all.iter().copied());
        let knocked: BTreeMap<NodeId, Vec<NodeId>> =
            all.iter().map(|node| (node.node, doors_of(cluster(), node.node, all.iter().copied()))).collect();
        for node in &all {
            let by: Vec<NodeId> =
                knocked.iter().filter(|(_, doors)| doors.contains(&node.node)).map(|(keeper, _)| *keeper).collect();
            let mut two = keepers_of(*node, &keepers);
            two.sort_unstable();
            assert_eq!(by, two, "{node:?}");
        }
    }

    #[test]
    fn second_prober_is_in_another_zone_and_load_is_even() {
        let all = candidates(900, &["north", "south", "east"]);
        let zone = |node: NodeId| all.iter().find(|candidate| candidate.node == node).unwrap().zone;
        let keepers = keepers(cluster(), all.iter().copied());
        let mut doors = BTreeMap::<NodeId, u32>::new();
        for node in &all {
            let [first, second] = keepers_of(*node, &keepers)[..] else { panic!("{node:?}") };
            assert_ne!(zone(first), zone(second));
            for keeper in [first, second] {
                *doors.entry(keeper).or_default() += 1;
            }
        }
        assert!(doors.len() == 30 && doors.values().all(|count| (25..=110).contains(count)), "{doors:?}");
    }

    #[test]
    fn relays_of_a_node_are_its_probers() {
        let all = candidates(600, &["north", "south"]);
        let relays = relays(cluster(), all.iter().copied(), relay_count(600, 500));
        let keepers = keepers(cluster(), all.iter().copied());
        assert_eq!(keepers, relays);
        for member in all.iter().filter(|member| !relays.contains(member)) {
            assert_eq!(keepers_of(*member, &keepers), relays_of(member.node, member.zone, &relays));
        }
    }

    #[test]
    fn prober_that_reaches_under_three_quarters_is_not_believed() {
        let shut = |count: u64| {
            let door = |node| ShutDoor {
                node: NodeId::new(node),
                incarnation: Incarnation::new(1),
                how: DoorFailure::Silent,
                since_ms: 1,
            };
            (1..=count).map(door).collect::<Vec<_>>()
        };
        let believed = |members: u32, gone: u32| {
            let report = DoorReport { members, reached: members - gone, shut: shut(u64::from(gone)) };
            assert!(report.is_whole());
            report.reaches_the_others(NodeId::new(1))
        };
        assert!(!believed(1, 1), "nobody else is there to compare with");
        assert!(believed(2, 1) && !believed(2, 2) && !believed(3, 2) && believed(5, 2) && !believed(5, 3));
        // It has not probed all of them yet.
        let fresh = DoorReport { members: 9, reached: 4, shut: shut(1) };
        assert!(!fresh.is_whole() && !fresh.reaches_the_others(NodeId::new(1)));
    }
}
