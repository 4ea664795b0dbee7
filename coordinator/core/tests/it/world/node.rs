//! A node of the simulated world: a disk that survives a crash, and a process that performs its duties under a lease.

use super::{Clock, Event, World};
use archon_coordinator_core::*;
use archon_types::*;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// One stored copy: its number of writes, the highest epoch it knows, and whether it is complete.
#[derive(Clone, Debug)]
struct Copy {
    partition: PartitionId,
    writes: u64,
    epoch: Epoch,
    whole: bool,
}

/// Memory of a process, lost when it dies.
#[derive(Clone, Debug, Default)]
struct Process {
    boot: BootId,
    node: Option<(NodeId, Incarnation)>,
    pushed_at: u64,
    lease: Lease,
    duties: Vec<Duty>,
    /// Partitions that it serves while its lease is valid, with the epoch.
    serving: BTreeMap<PartitionId, Epoch>,
    /// Released or withdrawn: never served again in that epoch.
    ended: BTreeSet<(PartitionId, Epoch)>,
    /// Requested loaders, with the row's version at the request.
    asked: BTreeMap<PartitionId, (PlacementId, Version)>,
    next_register: Millis,
    next_heartbeat: Millis,
}

pub struct SimNode {
    pub number: usize,
    pub storage: StorageId,
    clock: Clock,
    stored_incarnation: Option<Incarnation>,
    copies: BTreeMap<PlacementId, Copy>,
    process: Option<Process>,
    boots: u128,
    wipes: u128,
    pub paused_until: u64,
    pub cut_off_until: u64,
}

impl SimNode {
    pub fn new(number: usize, clock: Clock) -> Self {
        let mut node = Self {
            number,
            storage: StorageId::NIL,
            clock,
            stored_incarnation: None,
            copies: BTreeMap::new(),
            process: None,
            boots: 0,
            wipes: 0,
            paused_until: 0,
            cut_off_until: 0,
        };
        node.wipe();
        node.restart(0);
        node
    }

    pub fn crash(&mut self) {
        self.process = None;
    }

    pub fn wipe(&mut self) {
        self.wipes += 1;
        self.storage = StorageId::new(Uuid::from_u128(self.wipes * 1_000 + self.number as u128));
        self.copies.clear();
        self.stored_incarnation = None;
    }

    pub fn restart(&mut self, _truth: u64) {
        if self.process.is_none() {
            self.boots += 1;
            let boot = BootId::new(Uuid::from_u128(self.boots * 1_000 + self.number as u128));
            self.process = Some(Process { boot, ..Process::default() });
        }
    }

    /// Stops serving, returns its identity, and exits.
    pub fn stop(&mut self) -> Option<(NodeId, Incarnation)> {
        self.process.take()?.node
    }

    /// Returns the partitions that it would serve at this instant, with their writes.
    pub fn serves(&self, truth: u64) -> Vec<(PartitionId, u64)> {
        let Some(process) = &self.process else { return vec![] };
        if !process.lease.is_valid(self.clock.at(truth)) {
            return vec![];
        }
        let writes = |partition: &PartitionId| {
            let own = process.duties.iter().find(|duty| duty.partition() == Some(*partition))?.placement();
            Some((*partition, self.copies.get(&own)?.writes))
        };
        process.serving.keys().filter_map(writes).collect()
    }

    pub fn hear_stale(&mut self, incarnation: Incarnation) {
        if let Some(process) = &mut self.process
            && process.node.is_some_and(|(_, own)| own == incarnation)
        {
            // A new incarnation; the process forgets that it led.
            let boot = process.boot;
            *process = Process { boot, ..Process::default() };
        }
    }

    pub fn registered(&mut self, boot: BootId, node: NodeId, incarnation: Incarnation) {
        let Some(process) = &mut self.process else { return };
        if process.boot == boot && process.node.is_none_or(|(_, own)| own < incarnation) {
            *process = Process { boot, node: Some((node, incarnation)), ..Process::default() };
            self.stored_incarnation = Some(incarnation);
        }
    }

    pub fn answered(&mut self, incarnation: Incarnation, sent: Millis, answer: &HeartbeatAnswer) {
        let Some(process) = &mut self.process else { return };
        if process.node.is_some_and(|(_, own)| own == incarnation) {
            for (partition, epoch) in &answer.withdrawn {
                process.ended.insert((*partition, *epoch));
                if process.serving.get(partition) == Some(epoch) {
                    process.serving.remove(partition);
                }
            }
            process.lease.extend(sent, answer.lease_ms);
        }
    }

