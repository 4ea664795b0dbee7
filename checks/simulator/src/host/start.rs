//! Starts, kills and power losses of machines, and recovery from the disk.

use super::disk::Disk;
use super::process::{Host, Journal, Process, Shadow};
use super::shell::{MachineShell, Settings, memtable_budget, new_log_time};
use crate::clock::Clock;
use crate::event::Event;
use crate::host::door::Door;
use crate::mutant::{Mutant, ShellMutant, broken_host};
use crate::scenario::Scenario;
use crate::world::World;
use archon_host::{LogReplay, ParkLimits, Partitions, RetentionLimits, Shell};
use archon_kv::engine::Engine;
use archon_kv::{engine_position, row};
use archon_replica::{Entry, Identity, Limits, Replica, Timing};
use archon_types::{BootId, Millis, PlacementId, ProtocolRange};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Timer tick of a process, in milliseconds.
const TICK_MS: u64 = 15;

/// Returns limits that are small enough to be reached.
fn limits() -> Limits {
    Limits {
        append_entries_max: 3,
        append_bytes_max: 400,
        in_flight_appends_max: 3,
        recent_bytes_max: 400,
        uncommitted_entries_max: 12,
        ..Limits::default()
    }
}

impl World {
    pub(crate) fn add_host(&mut self, number: usize) {
        let storage = self.unique();
        let clock = Clock::draw(&mut self.random);
        let wall_off = self.random.below(5_000);
        let installed = self.first_version();
        self.hosts.push(Host {
            number,
            clock,
            wall_off,
            disk: Disk::new(storage),
            snapshot: None,
            process: None,
            paused_until: 0,
            deaf_until: 0,
            door: Door::default(),
            boots: 0,
            installed,
        });
        self.after(number as u64 * 2, Event::Restart { host: number });
    }

    /// Returns the present time on a machine's own clock.
    pub(crate) fn local(&self, host: usize) -> Millis {
        self.hosts[host].clock.at(self.truth)
    }

    /// Kills the process; some of its unfinished writes have reached the kernel. The coordinators cannot distinguish it
    /// from a process that hangs while another one uses its disk, so a shadow of it stays.
    pub(crate) fn kill(&mut self, host: usize) {
        let clock = self.hosts[host].clock;
        if let Some(process) = self.end_process(host) {
            self.shadows.push(Shadow { number: host, clock, process });
        }
    }

    /// Ends the process; only its writes remain.
    pub(crate) fn end_process(&mut self, host: usize) -> Option<Process> {
        let machine = &mut self.hosts[host];
        let mut process = machine.process.take()?;
        let Journal { in_flight, waiting } = std::mem::take(&mut process.journal);
        machine.disk.killed(in_flight.into_iter().chain(waiting), &mut self.random);
        machine.paused_until = 0;
        self.checks.disks_changed = true;
        self.note(|| format!("host {host} killed"));
        Some(process)
    }

    /// Cuts a machine's power.
    pub(crate) fn power_off(&mut self, host: usize) {
        self.kill(host);
        let machine = &mut self.hosts[host];
        machine.disk.lose_power(&mut self.random);
        self.note(|| format!("host {host} without power"));
    }

    pub(crate) fn new_boot_id(&mut self) -> BootId {
        BootId::new(Uuid::from_u128(self.unique()))
    }

    pub(crate) fn restart(&mut self, host: usize) {
        if self.hosts[host].process.is_some() || !self.may_start(host) || self.relays.dead == Some(host) {
            return;
        }
        let boot_id = self.new_boot_id();
        let guess = self.random.index(crate::coordinator::quorum::COORDINATORS);
        let guess = self.first_guess(host, guess);
        let unsynced = self.breaks(ShellMutant::UnsyncedTail);
        let machine = &mut self.hosts[host];
        machine.boots += 1;
        machine.disk.engine.open();
        if !machine.disk.cached.is_empty() {
            self.coverage.cached_tails += 1;
        }
        if !unsynced {
            // Rule 20: data known to the kernel only is synced before any position is reported.
            machine.disk.sync();
        }
        let reads_all = !self.plan.upgrades || machine.installed != ProtocolRange::FIRST;
        let settings = settings(&self.plan, self.mutant, self.trace.is_on(), reads_all);
        let park_limits = park_limits(&self.plan);
        let partitions = recover(machine, settings, park_limits);
        let mut process = Process::new(machine.boots, boot_id, machine.disk.incarnation, partitions);
        process.guess = guess;
        process.speaks = machine.installed;
        process.relaying.carry_for_few(self.plan.carries_few.then_some(1));
        machine.process = Some(process);
        self.checks.disks_changed = true;
        let boot = machine.boots;
        self.note(|| format!("host {host} starts, boot {boot}"));
        self.after(1, Event::Tick { host, boot });
        self.after(20, Event::Flush { host, boot });
    }

