//! Findings about unavailable and degraded partitions.

use crate::findings::intent::with_intent;
use crate::findings::leader_view::LeaderView;
use crate::leases::{Successors, served_tables};
use crate::placement::out_of_sync;
use crate::placement::shortfall::{Shortfall, Shortfalls};
use crate::placement::waits::Waits;
use crate::placement::withheld_repair::WithheldRepair;
use crate::state::ClusterState;
use crate::state::node_row::NodeRow;
use archon_types::{
    Facts, Finding, Millis, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Placement,
    ReplicaState, Table, TableContent, TableId,
};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

/// Explains any number of partitions; shared inputs are computed once.
pub struct Explainer<'a> {
    state: &'a ClusterState,
    remembered: &'a LeaderView,
    waits: Waits<'a>,
    lacks: Shortfalls<'a>,
    raisable: OnceCell<bool>,
    /// Facts of lease tables without participants.
    without_participants: RefCell<BTreeMap<TableId, Facts>>,
}

/// Number of partitions with missing copies that are not being made, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shortage {
    /// The nodes that could take one are at their limits.
    pub nodes_at_limit: u32,
    /// Other nodes have room, so that a plan may make room for the copy.
    pub plan: bool,
    /// No other node takes copies.
    pub no_node: u32,
    /// Too many nodes are failed, and their number.
    pub withheld: Option<(u32, WithheldRepair)>,
}

impl<'a> Explainer<'a> {
    /// Creates an explainer from the state and the memory of the leading coordinator.
    pub fn new(state: &'a ClusterState, remembered: &'a LeaderView) -> Self {
        let (waits, lacks) = (Waits::new(state), Shortfalls::new(state, remembered));
        Self { state, remembered, waits, lacks, raisable: OnceCell::new(), without_participants: RefCell::default() }
    }

    /// Returns the partitions with leaders known to admit no write.
    pub fn isolated(&self) -> impl Iterator<Item = PartitionId> {
        self.remembered.isolated.keys().copied()
    }

    /// Returns the time since this partition is unavailable, on the wall clock.
    pub(crate) fn unserved_since(&self, partition: PartitionId) -> Option<Millis> {
        self.remembered.unserved_since(partition)
    }

    /// Returns the missing copies that are not being made, over all partitions.
    pub fn shortage(&self) -> Shortage {
        let mut shortage = Shortage::default();
        for row in self.lacks.candidates() {
            match self.lacks.of(row) {
                Some(Shortfall::NodesAtLimit { plan, .. }) => {
                    shortage.nodes_at_limit += 1;
                    shortage.plan |= plan;
                }
                Some(Shortfall::NoNode) => shortage.no_node += 1,
                Some(Shortfall::Withheld(withheld)) => {
                    let before = shortage.withheld.map_or(0, |(partitions, _)| partitions);
                    shortage.withheld = Some((before + 1, withheld));
                }
                None => {}
            }
        }
        shortage
    }