    /// Returns the partitions with a copy on the disk.
    pub fn partitions_held(&self) -> impl Iterator<Item = PartitionId> {
        self.copies.values().map(|copy| copy.partition)
    }

    pub fn pushed(&mut self, incarnation: Incarnation, at: u64, duties: Vec<Duty>, untouched: &BTreeSet<PartitionId>) {
        let Some(process) = &mut self.process else { return };
        if process.node.is_none_or(|(_, own)| own != incarnation) || at < process.pushed_at {
            return;
        }
        process.pushed_at = at;
        process.duties = duties;
        for duty in &process.duties {
            let (Duty::Host { partition, placement } | Duty::HandOver { partition, placement, .. }) = duty else {
                continue;
            };
            let state = partition.placement(*placement).expect("a duty names a copy of the row").state;
            let first = partition.epoch == Epoch::new(1) || untouched.contains(&partition.id);
            let stored = self.copies.contains_key(placement);
            assert!(stored || first || state != ReplicaState::Live, "node {} counts without data", self.number);
            let whole = state == ReplicaState::Live;
            let new = Copy { partition: partition.id, writes: 0, epoch: Epoch::ZERO, whole };
            self.copies.entry(*placement).or_insert(new);
            process.asked.retain(|id, (_, version)| *id != partition.id || partition.version <= *version);
        }
        let led: BTreeMap<PartitionId, Epoch> = process
            .duties
            .iter()
            .filter_map(|duty| match duty {
                Duty::Host { partition, placement } | Duty::HandOver { partition, placement, .. } => {
                    (partition.leader == Some(*placement)).then_some((partition.id, partition.epoch))
                }
                Duty::Unload { .. } | Duty::Inspect { .. } => None,
            })
            .collect();
        process.serving.retain(|partition, epoch| led.get(partition) == Some(epoch));
    }
}

