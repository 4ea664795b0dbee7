//! The initial state of a new generation.

use crate::state::ClusterState;
use crate::state::actor::Actor;
use crate::state::coordinators::{Coordinator, Coordinators};
use crate::state::events::EventKind;
use crate::state::former_leaders::FormerLeader;
use crate::state::migrations::Migrations;
use crate::state::protocols::TAKEOVER_SINCE;
use crate::state::recovery::{DirectoryRecord, Recovery};
use archon_types::{
    Epoch, GENERATION_KEYS_SINCE, GENERATIONS_MAX, GenerationKey, Millis, NodeId, NodeStatus, Partition, PartitionId,
    PartitionStatus, PlacementId, TableId, Version, begins_at, first_number,
};
use std::collections::BTreeMap;

/// Maximum number of former coordinators that are asked whether they work.
const FORMER_MAX: usize = 64;

/// Reason for which no generation begins with a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoveryError {
    /// There is no cluster in it.
    #[error("it holds no cluster yet: nothing would be recovered; start new coordinators instead")]
    Empty,
    /// The generation is not above the state's own.
    #[error("it is of generation {present}, and a new one has to be above that: give --generation {least} at least", least = present + 1)]
    NotAbove {
        /// The state's own.
        present: u64,
    },
    /// The numbers do not suffice for it.
    #[error("generation {asked} is above {GENERATIONS_MAX}, the highest that there are numbers for")]
    TooHigh {
        /// The requested one.
        asked: u64,
    },
}

/// Turns a state that may lack entries at its end into the first one of a new generation with `founder` as its only
/// coordinator. `key` distinguishes it from every other generation of that number, and contains the start of its
/// numbers; `at` is the time of the wall clock. Returns the position in the log at which the state stands.
///
/// # Errors
/// [`RecoveryError`]; the state is unchanged then.
pub fn begin_generation(
    state: &mut ClusterState,
    (generation, key): (u64, GenerationKey),
    at: Millis,
    founder: (u64, Coordinator),
) -> Result<u64, RecoveryError> {
    if !state.is_bootstrapped() {
        return Err(RecoveryError::Empty);
    }
    if generation <= state.generation || first_number(generation) <= state.applied {
        return Err(RecoveryError::NotAbove { present: state.generation });
    }
    if generation > GENERATIONS_MAX {
        return Err(RecoveryError::TooHigh { asked: generation });
    }
    let first = begins_at(generation, key);
    let (base, version) = (Version::new(state.applied), Version::new(first));
    let (earlier_bases, lacked) = losses(state);
    state.applied = first;
    state.generation = generation;
    if !key.is_nil() && state.protocol >= GENERATION_KEYS_SINCE {
        state.generation_keys.insert(generation, key);
    }
    state.node_last = state.node_last.max(NodeId::new(first));
    state.table_last = state.table_last.max(TableId::new(first));
    state.placement_last = state.placement_last.max(PlacementId::new(first));
    state.migration_last = state.migration_last.max(first);
    let former = former_coordinators(state);
    state.former_coordinators = Vec::new();
    state.coordinators = Coordinators { members: BTreeMap::from([founder]), version, ..Coordinators::default() };
    // Replicas in transit may have arrived or gone since; repair and a new plan create missing ones.
    state.migrations = Migrations::default();
    renew_members(state, version, at);
    let leaders = end_leaderships(state, version);
    renew_versions(state, version);
    let (unsettled_since, directories) = directories(state);
    let recovery = Recovery {
        begun: at,
        base,
        leaders,
        inventories: BTreeMap::new(),
        accepted: false,
        unsettled_since,
        earlier_bases,
        lacked,
        directories,
        former,
        former_worked: false,
        taken_over: false,
    };
    state.recovery = Some(Box::new(recovery));
    let who = Actor::Coordinator(state.coordinators.members.keys().next().copied().unwrap_or_default());
    state.note(at, first, &who, EventKind::RecoveryBegun { generation, base });
    Ok(first)
}

