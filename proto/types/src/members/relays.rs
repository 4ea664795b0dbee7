//! Assignment of heartbeat relays: each member computes it from the same rows, without an agreement (PROTOCOL rule 69).

use crate::common::mixed::mixed;
use crate::ids::{ClusterId, NodeId};
use crate::members::node::Node;

/// Most participants that a relay serves in addition to nodes: its computed share does not include them, because it has
/// no rows of them.
pub const PARTICIPANTS_CARRIED_MAX: usize = 1_024;

/// A node, as a candidate for relay and prober.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelayCandidate<'a> {
    /// Number of the node.
    pub node: NodeId,
    /// Failure zone, if the operator set one.
    pub zone: Option<&'a str>,
}

impl<'a> RelayCandidate<'a> {
    /// Returns the candidate of a node's row.
    pub fn of(node: &'a Node) -> Self {
        Self { node: node.id, zone: node.zone.as_deref() }
    }
}

/// A node that relays heartbeats, from its row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayAddress {
    /// Number of the node.
    pub node: NodeId,
    /// Name, which its certificate contains.
    pub name: String,
    /// Address of the node.
    pub address: String,
}

impl RelayAddress {
    /// Returns the relay address of this node.
    pub fn of(node: &Node) -> Self {
        Self { node: node.id, name: node.name.clone(), address: node.address.clone() }
    }
}

/// Returns the number of relays among `live` nodes: the square root, rounded up, from `relays_from` live nodes on, and
/// none below. With 0 there are none.
pub fn relay_count(live: usize, relays_from: u64) -> usize {
    let enough = relays_from > 0 && u64::try_from(live).is_ok_and(|live| live >= relays_from);
    if !enough {
        return 0;
    }
    root(live)
}

/// Returns the square root, rounded up.
pub(crate) const fn root(live: usize) -> usize {
    let root = live.isqrt();
    root + (root * root < live) as usize
}

/// Returns the most members that a relay serves among `live` nodes: four times its share.
pub fn carried_max(live: usize) -> usize {
    const SHARES: usize = 4;
    /// Minimum, because in a small cluster a single relay may remain.
    const AT_LEAST: usize = 16;
    (live.isqrt() + 1).saturating_mul(SHARES).max(AT_LEAST)
}

/// Returns the relays among live nodes: those with the lowest hashes, in that order. One more or less changes one.
pub fn relays<'a>(
    cluster: ClusterId,
    live: impl IntoIterator<Item = RelayCandidate<'a>>,
    count: usize,
) -> Vec<RelayCandidate<'a>> {
    let seed = seed(cluster);
    let hash = |candidate: &RelayCandidate<'_>| (mixed(seed ^ candidate.node.get()), candidate.node);
    let mut all: Vec<_> = live.into_iter().collect();
    if count < all.len() {
        all.select_nth_unstable_by_key(count, hash);
        all.truncate(count);
    }
    all.sort_unstable_by_key(hash);
    all
}

