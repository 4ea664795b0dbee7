//! Duties: open, configure, set aside and delete copies.

use crate::copies::local_copy::{LocalCopy, RecoveredCopy};
use crate::copies::reconcile::Action;
use crate::log_write::LogWrite;
use crate::operations::refusal::Cause;
use crate::partitions::Partitions;
use crate::shell::{CopyEvent, CopyLocation, NodeRegistration, Shell};
use crate::turn::Turn;
use archon_kv::Memtable;
use archon_kv::engine::PageLimit;
use archon_replica::{Configuration, Identity, Input, Peer, Position, RecoveredState};
use archon_types::{Fact, Incarnation, Partition, PartitionId, PlacementId, Report, ScanOrder, Seq, Version};
use std::collections::BTreeMap;
use std::ops::Bound;

impl<S: Shell> Partitions<S> {
    /// Carries out the actions of a push to `incarnation`. Returns whether that is the node's present incarnation;
    /// otherwise nothing is done: a later incarnation holds and leads other copies.
    pub fn duties(&mut self, incarnation: Incarnation, actions: Vec<Action>) -> bool {
        let life = self.turn.shell.life();
        let Some(life) = life.filter(|life| life.incarnation == incarnation) else { return false };
        for action in actions {
            self.act(life, action);
        }
        true
    }

    fn act(&mut self, life: NodeRegistration, action: Action) {
        if self.decline(&action) {
            return;
        }
        match action {
            Action::Open { partition, placement, fresh } => self.open(life, partition, placement, fresh),
            Action::Configure { partition, placement } => self.configure(&partition, placement),
            Action::HandOver { partition, placement, to } => {
                let epoch = partition.epoch;
                self.pass_row(partition, placement);
                self.step(placement, Input::HandOver { epoch, to });
            }
            Action::SetAside { placement, .. } => self.set_aside(placement),
            Action::Inspect { partition, placement } => self.inspect(life, partition, placement),
            Action::Unload { partition, placement } => self.unload(partition, placement),
            Action::ReportDamaged { partition, placement } => {
                self.report_damaged(&partition, placement, "the replica did not pass the checks when the node started");
            }
        }
    }

    fn open(&mut self, life: NodeRegistration, partition: Partition, placement: PlacementId, fresh: bool) {
        if let Some(local) = self.copies.get_mut(&placement) {
            // It was set aside and is needed again.
            (local.set_aside, local.inspected) = (false, false);
            self.active.insert(partition.id, placement);
            return self.configure(&partition, placement);
        }
        self.form_no_more(placement);
        // Its log exists already; following writes come after that.
        self.adopted(placement);
        let early = self.early.remove(&placement);
        // The engine may have refused to read the adopted copy.
        if self.decline_row(&partition, placement) {
            return;
        }
        let found = match self.dormant.remove(&placement) {
            Some(found) => found,
            None if fresh => {
                self.turn.shell.log(placement, LogWrite::Open(partition.id));
                RecoveredCopy {
                    partition: partition.id,
                    recovered: RecoveredState::default(),
                    complete: Position::ZERO,
                    memtable: Memtable::new(Seq::ZERO, self.turn.shell.budget()),
                    log_time: self.turn.shell.log_time(),
                    unreadable: None,
                }
            }
            None => return self.refuse(&partition, placement, "what the node took for held is not here"),
        };
        let identity = Identity { partition: partition.id, placement, node: life.node, incarnation: life.incarnation };
        match self.turn.shell.replica(identity, found.recovered.clone()) {
            Ok(replica) => {
                let emptied = if fresh { self.emptied().never_held(life.incarnation) } else { self.emptied() };
                let local = LocalCopy::new(placement, found, replica, emptied, self.turn.broken);
                self.turn.shell.observe(local.at(), CopyEvent::Opened { fresh });
                self.copies.insert(placement, local);
                self.active.insert(partition.id, placement);
                self.configure(&partition, placement);
                if let Some(message) = early {
                    self.step(placement, Input::Message(message));
                }
            }
            Err(error) => self.refuse(&partition, placement, &error.to_string()),
        }
    }

    /// Reports a copy that cannot be opened to the coordinator.
    fn refuse(&mut self, partition: &Partition, placement: PlacementId, why: &str) {
        let at = CopyLocation { partition: partition.id, placement, epoch: partition.epoch, commit: Seq::ZERO };
        self.turn.shell.observe(at, CopyEvent::Damaged(why));
        self.report_damaged(partition, placement, why);
    }

    fn report_damaged(&mut self, partition: &Partition, placement: PlacementId, why: &str) {
        let (epoch, version) = (partition.epoch, partition.version);
        let fact = Fact::Damaged { why: why.to_owned() };
        self.turn.shell.report(Report { partition: partition.id, placement, epoch, version, fact });
    }

    fn configure(&mut self, partition: &Partition, placement: PlacementId) {
        let epoch = partition.epoch;
        let releasing = self.turn.releasing;
        if releasing && self.copies.get(&placement).is_some_and(|local| local.view().would_take_up(partition)) {
            // The coordinator named this node before it heard that the node is leaving: taking up the leadership only
            // to give it up would repeat forever.
            return;
        }
        self.pass_row(partition.clone(), placement);
        let input = if releasing { Input::HandOver { epoch, to: placement } } else { Input::KeepLeading { epoch } };
        self.step(placement, input);
        // The earlier report may have been lost when the node, or this registration, ended.
        if let Some(local) = self.copies.get_mut(&placement)
            && local.view().is_emptied()
        {
            self.turn.report_emptied(local);
        }
    }

