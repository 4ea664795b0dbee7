//! Planned leaders, once the copies stand where the plan puts them. A leadership moves only if a node that leads more
//! for its weight then leads less than now without another one leading as much: a plan that no chain of such moves
//! improves is as even as the copies allow (the optimal semi-matching of Harvey, Ladner, Lovász and Tamir).

use super::{Board, Role};
use crate::placement::plan::moves::{Move, MoveReason};
use crate::placement::score::Need;
use crate::state::ClusterState;
use crate::state::migration::MoveKind;
use archon_types::ReplicaState;
use std::collections::{BTreeSet, VecDeque};

/// Maximum number of nodes examined on the way from a node that leads too much to one that leads too little.
const SEARCH_MAX: usize = 512;
/// Maximum number of copies examined by all searches together, per leadership: fruitless searches must not add up.
const SEARCHED_PER_LEADERSHIP_MAX: usize = 64;
/// Additional constant, so that small clusters never run out.
const SEARCHED_BASE: usize = 1_000_000;

/// One leadership.
struct PlannedLeadership {
    /// The present leader's piece.
    first: usize,
    /// The planned leader's piece.
    by: usize,
    /// Pieces that may lead.
    able: Vec<usize>,
}

/// The leaderships of a board.
pub(super) struct Leaders {
    led: Vec<PlannedLeadership>,
    /// Leaderships of each slot.
    of_slot: Vec<BTreeSet<usize>>,
    first: Vec<u32>,
    /// Number of possible leaderships of each slot: of partitions with a copy there.
    able: Vec<usize>,
    /// The slots that could take one more, by their load with it.
    open: BTreeSet<Need>,
    search: Search,
}

/// Paths of the present search to each slot, and the remaining search budget.
struct Search {
    left: usize,
    number: u32,
    /// By slot: the search that reached it, the previous slot, the leadership and the piece.
    reached: Vec<(u32, usize, usize, usize)>,
}

impl Search {
    fn new(slots: usize, leaderships: usize) -> Self {
        let left = SEARCHED_BASE + leaderships.saturating_mul(SEARCHED_PER_LEADERSHIP_MAX);
        Self { left, number: 0, reached: vec![(0, 0, 0, 0); slots] }
    }

    fn is_reached(&self, slot: usize) -> bool {
        self.reached[slot].0 == self.number
    }
}

impl Leaders {
    /// Computes the planned leaders.
    pub(super) fn new(state: &ClusterState, board: &Board<'_>) -> Self {
        let slots = board.slots.len();
        let mut leaders = Self {
            led: Vec::new(),
            of_slot: vec![BTreeSet::new(); slots],
            first: Vec::new(),
            able: vec![0; slots],
            open: BTreeSet::new(),
            search: Search::new(slots, state.partitions.len()),
        };
        let mut start = 0;
        while let Some(piece) = board.pieces.get(start) {
            let (from, to) = piece.siblings;
            start = to;
            let Some(row) = state.partitions.get(piece.partition) else { continue };
            let moving = state.migrations.first_active(row.id).and_then(|id| state.migrations.get(id));
            let goes = moving.filter(|moving| moving.kind == MoveKind::Leadership && !moving.cancel);
            let leads = |piece: &usize| match goes {
                Some(moving) => board.slots[board.pieces[*piece].at].id == moving.to,
                None => Some(board.pieces[*piece].placement) == row.leader,
            };
            let Some(first) = (from..to).find(leads) else { continue };
            let counts = |piece: &usize| {
                let placement = row.placement(board.pieces[*piece].placement);
                placement.is_some_and(|placement| placement.state == ReplicaState::Live)
                    && board.slots[board.pieces[*piece].at].may_lead()
            };
            // A moving leadership counts at its target, and is left to that move.
            let able: Vec<usize> = if moving.is_some() { vec![first] } else { (from..to).filter(counts).collect() };
            able.iter().for_each(|piece| leaders.able[board.pieces[*piece].at] += 1);
            leaders.of_slot[board.pieces[first].at].insert(leaders.led.len());
            leaders.led.push(PlannedLeadership { first, by: first, able });
        }
        leaders.first = leaders.of_slot.iter().map(|led| u32::try_from(led.len()).unwrap_or(u32::MAX)).collect();
        for slot in 0..slots {
            leaders.open.extend(leaders.need(board, slot));
        }
        // Each step brings the loads closer together, so it terminates; the bound keeps a defect from looping.
        for _ in 0..leaders.led.len() {
            if !leaders.round(board) {
                break;
            }
        }
        leaders
    }

    /// Lets the slots with the highest loads pass leaderships on, one after the other: a slot with a lower load would
    /// give away leaderships that it gets back. Returns true if any moved.
    fn round(&mut self, board: &Board<'_>) -> bool {
        let slots = board.slots.len();
        // Of several with equal loads, the first of all nodes stands last.
        let place = |slot: usize| slots - 1 - slot;
        let load = |leaders: &Self, slot: usize| Need {
            count: u32::try_from(leaders.of_slot[slot].len()).unwrap_or(u32::MAX),
            weight: board.slots[slot].weight.max(1),
            slot: place(slot),
        };
        let eligible = (0..slots).filter(|slot| board.slots[*slot].role == Role::Eligible);
        let mut loads: BTreeSet<Need> = eligible.map(|slot| load(self, slot)).collect();
        let mut moved = false;
        while let Some(most) = loads.pop_last() {
            let from = place(most.slot);
            if let Some(last) = self.pass_on(board, from) {
                let now = load(self, last);
                // It has one more than its entry shows, if it is still there.
                if loads.remove(&Need { count: now.count - 1, ..now }) {
                    loads.insert(now);
                }
                loads.insert(load(self, from));
                moved = true;
            }
        }
        moved
    }

