//! First assignment of partitions: round robin over the alive nodes in order of registration, or by shares if zones or
//! limits prevent that.

use crate::command::Command;
use crate::command::edit::{Edit, PartitionChange};
use crate::liveness::Liveness;
use crate::placement::score::{Need, Share, quotas_by_zone};
use crate::state::ClusterState;
use crate::state::node_row::NodeRow;
use archon_types::{Millis, NodeId, Partition, PartitionId, Placement, PlacementId, ReplicaState, Table};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Number of partitions assigned by one command, which bounds a log entry.
const PARTITIONS_PER_COMMAND: usize = 512;

/// Returns the number of eligible nodes, and the number for which a table of this replication waits.
pub(crate) fn nodes_needed(state: &ClusterState, replication: u8) -> (u64, u64) {
    let have = state.nodes.eligible_count() as u64;
    (have, u64::from(state.settings.nodes_min).max(u64::from(replication)))
}

/// Assigns up to `limit` partitions that have no copy yet. Replica r of partition p goes to node (p + r) mod n, as long
/// as no node has a zone and none would reach its limit. Otherwise each node has its share by weight, within its limit,
/// and a zone has at most one copy of each partition if there are enough zones; the zones and nodes that lack most of
/// their shares come first. Thus all partitions that fit within the limits are placed, and no partition has two copies
/// in a zone without need. Returns the commands, and true if partitions are left for another turn.
pub(crate) fn assign(state: &ClusterState, liveness: &mut Liveness, now: Millis, limit: usize) -> (Vec<Command>, bool) {
    if !state.data_tables().any(|table| state.partitions.awaits_assignment(table.id)) {
        return (Vec::new(), false);
    }
    let mut hand_out = NodePool::new(state);
    let mut placement_last = liveness.placement_last.max(state.placement_last.get());
    let mut changes = Vec::new();
    let mut more = false;
    for table in state.data_tables() {
        let Some(replication) = hand_out.replication_of(table) else { continue };
        // With too few nodes that have room, the waiting partitions are not iterated.
        let waiting = hand_out.has_room(replication).then(|| state.partitions.unassigned_in(table.id));
        for row in waiting.into_iter().flatten() {
            if !hand_out.has_room(replication) {
                break;
            }
            if !liveness.may_propose(row.id, row.version, now) || state.is_offline(row.id) {
                continue;
            }
            if changes.len() >= limit {
                more = true;
                break;
            }
            let Some(chosen) = hand_out.choose(row, replication) else { continue };
            let placements = chosen
                .into_iter()
                .map(|node| {
                    placement_last += 1;
                    Placement { id: PlacementId::new(placement_last), node, state: ReplicaState::Live }
                })
                .collect();
            liveness.note_proposed(row.id, row.version, now);
            changes.push(PartitionChange::one(row.id, row.version, Edit::Assign(placements)));
        }
    }
    liveness.placement_last = placement_last;
    let commands = changes.chunks(PARTITIONS_PER_COMMAND).map(|chunk| Command::Change(chunk.to_vec())).collect();
    (commands, more)
}

/// Returns the number of nodes at their limits if that is why the first assignment skips this partition, and whether
/// balancing the existing copies would give enough nodes room.
pub(crate) fn nodes_at_limit(state: &ClusterState, partition: PartitionId) -> Option<(u32, bool)> {
    let row = state.partitions.get(partition)?;
    let mut hand_out = NodePool::new(state);
    let replication = hand_out.replication_of(state.tables.get(&row.id.table)?)?;
    if hand_out.choose(row, replication).is_some() {
        return None;
    }
    let full = hand_out.nodes.iter().filter(|node| node.room() == 0).count();
    let room: u64 = hand_out.nodes.iter().map(|node| u64::from(node.room())).sum();
    Some((u32::try_from(full).unwrap_or(u32::MAX), room >= u64::from(replication)))
}

