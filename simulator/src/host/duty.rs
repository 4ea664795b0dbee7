//! Duties: opening, configuring, setting aside and deleting placements; registrations and the end.

use super::disk::Write;
use super::slot::Slot;
use super::start::new_replica;
use crate::event::{Downward, Event, Push, Upward};
use crate::mutant::{ShellMutant, broken_host};
use crate::network::End;
use crate::world::World;
use archon_host::{Action, Emptied, Pushed, Waiting, reconcile};
use archon_replica::{Configuration, Identity, Input, Peer, Position, Recovered, Timing};
use archon_types::{Duty, Epoch, Fact, NodeId, Partition, PartitionId, PlacementId, Report, TableList, Version};
use std::collections::BTreeMap;

impl World {
    pub(crate) fn on_downward(&mut self, host: usize, message: Downward) {
        match message {
            Downward::Push(_) if self.hosts[host].deaf_until > self.truth => {}
            Downward::Push(push) => self.on_push(host, *push),
            other => self.on_session(host, other),
        }
        self.settle(host);
    }

    fn on_push(&mut self, host: usize, push: Push) {
        let untold = self.breaks(ShellMutant::DropUntold);
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(life) = process.life.filter(|life| life.incarnation == push.incarnation) else { return };
        let taken = process.obeyed.take(push.incarnation, push.term, push.version, push.duties.is_some());
        if matches!(taken, Pushed::Succeeded { .. }) {
            return;
        }
        let mut news = false;
        if let Some(registrations) = push.nodes.filter(|nodes| nodes.version >= process.peers_version) {
            process.peers_version = registrations.version;
            for (node, incarnation, failed) in registrations.nodes {
                let known = process.peers.insert(node, (incarnation, failed));
                news |= known != Some((incarnation, failed));
            }
        }
        let newer = |list: &TableList| (list.version, list.last) > (process.tables.version, process.tables.last);
        if let Some(list) = push.tables.filter(newer).filter(|_| !untold) {
            process.tables = list;
        }
        let duties = push.duties.filter(|_| taken == Pushed::Duties);
        if duties.is_some() {
            process.obeyed.obey(push.term, push.version);
        }
        let version = process.obeyed.version();
        let answer = Upward::Pushed { node: life.node, number: push.number, version };
        let coordinator = push.coordinator;
        self.send(End::Host(host), End::Coordinator(coordinator), Event::Upward { coordinator, host, message: answer });
        if news {
            self.peers_changed(host);
        }
        if let Some(duties) = duties {
            self.obey(host, life.node, &duties);
        }
    }

    fn obey(&mut self, host: usize, node: NodeId, duties: &[Duty]) {
        let Some(process) = &self.hosts[host].process else { return };
        let broken = broken_host(self.mutant);
        for action in reconcile(node, &process.held(), duties, broken).actions {
            self.act(host, action);
        }
    }

    fn act(&mut self, host: usize, action: Action) {
        match action {
            Action::Open { partition, placement, .. } => self.open(host, &partition, placement),
            Action::Configure { partition, placement } => self.configure(host, &partition, placement),
            Action::HandOver { partition, placement, to } => {
                let epoch = partition.epoch;
                self.tell_row(host, placement, partition);
                self.step(host, placement, Input::HandOver { epoch, to });
            }
            Action::SetAside { placement, .. } => self.set_aside(host, placement),
            Action::Unload { partition, placement } => self.unload(host, partition, placement),
            Action::ReportDamaged { partition, placement } => {
                let fact = Fact::Damaged { why: "the copy did not pass the checks when the node started".to_owned() };
                let (epoch, version) = (partition.epoch, partition.version);
                self.queue_report(host, Report { partition: partition.id, placement, epoch, version, fact });
            }
        }
    }