    fn pass_row(&mut self, row: Partition, placement: PlacementId) {
        if let Some(local) = self.copies.get_mut(&placement) {
            self.turn.pass_row(local, row);
        }
    }

    /// Passes changes of other nodes' registrations, failure states or the replication time-out to the replicas.
    pub fn peers_changed(&mut self) {
        for local in self.copies.values_mut().filter(|local| !local.set_aside) {
            let Some(configuration) = local.replica.configuration() else { continue };
            if configuration.row.placements.len() > 1 {
                let row = configuration.row.clone();
                self.turn.pass_row(local, row);
            }
        }
    }

    fn set_aside(&mut self, placement: PlacementId) {
        let Some(local) = self.copies.get_mut(&placement) else { return };
        self.turn.shell.observe(local.at(), CopyEvent::SetAside);
        local.set_aside = true;
        local.end_spoilt_copies();
        self.turn.lease(local);
        // This copy answers nothing, so the next leader need not wait.
        let epoch = local.replica.epoch();
        self.turn.step(local, Input::Withdrawn { epoch });
        let cause = self.turn.gone(local.partition, Cause::SetAside);
        self.turn.fail_waiting(local, cause);
        let partition = local.partition;
        self.forget_active(partition, placement);
    }

    /// Freezes the copy's log: it accepts no message of other copies, so the reported end stays true (PROTOCOL rule
    /// 61).
    fn inspect(&mut self, life: NodeRegistration, partition: PartitionId, placement: PlacementId) {
        let (epoch, last) = if let Some(local) = self.copies.get(&placement) {
            if !local.set_aside {
                self.set_aside(placement);
            }
            let Some(local) = self.copies.get_mut(&placement) else { return };
            local.inspected = true;
            // Entries that are not durable were not acknowledged by this copy, and may be gone at the next start.
            let replica = &local.replica;
            (replica.epoch(), replica.position_at(replica.durable()).unwrap_or_else(|| replica.base()))
        } else if let Some(found) = self.dormant.get(&placement) {
            (found.recovered.epoch, found.recovered.last_position())
        } else if let Some(copy) = self.unreadable.get(placement) {
            (copy.epoch, copy.last)
        } else {
            return;
        };
        // Carries the incarnation: a late answer of an earlier one does not answer this request.
        let (version, fact) = (Version::new(life.incarnation.get()), Fact::Inspected { last });
        self.turn.shell.report(Report { partition, placement, epoch, version, fact });
    }

    fn unload(&mut self, partition: PartitionId, placement: PlacementId) {
        self.turn.shell.stop_copy(placement);
        self.form_no_more(placement);
        self.adopting.remove(&placement);
        self.dormant.remove(&placement);
        self.unreadable.remove(placement);
        self.early.remove(&placement);
        if let Some(mut local) = self.copies.remove(&placement) {
            self.turn.rest(&mut local);
            let cause = self.turn.gone(partition, Cause::Unloaded);
            self.turn.fail_waiting(&mut local, cause);
        }
        self.forget_active(partition, placement);
        self.turn.shell.log(placement, LogWrite::Drop);
        let at = CopyLocation { partition, placement, epoch: archon_types::Epoch::ZERO, commit: Seq::ZERO };
        self.turn.shell.observe(at, CopyEvent::Unloading);
        // If clearing has stopped, the copy is deleted at the next start.
        let clear = self.turn.shell.clear(placement);
        self.unloading.insert(placement, (partition, clear));
    }

    fn forget_active(&mut self, partition: PartitionId, placement: PlacementId) {
        if self.active.get(&partition) == Some(&placement) {
            self.active.remove(&partition);
        }
    }
}

impl<S: Shell> Turn<S> {
    fn pass_row(&mut self, local: &mut LocalCopy<S>, row: Partition) {
        let position = local.memtable.engine_position();
        match local.emptied.leads_a_part(local.view(), &row, position, || self.has_rows(local.placement)) {
            Ok(false) => {}
            Ok(true) => {
                let why =
                    "it was made leader and holds a part of the data at most: it was being copied anew".to_owned();
                return self.damaged.push((local.placement, why));
            }
            Err(error) => return self.unusable_with(local, &error, Some(row)),
        }
        let others = row.placements.iter().filter(|other| other.id != local.placement);
        let peers: BTreeMap<PlacementId, Peer> = others
            .filter_map(|other| {
                let (incarnation, failed) = self.shell.peer(other.node)?;
                Some((other.id, Peer { node: other.node, incarnation, failed }))
            })
            .collect();
        let timing = self.shell.timing();
        self.note_split(local, &row);
        self.step(local, Input::Configure(Configuration { row, peers, timing }));
        // A leadership just taken up is covered by the lease at once, if there is one.
        self.lease(local);
        self.unpark(local);
    }

    /// Returns whether the engine holds any row of a copy.
    fn has_rows(&self, placement: PlacementId) -> Result<bool, archon_kv::ViewError> {
        let any = PageLimit { rows_max: 1, bytes_max: usize::MAX };
        let page =
            self.shell.engine().page(placement, (Bound::Unbounded, Bound::Unbounded), ScanOrder::Ascending, any)?;
        Ok(!page.rows.is_empty())
    }
}

#[cfg(test)]
#[path = "duty_tests.rs"]
mod tests;
