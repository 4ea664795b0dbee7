//! A node's process, and the machine it runs on.

use super::disk::{Batch, Disk};
use super::slot::Slot;
use crate::clock::Clock;
use archon_host::{Beats, Grants, Held, HeldState, Obeyed, Registering, Reports, UNKNOWN};
use archon_replica::Input;
use archon_types::{BootId, Incarnation, Millis, NodeId, PartitionId, PlacementId, TableList, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A machine: a clock, a disk, and perhaps a process.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) number: usize,
    pub(crate) clock: Clock,
    /// How far its wall clock is off.
    pub(crate) wall_off: u64,
    pub(crate) disk: Disk,
    /// An older state of the disk, to be set back to.
    pub(crate) snapshot: Option<Box<Disk>>,
    pub(crate) process: Option<Process>,
    pub(crate) paused_until: u64,
    /// Until then no duties reach it, though heartbeats do: they go another way.
    pub(crate) deaf_until: u64,
    /// Counts processes.
    pub(crate) boots: u64,
}

/// A process that hangs, while its disk is started on elsewhere. It does nothing more, but were it to wake it would answer a
/// read, if its lease allowed it: nobody else may lead meanwhile (rule 16).
#[derive(Debug)]
pub(crate) struct Shadow {
    pub(crate) number: usize,
    pub(crate) clock: Clock,
    pub(crate) process: Process,
}

/// A registration that the process acts under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
}

/// Writes on their way to the disk.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) gathered: Batch,
    pub(crate) waiting: VecDeque<Batch>,
    pub(crate) in_flight: Vec<Batch>,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) boot: u64,
    /// Names this attempt to register.
    pub(crate) boot_id: BootId,
    pub(crate) life: Option<Life>,
    /// Its attempts to begin a life.
    pub(crate) registering: Registering,
    pub(crate) grants: Grants,
    pub(crate) beats: Beats,
    /// The last heartbeat was answered.
    pub(crate) answered: bool,
    pub(crate) next_heartbeat: Millis,
    pub(crate) next_register: Millis,
    pub(crate) next_reports: Millis,
    /// The coordinator that probably leads.
    pub(crate) guess: usize,
    pub(crate) slots: BTreeMap<PlacementId, Slot>,
    /// Found at the start, not named by a duty yet.
    pub(crate) dormant: BTreeMap<PlacementId, Slot>,
    pub(crate) active: BTreeMap<PartitionId, PlacementId>,
    pub(crate) unloading: BTreeMap<PlacementId, PartitionId>,
    /// Emptied, and not known to be gone from the disk.
    pub(crate) emptied: BTreeMap<PlacementId, PartitionId>,
    pub(crate) damaged: BTreeSet<PlacementId>,
    /// The newest known registrations of all nodes, and whether they count as failed.
    pub(crate) peers: BTreeMap<NodeId, (Incarnation, bool)>,
    pub(crate) peers_version: Version,
    /// Which tables there are, as of the last drop that was told of.
    pub(crate) tables: TableList,
    pub(crate) obeyed: Obeyed,
    pub(crate) journal: Journal,
    pub(crate) reports: Reports,
    /// It was told to stop: since then it gives up its leaderships.
    pub(crate) stopping: Option<Millis>,
    pub(crate) touched: BTreeSet<PlacementId>,
    pub(crate) followups: VecDeque<(PlacementId, Input)>,
}

impl Process {
    /// One that begins on a disk that knows of this last registration, if of any.
    pub(crate) fn new(boot: u64, boot_id: BootId, last: Option<Incarnation>) -> Self {
        Self {
            boot,
            boot_id,
            life: None,
            registering: Registering::new(last),
            grants: Grants::default(),
            beats: Beats::default(),
            answered: true,
            next_heartbeat: Millis::ZERO,
            next_register: Millis::ZERO,
            next_reports: Millis::ZERO,
            guess: 0,
            slots: BTreeMap::new(),
            dormant: BTreeMap::new(),
            active: BTreeMap::new(),
            unloading: BTreeMap::new(),
            emptied: BTreeMap::new(),
            damaged: BTreeSet::new(),
            peers: BTreeMap::new(),
            peers_version: Version::ZERO,
            tables: TableList::default(),
            obeyed: Obeyed::default(),
            journal: Journal::default(),
            reports: Reports::default(),
            stopping: None,
            touched: BTreeSet::new(),
            followups: VecDeque::new(),
        }
    }

    /// What it knows of the placements in its data directory.
    pub(crate) fn held(&self) -> BTreeMap<PlacementId, Held> {
        let held = |partition, state| Held { partition, state };
        let slots = self.slots.values().map(|slot| {
            let state = if slot.aside { HeldState::Aside } else { HeldState::Active };
            (slot.placement, held(slot.partition, state))
        });
        let dormant = self.dormant.values().map(|slot| (slot.placement, held(slot.partition, HeldState::Aside)));
        let damaged = self.damaged.iter().map(|placement| (*placement, held(UNKNOWN, HeldState::Damaged)));
        let deleting = self.unloading.iter().chain(&self.emptied);
        let deleting = deleting.map(|(placement, partition)| (*placement, held(*partition, HeldState::Unloading)));
        slots.chain(dormant).chain(damaged).chain(deleting).collect()
    }
}