    fn open(&mut self, host: usize, row: &Partition, placement: PlacementId) {
        let mutant = self.mutant;
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(life) = process.life else { return };
        if !process.slots.contains_key(&placement) {
            let identity = Identity { partition: row.id, placement, node: life.node, incarnation: life.incarnation };
            let dormant = process.dormant.remove(&placement);
            let (recovered, fresh) = match self.hosts[host].disk.readable().get(&placement) {
                Some(stream) if dormant.is_some() => (stream.recovered(), false),
                _ => (Recovered::default(), true),
            };
            let Ok(replica) = new_replica(identity, recovered, mutant) else { return };
            let checked = self.checks.opens(placement);
            self.judge(checked);
            let Some(process) = &mut self.hosts[host].process else { return };
            let (emptied, waiting) = (Emptied::new(broken_host(mutant)), Waiting::new(broken_host(mutant)));
            let slot = match dormant {
                Some(found) => Slot { replica, emptied, waiting, ..found },
                None => Slot {
                    emptied: emptied.never_held(life.incarnation),
                    waiting,
                    ..Slot::new(row.id, placement, replica, Position::ZERO)
                },
            };
            if fresh {
                process.journal.gathered.writes.push(Write::Open(placement, row.id));
            }
            process.slots.insert(placement, slot);
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        process.active.insert(row.id, placement);
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        slot.aside = false;
        self.configure(host, row, placement);
    }

    fn configure(&mut self, host: usize, row: &Partition, placement: PlacementId) {
        let Some(process) = &self.hosts[host].process else { return };
        let Some(slot) = process.slots.get(&placement) else { return };
        let releasing = process.stopping.is_some();
        if releasing && slot.copy().would_take_up(row) {
            return;
        }
        self.tell_row(host, placement, row.clone());
        let epoch = row.epoch;
        let input = if releasing { Input::HandOver { epoch, to: placement } } else { Input::KeepLeading { epoch } };
        self.step(host, placement, input);
        // Perhaps the node, or this registration of it, ended before anybody heard of it.
        if self.slot(host, placement).is_some_and(|slot| slot.copy().is_emptied()) {
            self.report_emptied(host, placement);
        }
    }

    fn tell_row(&mut self, host: usize, placement: PlacementId, row: Partition) {
        let Some(process) = &self.hosts[host].process else { return };
        let others = row.placements.iter().filter(|other| other.id != placement);
        let peers: BTreeMap<PlacementId, Peer> = others
            .filter_map(|other| {
                let (incarnation, failed) = *process.peers.get(&other.node)?;
                Some((other.id, Peer { node: other.node, incarnation, failed }))
            })
            .collect();
        let replication_timeout_ms = self.plan.settings.replication_timeout_ms;
        let timing = Timing { replication_timeout_ms, keep_alive_ms: replication_timeout_ms };
        self.step(host, placement, Input::Configure(Configuration { row, peers, timing }));
        self.tell_lease(host, placement);
        self.checks.leases_changed = true;
    }

    /// Tells a replica whether the lease covers it, if that changed.
    pub(crate) fn tell_lease(&mut self, host: usize, placement: PlacementId) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let covered = !slot.aside && process.grants.covers(slot.partition, slot.replica.epoch(), now);
        if covered != slot.covered {
            slot.covered = covered;
            self.step(host, placement, Input::Lease(covered));
        }
    }

    fn peers_changed(&mut self, host: usize) {
        let Some(process) = &self.hosts[host].process else { return };
        let rows: Vec<(PlacementId, Partition)> = process
            .slots
            .iter()
            .filter(|(_, slot)| !slot.aside)
            .filter_map(|(placement, slot)| Some((*placement, slot.replica.configuration()?.row.clone())))
            .collect();
        for (placement, row) in rows {
            self.tell_row(host, placement, row);
        }
    }

    fn set_aside(&mut self, host: usize, placement: PlacementId) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        slot.aside = true;
        slot.end_spoilt_copies();
        let partition = slot.partition;
        if process.active.get(&partition) == Some(&placement) {
            process.active.remove(&partition);
        }
        let epoch = slot.replica.epoch();
        self.tell_lease(host, placement);
        self.step(host, placement, Input::Withdrawn { epoch });
        self.fail_waiting(host, placement);
    }

    fn unload(&mut self, host: usize, partition: PartitionId, placement: PlacementId) {
        self.rest(host, placement);
        self.fail_waiting(host, placement);
        let Some(process) = &mut self.hosts[host].process else { return };
        process.dormant.remove(&placement);
        process.damaged.remove(&placement);
        process.slots.remove(&placement);
        if process.active.get(&partition) == Some(&placement) {
            process.active.remove(&partition);
        }
        process.unloading.insert(placement, partition);
    }

    pub(super) fn unloaded(&mut self, host: usize, placement: PlacementId, partition: PartitionId) {
        if let Some(process) = &mut self.hosts[host].process {
            process.emptied.remove(&placement);
        }
        self.checks.deleted.insert(placement);
        let (epoch, version) = (Epoch::ZERO, Version::ZERO);
        self.queue_report(host, Report { partition, placement, epoch, version, fact: Fact::Unloaded });
    }
}