/// A node that takes copies.
struct EligibleNode<'a> {
    row: &'a NodeRow,
    /// Its copies, including those assigned here.
    count: u32,
    /// Its share.
    quota: u32,
    zone: usize,
}

impl EligibleNode<'_> {
    fn room(&self) -> u32 {
        self.row.room_beside(self.count)
    }

    /// Order of choice: nodes below their share, then nodes at their share, full nodes last.
    fn order(&self, slot: usize) -> (bool, bool, Need) {
        let need = Need { count: self.count, weight: self.row.node.weight.max(1), slot };
        (self.room() == 0, self.count >= self.quota, need)
    }
}

/// A zone; a node without one forms a zone by itself.
#[derive(Default)]
struct Zone {
    /// Its nodes in order of choice.
    nodes: BTreeSet<(bool, bool, Need)>,
    /// Number of copies that its nodes lack of their shares.
    lacks: u64,
}

/// The nodes with their copies and shares.
struct NodePool<'a> {
    state: &'a ClusterState,
    nodes: Vec<EligibleNode<'a>>,
    /// Number of nodes that have room.
    open: usize,
    /// True if the copies go round robin.
    by_turns: bool,
    zones: Vec<Zone>,
    /// The zones, those that lack most first.
    order: BTreeSet<(Reverse<u64>, usize)>,
}

impl<'a> NodePool<'a> {
    fn new(state: &'a ClusterState) -> Self {
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        let mut zones_count = 0;
        let mut own = || {
            zones_count += 1;
            zones_count - 1
        };
        let mut nodes: Vec<EligibleNode<'a>> = Vec::new();
        for row in state.nodes.eligible() {
            let zone = match row.node.zone.as_deref() {
                Some(zone) => *named.entry(zone).or_insert_with(&mut own),
                None => own(),
            };
            nodes.push(EligibleNode { row, count: state.partitions.count_on(row.node.id), quota: 0, zone });
        }
        let zones = (0..zones_count).map(|_| Zone::default()).collect();
        let open = nodes.iter().filter(|node| node.room() > 0).count();
        let mut this = Self { state, nodes, open, by_turns: named.is_empty(), zones, order: BTreeSet::new() };
        let coming = this.share_out();
        // Round robin gives no node more than this, including partial rounds of each table.
        let turns = coming.div_ceil(this.nodes.len().max(1) as u64) + state.tables.len() as u64;
        this.by_turns &= this.nodes.iter().all(|node| u64::from(node.room()) >= turns);
        this
    }

    /// Computes the share of each node. Returns the number of copies to assign.
    fn share_out(&mut self) -> u64 {
        let (mut coming, mut zone_max, mut partitions) = (0, 0, 0);
        for table in self.state.data_tables() {
            let Some(replication) = self.replication_of(table) else { continue };
            let waiting = self.state.partitions.unassigned_of(table.id) as u64;
            coming += waiting * u64::from(replication);
            let count = u64::from(self.state.partitions.count_of(table.id));
            partitions += count;
            let doubled = usize::from(replication).saturating_sub(self.zones.len());
            zone_max += count * (doubled as u64 + 1);
        }
        let most = u32::try_from(partitions).unwrap_or(u32::MAX);
        let shares = self.nodes.iter().map(|node| Share {
            weight: node.row.node.weight.max(1),
            limit: node.row.assigned_max().min(most),
            has: node.count,
        });
        let shares: Vec<Share> = shares.collect();
        let total = coming + self.nodes.iter().map(|node| u64::from(node.count)).sum::<u64>();
        let zones: Vec<usize> = self.nodes.iter().map(|node| node.zone).collect();
        for (node, quota) in self.nodes.iter_mut().zip(quotas_by_zone(total, &shares, &zones, zone_max)) {
            node.quota = quota;
        }
        for (slot, node) in self.nodes.iter().enumerate() {
            let zone = &mut self.zones[node.zone];
            zone.nodes.insert(node.order(slot));
            zone.lacks += u64::from(node.quota.saturating_sub(node.count));
        }
        self.order = self.zones.iter().enumerate().map(|(index, zone)| (Reverse(zone.lacks), index)).collect();
        coming
    }