    /// Returns true if a leadership of `from` would do better on `to`, which then has a lower load.
    fn eases(&self, board: &Board<'_>, from: usize, to: usize) -> bool {
        let load = |slot: usize| self.of_slot[slot].len() as u64;
        let weight = |slot: usize| u64::from(board.slots[slot].weight);
        (load(to) + 1) * weight(from) < load(from) * weight(to)
    }

    /// Returns the reason of a move between two nodes, from their leaderships before the plan; for people.
    fn reason(&self, board: &Board<'_>, from: usize, to: usize) -> MoveReason {
        let (leads, other) = (self.first[from], self.first[to]);
        let weight = |slot: usize| u64::from(board.slots[slot].weight);
        let eases = (u64::from(other) + 1) * weight(from) < u64::from(leads) * weight(to);
        if eases { MoveReason::Lead { leads, other } } else { MoveReason::PassOn { leads, other } }
    }

    /// Returns the load of a slot with one more leadership, if it can take one.
    fn need(&self, board: &Board<'_>, slot: usize) -> Option<Need> {
        let load = self.of_slot[slot].len();
        let open = board.slots[slot].may_lead() && load < self.able[slot];
        let count = u32::try_from(load + 1).unwrap_or(u32::MAX);
        open.then_some(Need { count, weight: board.slots[slot].weight.max(1), slot })
    }

    /// Returns true if a leadership of `from` would do better on any slot.
    fn can_ease(&self, board: &Board<'_>, from: usize) -> bool {
        self.open.first().is_some_and(|least| self.eases(board, from, least.slot))
    }

    /// Passes one leadership on, through other nodes if needed, to a slot with a lower load. Returns that slot, if
    /// there is one.
    fn pass_on(&mut self, board: &Board<'_>, from: usize) -> Option<usize> {
        if !self.can_ease(board, from) {
            return None;
        }
        // Breadth first, so that the fewest leaderships move: the path to each slot by leadership and piece. Of the
        // slots at equal distance the one with the lowest load wins; the search ends early when no slot has a lower
        // one.
        self.search.number += 1;
        let least = self.open.first().map(|least| Need { slot: 0, ..*least });
        let mut best: Option<(usize, Need, usize)> = None;
        let mut next = VecDeque::from([(from, 0)]);
        let mut looked = 0;
        'search: while let Some((slot, far)) = next.pop_front() {
            looked += 1;
            if looked > SEARCH_MAX || best.is_some_and(|(found, _, _)| far > found) {
                break;
            }
            for led in &self.of_slot[slot] {
                let able = &self.led[*led].able;
                let Some(left) = self.search.left.checked_sub(able.len()) else { break 'search };
                self.search.left = left;
                for piece in able {
                    let to = board.pieces[*piece].at;
                    if to == from || self.search.is_reached(to) {
                        continue;
                    }
                    self.search.reached[to] = (self.search.number, slot, *led, *piece);
                    if !self.eases(board, from, to) {
                        next.push_back((to, far + 1));
                        continue;
                    }
                    let count = u32::try_from(self.of_slot[to].len() + 1).unwrap_or(u32::MAX);
                    let need = Need { count, weight: board.slots[to].weight.max(1), slot: 0 };
                    if best.is_none_or(|(_, before, _)| need < before) {
                        best = Some((far, need, to));
                    }
                    if least.is_none_or(|least| need <= least) {
                        break 'search;
                    }
                }
            }
        }
        let (_, _, to) = best?;
        self.shift(board, from, to);
        Some(to)
    }

    fn shift(&mut self, board: &Board<'_>, from: usize, last: usize) {
        for slot in [from, last] {
            if let Some(need) = self.need(board, slot) {
                self.open.remove(&need);
            }
        }
        let mut to = last;
        while to != from {
            let (_, slot, led, piece) = self.search.reached[to];
            self.of_slot[slot].remove(&led);
            self.of_slot[to].insert(led);
            self.led[led].by = piece;
            to = slot;
        }
        // The slots in between gave one and got one.
        for slot in [from, last] {
            self.open.extend(self.need(board, slot));
        }
    }

    /// Returns the moves of leaderships, by partition.
    pub(super) fn moves(&self, board: &Board<'_>) -> Vec<Move> {
        let moved = self.led.iter().filter(|led| led.by != led.first);
        let moves = moved.map(|led| {
            let (first, by) = (&board.pieces[led.first], &board.pieces[led.by]);
            Move {
                kind: MoveKind::Leadership,
                partition: first.partition,
                placement: first.placement,
                from: board.slots[first.at].id,
                to: board.slots[by.at].id,
                reason: self.reason(board, first.at, by.at),
                bytes: 0,
            }
        });
        moves.collect()
    }
}