impl World {
    /// Runs one step of a node's process.
    pub fn tick(&mut self, number: usize) {
        let truth = self.truth;
        let node = &mut self.nodes[number];
        if node.paused_until > truth {
            return;
        }
        let now = node.clock.at(truth);
        let Some(process) = &mut node.process else { return };
        let Some((id, incarnation)) = process.node else {
            if now >= process.next_register {
                process.next_register = now.plus(300);
                let register = Register {
                    held: node.copies.iter().filter(|(_, copy)| copy.whole).map(|(id, _)| *id).collect(),
                    last_incarnation: node.stored_incarnation,
                    ..Register::new(format!("n{number}"), format!("n{number}:7000"), node.storage, process.boot)
                };
                self.send(number, Event::Register { from: number, register: Box::new(register) });
            }
            return;
        };
        if now >= process.next_heartbeat {
            process.next_heartbeat = now.plus(200);
            self.send(number, Event::Activate { node: id, incarnation });
            self.send(number, Event::Heartbeat { from: number, node: id, incarnation, sent: now });
        }
        let process = self.nodes[number].process.clone().unwrap_or_default();
        for (partition, epoch) in &process.ended {
            let own = process.duties.iter().find(|duty| duty.partition() == Some(*partition)).map(Duty::placement);
            if let Some(placement) = own {
                self.tell(number, (id, incarnation), *partition, placement, *epoch, Version::ZERO, Fact::Released);
            }
        }
        for duty in &process.duties {
            self.do_duty(number, (id, incarnation), duty, now);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn tell(
        &mut self,
        number: usize,
        (node, incarnation): (NodeId, Incarnation),
        partition: PartitionId,
        placement: PlacementId,
        epoch: Epoch,
        version: Version,
        fact: Fact,
    ) {
        if self.below(4) == 0 {
            let report = Report { partition, placement, epoch, version, fact };
            self.send(number, Event::Report { node, incarnation, report });
        }
    }

    fn do_duty(&mut self, number: usize, who: (NodeId, Incarnation), duty: &Duty, now: Millis) {
        match duty {
            Duty::Unload { partition, placement } => {
                self.nodes[number].copies.remove(placement);
                self.tell(number, who, *partition, *placement, Epoch::ZERO, Version::ZERO, Fact::Unloaded);
            }
            Duty::HandOver { partition: row, placement, .. } => {
                if let Some(process) = &mut self.nodes[number].process {
                    // It may be slow, up to and beyond the time of the withdrawal.
                    if process.serving.contains_key(&row.id) && !now.get().is_multiple_of(7) {
                        self.lead(number, who, row, *placement, now);
                        return;
                    }
                    process.serving.remove(&row.id);
                    process.ended.insert((row.id, row.epoch));
                }
            }
            Duty::Host { partition: row, placement } if row.leader == Some(*placement) => {
                self.lead(number, who, row, *placement, now);
            }
            Duty::Host { .. } | Duty::Inspect { .. } => {}
        }
    }

    fn lead(&mut self, number: usize, who: (NodeId, Incarnation), row: &Partition, own: PlacementId, now: Millis) {
        let truth = self.truth;
        let Some(process) = &self.nodes[number].process else { return };
        if !process.lease.is_valid(now) || process.ended.contains(&(row.id, row.epoch)) {
            return;
        }
        // All required copies: the Live ones, and the requested loader.
        let asked = process.asked.get(&row.id).copied();
        let mut counted: Vec<Placement> = row.live().copied().collect();
        counted.extend(asked.and_then(|(id, _)| row.placement(id)).filter(|p| p.state == ReplicaState::Load));
        let holder = |world: &Self, placement: &Placement| {
            let holds = |node: &SimNode| {
                let up = node.process.is_some() && node.paused_until <= truth && node.cut_off_until <= truth;
                let copy = node.copies.get(&placement.id).is_some_and(|copy| copy.epoch <= row.epoch);
                up && copy && node.process.as_ref().and_then(|p| p.node).is_some_and(|(id, _)| id == placement.node)
            };
            world.nodes.iter().position(holds)
        };
        let reached: Vec<Option<usize>> = counted.iter().map(|placement| holder(self, placement)).collect();
        if let Some(silent) = reached.iter().position(Option::is_none) {
            let silent = counted[silent];
            if silent.state == ReplicaState::Live
                && silent.id != own
                && let Some(incarnation) = self.state.incarnation(silent.node)
            {
                let followers = vec![ReplicaName { placement: silent.id, incarnation }];
                self.tell(number, who, row.id, own, row.epoch, row.version, Fact::Silent { followers });
            }
            return;
        }
        // All persist the epoch; a take-over needs no more here, since a write reaches all or none.
        let serving = self.nodes[number].process.as_ref().is_some_and(|p| p.serving.get(&row.id) == Some(&row.epoch));
        let write = serving && self.below(3) == 0;
        for (placement, holder) in counted.iter().zip(reached.into_iter().flatten()) {
            if let Some(copy) = self.nodes[holder].copies.get_mut(&placement.id) {
                copy.epoch = row.epoch;
                copy.writes += u64::from(write);
            }
        }
        *self.acknowledged.entry(row.id).or_default() += u64::from(write);
        let Some(process) = &mut self.nodes[number].process else { return };
        process.serving.insert(row.id, row.epoch);
        if row.status != PartitionStatus::Online {
            self.tell(number, who, row.id, own, row.epoch, row.version, Fact::Online);
        }
        let loading = |placement: &&Placement| placement.state == ReplicaState::Load;
        // The requested one, if any, until it is answered.
        let wanted = |placement: &&Placement| match asked {
            Some((id, version)) if version == row.version => placement.id == id,
            _ => holder(self, placement).is_some(),
        };
        let loader = row.placements.iter().filter(loading).find(wanted).copied();
        if let Some(loader) = loader
            && let Some(holder) = holder(self, &loader)
            && asked.is_none_or(|(id, version)| id == loader.id && version == row.version)
            && self.below(3) == 0
        {
            let writes = self.nodes[number].copies.get(&own).map_or(0, |copy| copy.writes);
            let incarnation = self.nodes[holder].process.as_ref().and_then(|p| p.node).map(|(_, life)| life);
            if let Some(copy) = self.nodes[holder].copies.get_mut(&loader.id) {
                *copy = Copy { partition: row.id, writes, epoch: row.epoch, whole: true };
            }
            if let Some(process) = &mut self.nodes[number].process {
                process.asked.insert(row.id, (loader.id, row.version));
            }
            if let Some(incarnation) = incarnation {
                let joiner = ReplicaName { placement: loader.id, incarnation };
                self.tell(number, who, row.id, own, row.epoch, row.version, Fact::CaughtUp { joiner });
            }
        }
    }
}
