//! Order in which nodes take placements: the most significant field first, the number last, so that it is total.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A node's need of placements. The least one is served first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Need {
    /// Placements it has.
    pub(crate) count: u32,
    /// Its share relative to others, at least 1.
    pub(crate) weight: u32,
    /// Its position in the list of nodes, which is in order of registration.
    pub(crate) slot: usize,
}

impl Ord for Need {
    fn cmp(&self, other: &Self) -> Ordering {
        // count / weight, compared without division.
        let own = u64::from(self.count) * u64::from(other.weight);
        let others = u64::from(other.count) * u64::from(self.weight);
        own.cmp(&others).then(self.slot.cmp(&other.slot))
    }
}

impl PartialOrd for Need {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the quota of each node: floor or ceiling of its share by weight, never above its limit. `has` is its present
/// number: the ceilings go first to nodes that have that many already, so that little moves.
pub(crate) fn quotas(total: u64, nodes: &[Share]) -> Vec<u32> {
    let mut quota = vec![0u32; nodes.len()];
    let mut open: Vec<usize> = (0..nodes.len()).collect();
    // Nodes with a limit below their share come first; each of them leaves more to the others.
    open.sort_by(|a, b| nodes[*a].limit_per_weight(&nodes[*b]).then(a.cmp(b)));
    let mut left = total;
    let mut weight: u64 = nodes.iter().map(|node| u64::from(node.weight)).sum();
    let mut capped = 0;
    for slot in &open {
        let node = &nodes[*slot];
        let below_share = u128::from(node.limit) * u128::from(weight) < u128::from(left) * u128::from(node.weight);
        if !below_share {
            break;
        }
        quota[*slot] = node.limit;
        left -= u64::from(node.limit).min(left);
        weight -= u64::from(node.weight);
        capped += 1;
    }
    let open = open.split_off(capped);
    if weight == 0 {
        return quota;
    }
    let mut spare = left;
    let mut rest: Vec<(bool, std::cmp::Reverse<u64>, usize)> = Vec::with_capacity(open.len());
    for slot in open {
        let node = &nodes[slot];
        let share = u128::from(left) * u128::from(node.weight);
        let floor = u32::try_from(share / u128::from(weight)).unwrap_or(u32::MAX).min(node.limit);
        let fraction = u64::try_from(share % u128::from(weight)).unwrap_or(u64::MAX);
        quota[slot] = floor;
        spare -= u64::from(floor).min(spare);
        if floor < node.limit {
            rest.push((node.has <= floor, std::cmp::Reverse(fraction), slot));
        }
    }
    rest.sort_unstable();
    for (_, _, slot) in rest {
        if spare == 0 {
            break;
        }
        quota[slot] += 1;
        spare -= 1;
    }
    quota
}

/// Like [`quotas`], with at most `zone_max` per zone as long as the others have room for the excess. `zones` maps each
/// node to its zone; a node without a zone forms one by itself.
pub(crate) fn quotas_by_zone(total: u64, nodes: &[Share], zones: &[usize], mut zone_max: u64) -> Vec<u32> {
    let mut before = None;
    loop {
        let quota = quotas_within(total, nodes, zones, zone_max);
        let given: u64 = quota.iter().map(|quota| u64::from(*quota)).sum();
        // An amount above the limits of the nodes stays unassigned.
        if given >= total || before == Some(given) {
            return quota;
        }
        before = Some(given);
        zone_max = zone_max.saturating_add(total - given);
    }
}

/// Returns quotas with at most `zone_max` per zone, even if the others have no room.
fn quotas_within(total: u64, nodes: &[Share], zones: &[usize], zone_max: u64) -> Vec<u32> {
    let mut quota = vec![0u32; nodes.len()];
    let mut open: Vec<usize> = (0..nodes.len()).collect();
    let mut left = total;
    loop {
        give(left, nodes, &open, &mut quota);
        let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
        for slot in &open {
            *sums.entry(zones[*slot]).or_default() += u64::from(quota[*slot]);
        }
        // The excess of one zone raises the shares of the others, so a zone that is above the limit now stays above it.
        sums.retain(|_, sum| *sum > zone_max);
        if sums.is_empty() {
            return quota;
        }
        for zone in sums.into_keys() {
            let own: Vec<usize> = open.iter().copied().filter(|slot| zones[*slot] == zone).collect();
            give(zone_max, nodes, &own, &mut quota);
            left -= zone_max.min(left);
            open.retain(|slot| zones[*slot] != zone);
        }
    }
}

fn give(total: u64, nodes: &[Share], slots: &[usize], quota: &mut [u32]) {
    let shares: Vec<Share> = slots.iter().map(|slot| nodes[*slot]).collect();
    for (slot, share) in slots.iter().zip(quotas(total, &shares)) {
        quota[*slot] = share;
    }
}

/// Input of [`quotas`] for one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// Its share relative to others, at least 1.
    pub(crate) weight: u32,
    /// Its limit.
    pub(crate) limit: u32,
    /// Its present number.
    pub(crate) has: u32,
}

