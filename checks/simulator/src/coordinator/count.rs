//! Counts and records the effects of a committed command.

use crate::coordinator::member::host_of;
use crate::event::Event;
use crate::world::World;
use archon_coordinator_core::{ClusterState, Command, CommandBatch, Edit, EventKind, LossOutcome, Response};
use archon_types::{PartitionId, ReplicaState};

impl World {
    pub(super) fn count_change(&mut self, before: &ClusterState, batch: &CommandBatch, responses: &[Response]) {
        let after = &self.quorum.state;
        let coverage = &mut self.coverage;
        let mut losses = Vec::new();
        for (command, response) in batch.commands.iter().zip(responses) {
            if response.refusal().is_some() {
                continue;
            }
            match command {
                Command::CreateTable { name, .. } => {
                    coverage.tables_created += 1;
                    coverage.names_reused += u64::from(self.checks.names_dropped.contains(name));
                }
                Command::DropTable { table } => {
                    coverage.tables_dropped += 1;
                    self.checks.note_drop(before, *table, self.truth);
                }
                Command::AcceptLoss { partition, outcome, .. } => {
                    losses.push((*partition, *outcome));
                }
                Command::Deleted { placement, .. } => {
                    coverage.condemned_deleted += 1;
                    let late = self.checks.condemned.get(placement) == Some(&true);
                    coverage.condemned_deleted_late += u64::from(late);
                }
                Command::NodeLost { .. } => coverage.nodes_declared_lost += 1,
                Command::RemoveNode { .. } => coverage.nodes_removed += 1,
                Command::NodeFailed { successors, .. } => {
                    coverage.nodes_failed += 1;
                    coverage.successors += successors.len() as u64;
                }
                Command::Change(changes) => {
                    let edits = changes.iter().flat_map(|change| &change.edits);
                    coverage.refusals += edits.filter(|edit| matches!(edit, Edit::Refuse)).count() as u64;
                }
                Command::StartPlan { .. } => coverage.plans += 1,
                _ => {}
            }
        }
        for row in after.partitions.iter() {
            let Some(old) = before.partitions.get(row.id).filter(|old| old.version != row.version) else { continue };
            coverage.elections += u64::from(row.leader.is_some() && row.epoch > old.epoch);
            for copy in &old.placements {
                let now = row.placement(copy.id).map(|copy| copy.state);
                match (copy.state, now) {
                    (ReplicaState::Load, Some(ReplicaState::Live)) => coverage.promotions += 1,
                    (ReplicaState::Live, Some(ReplicaState::Load)) => coverage.demotions += 1,
                    (ReplicaState::Unload, None) => coverage.unloads += 1,
                    _ => {}
                }
            }
        }
        let mut parted = Vec::new();
        for event in &after.events {
            match &event.what {
                EventKind::QuorumChangeBegun { .. } => coverage.quorum_changes += 1,
                EventKind::QuorumChanged { .. } => coverage.quorum_changes_done += 1,
                EventKind::QuorumChangeCancelled { .. } => coverage.quorum_changes_cancelled += 1,
                EventKind::RecoverySettled { .. } => coverage.recoveries_settled += 1,
                EventKind::EpochSurpassed { .. } => coverage.epochs_surpassed += 1,
                EventKind::ReplicaLost { .. } => coverage.placements_lost += 1,
                EventKind::RepairStarted { .. } => coverage.repairs += 1,
                EventKind::RepairDone { .. } => coverage.repairs_done += 1,
                EventKind::CopyRetired { .. } => coverage.copies_retired += 1,
                EventKind::SplitBegun { .. } => coverage.splits_begun += 1,
                EventKind::SplitCut { .. } => coverage.splits_cut += 1,
                EventKind::Parted { partition, .. } => {
                    coverage.parted += 1;
                    parted.push(*partition);
                }
                EventKind::SplitAbandoned { .. } => coverage.splits_abandoned += 1,
                EventKind::MergeBegun { .. } => coverage.merges_begun += 1,
                EventKind::Merged { .. } => coverage.merged += 1,
                EventKind::MergeAbandoned { .. } => coverage.merges_abandoned += 1,
                EventKind::MigrationOver { outcome, .. } if outcome == "done" => coverage.migrations_done += 1,
                EventKind::MigrationOver { .. } => coverage.migrations_undone += 1,
                _ => {}
            }
        }
        if self.plan.returns_keys {
            parted.into_iter().for_each(|partition| self.after(1, Event::ReturnKeys { partition }));
        }
        for (partition, outcome) in losses {
            self.loss_accepted(before, partition, outcome);
        }
        let checked = self.checks.note_splits(before, &self.quorum.state);
        self.judge(checked);
        let checked = self.checks.note_merges(before, &self.quorum.state);
        self.judge(checked);
    }

    /// Records that from now on the leading copy's data counts, or nothing.
    fn loss_accepted(&mut self, before: &ClusterState, partition: PartitionId, outcome: LossOutcome) {
        let after = &self.quorum.state;
        let (Some(old), Some(row)) = (before.partitions.get(partition), after.partitions.get(partition)) else {
            return;
        };
        let leader = match outcome {
            LossOutcome::Lead { placement, .. } => Some(placement),
            LossOutcome::Empty => None,
        };
        let node = leader.and_then(|leader| old.placement(leader)).and_then(|copy| after.node(copy.node));
        let host = node.and_then(|node| host_of(&node.node.address)).and_then(|host| self.hosts.get(host));
        let stream = |leader| host.and_then(|host| host.disk.streams.get(&leader));
        let known = self.checks.of(partition);
        known.give_up(old.placements.iter().map(|copy| copy.id), leader);
        let accepted = known.accept_loss(row.epoch, leader.map(|leader| (leader, stream(leader))));
        self.coverage.losses_accepted += 1;
        self.coverage.begun_empty += u64::from(leader.is_none());
        self.coverage.positions_given_up += *accepted.as_ref().unwrap_or(&0);
        self.judge(accepted.map(drop));
    }
}
