//! The board of a plan: all copies on all nodes, with their planned positions.

use crate::placement::plan::moves::{Move, MoveReason, Subject, UnmetGoal, UnmetReason};
use crate::placement::score::{Need, Share, quotas, quotas_by_zone};
use crate::state::ClusterState;
use crate::state::migration::MoveKind;
use archon_types::{NodeGoal, NodeId, NodeStatus, PartitionId, PartitionStatus, PlacementId, ReplicaState, TableId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Takes placements.
    Eligible,
    /// Keeps its copies.
    Keeper,
    /// Draining.
    Leaver,
    /// Not alive: nothing can be moved from it.
    Dead,
}

pub(super) struct Slot<'a> {
    pub(super) id: NodeId,
    pub(super) role: Role,
    pub(super) weight: u32,
    pub(super) limit: u32,
    pub(super) zone: Option<&'a str>,
    /// Clients cannot reach it: it gets no leadership.
    pub(super) spared: bool,
    /// Movable pieces on it, and all of them.
    pub(super) pieces: BTreeSet<usize>,
    pub(super) count: u32,
    pub(super) count_first: u32,
    pub(super) quota: u32,
    /// Leaderships on it, and its share.
    leads: u32,
    leads_quota: u32,
}

impl Slot<'_> {
    /// Returns true if leaderships may be moved there.
    pub(super) fn may_lead(&self) -> bool {
        self.role == Role::Eligible && !self.spared
    }
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
    pub(super) leads: bool,
}

/// The nodes below their shares, by zone, the neediest of each first.
pub(super) type NeedyByZone<'a> = BTreeMap<Option<&'a str>, BTreeSet<Need>>;

/// Movable copies of one table on a node, the last first.
#[derive(Default)]
struct MovableCopies {
    follow: Vec<usize>,
    lead: Vec<usize>,
}

impl MovableCopies {
    fn len(&self) -> usize {
        self.follow.len() + self.lead.len()
    }

    /// Takes a leading or a following copy; the other kind if there is none of that kind.
    fn next(&mut self, lead: bool) -> Option<usize> {
        let (first, second) =
            if lead { (&mut self.lead, &mut self.follow) } else { (&mut self.follow, &mut self.lead) };
        first.pop().or_else(|| second.pop())
    }
}

pub(super) struct Board<'a> {
    pub(super) slots: Vec<Slot<'a>>,
    pub(super) pieces: Vec<Piece>,
    /// Nodes that still hold an old copy of a partition, to be deleted, or are barred from it.
    pub(super) blocked: BTreeSet<(PartitionId, usize)>,
    /// Pieces that move to make room for a missing copy.
    pub(super) swapped: BTreeSet<usize>,
    /// The first piece of each partition and the one after its last.
    by_partition: BTreeMap<PartitionId, (usize, usize)>,
    /// No node can have more copies than there are partitions.
    partitions_count: u32,
}

