//! Duties: opening, configuring, setting aside and deleting placements; registrations; the end.

use super::slot::{Found, Slot};
use super::{Env, Shard};
use crate::engine::{EngineError, PageLimit};
use crate::store;
use archon_host::{Action, Emptied, HeldState};
use archon_kv::LogTime;
use archon_kv::Recent;
use archon_proto::convert::session::Member;
use archon_replica::{Configuration, Identity, Input, Limits, Peer, Position, Recovered, Replica, Timing};
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, Fact, Incarnation, NodeStatus, Partition, PartitionId, PlacementId, Report, Seq,
    Version,
};
use std::collections::BTreeMap;
use std::ops::Bound;

impl Shard {
    /// Carries out what follows from a push to `incarnation`. Returns whether that is the node's present life; nothing is
    /// done otherwise: what was meant for one life must not be obeyed by the next, which holds and leads something else.
    pub(super) fn duties(&mut self, incarnation: Incarnation, actions: Vec<Action>) -> bool {
        let life = self.env.context.shared.life().map(|life| life.member);
        let Some(life) = life.filter(|life| life.incarnation == incarnation) else { return false };
        for action in actions {
            self.act(life, action);
        }
        true
    }

    fn act(&mut self, life: Member, action: Action) {
        match action {
            Action::Open { partition, placement, fresh } => self.open(life, partition, placement, fresh),
            Action::Configure { partition, placement } => self.configure(&partition, placement),
            Action::HandOver { partition, placement, to } => {
                let epoch = partition.epoch;
                self.tell_row(partition, placement);
                self.step(placement, Input::HandOver { epoch, to });
            }
            Action::SetAside { placement, .. } => self.set_aside(placement),
            Action::Unload { partition, placement } => self.unload(partition, placement),
            Action::ReportDamaged { partition, placement } => {
                let why = "the copy did not pass the checks when the node started".to_owned();
                let (epoch, version) = (partition.epoch, partition.version);
                let fact = Fact::Damaged { why };
                self.env.report(Report { partition: partition.id, placement, epoch, version, fact });
            }
        }
    }

    fn open(&mut self, life: Member, partition: Partition, placement: PlacementId, fresh: bool) {
        if self.slots.contains_key(&placement) {
            // It was set aside and is wanted again.
            if let Some(slot) = self.slots.get_mut(&placement) {
                slot.aside = false;
            }
            self.active.insert(partition.id, placement);
            return self.configure(&partition, placement);
        }
        let found = match self.dormant.remove(&placement) {
            Some(found) => found,
            None if fresh => {
                store::put_partition(&mut self.env.journal.batch, placement, partition.id);
                Found {
                    partition: partition.id,
                    recovered: Recovered::default(),
                    complete: Position::ZERO,
                    recent: Recent::new(Seq::ZERO, self.env.context.budget.clone()),
                    log_time: LogTime::default(),
                }
            }
            None => {
                return self.refuse(&partition, placement, "what the node took for held is not here".to_owned());
            }
        };
        let identity = Identity { partition: partition.id, placement, node: life.node, incarnation: life.incarnation };
        match Replica::new(identity, found.recovered.clone(), Limits::default()) {
            Ok(replica) => {
                let mut slot = Slot::new(placement, found, replica);
                slot.emptied = if fresh { Emptied::default().never_held(life.incarnation) } else { Emptied::default() };
                self.slots.insert(placement, slot);
                self.active.insert(partition.id, placement);
                self.configure(&partition, placement);
            }
            Err(error) => self.refuse(&partition, placement, error.to_string()),
        }
    }

    /// A placement that cannot be opened: the coordinator hears of it.
    fn refuse(&mut self, partition: &Partition, placement: PlacementId, why: String) {
        tracing::error!(partition = %partition.id, %placement, why, "placement damaged");
        self.env.context.holdings.set(placement, partition.id, HeldState::Damaged);
        let (epoch, version) = (partition.epoch, partition.version);
        self.env.report(Report { partition: partition.id, placement, epoch, version, fact: Fact::Damaged { why } });
    }

