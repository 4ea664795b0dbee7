//! A node's process and its machine.

use super::disk::{Batch, Disk};
use super::shell::MachineShell;
use crate::clock::Clock;
use crate::host::carried::RelayState;
use crate::host::door::Door;
use archon_host::{AppliedPush, HeldPlacement, HeldState, Partitions, UNKNOWN};
use archon_member::{Heartbeats, Prober, RegistrationAttempts, Reports};
use archon_types::{BootId, Incarnation, Millis, PlacementId, ProtocolRange, Version};
use std::collections::{BTreeMap, VecDeque};

/// A machine: a clock, a disk, and possibly a process.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) number: usize,
    pub(crate) clock: Clock,
    /// Offset of its wall clock.
    pub(crate) wall_off: u64,
    pub(crate) disk: Disk,
    /// An older state of the disk, for a rollback.
    pub(crate) snapshot: Option<Box<Disk>>,
    pub(crate) process: Option<Process>,
    pub(crate) paused_until: u64,
    /// Until then no duties reach it, though heartbeats do: they take another path.
    pub(crate) deaf_until: u64,
    /// Its reachability for clients.
    pub(crate) door: Door,
    /// Counter of processes.
    pub(crate) boots: u64,
    /// Protocols of the version that is started next.
    pub(crate) installed: ProtocolRange,
}

/// A hanging process, while its disk is used elsewhere. It acts no more, but on waking it would answer a read if its
/// lease allowed it: no other node may lead meanwhile (rule 16).
#[derive(Debug)]
pub(crate) struct Shadow {
    pub(crate) number: usize,
    pub(crate) clock: Clock,
    pub(crate) process: Process,
}

/// Writes in flight to the disk.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) waiting: VecDeque<Batch>,
    pub(crate) in_flight: Vec<Batch>,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) boot: u64,
    /// Names this registration attempt.
    pub(crate) boot_id: BootId,
    /// Protocols of its version.
    pub(crate) speaks: ProtocolRange,
    /// Its registration attempts.
    pub(crate) registering: RegistrationAttempts,
    pub(crate) heartbeats: Heartbeats,
    /// The last heartbeat was answered.
    pub(crate) answered: bool,
    pub(crate) next_heartbeat: Millis,
    pub(crate) next_register: Millis,
    pub(crate) next_reports: Millis,
    /// The coordinator that probably leads.
    pub(crate) guess: usize,
    pub(crate) partitions: Partitions<MachineShell>,
    /// Version up to which the registrations of other nodes are known.
    pub(crate) peers_version: Version,
    /// Version up to which it holds everything it was sent.
    pub(crate) complete: Version,
    pub(crate) applied: AppliedPush,
    pub(crate) journal: Journal,
    pub(crate) reports: Reports,
    /// Time of the stop order: since then it gives up its leaderships.
    pub(crate) stopping: Option<Millis>,
    /// Paths of its heartbeats, and of those of others that it carries.
    pub(crate) relaying: RelayState,
    pub(crate) prober: Prober,
}

impl Process {
    /// Creates a process on a disk with this last registration, if any.
    pub(crate) fn new(
        boot: u64,
        boot_id: BootId,
        last: Option<Incarnation>,
        partitions: Partitions<MachineShell>,
    ) -> Self {
        Self {
            boot,
            boot_id,
            speaks: ProtocolRange::FIRST,
            registering: RegistrationAttempts::new(last),
            heartbeats: Heartbeats::default(),
            answered: true,
            next_heartbeat: Millis::ZERO,
            next_register: Millis::ZERO,
            next_reports: Millis::ZERO,
            guess: 0,
            partitions,
            peers_version: Version::ZERO,
            complete: Version::ZERO,
            applied: AppliedPush::default(),
            journal: Journal::default(),
            reports: Reports::default(),
            stopping: None,
            relaying: RelayState::default(),
            prober: Prober::default(),
        }
    }

    /// Returns its knowledge of the placements in its data directory.
    pub(crate) fn held(&self) -> BTreeMap<PlacementId, HeldPlacement> {
        let held = |partition, state| HeldPlacement { partition, state };
        let shell = self.partitions.shell();
        let copies = self.partitions.copies().values().map(|local| {
            let state = if local.set_aside { HeldState::SetAside } else { HeldState::Active };
            (local.placement, held(local.partition, state))
        });
        let dormant = self.partitions.dormant();
        let dormant = dormant.map(|(placement, partition)| (placement, held(partition, HeldState::SetAside)));
        let unreadable = self.partitions.unreadable();
        let unreadable = unreadable.map(|(placement, partition)| (placement, held(partition, HeldState::SetAside)));
        let damaged = shell.damaged.iter().map(|placement| (*placement, held(UNKNOWN, HeldState::Damaged)));
        let deleting = shell.deleting.iter().map(|(placement, partition)| (*placement, *partition));
        let deleting = self.partitions.unloading().chain(deleting);
        let deleting = deleting.map(|(placement, partition)| (placement, held(partition, HeldState::Unloading)));
        copies.chain(dormant).chain(unreadable).chain(damaged).chain(deleting).collect()
    }
}