impl<'a> Board<'a> {
    /// Sets up the board from the present state. The `spared` nodes get no leadership.
    pub(super) fn new(state: &'a ClusterState, spared: BTreeSet<NodeId>) -> Self {
        let slots: Vec<Slot<'a>> = state
            .nodes
            .values()
            .map(|row| Slot {
                id: row.node.id,
                role: match (row.node.status, row.node.goal) {
                    (NodeStatus::Failed | NodeStatus::Lost, _) => Role::Dead,
                    (NodeStatus::Alive, NodeGoal::Serve) => Role::Eligible,
                    (NodeStatus::Alive, NodeGoal::Cordon | NodeGoal::Maintain) => Role::Keeper,
                    (NodeStatus::Alive, NodeGoal::Drain) => Role::Leaver,
                },
                weight: row.node.weight.max(1),
                limit: row.assigned_max(),
                zone: row.node.zone.as_deref(),
                spared: spared.contains(&row.node.id),
                pieces: BTreeSet::new(),
                count: 0,
                count_first: 0,
                quota: 0,
                leads: 0,
                leads_quota: 0,
            })
            .collect();
        let index: BTreeMap<NodeId, usize> = slots.iter().enumerate().map(|(slot, node)| (node.id, slot)).collect();
        let mut board = Self {
            slots,
            pieces: Vec::with_capacity(state.partitions.len()),
            blocked: BTreeSet::new(),
            swapped: BTreeSet::new(),
            by_partition: BTreeMap::new(),
            partitions_count: state.data_tables().map(|table| state.partitions.count_of(table.id)).sum(),
        };
        // A moving copy counts at its target. Moves of leaderships move no copy.
        let copies = || state.migrations.active().filter(|migration| migration.kind == MoveKind::Copy);
        let going: BTreeMap<PlacementId, NodeId> =
            copies().filter(|migration| !migration.cancel).map(|migration| (migration.source, migration.to)).collect();
        let coming: BTreeSet<PlacementId> = copies().filter_map(|migration| migration.stage.target()).collect();
        let barred: Vec<(NodeId, usize)> =
            state.controls.barred().into_iter().filter_map(|node| Some((node, *index.get(&node)?))).collect();
        for row in state.partitions.iter().filter(|row| row.status != PartitionStatus::Unassigned) {
            let start = board.pieces.len();
            let kept_out = barred.iter().filter(|(node, _)| state.bars(row.id, *node));
            board.blocked.extend(kept_out.map(|(_, slot)| (row.id, *slot)));
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
                let leads = row.leader == Some(placement.id);
                board.slots[at].leads += u32::from(leads);
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
                    leads,
                });
            }
            let end = board.pieces.len();
            board.by_partition.insert(row.id, (start, end));
            for piece in &mut board.pieces[start..end] {
                piece.siblings = (start, end);
            }
        }
        board
    }

    /// Separates copies that share a zone with another one of their partition, as far as nodes of other zones have
    /// room.
    pub(super) fn part_zones(&mut self) {
        let mut open: NeedyByZone<'a> = BTreeMap::new();
        for slot in 0..self.slots.len() {
            if let Some(need) = self.open(slot) {
                open.entry(self.slots[slot].zone).or_default().insert(need);
            }
        }
        for start in self.partitions() {
            let (from, to) = self.pieces[start].siblings;
            let mut doubled: Vec<usize> =
                (from..to).filter(|piece| self.is_doubled(*piece, self.pieces[*piece].at)).collect();
            // Followers before leaders, then copies of the node with more for its weight.
            doubled.sort_by_key(|piece| {
                let (piece, slot) = (&self.pieces[*piece], &self.slots[self.pieces[*piece].at]);
                let need = Need { count: slot.count, weight: slot.weight, slot: piece.at };
                (piece.leads, std::cmp::Reverse(need))
            });
            for piece in doubled {
                let at = self.pieces[piece].at;
                if !self.pieces[piece].movable || !self.is_doubled(piece, at) || self.slots[at].role == Role::Leaver {
                    continue;
                }
                let free = |need: &Need| !self.is_doubled(piece, need.slot);
                let Some(need) = self.first_that(piece, &open, free) else { continue };
                for slot in [at, need.slot] {
                    if let (Some(need), Some(zone)) = (self.open(slot), open.get_mut(&self.slots[slot].zone)) {
                        zone.remove(&need);
                    }
                }
                self.shift(piece, need.slot);
                for slot in [at, need.slot] {
                    open.entry(self.slots[slot].zone).or_default().extend(self.open(slot));
                }
            }
        }
    }

    /// Returns the first piece of each partition.
    fn partitions(&self) -> Vec<usize> {
        let first = |(index, piece): (usize, &Piece)| (piece.siblings.0 == index).then_some(index);
        self.pieces.iter().enumerate().filter_map(first).collect()
    }

    /// Returns true if a piece would share a zone with another one of its partition there.
    pub(super) fn is_doubled(&self, piece: usize, slot: usize) -> bool {
        let (from, to) = self.pieces[piece].siblings;
        let same =
            |zone| (from..to).any(|other| other != piece && self.slots[self.pieces[other].at].zone == Some(zone));
        self.slots[slot].zone.is_some_and(same)
    }

    /// Recomputes every node's share and moves surplus copies. Returns true if anything moved.
    pub(super) fn round(&mut self) -> bool {
        self.share_out();
        let mut needy: NeedyByZone<'a> = BTreeMap::new();
        for slot in 0..self.slots.len() {
            if let Some(need) = self.need(slot) {
                needy.entry(self.slots[slot].zone).or_default().insert(need);
            }
        }
        let mut moved = false;
        for role in [Role::Leaver, Role::Eligible] {
            let gives =
                |slot: &usize| self.slots[*slot].role == role && self.slots[*slot].count > self.slots[*slot].quota;
            let mut givers: Vec<usize> = (0..self.slots.len()).filter(gives).collect();
            // The nodes furthest above their share of leaderships have the least choice of followers to give; gifts of
            // the others first would leave them only leaders.
            givers.sort_by_key(|slot| {
                let slot = &self.slots[*slot];
                std::cmp::Reverse(slot.leads.saturating_sub(slot.leads_quota))
            });
            for slot in givers {
                moved |= self.empty_to_quota(slot, &mut needy);
            }
        }
        moved
    }

    fn share_out(&mut self) {
        let eligible: Vec<usize> =
            (0..self.slots.len()).filter(|slot| self.slots[*slot].role == Role::Eligible).collect();
        let sharing = |slot: &&Slot<'_>| matches!(slot.role, Role::Eligible | Role::Leaver);
        let total = self.slots.iter().filter(sharing).map(|slot| u64::from(slot.count)).sum();
        let leads = self.slots.iter().filter(sharing).map(|slot| u64::from(slot.leads)).sum();
        let zones = self.zones_of(&eligible);
        let shares = eligible.iter().map(|slot| &self.slots[*slot]);
        let copies: Vec<Share> = shares
            .clone()
            .map(|slot| Share { weight: slot.weight, limit: slot.limit.min(self.partitions_count), has: slot.count })
            .collect();
        let leads_max = |slot: &Slot<'_>| if slot.may_lead() { u32::MAX } else { 0 };
        let leaders: Vec<Share> =
            shares.map(|slot| Share { weight: slot.weight, limit: leads_max(slot), has: slot.leads }).collect();
        let quota = quotas_by_zone(total, &copies, &zones, self.zone_max(&zones));
        for ((slot, quota), leads) in eligible.iter().zip(quota).zip(quotas(leads, &leaders)) {
            self.slots[*slot].quota = quota;
            self.slots[*slot].leads_quota = leads;
        }
    }

    /// Returns the zone number of each of these nodes.
    fn zones_of(&self, eligible: &[usize]) -> Vec<usize> {
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        let numbers = eligible.iter().enumerate().map(|(number, slot)| match self.slots[*slot].zone {
            Some(zone) => *named.entry(zone).or_insert(number),
            None => number,
        });
        numbers.collect()
    }

    /// Returns the maximum number of copies in a zone: one of each partition, and more only if there are fewer zones
    /// than copies.
    fn zone_max(&self, zones: &[usize]) -> u64 {
        let zones = zones.iter().collect::<BTreeSet<_>>().len();
        let most = |pieces: usize| pieces.saturating_sub(zones.max(1)) as u64 + 1;
        self.partitions().into_iter().map(|start| self.pieces[start].siblings).map(|(from, to)| most(to - from)).sum()
    }

    fn need(&self, slot: usize) -> Option<Need> {
        self.open(slot).filter(|need| need.count < self.slots[slot].quota)
    }

    /// Returns the pieces of a partition, as a range.
    pub(super) fn siblings_of(&self, partition: PartitionId) -> (usize, usize) {
        self.by_partition.get(&partition).copied().unwrap_or((0, 0))
    }

    /// Returns the need of a node that may take more.
    pub(super) fn open(&self, slot: usize) -> Option<Need> {
        let node = &self.slots[slot];
        let takes = node.role == Role::Eligible && node.count < node.limit;
        takes.then_some(Need { count: node.count, weight: node.weight, slot })
    }

    /// Moves pieces away from a node until it has its quota, from the table with the most movable ones first. It gives
    /// leading copies as long as it leads more than its share and others less, and then following ones before any
    /// leading one.
    fn empty_to_quota(&mut self, from: usize, needy: &mut NeedyByZone<'a>) -> bool {
        let mut by_table: BTreeMap<TableId, MovableCopies> = BTreeMap::new();
        for piece in self.slots[from].pieces.iter().rev() {
            let movable = by_table.entry(self.pieces[*piece].partition.table).or_default();
            if self.pieces[*piece].leads { movable.lead.push(*piece) } else { movable.follow.push(*piece) }
        }
        let mut moved = false;
        while self.slots[from].count > self.slots[from].quota && needy.values().any(|needy| !needy.is_empty()) {
            let Some(most) = by_table.iter().max_by_key(|(table, pieces)| (pieces.len(), std::cmp::Reverse(**table)))
            else {
                break;
            };
            let table = *most.0;
            let lacks = |slot: usize| self.slots[slot].leads < self.slots[slot].leads_quota;
            let lead = self.slots[from].leads > self.slots[from].leads_quota
                && needy.values().filter_map(BTreeSet::first).any(|need| lacks(need.slot));
            let Some(piece) = by_table.get_mut(&table).and_then(|pieces| pieces.next(lead)) else {
                break;
            };
            // A piece may share a zone only if it did before.
            let doubled = self.is_doubled(piece, from);
            let Some(need) = self.first_that(piece, needy, |need| doubled || !self.is_doubled(piece, need.slot)) else {
                continue;
            };
            let zone = needy.entry(self.slots[need.slot].zone).or_default();
            zone.remove(&need);
            self.shift(piece, need.slot);
            zone.extend(self.need(need.slot));
            moved = true;
        }
        moved
    }

    /// Returns the neediest node that may take this piece: it neither holds nor gives one of the same partition, and
    /// passes `good`.
    pub(super) fn first_that(
        &self,
        piece: usize,
        needy: &NeedyByZone<'_>,
        good: impl Fn(&Need) -> bool,
    ) -> Option<Need> {
        let own = &self.pieces[piece];
        let siblings = &self.pieces[own.siblings.0..own.siblings.1];
        let allowed = |need: &&Need| {
            if own.leads && !self.slots[need.slot].may_lead() {
                return false; // Its leadership moves with the copy.
            }
            let holds = |other: &Piece| other.at == need.slot || other.first == need.slot && other.first != own.first;
            !siblings.iter().any(holds) && !self.blocked.contains(&(own.partition, need.slot)) && good(need)
        };
        // The result depends on the zone alone, so one check covers all of its nodes.
        let best = needy.values().filter_map(|nodes| {
            nodes.first().filter(|first| good(first))?;
            nodes.iter().find(allowed)
        });
        best.min().copied()
    }

    pub(super) fn shift(&mut self, piece: usize, to: usize) {
        let from = self.pieces[piece].at;
        self.slots[from].pieces.remove(&piece);
        self.slots[from].count -= 1;
        self.slots[to].pieces.insert(piece);
        self.slots[to].count += 1;
        let leads = u32::from(self.pieces[piece].leads);
        self.slots[from].leads -= leads;
        self.slots[to].leads += leads;
        self.pieces[piece].at = to;
    }

    /// Returns the moves, by partition.
    pub(super) fn moves(&self) -> Vec<Move> {
        let moved = self
            .pieces
            .iter()
            .enumerate()
            .filter(|(_, piece)| piece.movable && piece.at != piece.first)
            .filter(|(_, piece)| self.slots[piece.first].role != Role::Leaver);
        let mut moves: Vec<Move> = moved
            .map(|(number, piece)| {
                let from = &self.slots[piece.first];
                let reason = match self.swapped.contains(&number) {
                    true => MoveReason::MakeRoom,
                    false => MoveReason::Balance { has: from.count_first, share: from.quota },
                };
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

    pub(super) fn unmet(&self) -> Vec<UnmetGoal> {
        let reason = |slot: &Slot<'_>| match slot.role {
            Role::Leaver if slot.count > 0 => Some(UnmetReason::NotEmptied { placements: slot.count }),
            Role::Eligible if slot.count > slot.quota => {
                Some(UnmetReason::AboveShare { has: slot.count, share: slot.quota })
            }
            Role::Dead if slot.count > 0 => Some(UnmetReason::NotAlive { placements: slot.count }),
            Role::Leaver | Role::Eligible | Role::Dead | Role::Keeper => None,
        };
        let nodes = self
            .slots
            .iter()
            .filter_map(|slot| Some(UnmetGoal { subject: Subject::Node(slot.id), reason: reason(slot)? }));
        nodes.chain(self.doubled()).collect()
    }

    /// Returns the tables with partitions that have two copies in one zone after the plan.
    fn doubled(&self) -> Vec<UnmetGoal> {
        let mut doubled: BTreeMap<TableId, u32> = BTreeMap::new();
        for start in self.partitions() {
            let (from, to) = self.pieces[start].siblings;
            if (from..to).any(|piece| self.is_doubled(piece, self.pieces[piece].at)) {
                *doubled.entry(self.pieces[start].partition.table).or_default() += 1;
            }
        }
        let unmet = |(table, partitions)| UnmetGoal {
            subject: Subject::Table(table),
            reason: UnmetReason::ZonesDoubled { partitions },
        };
        doubled.into_iter().map(unmet).collect()
    }
}