    /// Returns the findings about an unavailable or degraded partition; empty if there are none. `None`: there is no such
    /// partition.
    pub fn explain(&self, partition: PartitionId) -> Option<Vec<Finding>> {
        let state = self.state;
        let row = state.partitions.get(partition)?;
        let table = state.tables.get(&partition.table)?;
        // A cause of unavailability is reported with the start of the unavailability.
        let unserved = self.remembered.unserved_since(partition).unwrap_or_default();
        let mut found = PartitionFindings { state, partition, unserved, findings: Vec::new() };
        let live = row.live().count();
        if let Some(note) = state.controls.offline_of(partition) {
            found.push_since(note.at, Facts::Offline { why: note.why.clone() });
        }
        match row.status {
            _ if state.is_offline(partition) => {}
            PartitionStatus::Unassigned | PartitionStatus::Unavailable if table.holds == TableContent::Lease => {
                self.not_owned(row, table, &mut found);
            }
            PartitionStatus::Unassigned => {
                let (have, need) = crate::placement::assign::nodes_needed(state, table.replication);
                found.push(if have < need {
                    Facts::NotEnoughNodes { have, need }
                } else {
                    match crate::placement::assign::nodes_at_limit(state, partition) {
                        Some((full, plan)) => self.at_limit(full, plan),
                        None => Facts::AboutToBeAssigned {},
                    }
                });
            }
            PartitionStatus::Assigned => {
                if let Some(leader) = row.leader_placement() {
                    found.push(Facts::TakingOver { node: state.node_name(leader.node) });
                }
            }
            PartitionStatus::Unavailable if live == 0 => found.push(Facts::DataLost {}),
            PartitionStatus::Unavailable | PartitionStatus::Offline => self.without_leader(row, &mut found),
            PartitionStatus::Online if table.holds == TableContent::Lease => {
                if let Some(node) = Successors::new(state).staying(row) {
                    let node = state.node_name(node);
                    found.push_served(Facts::OwnerStays { node, leases_kept: None, named: String::new() });
                }
            }
            PartitionStatus::Online => self.isolated_leader(row, &mut found),
        }
        if let Some(known) = state.surpassed.get(&partition) {
            found.push(Facts::EpochSurpassed { epoch: known.get() });
        }
        let of = u64::from(table.replication);
        let missing = of.saturating_sub(live as u64);
        if row.status != PartitionStatus::Unassigned && live > 0 && missing > 0 {
            found.push_served(Facts::UnderReplicated { missing, of, supply: None });
        }
        if live > 0 {
            self.lost_copies_kept(row, &mut found);
        }
        match self.lacks.of(row) {
            Some(Shortfall::Withheld(WithheldRepair { failed, of })) => {
                found.push_served(Facts::RepairWithheld {
                    partitions_short: None,
                    nodes_failed: failed,
                    nodes_total: of,
                });
            }
            Some(Shortfall::NodesAtLimit { full, plan }) => found.push(self.at_limit(full, plan)),
            Some(Shortfall::NoNode) | None => {}
        }
        if let Some(migration) = state.migrations.running(partition)
            && let Some(why) = self.waits.waiting_for(migration)
        {
            found.push_served(Facts::MoveWaits { move_id: migration.id.get(), why });
        }
        Some(found.findings)
    }

    fn at_limit(&self, nodes: u32, plan: bool) -> Facts {
        Facts::NodesAtLimit { partitions_short: None, nodes_full: nodes, plan, raisable: self.raisable() }
    }

    /// Returns true if the limit of a member can be raised: the built-in one cannot.
    pub(crate) fn raisable(&self) -> bool {
        let mut members = self.state.nodes.values().chain(self.state.participants.values());
        *self.raisable.get_or_init(|| members.any(|row| row.is_at_own_limit(self.state)))
    }

    fn not_owned(&self, row: &Partition, table: &Table, found: &mut PartitionFindings<'_>) {
        found.waits_for_leases(row.id);
        if !found.findings.is_empty() {
            return;
        }
        let serving = || self.state.participants.serving(&table.name).filter(|row| row.takes_placements());
        let full = serving().filter(|row| row.room(self.state) == 0);
        let (all, full) = (served_tables::eligible_count(self.state, table), full.count());
        let barred = serving().filter(|serving| self.state.bars(row.id, serving.node.id)).count();
        let gave_up = |node: NodeId| self.remembered.gave_up(node, row.id);
        let could = |serving: &&NodeRow| !self.state.bars(row.id, serving.node.id) && serving.room(self.state) > 0;
        let given_up = serving().filter(could).filter(|serving| gave_up(serving.node.id)).count();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        found.push(match all {
            0 => self.no_participant(table),
            all if all == barred => Facts::AllBarred { participants_total: count(all) },
            all if all == full => self.at_limit(count(full), false),
            _ if given_up > 0 && given_up == serving().filter(could).count() => {
                Facts::GivenUp { participants_total: count(given_up) }
            }
            _ if row.status == PartitionStatus::Unassigned => Facts::AboutToBeAssigned {},
            _ => Facts::AboutToBeElected {},
        });
    }

    /// Returns the facts of a lease table that no participant serves.
    pub(crate) fn no_participant(&self, table: &Table) -> Facts {
        let mut known = self.without_participants.borrow_mut();
        known.entry(table.id).or_insert_with(|| no_participant(self.state, table)).clone()
    }

