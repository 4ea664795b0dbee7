//! Reconciliation: a pure function from a push and the copies held to actions of the shards.
//!
//! A copy is never deleted because a list lacks it (PROTOCOL rule 22): copies that no duty names are set aside.

use crate::mutant::{DisabledRule, Mutant};
use archon_types::{Duty, ErrorDetail, ErrorKind, NodeId, Partition, PartitionId, PlacementId, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// Partition of damaged data of unknown origin. No table has the number zero.
pub const UNKNOWN: PartitionId = PartitionId::new(TableId::ZERO, 0);

/// Placement in this node's data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldPlacement {
    /// The partition it is a copy of.
    pub partition: PartitionId,
    /// Its state.
    pub state: HeldState,
}

/// State of a placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldState {
    /// Found at start-up or set aside: not served.
    SetAside,
    /// A replica runs on it.
    Active,
    /// Its deletion is in progress.
    Unloading,
    /// Failed its checks: must not be served.
    Damaged,
}

/// Action of a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Run a replica on the placement (an empty one if `fresh`) and configure it.
    Open {
        /// The partition's row.
        partition: Partition,
        /// The copy on this node.
        placement: PlacementId,
        /// No data of it is held yet.
        fresh: bool,
    },
    /// Pass the row to the replica.
    Configure {
        /// The partition's row.
        partition: Partition,
        /// The copy on this node.
        placement: PlacementId,
    },
    /// Pass the row to the replica, then have it give up its leadership to `to`.
    HandOver {
        /// The partition's row.
        partition: Partition,
        /// The copy on this node.
        placement: PlacementId,
        /// The next leader.
        to: PlacementId,
    },
    /// Delete the copy and report it.
    Unload {
        /// The partition.
        partition: PartitionId,
        /// The copy on this node.
        placement: PlacementId,
    },
    /// Stop the replica and keep its data.
    SetAside {
        /// The partition.
        partition: PartitionId,
        /// The copy on this node.
        placement: PlacementId,
    },
    /// Stop the replica for good, and report where its log ends.
    Inspect {
        /// The partition.
        partition: PartitionId,
        /// The copy on this node.
        placement: PlacementId,
    },
    /// Report (again) that the copy is damaged.
    ReportDamaged {
        /// The partition's row.
        partition: Partition,
        /// The copy on this node.
        placement: PlacementId,
    },
}

/// Result of a push.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReconcileResult {
    /// Actions, in order of placement.
    pub actions: Vec<Action>,
    /// Invalid duties, with the reason.
    pub refused: Vec<(PlacementId, ErrorDetail)>,
}

/// Derives the actions for `duties`, the full list for `node`, given the copies it holds.
pub fn reconcile(
    node: NodeId,
    held: &BTreeMap<PlacementId, HeldPlacement>,
    duties: &[Duty],
    broken: DisabledRule,
) -> ReconcileResult {
    let mut result = ReconcileResult::default();
    let mut by_placement: BTreeMap<PlacementId, &Duty> = BTreeMap::new();
    let mut named: BTreeSet<PlacementId> = BTreeSet::new();
    for duty in duties {
        let placement = duty.placement();
        if let Err(why) = check(node, held, duty) {
            // A refused duty still names its data, which is therefore left as it is.
            named.insert(placement);
            result.refused.push((placement, why));
        } else if !named.insert(placement) {
            result.refused.push((placement, refusal("two duties name this placement")));
        } else {
            by_placement.insert(placement, duty);
        }
    }
    for (placement, duty) in by_placement {
        result.actions.extend(action(placement, duty, held.get(&placement)));
    }
    for (placement, what) in held {
        if what.state == HeldState::Active && !named.contains(placement) {
            let (partition, placement) = (what.partition, *placement);
            result.actions.push(match broken.breaks(Mutant::UnnamedDeleted) {
                true => Action::Unload { partition, placement },
                false => Action::SetAside { partition, placement },
            });
        }
    }
    result
}