    /// Returns the number of copies of a partition of this table, if there are enough nodes.
    fn replication_of(&self, table: &Table) -> Option<u8> {
        let needed = usize::try_from(self.state.settings.nodes_min).unwrap_or(usize::MAX);
        (self.nodes.len() >= needed.max(usize::from(table.replication))).then_some(table.replication)
    }

    /// Returns true if that many nodes have room.
    const fn has_room(&self, replication: u8) -> bool {
        self.open >= replication as usize
    }

    /// Chooses the nodes for a partition and counts its copies; `None` if they have no room for all copies.
    fn choose(&mut self, row: &Partition, replication: u8) -> Option<Vec<NodeId>> {
        let chosen = match self.by_turns {
            true => self.next_by_turns(row, replication)?,
            false => self.next_by_shares(row, replication)?,
        };
        for slot in &chosen {
            self.give(*slot);
        }
        Some(chosen.into_iter().map(|slot| self.nodes[slot].row.node.id).collect())
    }

    /// Returns true if the node holds no copy of it, not even one to be deleted, and is not barred from it.
    fn may_have(&self, row: &Partition, slot: usize) -> bool {
        let node = self.nodes[slot].row.node.id;
        row.placement_on(node).is_none() && !self.state.bars(row.id, node)
    }

    /// Chooses nodes round robin. No node is full; one may still hold an old copy that is to be deleted.
    fn next_by_turns(&self, row: &Partition, replication: u8) -> Option<Vec<usize>> {
        let mut chosen: Vec<usize> = Vec::with_capacity(usize::from(replication));
        for replica in 0..usize::from(replication) {
            let start = row.id.index as usize + replica;
            let mut turns = (start..start + self.nodes.len()).map(|turn| turn % self.nodes.len());
            let free = |slot: &usize| !chosen.contains(slot) && self.may_have(row, *slot);
            chosen.push(turns.find(free)?);
        }
        Some(chosen)
    }

    fn next_by_shares(&self, row: &Partition, replication: u8) -> Option<Vec<usize>> {
        let able = |slot: usize, chosen: &[usize]| {
            let node = &self.nodes[slot];
            node.room() > 0 && !chosen.contains(&slot) && self.may_have(row, slot)
        };
        let wanted = usize::from(replication);
        let mut chosen: Vec<usize> = Vec::with_capacity(wanted);
        // One of each zone; several of one only if too few zones have room.
        while chosen.len() < wanted {
            let before = chosen.len();
            for (_, zone) in &self.order {
                if chosen.len() == wanted {
                    break;
                }
                let first =
                    self.zones[*zone].nodes.iter().map(|(_, _, need)| need.slot).find(|slot| able(*slot, &chosen));
                chosen.extend(first);
            }
            if chosen.len() == before {
                return None;
            }
        }
        // Rotates, so that the first leader is not always in the largest zone.
        let turn = row.id.index as usize % wanted;
        chosen.rotate_left(turn);
        Some(chosen)
    }

    /// Counts a copy for this node.
    fn give(&mut self, slot: usize) {
        let node = &mut self.nodes[slot];
        let (before, lacked, had_room) = (node.order(slot), node.count < node.quota, node.room() > 0);
        node.count += 1;
        self.open -= usize::from(had_room && node.room() == 0);
        let zone = &mut self.zones[node.zone];
        zone.nodes.remove(&before);
        zone.nodes.insert(node.order(slot));
        if lacked {
            self.order.remove(&(Reverse(zone.lacks), node.zone));
            zone.lacks -= 1;
            self.order.insert((Reverse(zone.lacks), node.zone));
        }
    }
}