    fn without_leader(&self, row: &Partition, found: &mut PartitionFindings<'_>) {
        let before = found.findings.len();
        found.waits_for_leases(row.id);
        for placement in row.live() {
            let Some(node) = self.state.node(placement.node) else { continue };
            let name = node.node.name.clone();
            if node.node.status != NodeStatus::Alive {
                found.push_since(node.node.since, Facts::NoLiveReplica { node: name });
            } else if !node.is_active() {
                found.push(Facts::HolderRegistering { node: name });
            }
        }
        if found.findings.len() == before {
            found.push(Facts::AboutToBeElected {});
        }
    }

    fn lost_copies_kept(&self, row: &Partition, found: &mut PartitionFindings<'_>) {
        let lost = |copy: &&Placement| copy.state == ReplicaState::Load && out_of_sync::is_lost(self.state, copy.id);
        for copy in row.placements.iter().filter(lost) {
            if let Err((alive, need)) = out_of_sync::may_go(self.state, row, copy.id) {
                let node = self.state.node_name(copy.node);
                found.push_served(Facts::LostCopyKept { node, have: alive as u64, need: need as u64 });
            }
        }
    }

    fn isolated_leader(&self, row: &Partition, found: &mut PartitionFindings<'_>) {
        let isolated = self.remembered.isolated.get(&row.id).filter(|(epoch, _)| *epoch == row.epoch);
        if let (Some((_, hears)), Some(leader)) = (isolated, row.leader_placement()) {
            let node = self.state.node_name(leader.node);
            let (have, need) = (u64::from(*hears), u64::from(row.min_in_sync));
            found.push_served(Facts::LeaderHearsTooFew { node, have, need });
        }
    }
}

/// Findings about one partition.
struct PartitionFindings<'a> {
    state: &'a ClusterState,
    partition: PartitionId,
    /// Start of its unavailability; zero if it is served, or unknown.
    unserved: Millis,
    findings: Vec<Finding>,
}

impl PartitionFindings<'_> {
    /// Adds a cause of unavailability.
    fn push(&mut self, facts: Facts) {
        self.push_since(self.unserved, facts);
    }

    /// Adds a condition that does not make the partition unavailable.
    fn push_served(&mut self, facts: Facts) {
        self.push_since(Millis::ZERO, facts);
    }

    fn push_since(&mut self, since: Millis, facts: Facts) {
        let finding = Finding::new(self.state.partition_subject(self.partition), facts);
        self.findings.push(with_intent(self.state, finding.since(since)));
    }

    fn waits_for_leases(&mut self, partition: PartitionId) {
        for former in self.state.former_leaders.of_partition(partition).filter(|former| !former.lapsed) {
            self.push(Facts::WaitingForLease { node: self.state.node_name(former.node) });
        }
    }
}

/// Returns the facts of a lease table that no participant serves: its first one may be awaited, or there may be idle ones.
fn no_participant(state: &ClusterState, table: &Table) -> Facts {
    if awaits_first_participant(state, table.id) {
        return Facts::AwaitsFirstParticipant {};
    }
    let idle = |goal: NodeGoal| {
        let mut idle = state.participants.serving(&table.name).filter(|row| row.is_active());
        idle.find(|row| row.node.goal == goal).map(|row| row.node.name.clone())
    };
    Facts::NoParticipant {
        drained: idle(NodeGoal::Drain),
        cordoned: idle(NodeGoal::Cordon),
        in_maintenance: idle(NodeGoal::Maintain),
    }
}

/// Returns true if no participant has registered for the lease table yet. A lease that was released or lost never
/// becomes unassigned again.
fn awaits_first_participant(state: &ClusterState, table: TableId) -> bool {
    let unserved = |table: &Table| state.participants.serving(&table.name).next().is_none();
    state.tables.get(&table).is_some_and(unserved)
        && state.partitions.unassigned_in(table).count() == state.partitions.count_of(table) as usize
}

/// Returns the findings about one unavailable or degraded partition. For several see [`Explainer`].
pub fn explain(state: &ClusterState, remembered: &LeaderView, partition: PartitionId) -> Option<Vec<Finding>> {
    Explainer::new(state, remembered).explain(partition)
}