fn action(placement: PlacementId, duty: &Duty, held: Option<&HeldPlacement>) -> Vec<Action> {
    let state = held.map(|held| held.state);
    match duty {
        Duty::Unload { partition, .. } => match state {
            Some(HeldState::Unloading) => vec![],
            _ => vec![Action::Unload { partition: *partition, placement }],
        },
        Duty::Host { partition, .. } => host(partition, placement, state),
        Duty::Inspect { .. } => match held {
            Some(HeldPlacement { partition, state: HeldState::Active | HeldState::SetAside }) => {
                vec![Action::Inspect { partition: *partition, placement }]
            }
            // Damaged copies and copies being deleted are not listed as held, so no report is awaited.
            _ => vec![],
        },
        Duty::HandOver { partition, to, .. } => {
            let mut actions = match state {
                Some(HeldState::Active) => vec![],
                other => host(partition, placement, other),
            };
            if !matches!(state, Some(HeldState::Damaged | HeldState::Unloading)) {
                actions.push(Action::HandOver { partition: partition.clone(), placement, to: *to });
            }
            actions
        }
    }
}

fn host(partition: &Partition, placement: PlacementId, state: Option<HeldState>) -> Vec<Action> {
    let partition = partition.clone();
    match state {
        None => vec![Action::Open { partition, placement, fresh: true }],
        Some(HeldState::SetAside) => vec![Action::Open { partition, placement, fresh: false }],
        Some(HeldState::Active) => vec![Action::Configure { partition, placement }],
        Some(HeldState::Damaged) => vec![Action::ReportDamaged { partition, placement }],
        // An unload is final; a row that still names the copy is older.
        Some(HeldState::Unloading) => vec![],
    }
}

fn check(node: NodeId, held: &BTreeMap<PlacementId, HeldPlacement>, duty: &Duty) -> Result<(), ErrorDetail> {
    let placement = duty.placement();
    if let (Some(held), Some(partition)) = (held.get(&placement), duty.partition())
        && held.partition != partition
        && held.partition != UNKNOWN
    {
        return Err(refusal(format!(
            "placement {placement} is held as a replica of partition {}, not of {partition}",
            held.partition
        )));
    }
    match duty {
        Duty::Unload { .. } | Duty::Inspect { .. } => Ok(()),
        Duty::Host { partition, .. } | Duty::HandOver { partition, .. } => match partition.placement(placement) {
            Some(row) if row.node == node => Ok(()),
            Some(row) => Err(refusal(format!("placement {placement} is on node {}, this is node {node}", row.node))),
            None => Err(refusal(format!("partition {} has no placement {placement}", partition.id))),
        },
    }
}