/// Returns the relays of a member's heartbeats, in the order of its attempts: itself, if it relays, and those that rank
/// highest for it, the first in its own zone and the second in another, where there are such (rendezvous hashing,
/// Thaler and Ravishankar 1998: a relay that leaves moves only its own members).
pub fn relays_of(member: NodeId, zone: Option<&str>, relays: &[RelayCandidate<'_>]) -> Vec<NodeId> {
    let rank = |relay: &&RelayCandidate<'_>| (mixed(mixed(relay.node.get()) ^ member.get()), relay.node);
    let best = |fits: &dyn Fn(&RelayCandidate<'_>) -> bool| relays.iter().filter(|relay| fits(relay)).max_by_key(rank);
    let own = relays.iter().find(|relay| relay.node == member);
    let first = own.or_else(|| best(&|relay| zone.is_some() && relay.zone == zone)).or_else(|| best(&|_| true));
    let Some(first) = first else { return Vec::new() };
    let others = |relay: &RelayCandidate<'_>| relay.node != first.node;
    let second = best(&|relay| others(relay) && relay.zone != first.zone).or_else(|| best(&others));
    [Some(first), second].into_iter().flatten().map(|relay| relay.node).collect()
}

fn seed(cluster: ClusterId) -> u64 {
    let (high, low) = cluster.get().as_u64_pair();
    mixed(high) ^ low
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use uuid::Uuid;

    pub(crate) fn cluster() -> ClusterId {
        ClusterId::new(Uuid::from_u128(7))
    }

    /// Returns `count` nodes, with zones assigned in turn.
    pub(crate) fn candidates(count: u64, zones: &[&'static str]) -> Vec<RelayCandidate<'static>> {
        let zone = |number: u64| zones.get(usize::try_from(number).unwrap() % zones.len().max(1)).copied();
        (1..=count).map(|number| RelayCandidate { node: NodeId::new(number), zone: zone(number) }).collect()
    }

    #[test]
    fn relay_count_is_square_root_and_zero_in_small_clusters() {
        let counts: Vec<_> = [0, 499, 500, 529, 10_000, 10_001].map(|live| relay_count(live, 500)).into();
        assert_eq!(counts, [0, 0, 23, 23, 100, 101]);
        assert_eq!((relay_count(10_000, 0), relay_count(2, 2), relay_count(3, 2)), (0, 2, 2));
        assert_eq!((carried_max(3), carried_max(10_000)), (16, 404));
    }

    #[test]
    fn relay_load_is_even_and_a_leaving_relay_moves_only_its_own() {
        let all = candidates(10_000, &[]);
        let relays_before = relays(cluster(), all.iter().copied(), 100);
        let mut carried = BTreeMap::<NodeId, u32>::new();
        let first = |relays: &[RelayCandidate<'_>], member| relays_of(member, None, relays)[0];
        for member in &all {
            *carried.entry(first(&relays_before, member.node)).or_default() += 1;
        }
        assert_eq!(carried.len(), 100);
        assert!(carried.values().all(|count| (65..=140).contains(count)), "{carried:?}");
        let gone = relays_before[17].node;
        let left: Vec<_> = relays_before.iter().copied().filter(|relay| relay.node != gone).collect();
        for member in &all {
            let before = relays_of(member.node, None, &relays_before);
            let now = relays_of(member.node, None, &left);
            let kept: Vec<_> = before.into_iter().filter(|relay| *relay != gone).collect();
            assert!(now.starts_with(&kept), "{member:?}: {kept:?} became {now:?}");
        }
    }

    #[test]
    fn one_node_more_or_less_changes_one_relay() {
        let all = candidates(1_000, &[]);
        let names = |relays: Vec<RelayCandidate<'_>>| relays.iter().map(|relay| relay.node).collect::<BTreeSet<_>>();
        let before = names(relays(cluster(), all.iter().copied(), 32));
        for gone in all.iter().take(100) {
            let now = names(relays(cluster(), all.iter().copied().filter(|node| node != gone), 32));
            assert_eq!(before.difference(&now).count(), usize::from(before.contains(&gone.node)), "{gone:?}");
        }
    }

    #[test]
    fn member_tries_own_zone_then_another_and_a_relay_itself() {
        let all = candidates(90, &["north", "south", "east"]);
        let relays = relays(cluster(), all.iter().copied(), 9);
        let zone = |node: NodeId| all.iter().find(|candidate| candidate.node == node).unwrap().zone;
        for member in &all {
            let tried = relays_of(member.node, member.zone, &relays);
            let [first, second] = tried[..] else { panic!("{tried:?}") };
            assert_ne!(first, second);
            assert_ne!(zone(first), zone(second));
            if relays.iter().any(|relay| relay.zone == member.zone) {
                assert_eq!(zone(first), member.zone);
            }
            if relays.contains(member) {
                assert_eq!(first, member.node);
            }
        }
        assert_eq!(relays_of(NodeId::new(1), None, &[]), []);
        assert_eq!(relays_of(NodeId::new(1), None, &all[4..5]), [NodeId::new(5)]);
    }
}