/// Fails live members, and gives every row a version above each that a member can hold.
fn renew_members(state: &mut ClusterState, version: Version, at: Millis) {
    let members: Vec<NodeId> = state.members().map(|row| row.node.id).collect();
    for member in members {
        state.update_member(member, version, |row| {
            row.node.version = version;
            if row.node.status == NodeStatus::Alive {
                (row.node.status, row.node.since, row.stopped) = (NodeStatus::Failed, at, false);
            }
        });
    }
}

/// Raises the versions of all lists. Members keep the list with the highest version, and may hold one with changes that
/// this state lacks: a lost table, grant or revocation.
fn renew_versions(state: &mut ClusterState, version: Version) {
    state.tables.values_mut().for_each(|table| table.version = version);
    (state.dropped_version, state.removed_version, state.participants_removed_version) = (version, version, version);
    (state.nodes_version, state.participants_version) = (version, version);
    (state.access_version, state.settings_version) = (version, version);
    (state.moves_version, state.controls_version) = (version, version);
}

/// Returns the coordinators of the generations before, those of the last one first. Returns none for a protocol that
/// cannot record a takeover: such a generation takes over as it begins.
fn former_coordinators(state: &ClusterState) -> Vec<(u64, String)> {
    if state.protocol < TAKEOVER_SINCE {
        return Vec::new();
    }
    let members = state.coordinators.members.iter();
    let mut former: Vec<_> = members.map(|(id, member)| (*id, member.address.clone())).collect();
    for known in state.former().iter().cloned() {
        if !former.contains(&known) {
            former.push(known);
        }
    }
    former.truncate(FORMER_MAX);
    former
}

/// Returns the bases of recoveries that were not settled, by their generations, and the changes that the last of them
/// lacked.
fn losses(state: &ClusterState) -> (BTreeMap<u64, Version>, Option<(NodeId, Version)>) {
    let Some(earlier) = &state.recovery else { return Default::default() };
    let mut bases = earlier.earlier_bases.clone();
    bases.insert(state.generation, earlier.base);
    (bases, earlier.behind())
}

/// Returns the first generation since the state was settled last, and the record of each node. A recovery that was not
/// settled has recorded them; the nodes' rows name incarnations that began during it.
fn directories(state: &ClusterState) -> (u64, BTreeMap<NodeId, DirectoryRecord>) {
    let activated = |node: &NodeId| state.nodes.get(node).and_then(|row| row.activated);
    if let Some(earlier) = &state.recovery {
        let mut directories = earlier.directories.clone();
        directories.iter_mut().for_each(|(node, record)| record.continue_with(activated(node)));
        return (earlier.unsettled_since, directories);
    }
    let acted = state.nodes.values().filter(|row| row.activated.is_some());
    let record = |acted| DirectoryRecord { acted, ..DirectoryRecord::default() };
    (state.generation, acted.map(|row| (row.node.id, record(row.activated))).collect())
}

/// Ends all leaderships; no lease of a former leader is ignored before it has expired (rule 16). Returns the leaders of
/// partitions with data, because they identify the complete replicas.
fn end_leaderships(state: &mut ClusterState, version: Version) -> BTreeMap<PartitionId, (Epoch, PlacementId)> {
    let rows: Vec<Partition> = state.partitions.iter().cloned().collect();
    let mut leaders = BTreeMap::new();
    for mut row in rows {
        if let Some(former) = FormerLeader::holding(state, &row) {
            state.former_leaders.insert(former);
        }
        if let Some(leader) = row.leader.take().filter(|_| !state.is_lease(row.id.table)) {
            leaders.insert(row.id, (row.epoch, leader));
        }
        // Above every epoch that an earlier generation can have granted.
        row.epoch = Epoch::new(version.get().max(row.epoch.get().saturating_add(1)));
        row.version = version;
        if row.status != PartitionStatus::Unassigned {
            let offline = state.is_offline(row.id);
            row.status = if offline { PartitionStatus::Offline } else { PartitionStatus::Unavailable };
        }
        state.partitions.insert(row);
    }
    state.surpassed.clear();
    leaders
}