impl Share {
    fn limit_per_weight(&self, other: &Self) -> Ordering {
        let own = u64::from(self.limit) * u64::from(other.weight);
        let others = u64::from(other.limit) * u64::from(self.weight);
        own.cmp(&others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(weight: u32, limit: u32, has: u32) -> Share {
        Share { weight, limit, has }
    }

    #[test]
    fn even_share_keeps_present_ceilings() {
        let nodes =
            [share(100, u32::MAX, 3), share(100, u32::MAX, 3), share(100, u32::MAX, 3), share(100, u32::MAX, 0)];
        assert_eq!(quotas(9, &nodes), [3, 2, 2, 2]);
        assert_eq!(quotas(30, &nodes.map(|node| Share { has: 10 * node.has.min(1), ..node })), [8, 8, 7, 7]);
    }

    #[test]
    fn quotas_respect_weights_and_limits() {
        assert_eq!(quotas(12, &[share(100, u32::MAX, 0), share(200, u32::MAX, 0), share(300, u32::MAX, 0)]), [2, 4, 6]);
        assert_eq!(quotas(12, &[share(100, 1, 4), share(100, u32::MAX, 4), share(100, u32::MAX, 4)]), [1, 6, 5]);
        assert_eq!(quotas(12, &[share(100, 1, 4), share(100, 2, 4)]), [1, 2]);
        assert_eq!(quotas(5, &[]), Vec::<u32>::new());
    }

    #[test]
    fn zone_excess_goes_to_other_zones() {
        let even = [share(100, u32::MAX, 0); 5];
        // One node in the first zone, three in the second, one in the third.
        assert_eq!(quotas_by_zone(20, &even, &[0, 1, 1, 1, 2], 10), [5, 4, 3, 3, 5]);
        assert_eq!(quotas_by_zone(20, &even, &[0, 1, 1, 1, 2], 12), [4; 5]);
        assert_eq!(quotas_by_zone(24, &even[..4], &[0, 1, 1, 1], 12), [12, 4, 4, 4]);
        let full = [share(100, 5, 0), even[0], even[0]];
        assert_eq!(quotas_by_zone(24, &full, &[0, 1, 1], 12), [5, 10, 9], "the other zone has no room");
        assert_eq!(quotas_by_zone(24, &[share(100, 5, 0); 3], &[0, 1, 1], 12), [5; 3], "nobody has");
    }

    #[test]
    fn quotas_are_floor_or_ceiling_and_sum_to_total() {
        for total in 0..60u64 {
            let nodes = [share(1, u32::MAX, 0), share(2, u32::MAX, 9), share(3, u32::MAX, 1), share(5, u32::MAX, 2)];
            let quota = quotas(total, &nodes);
            assert_eq!(quota.iter().map(|q| u64::from(*q)).sum::<u64>(), total);
            for (node, quota) in nodes.iter().zip(quota) {
                let floor = total * u64::from(node.weight) / 11;
                assert!((floor..=floor + 1).contains(&u64::from(quota)), "{total}: {quota} of {node:?}");
            }
        }
    }
}
