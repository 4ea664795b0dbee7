//! Coordinator as a register: guarded edits of one row. Raft is assumed correct.

use crate::{Configuration, Peer, Timing};
use archon_types::{
    Epoch, Fact, Incarnation, KeyRange, NodeId, Partition, PartitionId, PartitionStatus, Placement, PlacementId,
    ReplicaState, Report, TableId, Version,
};
use std::collections::BTreeMap;

pub(super) const PARTITION: PartitionId = PartitionId::new(TableId::new(1), 7);

/// Builds a row: placement `n` is on node `n`; states are given in order of placement.
pub(super) fn row(epoch: u64, version: u64, leader: Option<u64>, states: &[ReplicaState], min: u8) -> Partition {
    let placements = states.iter().zip(1..).map(|(state, number)| Placement {
        id: PlacementId::new(number),
        node: NodeId::new(number),
        state: *state,
    });
    Partition {
        id: PARTITION,
        epoch: Epoch::new(epoch),
        version: Version::new(version),
        leader: leader.map(PlacementId::new),
        placements: placements.collect(),
        status: PartitionStatus::Assigned,
        min_in_sync: min,
        range: KeyRange::ALL,
        split: None,
        merge: None,
        absorbed: Version::ZERO,
    }
}

#[derive(Debug)]
pub(super) struct Coordinator {
    pub(super) row: Partition,
    pub(super) incarnations: BTreeMap<PlacementId, Incarnation>,
    pub(super) handing: Option<(Epoch, PlacementId)>,
    pub(super) promoted: u64,
    pub(super) dropped: u64,
    pub(super) released: u64,
}

impl Coordinator {
    pub(super) fn new(states: &[ReplicaState], min: u8) -> Self {
        let row = row(1, 1, Some(1), states, min);
        let incarnations = row.placements.iter().map(|placement| (placement.id, Incarnation::new(1))).collect();
        Self { row, incarnations, handing: None, promoted: 0, dropped: 0, released: 0 }
    }

    pub(super) fn configuration(&self) -> Configuration {
        let peer = |placement: &Placement| {
            let incarnation = self.incarnations.get(&placement.id).copied().unwrap_or_default();
            (placement.id, Peer { node: placement.node, incarnation, failed: false })
        };
        Configuration {
            row: self.row.clone(),
            peers: self.row.placements.iter().map(peer).collect(),
            timing: Timing::default(),
        }
    }

    fn bump(&mut self) {
        self.row.version = self.row.version.next().unwrap();
    }

    fn new_epoch(&mut self, leader: Option<PlacementId>) {
        self.row.epoch = self.row.epoch.next().unwrap();
        self.row.leader = leader;
        self.row.status = PartitionStatus::Assigned;
        self.handing = None;
        self.bump();
    }

    pub(super) fn state(&self, placement: PlacementId) -> Option<ReplicaState> {
        self.row.placement(placement).map(|placement| placement.state)
    }

    /// Registers a node again, which ends its leadership (rule 8).
    pub(super) fn register(&mut self, placement: PlacementId) -> Incarnation {
        let incarnation = self.incarnations.values().max().copied().and_then(Incarnation::next).unwrap();
        self.incarnations.insert(placement, incarnation);
        if self.row.leader == Some(placement) {
            self.new_epoch(None);
        }
        incarnation
    }

    pub(super) fn elect(&mut self, placement: PlacementId) {
        assert_eq!(self.state(placement), Some(ReplicaState::Live));
        self.new_epoch(Some(placement));
    }

    fn set(&mut self, placement: PlacementId, state: ReplicaState) {
        for known in self.row.placements.iter_mut().filter(|known| known.id == placement) {
            known.state = state;
        }
    }

    /// Handles a report from a node's present incarnation. Requests that name the present version consume it (rule 3).
    pub(super) fn report(&mut self, report: &Report) {
        if report.epoch != self.row.epoch || self.row.leader != Some(report.placement) {
            return;
        }
        let present = report.version == self.row.version;
        match &report.fact {
            Fact::Online => {
                if self.row.status != PartitionStatus::Online {
                    self.row.status = PartitionStatus::Online;
                    self.bump();
                }
            }
            Fact::CaughtUp { joiner } if present => {
                if self.incarnations.get(&joiner.placement) == Some(&joiner.incarnation)
                    && self.state(joiner.placement) == Some(ReplicaState::Load)
                {
                    self.set(joiner.placement, ReplicaState::Live);
                    self.promoted += 1;
                }
                self.bump();
            }
            Fact::Silent { followers } if present => {
                let left =
                    self.row.live().filter(|live| followers.iter().all(|name| name.placement != live.id)).count();
                if left >= usize::from(self.row.min_in_sync) {
                    for name in followers {
                        if Some(name.placement) != self.row.leader {
                            self.set(name.placement, ReplicaState::Load);
                            self.dropped += 1;
                        }
                    }
                }
                self.bump();
            }
            Fact::Released => {
                self.released += 1;
                let heir = self.handing.map(|(_, heir)| heir);
                self.new_epoch(heir.filter(|heir| self.state(*heir) == Some(ReplicaState::Live)));
            }
            Fact::CaughtUp { .. }
            | Fact::Silent { .. }
            | Fact::Unloaded
            | Fact::Damaged { .. }
            | Fact::LostData { .. }
            | Fact::Overtaken { .. }
            | Fact::Declined
            | Fact::Formed { .. }
            | Fact::Mirroring { .. }
            | Fact::Outgrown { .. }
            | Fact::Undersized(_)
            | Fact::Absorbed { .. }
            | Fact::Unabsorbable { .. }
            | Fact::Emptied
            | Fact::Inspected { .. } => {}
        }
    }
}