    fn configure(&mut self, partition: &Partition, placement: PlacementId) {
        let epoch = partition.epoch;
        if self.env.releasing && self.slots.get(&placement).is_some_and(|slot| slot.copy().would_take_up(partition)) {
            // The coordinator has named this node again before it heard that it leaves: taking the leadership up only
            // to give it up would go round and round.
            return;
        }
        self.tell_row(partition.clone(), placement);
        if self.env.releasing {
            self.step(placement, Input::HandOver { epoch, to: placement });
        } else {
            self.step(placement, Input::KeepLeading { epoch });
        }
        // Perhaps the node, or this registration of it, ended before anybody heard of it.
        if let Some(slot) = self.slots.get_mut(&placement)
            && slot.copy().is_emptied()
        {
            self.env.report_emptied(slot);
        }
    }

    fn tell_row(&mut self, row: Partition, placement: PlacementId) {
        if let Some(slot) = self.slots.get_mut(&placement) {
            self.env.tell_row(slot, row);
        }
    }

    fn set_aside(&mut self, placement: PlacementId) {
        let Some(slot) = self.slots.get_mut(&placement) else { return };
        tracing::warn!(partition = %slot.partition, %placement, "set aside: no duty names this placement; its data is kept");
        slot.aside = true;
        slot.end_spoilt_copies();
        self.env.lease(slot);
        // Nothing is answered from here, so whoever leads next need not wait.
        let epoch = slot.replica.epoch();
        self.env.step(slot, Input::Withdrawn { epoch });
        let gone = self.env.gone(slot.partition, "the node no longer hosts the partition");
        self.env.fail_waiting(slot, &gone);
        if self.active.get(&slot.partition) == Some(&placement) {
            let partition = slot.partition;
            self.active.remove(&partition);
        }
    }

    fn unload(&mut self, partition: PartitionId, placement: PlacementId) {
        self.env.context.copies.stop(placement);
        self.dormant.remove(&placement);
        if let Some(mut slot) = self.slots.remove(&placement) {
            self.env.rest(&mut slot);
            let gone = self.env.gone(partition, "the partition has moved away");
            self.env.fail_waiting(&mut slot, &gone);
        }
        if self.active.get(&partition) == Some(&placement) {
            self.active.remove(&partition);
        }
        self.env.journal.batch.drop_stream(store::stream(placement));
        match self.env.context.flusher.clear(placement) {
            Ok(clear) => {
                self.unloading.insert(placement, clear);
            }
            Err(error) => tracing::warn!(%placement, %error, "the placement's data is cleared at the next start"),
        }
    }

    /// The engine holds nothing of this placement any more, unless something was written after this clearing.
    pub(super) fn cleared(&mut self, partition: PartitionId, placement: PlacementId, clear: u64) {
        if self.unloading.get(&placement) == Some(&clear) {
            self.unloading.remove(&placement);
            self.env.journal.delete(partition, placement);
        } else {
            self.pull(placement, clear);
        }
    }

    /// Nothing is left of this placement, on the disk too. Whoever is told so never names it again.
    pub(super) fn deleted(&mut self, partition: PartitionId, placement: PlacementId) {
        tracing::info!(%partition, %placement, "unloaded");
        self.env.context.shared.load.forget(placement);
        self.env.context.holdings.remove(placement);
        let (epoch, version) = (Epoch::ZERO, Version::ZERO);
        self.env.report(Report { partition, placement, epoch, version, fact: Fact::Unloaded });
    }

    pub(super) fn renew(&mut self, incarnation: Incarnation) {
        for slot in self.slots.values_mut() {
            self.env.step(slot, Input::Renew { incarnation });
            self.env.rest(slot);
        }
    }

