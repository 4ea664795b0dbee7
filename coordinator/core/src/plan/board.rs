//! All copies on all nodes as a plan moves them about.

use super::{Move, MoveReason, Subject, Unmet, UnmetReason};
use crate::migration::MoveKind;
use crate::score::{Need, Share, quotas};
use crate::state::ClusterState;
use archon_types::{NodeGoal, NodeId, NodeStatus, PartitionId, PartitionStatus, PlacementId, ReplicaState, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// How many needy nodes are looked at for one in a free zone.
const ZONE_TRIES_MAX: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Takes placements.
    Taker,
    /// Keeps what it has.
    Keeper,
    /// Is to be emptied.
    Leaver,
    /// Not alive: nothing can be moved from there.
    Dead,
}

pub(super) struct Slot<'a> {
    pub(super) id: NodeId,
    pub(super) role: Role,
    pub(super) weight: u32,
    pub(super) limit: u32,
    pub(super) zone: Option<&'a str>,
    /// Pieces on it that can be moved, and all of them.
    pub(super) pieces: BTreeSet<usize>,
    pub(super) count: u32,
    pub(super) count_first: u32,
    pub(super) quota: u32,
}

/// One placement.
pub(super) struct Piece {
    pub(super) partition: PartitionId,
    pub(super) placement: PlacementId,
    pub(super) first: usize,
    pub(super) at: usize,
    /// The pieces of its partition are `siblings.0..siblings.1`.
    pub(super) siblings: (usize, usize),
    pub(super) movable: bool,
}

pub(super) struct Board<'a> {
    pub(super) slots: Vec<Slot<'a>>,
    pub(super) pieces: Vec<Piece>,
    /// Nodes that still hold an old copy of a partition, to be deleted.
    pub(super) blocked: BTreeSet<(PartitionId, usize)>,
}

impl<'a> Board<'a> {
    pub(super) fn new(state: &'a ClusterState) -> Self {
        let slots: Vec<Slot<'a>> = state
            .nodes
            .values()
            .map(|row| Slot {
                id: row.node.id,
                role: match (row.node.status, row.node.goal) {
                    (NodeStatus::Failed | NodeStatus::Lost, _) => Role::Dead,
                    (NodeStatus::Live, NodeGoal::Serve) => Role::Taker,
                    (NodeStatus::Live, NodeGoal::Cordon) => Role::Keeper,
                    (NodeStatus::Live, NodeGoal::Drain) => Role::Leaver,
                },
                weight: row.node.weight.max(1),
                limit: row.node.partitions_max.unwrap_or(u32::MAX),
                zone: row.node.zone.as_deref(),
                pieces: BTreeSet::new(),
                count: 0,
                count_first: 0,
                quota: 0,
            })
            .collect();
        let index: BTreeMap<NodeId, usize> = slots.iter().enumerate().map(|(slot, node)| (node.id, slot)).collect();
        let mut board = Self { slots, pieces: Vec::with_capacity(state.partitions.len()), blocked: BTreeSet::new() };
        // What is on its way counts where it goes.
        let going: BTreeMap<PlacementId, NodeId> =
            state.migrations.active().filter(|m| !m.cancel).map(|m| (m.source, m.to)).collect();
        let coming: BTreeSet<PlacementId> = state.migrations.active().filter_map(|m| m.stage.target()).collect();
        for row in state.partitions.iter().filter(|row| row.status != PartitionStatus::Unassigned) {
            let start = board.pieces.len();
            for placement in &row.placements {
                let Some(standing) = index.get(&placement.node).copied() else { continue };
                let target = going.get(&placement.id).and_then(|node| index.get(node)).copied();
                if placement.state == ReplicaState::Unload && target.is_none() {
                    board.blocked.insert((row.id, standing));
                    continue;
                }
                if coming.contains(&placement.id) {
                    continue;
                }
                let at = target.unwrap_or(standing);
                let movable = target.is_none() && board.slots[at].role != Role::Dead;
                let piece = board.pieces.len();
                board.slots[at].count += 1;
                board.slots[at].count_first += 1;
                if movable {
                    board.slots[at].pieces.insert(piece);
                }
                board.pieces.push(Piece {
                    partition: row.id,
                    placement: placement.id,
                    first: at,
                    at,
                    siblings: (start, start),
                    movable,
                });
            }
            let end = board.pieces.len();
            for piece in &mut board.pieces[start..end] {
                piece.siblings = (start, end);
            }
        }
        board
    }

    /// Works out every node's share anew and moves what is above it. Returns whether anything moved.
    pub(super) fn round(&mut self) -> bool {
        self.share_out();
        let mut needy: BTreeSet<Need> = (0..self.slots.len()).filter_map(|slot| self.need(slot)).collect();
        let mut moved = false;
        for role in [Role::Leaver, Role::Taker] {
            for slot in 0..self.slots.len() {
                if self.slots[slot].role == role && self.slots[slot].count > self.slots[slot].quota {
                    moved |= self.empty_to_quota(slot, &mut needy);
                }
            }
        }
        moved
    }