fn refusal(why: impl Into<String>) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::InvalidArgument, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Epoch, PartitionStatus, Placement, ReplicaState, TableId, Version};

    fn id(index: u32) -> PartitionId {
        PartitionId::new(TableId::new(1), index)
    }

    fn placement(number: u64) -> PlacementId {
        PlacementId::new(number)
    }

    fn row(index: u32, number: u64, node: u64) -> Partition {
        Partition {
            id: id(index),
            epoch: Epoch::new(1),
            version: Version::new(1),
            leader: Some(placement(number)),
            placements: vec![Placement { id: placement(number), node: NodeId::new(node), state: ReplicaState::Live }],
            status: PartitionStatus::Assigned,
            min_in_sync: 1,
            range: archon_types::KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        }
    }

    fn host(index: u32, number: u64) -> Duty {
        Duty::Host { partition: row(index, number, 1), placement: placement(number) }
    }

    fn held(entries: &[(u64, u32, HeldState)]) -> BTreeMap<PlacementId, HeldPlacement> {
        entries
            .iter()
            .map(|(number, index, state)| (placement(*number), HeldPlacement { partition: id(*index), state: *state }))
            .collect()
    }

    const NODE: NodeId = NodeId::new(1);

    fn reconcile(node: NodeId, held: &BTreeMap<PlacementId, HeldPlacement>, duties: &[Duty]) -> ReconcileResult {
        super::reconcile(node, held, duties, DisabledRule::default())
    }

    #[test]
    fn new_copy_is_opened_and_running_copy_configured() {
        let held = held(&[(2, 2, HeldState::Active), (3, 3, HeldState::SetAside)]);
        let found = reconcile(NODE, &held, &[host(1, 1), host(2, 2), host(3, 3)]);
        assert_eq!(
            found.actions,
            [
                Action::Open { partition: row(1, 1, 1), placement: placement(1), fresh: true },
                Action::Configure { partition: row(2, 2, 1), placement: placement(2) },
                Action::Open { partition: row(3, 3, 1), placement: placement(3), fresh: false },
            ]
        );
        assert!(found.refused.is_empty());
    }

    fn unnamed_copy_is_not_deleted(mutant: Option<Mutant>) -> bool {
        let held = held(&[(2, 2, HeldState::Active)]);
        let found = super::reconcile(NODE, &held, &[], DisabledRule::by(mutant));
        found.actions == [Action::SetAside { partition: id(2), placement: placement(2) }]
    }

    archon_types::shown_by! {
        UnnamedDeleted => unnamed_copy_is_not_deleted,
    }

    #[test]
    fn only_active_unnamed_copy_is_set_aside() {
        let held = held(&[(2, 2, HeldState::Active), (3, 3, HeldState::SetAside), (4, 4, HeldState::Unloading)]);
        let found = reconcile(NODE, &held, &[]);
        assert_eq!(found.actions, [Action::SetAside { partition: id(2), placement: placement(2) }]);
    }

    #[test]
    fn unload_duty_deletes_once() {
        let unload = |number| Duty::Unload { partition: id(2), placement: placement(number) };
        let found = reconcile(NODE, &held(&[(2, 2, HeldState::Active)]), &[unload(2)]);
        assert_eq!(found.actions, [Action::Unload { partition: id(2), placement: placement(2) }]);
        assert!(reconcile(NODE, &held(&[(2, 2, HeldState::Unloading)]), &[unload(2)]).actions.is_empty());
        // Deleted already: the report was lost, so it is made again.
        assert_eq!(reconcile(NODE, &held(&[]), &[unload(2)]).actions.len(), 1);
    }

    #[test]
    fn hand_over_opens_idle_copy_first() {
        let duty = Duty::HandOver { partition: row(2, 2, 1), placement: placement(2), to: placement(9) };
        let expected = Action::HandOver { partition: row(2, 2, 1), placement: placement(2), to: placement(9) };
        assert_eq!(
            reconcile(NODE, &held(&[(2, 2, HeldState::Active)]), std::slice::from_ref(&duty)).actions,
            std::slice::from_ref(&expected)
        );
        let opened = reconcile(NODE, &held(&[(2, 2, HeldState::SetAside)]), &[duty]).actions;
        assert!(matches!(opened[..], [Action::Open { fresh: false, .. }, Action::HandOver { .. }]));
    }

    #[test]
    fn damaged_data_is_reported_and_not_served() {
        let found = reconcile(NODE, &held(&[(2, 2, HeldState::Damaged)]), &[host(2, 2)]);
        assert_eq!(found.actions, [Action::ReportDamaged { partition: row(2, 2, 1), placement: placement(2) }]);
    }

    #[test]
    fn damaged_data_of_unknown_origin_can_only_be_unloaded() {
        let nameless = HeldPlacement { partition: UNKNOWN, state: HeldState::Damaged };
        let held = BTreeMap::from([(placement(2), nameless)]);
        let found = reconcile(NODE, &held, &[host(2, 2)]);
        assert_eq!(found.actions, [Action::ReportDamaged { partition: row(2, 2, 1), placement: placement(2) }]);
        let unload = Duty::Unload { partition: id(2), placement: placement(2) };
        let expected = Action::Unload { partition: id(2), placement: placement(2) };
        assert_eq!(reconcile(NODE, &held, &[unload]).actions, [expected]);
    }

    #[test]
    fn invalid_duty_is_refused_and_data_left_alone() {
        let held = held(&[(2, 2, HeldState::Active)]);
        let elsewhere = Duty::Host { partition: row(2, 2, 7), placement: placement(2) };
        let found = reconcile(NODE, &held, &[elsewhere]);
        assert!(found.actions.is_empty());
        assert_eq!(found.refused.len(), 1);
        let another = reconcile(NODE, &held, &[host(5, 2)]);
        assert!(
            another.actions.is_empty() && another.refused[0].1.message.contains("held as a replica of partition 1/2")
        );
        let twice = reconcile(NODE, &held, &[host(2, 2), host(2, 2)]);
        assert_eq!((twice.actions.len(), twice.refused.len()), (1, 1));
    }
}