    /// The coordinator is about to give these leaderships to somebody else; it need not wait for the lease to run out if
    /// they are released.
    pub(super) fn withdrawn(&mut self, leaderships: Vec<(PartitionId, Epoch)>) {
        for (partition, epoch) in leaderships {
            let slot = match self.active.get(&partition) {
                Some(placement) => self.slots.get_mut(placement),
                // One that was set aside leads nothing, and has to say so as well.
                None => self.slots.values_mut().find(|slot| slot.partition == partition),
            };
            let Some(slot) = slot else { continue };
            self.env.lease(slot);
            self.env.step(slot, Input::Withdrawn { epoch });
        }
    }

    pub(super) fn peers_changed(&mut self) {
        for slot in self.slots.values_mut().filter(|slot| !slot.aside) {
            let Some(configuration) = slot.replica.configuration() else { continue };
            if configuration.row.placements.len() > 1 {
                let row = configuration.row.clone();
                self.env.tell_row(slot, row);
            }
        }
    }

    /// The node is stopping: gives up whatever it leads.
    pub(super) fn release(&mut self) {
        self.env.releasing = true;
        for slot in self.slots.values_mut() {
            let Some(epoch) = slot.replica.configuration().map(|configuration| configuration.row.epoch) else {
                continue;
            };
            let to = slot.placement;
            self.env.step(slot, Input::HandOver { epoch, to });
        }
    }
}

impl Env {
    /// What to answer to those who wait for a partition that is served here no more.
    fn gone(&self, partition: PartitionId, why: &str) -> ErrorDetail {
        let dropped = self.context.shared.tables.dropped(partition);
        dropped.unwrap_or_else(|| ErrorDetail::new(ErrorKind::Unavailable, why))
    }

    fn tell_row(&mut self, slot: &mut Slot, row: Partition) {
        match slot.emptied.leads_a_part(slot.copy(), &row, || self.has_rows(slot.placement)) {
            Ok(false) => {}
            Ok(true) => {
                let why =
                    "it was made leader and holds a part of the data at most: it was being copied anew".to_owned();
                return self.damaged.push((slot.placement, why));
            }
            Err(error) => return self.unusable(slot, &error.into()),
        }
        let shared = &self.context.shared;
        let peers: BTreeMap<PlacementId, Peer> = row
            .placements
            .iter()
            .filter(|other| other.id != slot.placement)
            .filter_map(|other| {
                let node = shared.tables.node(other.node)?;
                let failed = node.status != NodeStatus::Live;
                Some((other.id, Peer { node: other.node, incarnation: node.incarnation, failed }))
            })
            .collect();
        let timeout_ms = shared.life().map(|life| life.settings.replication_timeout_ms);
        let timing = timeout_ms.map_or_else(Timing::default, |replication_timeout_ms| Timing {
            replication_timeout_ms,
            keep_alive_ms: keep_alive_ms(replication_timeout_ms, self.context.holdings.len()),
        });
        self.step(slot, Input::Configure(Configuration { row, peers, timing }));
        // A leadership just taken up is covered by the lease at once, if there is one.
        self.lease(slot);
        self.unpark(slot);
    }

    /// Whether the engine holds any row of a placement.
    fn has_rows(&self, placement: PlacementId) -> Result<bool, EngineError> {
        let any = PageLimit { rows_max: 1, bytes_max: usize::MAX };
        let page = self.context.engine.page(placement, (Bound::Unbounded, Bound::Unbounded), any)?;
        Ok(!page.rows.is_empty())
    }
}

/// How long a follower is left in peace: the replication time-out, and longer where so many copies are held here that
/// asking after each of them every second would be work.
fn keep_alive_ms(replication_timeout_ms: u64, placements: usize) -> u64 {
    const PLACEMENTS_PER_TIMEOUT: u64 = 1_024;
    let placements = u64::try_from(placements).unwrap_or(u64::MAX);
    replication_timeout_ms.saturating_mul(1 + placements / PLACEMENTS_PER_TIMEOUT)
}