    fn share_out(&mut self) {
        let takers: Vec<usize> = (0..self.slots.len()).filter(|slot| self.slots[*slot].role == Role::Taker).collect();
        let total = self
            .slots
            .iter()
            .filter(|slot| matches!(slot.role, Role::Taker | Role::Leaver))
            .map(|slot| u64::from(slot.count))
            .sum();
        let shares: Vec<Share> = takers
            .iter()
            .map(|slot| &self.slots[*slot])
            .map(|slot| Share { weight: slot.weight, limit: slot.limit, has: slot.count })
            .collect();
        for (slot, quota) in takers.iter().zip(quotas(total, &shares)) {
            self.slots[*slot].quota = quota;
        }
    }

    fn need(&self, slot: usize) -> Option<Need> {
        let node = &self.slots[slot];
        let takes = node.role == Role::Taker && node.count < node.quota;
        takes.then_some(Need { count: node.count, weight: node.weight, slot })
    }

    /// Moves pieces away from a node until it has its quota, taking from the table of which it has most.
    fn empty_to_quota(&mut self, from: usize, needy: &mut BTreeSet<Need>) -> bool {
        let mut by_table: BTreeMap<TableId, Vec<usize>> = BTreeMap::new();
        for piece in self.slots[from].pieces.iter().rev() {
            by_table.entry(self.pieces[*piece].partition.table).or_default().push(*piece);
        }
        let mut moved = false;
        while self.slots[from].count > self.slots[from].quota && !needy.is_empty() {
            let Some(most) = by_table.iter().max_by_key(|(table, pieces)| (pieces.len(), std::cmp::Reverse(**table)))
            else {
                break;
            };
            let table = *most.0;
            let Some(piece) = by_table.get_mut(&table).and_then(Vec::pop) else {
                break;
            };
            if let Some(need) = self.taker_of(piece, needy) {
                needy.remove(&need);
                self.shift(piece, need.slot);
                needy.extend(self.need(need.slot));
                moved = true;
            }
        }
        moved
    }

    /// The neediest node that may take this piece, one in a free zone if there is one.
    fn taker_of(&self, piece: usize, needy: &BTreeSet<Need>) -> Option<Need> {
        let piece = &self.pieces[piece];
        let siblings = &self.pieces[piece.siblings.0..piece.siblings.1];
        let others = || siblings.iter().filter(|other| other.placement != piece.placement);
        let allowed = |need: &&Need| {
            !siblings
                .iter()
                .any(|other| other.at == need.slot || other.first == need.slot && other.first != piece.first)
                && !self.blocked.contains(&(piece.partition, need.slot))
        };
        let free_zone = |need: &&Need| {
            self.slots[need.slot].zone.is_none_or(|zone| others().all(|other| self.slots[other.at].zone != Some(zone)))
        };
        let mut candidates = needy.iter().filter(allowed).take(ZONE_TRIES_MAX);
        let first = candidates.next()?;
        if siblings.len() == 1 || free_zone(&first) {
            return Some(*first);
        }
        Some(candidates.find(free_zone).copied().unwrap_or(*first))
    }

    fn shift(&mut self, piece: usize, to: usize) {
        let from = self.pieces[piece].at;
        self.slots[from].pieces.remove(&piece);
        self.slots[from].count -= 1;
        self.slots[to].pieces.insert(piece);
        self.slots[to].count += 1;
        self.pieces[piece].at = to;
    }

    /// By partition.
    pub(super) fn moves(&self) -> Vec<Move> {
        let moved = self
            .pieces
            .iter()
            .filter(|piece| piece.movable && piece.at != piece.first && self.slots[piece.first].role != Role::Leaver);
        let mut moves: Vec<Move> = moved
            .map(|piece| {
                let from = &self.slots[piece.first];
                let reason = MoveReason::Balance { has: from.count_first, share: from.quota };
                Move {
                    kind: MoveKind::Copy,
                    partition: piece.partition,
                    placement: piece.placement,
                    from: from.id,
                    to: self.slots[piece.at].id,
                    reason,
                    bytes: 0,
                }
            })
            .collect();
        moves.sort_by_key(|planned| (planned.partition, planned.placement));
        moves
    }

    pub(super) fn unmet(&self) -> Vec<Unmet> {
        let reason = |slot: &Slot<'_>| match slot.role {
            Role::Leaver if slot.count > 0 => Some(UnmetReason::NotEmptied { placements: slot.count }),
            Role::Taker if slot.count > slot.quota => {
                Some(UnmetReason::AboveShare { has: slot.count, share: slot.quota })
            }
            Role::Dead if slot.count > 0 => Some(UnmetReason::NotAlive { placements: slot.count }),
            Role::Leaver | Role::Taker | Role::Dead | Role::Keeper => None,
        };
        let unmet =
            self.slots.iter().filter_map(|slot| Some(Unmet { subject: Subject::Node(slot.id), reason: reason(slot)? }));
        unmet.collect()
    }
}