    pub(crate) fn next_tick(&mut self, host: usize, boot: u64) {
        let delay = self.random.between(TICK_MS / 2, TICK_MS);
        self.after(delay, Event::Tick { host, boot });
    }
}

/// Returns the settings that the scenario fixes for every machine.
fn settings(plan: &Scenario, mutant: Option<Mutant>, traced: bool, reads_all: bool) -> Settings {
    let replication_timeout_ms = plan.settings.replication_timeout_ms;
    Settings {
        timing: Timing { replication_timeout_ms, keep_alive_ms: replication_timeout_ms },
        dedup: plan.dedup,
        retention: RetentionLimits {
            pinned_bytes_max: plan.pinned_bytes_max,
            pinned_distance_max: plan.pinned_distance_max,
            lagging_bytes_max: plan.lagging_bytes_max,
            lagging_distance_max: plan.lagging_distance_max,
            ..RetentionLimits::of_node(1)
        },
        mutant,
        traced,
        reads_all,
        entry_limit: plan.entry_limit,
    }
}

/// Returns limits by which operations wait for about as long as their clients do.
fn park_limits(plan: &Scenario) -> ParkLimits {
    let unit_ms = plan.unit_ms();
    ParkLimits {
        settle_ms: unit_ms * 3,
        behind_ms: unit_ms,
        reading_ms: unit_ms * 3,
        room_ms: unit_ms * 3,
        gathered_bytes_max: 1_024,
        parked_max: 8,
    }
}

/// Recovers placements from the log and the engine.
fn recover(machine: &Host, settings: Settings, park_limits: ParkLimits) -> Partitions<MachineShell> {
    let mutant = settings.mutant;
    let mut shell = MachineShell::new(settings);
    let mut dormant = BTreeMap::new();
    for (placement, stream) in machine.disk.readable() {
        let complete = stream.complete.max(stream.base);
        let stamp = machine.disk.engine.get(placement, row::LOG_TIME_KEY).ok().flatten();
        let mut log_time = new_log_time(mutant);
        stamp.and_then(|stamp| row::decode_millis(&stamp).ok()).into_iter().for_each(|at| log_time.observe(at));
        let written = engine_position(&machine.disk.engine, placement).ok().flatten();
        let mut replay = LogReplay::new(complete, written, log_time, memtable_budget(mutant));
        let after: Vec<&Entry> = stream.entries.iter().filter(|entry| entry.at.seq > complete.seq).collect();
        let mut entries = after.iter();
        let taken = entries.try_for_each(|entry| replay.take_entry(entry.at.seq, || shell.read_entry(&entry.bytes)));
        let (partition, recovered) = (stream.partition, stream.recovered());
        match taken {
            Ok(()) => {
                shell.entries.insert(placement, after.into_iter().cloned().collect());
                dormant.insert(placement, replay.end(partition, recovered));
            }
            Err(_) => drop(shell.damaged.insert(placement)),
        }
    }
    // Rows without a log are orphaned: a copy opened as new must not find them.
    let spaces = machine.disk.engine.spaces().unwrap_or_default();
    shell.damaged.extend(spaces.into_iter().filter(|space| !dormant.contains_key(space)));
    Partitions::new(shell, dormant, park_limits, broken_host(mutant))
}

pub(super) fn new_replica(
    identity: Identity,
    recovered: archon_replica::RecoveredState,
    mutant: Option<crate::Mutant>,
) -> Result<Replica, archon_replica::RecoveredError> {
    #[cfg_attr(not(feature = "mutants"), allow(unused_mut))]
    let mut replica = Replica::new(identity, recovered, limits())?;
    #[cfg(feature = "mutants")]
    if let Some(crate::Mutant::Replica(broken)) = mutant {
        replica.set_mutant(Some(broken));
    }
    #[cfg(not(feature = "mutants"))]
    let _ = mutant;
    Ok(replica)
}

/// Returns the placements that a registration lists as complete.
pub(super) fn held(process: &Process) -> Vec<PlacementId> {
    let dormant = process.partitions.dormant().map(|(placement, _)| placement);
    let unreadable = process.partitions.unreadable().map(|(placement, _)| placement);
    let mut held: Vec<PlacementId> =
        process.partitions.copies().keys().copied().chain(dormant).chain(unreadable).collect();
    held.sort_unstable();
    held
}
